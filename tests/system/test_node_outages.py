"""Disks that refuse, under real nodes: over real connections, and on a small file system that fills up and is made larger."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure, StorageError
from quietmean.core.party import PartyId
from quietmean.ledger import Ledger
from quietmean.node import NodeResult, NodeSettings, local, run_party
from quietmean.node.local.processes import ChildSettings
from quietmean.node.monitor import Event, Stalled
from quietmean.node.session.settings import Observers
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from support.disk import Trouble, failing_disk, failing_handlers
from system.test_node_sockets import Study, make_plan

MOUNT, UMOUNT = (shutil.which(name) or name for name in ("mount", "umount"))


def run_with(settings: Sequence[NodeSettings]) -> list[NodeResult]:
    async def run() -> list[NodeResult]:
        return list(await asyncio.gather(*map(run_party, settings)))

    return asyncio.run(run())


ON_DISK = [
    Trouble(0, 2, "full"),
    Trouble(1, 14, "fsync", after=True),
    Trouble(2, 31, "write"),
    Trouble(0, 52, "memory"),
    Trouble(1, 77, "fsync", after=True),
]
IN_HANDLERS = [Trouble(0, 1, "memory"), Trouble(1, 6, "write"), Trouble(2, 9, "full")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("trouble", "of_handlers"),
    [*((trouble, False) for trouble in ON_DISK), *((trouble, True) for trouble in IN_HANDLERS)],
)
def test_one_error_over_real_connections(trouble: Trouble, of_handlers: bool, tmp_path: Path) -> None:
    """It is said once, and everybody has everything."""
    study, told = Study(tmp_path, make_plan(3)), list[tuple[int, Event]]()

    def noting(party: int) -> Observers:
        return Observers(lambda event: told.append((party, event)))

    settings = [study.settings(party, observers=noting(party)) for party in range(3)]
    with failing_handlers(trouble) if of_handlers else failing_disk(trouble) as machine:
        results = run_with(settings)
    assert len(machine.names[trouble.party]) > trouble.place
    for result in results:
        np.testing.assert_allclose(result.mean, study.values.mean(axis=0), rtol=1e-12)
        assert result.heard == (0, 1, 2)
        assert result.refusals == ()
    assert [party for party, event in told if isinstance(event, Stalled)] == [trouble.party]


class SmallDisk:
    """A file system of so many bytes."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def forbid(self) -> None:
        """Nothing can be written any more."""
        subprocess.run([MOUNT, "-o", "remount,ro", str(self.place)], check=True)

    def resize(self, size: int) -> None:
        subprocess.run([MOUNT, "-o", f"remount,size={size}", str(self.place)], check=True)


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[SmallDisk]:
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("a file system of its own is made by root on Linux")
    place.mkdir()
    made = subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("no file system can be made here")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run([UMOUNT, "-l", str(place)], check=True)


def test_a_place_without_the_right_to_write_is_a_mistake_unless_it_has_the_store(tmp_path: Path) -> None:
    """Linux makes a file system read-only once its disk has failed: the store that is there is not to be named anew."""
    study = Study(tmp_path, make_plan(3))
    with small_disk(tmp_path / "disk", 1_000_000) as disk:
        settings = replace(study.settings(0), store=disk.place / "own.store")
        study.close()
        settings.open_store().close()
        disk.forbid()
        with pytest.raises(StorageError, match="Repair it or make room, the study goes on"):
            settings.open_store()
        with pytest.raises(InputError, match="Choose a writable place"):
            replace(settings, store=disk.place / "another.store").open_store()
        with pytest.raises(InputError, match="Choose a writable place"):
            Ledger.open(disk.place / "own.ledger", create=True)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [60, 80, 100, 120, 160, 200])
def test_real_processes_on_a_disk_that_fills_up(kilobytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One party waits, says so, and goes on as soon as there is room; everybody has the mean of all."""
    target = Target(parties=3, epsilon=1.0, delta=1e-6, dimension=1500)
    plan = Plan(target, IncA(rounds=4, sigma_star=0.0, sigma_delta=0.7))
    values = np.linspace(0.0, 1.0, 3 * target.dimension).reshape(3, -1) / np.sqrt(target.dimension)
    with small_disk(tmp_path / "disk", kilobytes * 1000) as disk:
        usual, told = local._LocalRun._settings, list[tuple[str, str]]()

        def settings(self: Any, party: PartyId, freeze_round: int | None) -> ChildSettings:
            own = usual(self, party, freeze_round)
            return msgspec.structs.replace(own, store=str(disk.place / "1.store")) if party == 1 else own

        def report(name: str, event: dict[str, Any]) -> None:
            if event["event"] == "stalled":
                told.append((name, event["reason"]))
                disk.resize(50_000_000)

        monkeypatch.setattr(local._LocalRun, "_settings", settings)
        outcome = asyncio.run(
            local.run_local(plan, values, tmp_path / "run", round_timeout=30.0, start_timeout=120.0, report=report)
        )
    assert outcome.failures == {}
    for result in outcome.results.values():
        np.testing.assert_allclose(result.mean, values.mean(axis=0), rtol=1e-9)
    assert told
    assert {name for name, _ in told} == {"party-1"}
    assert all("no space beside" in reason and reason.endswith("the study goes on.") for _, reason in told)


@pytest.mark.slow
def test_a_real_process_whose_disk_stays_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with one sentence and exit code 75, and nobody with a defect."""
    target = Target(parties=3, epsilon=1.0, delta=1e-6, dimension=1500)
    plan = Plan(target, IncA(rounds=4, sigma_star=0.0, sigma_delta=0.7))
    values = np.linspace(0.0, 1.0, 3 * target.dimension).reshape(3, -1) / np.sqrt(target.dimension)
    with small_disk(tmp_path / "disk", 120_000) as disk:
        usual, ends = local._LocalRun._settings, dict[str, dict[str, Any]]()

        def settings(self: Any, party: PartyId, freeze_round: int | None) -> ChildSettings:
            own = usual(self, party, freeze_round)
            return msgspec.structs.replace(own, store=str(disk.place / "1.store")) if party == 1 else own

        monkeypatch.setattr(local._LocalRun, "_settings", settings)
        told = local.run_local(
            plan,
            values,
            tmp_path / "run",
            round_timeout=2.0,
            start_timeout=20.0,
            report=lambda name, event: ends.update({name: event}) if event["event"] == "error" else None,
        )
        # Whether it came as far as the start depends on the file system.
        with contextlib.suppress(ProtocolFailure):
            asyncio.run(told)
    assert (ends["party-1"]["exit_code"], "no space beside" in ends["party-1"]["message"]) == (75, True)
    assert {end["exit_code"] for name, end in ends.items() if name != "party-1"} <= {3}
