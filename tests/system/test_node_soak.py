"""Many studies in a row by the same parties in one process: nothing is left behind, and the ledgers add up."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from quietmean.api import functions as api
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import SPENT, Ledger, SpendingRequest
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Charge, mu_of_budget
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols.inca import IncA
from quietmean.studies.party import Payer, execution_id
from quietmean.studies.party.payment import StudyCost

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
PARTIES, ROUNDS, DIMENSION, DELTA = 4, 6, 3, 1e-6
# Of one study: SQLite's pages, of 4096 bytes each, and no more.
LARGEST_STORE = 128 * 1024
# The threads of an event loop's own pool at most.
POOL = min(32, (os.cpu_count() or 1) + 4)
# Bytes of RSS per study, once the first few have warmed up all caches and pools.
LARGEST_SLOPE = 64 * 1024


@dataclass(frozen=True)
class Sample:
    """What this process holds after a study."""

    rss: int
    descriptors: int
    threads: int
    tasks: int
    store: int

    @classmethod
    def now(cls, stores: list[Path]) -> Sample:
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        tasks = len(asyncio.all_tasks())
        return cls(resident, descriptors, threading.active_count(), tasks, max(store.stat().st_size for store in stores))


class Consortium:
    """The same parties, keys, addresses and ledgers in every study."""

    def __init__(self, directory: Path, ports: Sequence[int]) -> None:
        self.directory = directory
        self.identities = [Identity.generate() for _ in range(PARTIES)]
        entries = zip(ports, self.identities, strict=True)
        self.roster = Roster(
            tuple(RosterEntry(f"p{port}", ("127.0.0.1", port), identity.public_key) for port, identity in entries)
        )
        target = Target(parties=PARTIES, epsilon=1.0, delta=DELTA, dimension=DIMENSION)
        self.plan = calibrate(target, IncA(rounds=ROUNDS))
        self.values = np.linspace(0.0, 0.5, PARTIES * DIMENSION).reshape(PARTIES, DIMENSION)
        self.certified: list[list[float]] = [[] for _ in range(PARTIES)]

    def ledger(self, party: int) -> Path:
        return self.directory / f"{party}.ledger"

    def open_accounts(self, studies: int) -> None:
        """With room for so many studies at their planned cost, and not for one more."""
        planned = mu_of_budget(1.0, DELTA) * np.sqrt(studies)
        for party in range(PARTIES):
            with Ledger.open(self.ledger(party), create=True) as ledger:
                # The budget in epsilon whose mu, read at 99 % of delta, is just above what the studies may cost.
                ledger.set_budget(
                    "data", epsilon_of_mu(float(planned), 0.99 * DELTA) * (1 + 1e-6), DELTA, when=NOON, unit=PrivacyUnit.PARTY
                )

    def stores(self, number: int) -> list[Path]:
        return [self.directory / f"{number}-{party}.store" for party in range(PARTIES)]

    async def study(self, number: int) -> list[float]:
        """The errors of the estimate, one for each coordinate."""
        plan = replace(self.plan, context={"study": number})
        results = await asyncio.gather(*(self._take_part(party, plan, number) for party in range(PARTIES)))
        for result in results:
            np.testing.assert_array_equal(result, results[0])
        errors: list[float] = (results[0] - self.values.mean(axis=0)).tolist()
        return errors

    async def _take_part(self, party: int, plan: Plan, number: int) -> np.ndarray:
        store = self.stores(number)[party]
        settings = NodeSettings(
            identity=self.identities[party],
            roster=self.roster,
            brought=PlannedValue(plan, plan.admit(self.values[party])),
            store=store,
        )
        charge = Payer(self.ledger(party), "data").reserve(StudyCost(f"study {number}", plan), lambda: execution_id(settings))
        async with api.Node(
            identity=self.identities[party], roster=self.roster, plan=plan, store=store, start_timeout=120.0
        ) as me:
            result = await me.mean(self.values[party])
        # Against each other party alone; the worst counts.
        mu = max(
            float(api.certify(result.execution, [other]).mu_upper[party - (other < party)])
            for other in range(PARTIES)
            if other != party
        )
        with Ledger.open(self.ledger(party)) as ledger:
            ledger.settle(charge.study, Charge(mu), when=NOON)
        self.certified[party].append(mu)
        return result.mean


async def many_studies(consortium: Consortium, studies: int) -> tuple[list[Sample], list[list[float]]]:
    samples, errors = [], []
    for number in range(studies):
        errors.append(await consortium.study(number))
        samples.append(Sample.now(consortium.stores(number)))
        if number:
            for store in consortium.stores(number - 1):
                store.unlink()
    return samples, errors


def soak(directory: Path, studies: int, ports: Sequence[int]) -> list[Sample]:
    consortium = Consortium(directory, ports)
    consortium.open_accounts(studies)
    begun, before = time.monotonic(), threading.active_count()
    samples, errors = asyncio.run(many_studies(consortium, studies))
    first, last = samples[min(10, studies // 3)], samples[-1]
    print(
        f"{studies} studies of {PARTIES} parties in {time.monotonic() - begun:.1f} s; RSS {first.rss} to {last.rss} bytes, "
        f"slope {slope(samples):.0f} bytes a study; {last.descriptors} descriptors, {last.threads} threads, "
        f"{last.tasks} tasks, store {last.store} bytes"
    )
    for sample in samples:
        assert (sample.descriptors, sample.tasks) == (first.descriptors, 1)
        # Certificates are computed in the event loop's pool, whose threads stay until it ends: no others do.
        assert sample.threads <= before + POOL
        assert sample.store <= LARGEST_STORE
    # No write-ahead log or other side file is left of any study.
    assert sorted(path.name for path in directory.iterdir() if "store" in path.name) == sorted(
        path.name for path in consortium.stores(studies - 1)
    )
    check_ledgers(consortium, studies)
    check_errors(consortium, np.array(errors))
    return samples


def slope(samples: list[Sample]) -> float:
    """Bytes of RSS per study after the warm-up, least squares."""
    after = [sample.rss for sample in samples[min(10, len(samples) // 3) :]]
    return float(np.polyfit(np.arange(len(after)), after, 1)[0])


def check_ledgers(consortium: Consortium, studies: int) -> None:
    """Every study is on every account once; together they are the root of the sum of squares.

    At its planned cost, which bounds what was certified: on a grid nothing is given back.
    """
    for party in range(PARTIES):
        with Ledger.open(consortium.ledger(party)) as ledger:
            account = ledger.account("data")
            assert [entry.name for entry in account.entries] == [f"study {number}" for number in range(studies)]
            assert {entry.status for entry in account.entries} == {SPENT}
            assert not consortium.plan.protocol.traits.refunds
            assert set(account.mus) == {consortium.plan.a_priori.mu}
            assert len(consortium.certified[party]) == studies
            assert max(consortium.certified[party]) <= consortium.plan.a_priori.mu
            np.testing.assert_allclose(account.charged_mu, np.sqrt(np.sum(np.square(account.mus))), rtol=1e-12)
            assert account.charged_mu <= mu_of_budget(1.0, DELTA) * np.sqrt(studies)
            left = account.remaining
            np.testing.assert_allclose(account.budget.limit**2, account.charged_mu**2 + left**2, rtol=1e-9)
            with pytest.raises(InputError, match="asks for epsilon"):
                ledger.reserve(
                    "data", SpendingRequest("one more", "more", Charge(left * (1 + 1e-6)), unit=PrivacyUnit.PARTY), when=NOON
                )
        size = consortium.ledger(party).stat().st_size
        assert size <= 32 * 1024 + 1024 * studies


def check_errors(consortium: Consortium, errors: np.ndarray) -> None:
    """Fresh noise in each study, of the predicted size: beyond 5 standard errors of the mean square once in a million."""
    predicted = consortium.plan.prediction["mse_noise"]
    mean_square = float(np.mean(errors**2))
    assert abs(mean_square / predicted - 1) < 5 * np.sqrt(2 / errors.size) + 0.1
    assert len({tuple(row) for row in errors.tolist()}) == len(errors)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: how fast a disk is does not matter here."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path) as made:
        yield Path(made)


@pytest.mark.slow
def test_a_few_studies_leave_nothing_behind(directory: Path, free_ports: Callable[[int], list[int]]) -> None:
    soak(directory, 5, free_ports(PARTIES))


@pytest.mark.slow
def test_fifty_studies_leave_nothing_behind(directory: Path, free_ports: Callable[[int], list[int]]) -> None:
    assert slope(soak(directory, 50, free_ports(PARTIES))) < LARGEST_SLOPE
