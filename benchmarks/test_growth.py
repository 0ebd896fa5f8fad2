"""How work grows with what there is more of: each curve with its exponent, and a bar on the exponent.

``pytest benchmarks/test_growth.py``. Processor time, which other work on the machine changes little, and memory of this process.
The exponent is that of the straight line through the logarithms of the last three sizes, where what is constant counts least.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measuring import megabytes, processor_seconds, seconds
from benchmarks.test_accountant import make_execution

from quietmean.core.arrays import Array
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.node.local import run_together
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy.information import CoalitionSolver
from quietmean.protocols import configure
from quietmean.protocols.packed_sharing.packing import Packing, open_sums
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.features.prefixes import _code, _inverse
from quietmean.studies.data.records import Records
from support.bars import Bar
from support.dense_decoder import dense

Table = Callable[[str], None]
# Seconds that a receipt of any number of parties may take to be verified, with every option as it is by default.
RECEIPT = 4.0
# Numbers of a vector whose sum is opened, and seconds for 3000 members.
NUMBERS, OPENED = 100_000, 0.5
# Columns of a decoder that are a lot, and what they may take.
COLUMNS, DECODER_SECONDS, DECODER_MB = 16, 2.0, 300.0
STEP = 2.0**-30


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """That of the line through the logarithms of the last three sizes."""
    return float(np.polyfit(np.log(sizes[-3:]), np.log(costs[-3:]), 1)[0])


def grown(
    what: str, by: str, cost: Callable[[int], float], sizes: Sequence[int], most: float, table: Table, bar: Bar
) -> list[float]:
    """Measure the cost at each size, and hold its exponent against the most that it may be."""
    costs = [cost(size) for size in sizes]
    found = exponent(sizes, costs)
    curve = ", ".join(f"{cost:.3g} at {size}" for size, cost in zip(sizes, costs, strict=True))
    table(f"{what} by {by}: {curve}: {by}^{found:.2f}")
    bar(f"growth of {what} by {by}, exponent", found, most)
    return costs


def processor(call: Callable[[], Any], repeats: int = 2) -> float:
    """The least processor time of some calls."""
    return seconds(call, repeats, time.process_time)[0]


def asked(text: str, columns: int, count: CountVisibility = CountVisibility.PUBLIC) -> Workload:
    """One statistic of each of so many columns: ``{x}`` is the column, and ``{bins}`` another number for each."""
    names = [f"x{index}" for index in range(columns)]
    declared = Columns(
        [*(Column(name=name, low=0, high=1, missing="indicator") for name in names), Column(name="arm", levels=("a", "b"))]
    )
    texts = [text.format(x=name, bins=512 + index * (-1) ** index) for index, name in enumerate(names)]
    return Workload(declared, tuple(parse_statistic(read_text(one)) for one in texts), PrivacyUnit.RECORD, None, count, 2000)


def mean_of(workload: Workload) -> Array:
    """Of made-up records, as parties would have them."""
    rng = np.random.default_rng(5)
    rows = np.column_stack([rng.uniform(0, 1, (16, len(workload.columns) - 1)), rng.integers(0, 2, 16)])
    return np.asarray(sum(workload.of_records(row[None], step=STEP)[0] for row in rows) / len(rows))


READ = [
    ("quantiles({x})", CountVisibility.PUBLIC),
    ("quantiles({x})", CountVisibility.PRIVATE),
    ("quantiles({x}, bins={bins})", CountVisibility.PUBLIC),
    ("histogram({x}, bins=256)", CountVisibility.PUBLIC),
    ("group-means({x}, by=arm)", CountVisibility.PUBLIC),
    ("mean({x})", CountVisibility.PUBLIC),
]


@pytest.mark.parametrize(("text", "count"), READ, ids=[f"{text}-{count}" for text, count in READ])
def test_answers_of_many_columns(text: str, count: CountVisibility, table: Table, bar: Bar) -> None:
    """From a mean vector to answers, of a workload that was never asked: what each process does that reads a result."""
    sizes = [1, 4, 8, COLUMNS] if "mean" not in text else [8, 32, 64, 128]
    means = {size: mean_of(asked(text, size, count)) for size in sizes}

    def answers(size: int) -> object:
        # Of other workloads nothing is kept.
        _inverse.cache_clear()
        _code.cache_clear()
        return asked(text, size, count).decode(means[size], 1e-3, 2000.0, step=STEP)

    name = f"answers to {text}, {count} count"
    times = grown(f"{name}: seconds", "columns", lambda size: processor(lambda: answers(size)), sizes, 1.2, table, bar)
    memory = grown(f"{name}: MB", "columns", lambda size: megabytes(lambda: answers(size)), sizes, 1.2, table, bar)
    if "quantiles" in text:
        bar(f"{name}, {COLUMNS} columns: seconds", times[-1], DECODER_SECONDS)
        bar(f"{name}, {COLUMNS} columns: MB", memory[-1], DECODER_MB)


def test_answers_beside_dense_ones(table: Table) -> None:
    """The same of few columns where every matrix is over all features."""
    few, begun = asked("quantiles({x})", 4), mean_of(asked("quantiles({x})", 4))

    def answers() -> object:
        return asked("quantiles({x})", 4).decode(begun, 1e-3, 2000.0, step=STEP)

    ours, theirs = processor(answers), processor(lambda: dense(few, STEP), 1)
    memory, dense_memory = megabytes(answers), megabytes(lambda: dense(few, STEP))
    table(f"quantiles of 4 columns: answers {ours:.2f} s, {memory:.0f} MB; dense alone {theirs:.2f} s, {dense_memory:.0f} MB")


def test_runs_and_openings_of_more_parties(table: Table, bar: Bar) -> None:
    """A study of packed secret sharing in one process, and what a member does who opens the sums of nearly all others."""

    def study(parties: int) -> float:
        plan, values = packed(parties), np.zeros((parties, 2))
        return processor(lambda: run_together(plan, values), 1)

    def memory(parties: int) -> float:
        plan, values = packed(parties), np.zeros((parties, 2))
        return megabytes(lambda: run_together(plan, values))

    # Each has something of each other one: what was copied for each message grew faster, and showed only where there were many.
    grown("a run in one process: seconds", "n", study, [20, 80, 160, 320], 2.2, table, bar)
    grown("a run in one process: MB", "n", memory, [20, 40, 80, 160], 2.1, table, bar)

    def opening(parties: int) -> float:
        protocol: Any = packed(parties, NUMBERS).protocol
        packing, drawn = Packing.of(protocol), np.random.default_rng(1)
        blocks = packing.blocks(NUMBERS)
        sums = {member: drawn.integers(packing.prime, size=blocks, dtype=np.uint32) for member in range(packing.threshold)}
        return processor(lambda: open_sums(packing, sums, NUMBERS))

    costs = grown("opening sums: seconds", "n", opening, [300, 1000, 3000], 2.1, table, bar)
    bar("sums of 3000 members opened, s", costs[-1], OPENED)


def packed(parties: int, dimension: int = 2) -> Plan:
    """One in ten colludes, one in ten may leave."""
    target = Target(parties, 1.0, 1e-6, colluding=parties // 10, dropouts=0.1, dimension=dimension)
    return calibrate(target, configure("packed-sharing", {}))


def test_longer_vectors(table: Table, bar: Bar) -> None:
    """A study of ten parties in one process, by how long their vectors are."""

    def study(dimension: int) -> float:
        plan, values = packed(10, dimension), np.zeros((10, dimension))
        return processor(lambda: run_together(plan, values), 1)

    grown("a run of ten parties: seconds", "d", study, [100_000, 500_000, 2_500_000], 1.1, table, bar)


def test_more_records(tmp_path: Path, table: Table, bar: Bar) -> None:
    """From a file of CSV to a party's vector: each record is read and encoded once."""
    columns = Columns([Column(name="age", low=0, high=110), Column(name="arm", levels=("a", "b"))])
    statistics = tuple(parse_statistic(read_text(text)) for text in ("group-means(age, by=arm)", "quantiles(age, bins=64)"))
    workload = Workload(columns, statistics, PrivacyUnit.RECORD)

    def vector(records: int) -> float:
        path = tmp_path / f"{records}.csv"
        path.write_text("age,arm\n" + "".join(f"{20 + row % 60},{'ab'[row % 2]}\n" for row in range(records)))
        return processor(lambda: workload.encode(Records(path, columns, print), step=STEP))

    grown("a vector from CSV: seconds", "records", vector, [10_000, 100_000, 1_000_000], 1.1, table, bar)


