"""The files among which mistakes are made: a small study, its parties' keys, tables that are not as they should be."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from quietmean.ledger import Ledger
from quietmean.node import Identity

STUDY = '[study]\nname = "stay"\nprotocol = "local-dp"\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n'
# Study files that are wrong in one place.
STUDIES = {
    "typo-column.toml": STUDY.replace("low", "lowest"),
    "typo-field.toml": STUDY.replace('name = "stay"', "epsilonn = 2"),
    "typo-table.toml": STUDY.replace("[study]", "[studdy]"),
    "no-bounds.toml": STUDY.replace("low = 0\nhigh = 100\n", ""),
    "bounds.toml": STUDY.replace("low = 0\nhigh = 100\n", "low = 100\nhigh = 0\n"),
    "half-bounds.toml": STUDY.replace("high = 100\n", ""),
    "tiny-timeout.toml": STUDY.replace("[[column]]", "round_timeout = 1e-9\n[[column]]"),
    "fraction.toml": STUDY.replace("[[column]]", "colluding = 1.5\n[[column]]"),
    "magic.toml": STUDY.replace("local-dp", "magic"),
    "negative.toml": STUDY.replace("[[column]]", "epsilon = -1\n[[column]]"),
    "no-low.toml": STUDY.replace("low = 0\n", ""),
    "epsilon-text.toml": STUDY.replace("[[column]]", 'epsilon = "one"\n[[column]]'),
    "unit.toml": STUDY.replace("[[column]]", 'unit = "patient"\n[[column]]'),
    "broken.toml": STUDY.replace("[study]", "[study"),
    "no-columns.toml": '[study]\nname = "stay"\n',
    "statistic.toml": STUDY + '[[statistic]]\nkind = "meen"\ncolumn = "age"\n',
}
TABLES = {
    "patients.csv": "age,sex,smoker,visit,clinic\n" + "".join(f"{20 + row},f,yes,2024-01-02,c{row % 3}\n" for row in range(12)),
    "visits.csv": "pid,age,sex,smoker,visit,clinic\n"
    + "".join(f"{row // 4},{20 + row},f,yes,2024-01-02,c\n" for row in range(12)),
    "visits.format.toml": '[mapping]\nperson = "pid"\n',
    "stays.csv": "pid,age\n1,20\n",
    "stays.format.toml": '[mapping]\nperson = "pid"\nrows_per_person = 0\n',
    "empty.csv": "",
    "headless.csv": "41,f\n42,m\n",
    "mixed.sql": "SELECT age - avg(age::DOUBLE) OVER () AS age FROM data",
    "twice.csv": "age,age\n1,2\n",
    "broken.parquet": "PAR1 and nothing",
    "text.key": "not a key",
    "list.json": "[1, 2]",
    "open.json": "{",
    "object.json": "{}",
    "bytes.json": "\xff",
}
# What `certify` reads.
EXECUTION: dict[str, object] = {
    "protocol": "inca",
    "parties": 3,
    "rounds": 2,
    "neighbours": [[[1], [2], [0]], [[2], [0], [1]]],
    "online": [[True] * 3] * 3,
    "injection": "incremental",
    "sigma_star": 1.0,
    "sigma_delta": 1.0,
    "sensitivity": 1.0,
}


def party(name: str, address: str, key: str) -> str:
    return f'[[party]]\nname = "{name}"\naddress = "{address}"\nkey = "{key}"\n'


def _damage(ledger: Path) -> None:
    """A ledger with bytes that are no text where one is due."""
    with Ledger.open(ledger, create=True) as book:
        book.set_budget("wards", 1.0, 1e-6, when=datetime.now(UTC))
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("UPDATE account SET unit = CAST(x'ff' AS TEXT)")
        database.commit()


def write_files(folder: Path) -> None:
    """All of them."""
    for name, text in {"study.toml": STUDY, **STUDIES, **TABLES}.items():
        (folder / name).write_text(text, "latin-1")
    keys = {}
    for name in ("ada", "bob", "eve"):
        identity = Identity.generate()
        identity.save(folder / f"{name}.key")
        keys[name] = identity.public_key
    ada, bob = party("ada", "127.0.0.1:45111", keys["ada"]), party("bob", "127.0.0.1:45112", keys["bob"])
    rosters = {
        "roster.toml": ada + bob,
        "twin-roster.toml": ada + ada.replace("45111", "45112"),
        "one-roster.toml": ada,
        "bad-key-roster.toml": ada + party("bob", "127.0.0.1:45112", "abc"),
        "no-address-roster.toml": ada + party("bob", "nohost", keys["bob"]),
    }
    for name, text in rosters.items():
        (folder / name).write_text(text)
    _damage(folder / "damaged.ledger")
    (folder / "receipt.json").write_text(json.dumps(EXECUTION))
