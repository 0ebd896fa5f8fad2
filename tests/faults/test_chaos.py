"""Whole studies of real processes in every way in, under one to three faults of each kind: see ``tests/support/chaos.py``.

Seeds are drawn from QUIETMEAN_SEED on, QUIETMEAN_SEEDS of them: ``make chaos``. Of a failing seed it is said which of its
faults it needs. QUIETMEAN_TALLY names a file to which each seed adds a line, for ``tools/chaos_table.py``.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quietmean.ledger import Ledger, SpendingRequest
from quietmean.privacy.charge import Charge
from support.chaos import Chaos, Tale
from support.chaos_faults import Fault, chaos_cells, drawn, shrunk
from support.struck_study import Commands
from support.tally import tally

FIRST, SEEDS = int(os.environ.get("QUIETMEAN_SEED", "0")), int(os.environ.get("QUIETMEAN_SEEDS", "20"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_seed(seed: int, own_folders: None, parties: Commands, tmp_path: Path) -> None:
    feature, way, cell, faults = drawn(seed)

    def told(name: str, those: Sequence[Fault]) -> Tale:
        tale = Chaos(parties, tmp_path / name, way, cell, those).tell()
        if not tale.wrong:
            shutil.rmtree(tmp_path / name)
        return tale

    tale = told("study", faults)
    kinds = {"kinds": sorted({fault.kind for fault in faults})}
    about = {"outcome": tale.outcome, "struck": tale.struck, "codes": tale.codes, "seconds": round(tale.seconds, 1)}
    tally("seed", {"seed": seed, "feature": feature, "way": way, **kinds, **about})
    if tale.wrong:
        tries = iter(range(len(faults)))
        least = shrunk(faults, lambda those: bool(told(f"shrunk {next(tries)}", those).wrong))
        raise AssertionError(f"{feature} by {way}, of {len(faults)} faults {[*map(str, least)]}:\n" + "\n".join(tale.wrong))


def test_few_seeds_have_all_ways() -> None:
    assert {way for _, way, _ in chaos_cells()} == {drawn(seed)[1] for seed in range(20)}


def test_what_the_checker_sees(own_folders: None, parties: Commands, tmp_path: Path) -> None:
    """Each thing that must not be, put among the files of a session that went well."""
    _, way, cell = next(found for found in chaos_cells() if found[:2] == ("cordp-dme", "session"))
    chaos = Chaos(parties, tmp_path / "study", way, cell, [])
    assert chaos.tell().wrong == []
    folder, first = chaos.folder, next((chaos.folder / "watched").glob("north.secrets")).read_text().splitlines()[0]
    sent = folder / "watched" / "north.sent"
    out = folder / "told-session-north.0.out"
    places = {
        "a seed of north is in north.json": (folder / "north.json", bytes.fromhex(first.split()[-1])),
        "a value of south is in copy": (folder / "copy", struct.pack("<d", chaos._private("south")[3])),
        "two things were sent in": (sent, sent.read_bytes().splitlines()[0][:-4] + b"beef\n"),
        "says: Traceback": (folder / "told-session-east.0.err", b"Traceback"),
        "different results": (out, None),
    }
    for expected, (path, more) in places.items():
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(before.replace(b"1", b"2") if more is None else before + more)
        assert any(expected in wrong for wrong in chaos._check()), expected
        path.write_bytes(before)
    with Ledger.open(folder / "south.ledger") as book:
        book.reserve("south", SpendingRequest("another", "ages", Charge(0.01)), when=datetime.now(UTC))
    assert any("the ledger of south has" in wrong for wrong in chaos._check())
    chaos.tale.codes["north"][-1] = 2
    assert any("north ends with [2]" in wrong for wrong in chaos._check())
