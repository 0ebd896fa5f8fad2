"""A small clinic in a DuckDB file: visits and laboratory values of persons, and tables of codes, for tests of queries."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]
TABLES = {
    "visits": "pid VARCHAR, nr BIGINT, day DATE, crp DOUBLE, sex VARCHAR, drug BIGINT, note VARCHAR",
    "labs": "pid VARCHAR, taken TIMESTAMP, code VARCHAR, val DOUBLE, text VARCHAR",
    "persons": "pid VARCHAR, born BIGINT, site VARCHAR",
    "concept": "concept_id BIGINT, name VARCHAR, domain VARCHAR",
    "ancestor": "above BIGINT, below BIGINT",
    "units": "code VARCHAR, factor DOUBLE",
}
SETTINGS = """
[mapping]
person = "pid"

[codes]
concept = ["concept_id"]
ancestor = ["above", "below"]
units = "code"
"""
CODES: Rows = {
    "concept": [(1, "Aspirin", "drug"), (2, "Diclofenac", "drug"), (3, "Ulcer", "condition"), (4, "Bleeding", "condition")],
    "ancestor": [(1, 1), (2, 2), (1, 2), (3, 3), (3, 4)],
    "units": [("crp", 0.1), ("hb", 10.0), ("na", 1.0)],
}
TEXTS = [
    "",
    "f",
    "m",
    "F",
    " x",
    "7",
    "-1.5",
    "1e400",
    "abc'def",
    "2020-02-30",
    "a%b_c",
    "é",
    "\u2028",
    "x" * 3000,
    "NaN",
    "inf",
    "0x1F",
]
NUMBERS = [None, 0.0, -0.0, 1.0, -1.0, 5.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf"), 0.1, 0.2, 0.3, 1e16]
WHOLE = [None, 0, 1, 2, 3, 4, -1, 2**62, -(2**62), 9223372036854775807]
DAYS = [None, "2020-01-01", "2020-01-02", "2020-01-02", "1582-10-04", "9999-12-31", "infinity", "-infinity"]
TIMES = [None, "2020-01-01 00:00:00", "2020-01-02 12:30:00", "294246-01-01 00:00:00", "infinity"]


def a_row(table: str, person: str | None, rng: random.Random) -> tuple[Any, ...]:
    """Of a table of data, with arbitrary values."""
    text = rng.choice([None, *TEXTS])
    if table == "visits":
        sex = rng.choice(["f", "m", "F", None, text])
        return person, rng.choice(WHOLE), rng.choice(DAYS), rng.choice(NUMBERS), sex, rng.choice(WHOLE), text
    if table == "labs":
        return person, rng.choice(TIMES), rng.choice(["crp", "hb", "none", None, text]), rng.choice(NUMBERS), text
    return person, rng.choice([None, 1950, 1980, *WHOLE]), rng.choice(["a", "b", text])


def clinic(rng: random.Random, persons: Iterable[str | None], most: int = 5) -> Rows:
    """Each of these persons has 0 to ``most`` rows in each table."""
    people = list(persons)
    rows: Rows = {
        table: [a_row(table, one, rng) for one in people for _ in range(rng.randint(0, most))]
        for table in ("visits", "labs", "persons")
    }
    for some in rows.values():
        rng.shuffle(some)
    return rows | CODES


def written(path: Path, rows: Rows) -> Path:
    """A DuckDB file with these rows."""
    path.unlink(missing_ok=True)
    with closing(duckdb.connect(str(path))) as base:
        for table, columns in TABLES.items():
            base.execute(f"CREATE TABLE {table} ({columns})")
            for row in rows[table]:
                base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    path.with_suffix(".format.toml").write_text(SETTINGS)
    return path
