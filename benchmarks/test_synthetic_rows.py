"""Rows like the records of 50 columns: from records to the receipt's tables, and from the receipt to a file.

``pytest benchmarks/test_synthetic_rows.py``. The command is a process of its own: its memory is all that it has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measuring import seconds

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns
from quietmean.statistics.registry import parse_statistic, read_text
from quietmean.statistics.workload import Workload
from support.bars import Bar

COLUMNS, RECORDS, PAIRS = 50, 20_000, 49
# At epsilon 4 of five parties, about.
NOISE = 40.0
COMMAND = """
import sys, time
begun = time.perf_counter()
from quietmean.cli.main import main
main(sys.argv[1:])
print(time.perf_counter() - begun, int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


def receipt() -> dict[str, Any]:
    """A chain of columns, of which each is like the one before: half with four levels, half numbers in ten bins."""
    columns = [
        Column(name=f"c{place}", levels=("a", "b", "c", "d")) if place % 2 else Column(name=f"c{place}", low=0, high=10)
        for place in range(COLUMNS)
    ]
    workload = Workload(Columns(columns), (parse_statistic(read_text("synthetic-table()")),), PrivacyUnit.RECORD)
    rng = np.random.default_rng(50)
    records = np.empty((RECORDS, COLUMNS))
    before = rng.uniform(0, 10, RECORDS)
    for place, column in enumerate(columns):
        before = np.clip(before + rng.normal(0, 2, RECORDS), 0, 10)
        records[:, place] = before if column.numeric else np.minimum(before // 2.5, 3)
    encoded = workload.encode(records)
    drawn = rng.normal(0, NOISE, workload.dimension)
    (answer,) = workload.decode((encoded.vector + drawn) / encoded.weight, NOISE / encoded.weight, encoded.weight)
    return {"format": "quietmean.receipt", "result": {"statistics": [answer.to_json()]}}


def test_rows_of_fifty_columns(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    took, document = seconds(receipt)
    (tmp_path / "receipt.json").write_text(json.dumps(document))
    words = ["study", "synthesize", str(tmp_path / "receipt.json"), "--out", str(tmp_path / "rows.csv"), "--quiet"]
    said = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=True).stdout
    made, memory = map(float, said.splitlines()[-1].split())
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == RECORDS + 1
    cells = sum(len(each) for each in document["result"]["statistics"][0]["summary"]["released"])
    table(f"{COLUMNS} columns, {PAIRS} pairs, {cells:,} cells, {RECORDS:,} records: encoded and decoded in {took:.1f} s")
    table(f"{RECORDS:,} rows made and written in {made:.1f} s, {memory:.0f} MB")
    bar(f"rows of {COLUMNS} columns, s", made, 60)
    bar(f"rows of {COLUMNS} columns, MB of the whole process", memory, 300)
