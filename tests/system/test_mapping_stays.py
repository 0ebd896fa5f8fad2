"""What a site calls its columns, codes and persons is in nothing that leaves it, nor in what it keeps: frames, receipts, logs."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.core.folders import data_folder
from support.recorded_links import recorded
from support.rosters import on_this_machine, write_roster

NAMES = ("north", "south", "east")
STUDY = qm.Study(
    {"age": (0, 100), "sex": ["f", "m"]}, ["mean(age)", "proportion(sex)"], epsilon=8.0, delta=1e-6, name="ages", colluding=1
)
FORMAT = """[mapping]
person = "SentinelPerson"
rows_per_person = 1
[mapping.columns]
age = { name = "SentinelAlter", factor = 0.98765432 }
sex = { name = "SentinelGeschlecht", codes = { SentinelW = "f", SentinelM = "m" } }
"""
TOLD = re.compile(rb"sentinel|98765432", re.IGNORECASE)
OWN = [f"{name}.{ending}" for name in sorted(NAMES) for ending in ("csv", "format.toml")]


def test_nothing_of_a_mapping_leaves_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))
    for site, name in enumerate(NAMES):
        rows = "".join(
            f"{40 + (place + site) % 9},Sentinel{'WM'[place // (site + 1) % 2]},Sentinel{site}{place // 2}\n"
            for place in range(300)
        )
        (tmp_path / f"{name}.csv").write_text(f"SentinelAlter,SentinelGeschlecht,SentinelPerson\n{rows}")
        (tmp_path / f"{name}.format.toml").write_text(FORMAT)
    events: list[dict[str, Any]] = []

    async def three() -> None:
        parties = (
            qm.ajoin(
                STUDY,
                "roster.toml",
                f"{name}.key",
                data=f"{name}.csv",
                new_account=name,
                ledger=None,
                accept=qm.contract(STUDY, "roster.toml", f"{name}.key"),
                report=events.append,
            )
            for name in NAMES
        )
        for result in await asyncio.gather(*parties):
            assert abs(result["mean(age)"].value[0] - 44 * 0.98765432) < 6 * result["mean(age)"].standard_error[0]
            result.save_report(f"{result.receipt}.html")

    with warnings.catch_warnings(record=True) as told, recorded() as directions:
        warnings.simplefilter("always")
        asyncio.run(three())
    frames = b"".join(each.raw for each in directions)
    kept = {path: path.read_bytes() for root in (tmp_path, data_folder()) for path in root.rglob("*") if path.is_file()}
    # What is searched is what there is: the name of the study is in both.
    assert len(frames) > 2_000
    assert sum(b"ages" in content for content in kept.values()) >= len(NAMES)
    assert [path.name for path, content in sorted(kept.items()) if TOLD.search(content)] == OWN
    said = [str(one.message) for one in told] + [json.dumps(events, default=str), *capsys.readouterr()]
    assert not [one for one in (frames, *map(str.encode, said)) if TOLD.search(one)]