def test_more_coalitions(table: Table, bar: Bar) -> None:
    """Every pair that may collude, of an execution of IncA in which one in ten left for good."""
    by_pairs = {math.comb(parties, 2): parties for parties in (40, 80, 160)}

    def every(pairs: int) -> float:
        transcript = make_execution(by_pairs[pairs]).transcript()

        def tried() -> int:
            batches = CoalitionSolver(transcript).batches
            assert batches is not None
            return sum(len(batch.last) for batch in batches.tried(range(by_pairs[pairs]), 2))

        return processor(tried, 1)

    grown("every pair tried: seconds", "coalitions", every, list(by_pairs), 1.3, table, bar)


def test_receipts_of_more_parties(tmp_path: Path, table: Table, bar: Bar) -> None:
    """``quietmean verify receipt`` of runs of 20, 40 and 80 parties: processor time of the command, with its start."""
    quietmean = [sys.executable, "-m", "quietmean.cli.main"]
    (tmp_path / "ages.csv").write_text("age\n" + "\n".join(str(20 + row % 60) for row in range(800)))
    sizes, spent = (20, 40, 80), []
    for parties in sizes:
        out = tmp_path / str(parties)
        asked = ["mean(age in 0..110)", "--parties", f"{parties}", "--dropouts", "0.1", "--epsilon", "2", "--out", str(out)]
        subprocess.run([*quietmean, "run", str(tmp_path / "ages.csv"), *asked], check=True, capture_output=True)
        spent.append(processor_seconds([*quietmean, "verify", "receipt", str(out / "receipt.json")]))
        bar(f"a receipt of {parties} parties verified, s", spent[-1], RECEIPT)
    table(
        "receipts verified: "
        + ", ".join(f"{seconds:.2f} s of {size} parties" for size, seconds in zip(sizes, spent, strict=True))
    )
    # What more parties take less time for is done otherwise, and nobody was told.
    bar("a receipt of half as many parties takes no longer, times", max(spent[0] / spent[1], spent[1] / spent[2]), 1.1)
