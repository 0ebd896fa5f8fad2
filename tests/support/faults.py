"""Whole studies of real sessions with real stores, under a plan of faults, in virtual time.

A fault plan says when which party dies (before or after which durable write, or at which moment), when it comes back, and what
the network does. Everything is a function of the plan: a failure can be run again, and a random plan can be shrunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import ProtocolFailure, StorageError
from quietmean.core.party import NoiseSource, PartyId, Units, Vector
from quietmean.node import LinkKeys, PairKeys, PlannedValue, Waits
from quietmean.node.local.memory import take_part
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.monitor import Event, Stalled
from quietmean.node.net import Identity, Roster, RosterEntry
from quietmean.node.party import Participant
from quietmean.node.session import NodeResult, NodeSettings, kept_result
from quietmean.node.start import load_progress
from quietmean.node.storage import Store
from quietmean.planning import Plan
from quietmean.randomness import ExchangeKey, SecureNoise, Seed
from quietmean.randomness.insecure import insecure_seed
from support.network import FaultyNetwork, NetworkConditions

STUDY = "ab" * 32
# No run lasts longer, in virtual seconds; a study that does is stuck.
_LONGEST = 10_000.0
_RESTART_SECONDS = 1.0


@dataclass(frozen=True)
class Crash:
    """A process dies and is started again ``away`` seconds later (None: never).

    ``write``: at its so-manieth durable write since it was started, from 0, ``committed`` or not, where the start has two for
    each party (what is heard together is written together, and the last one keeps its number); or, if ``after`` is given, so
    many seconds after its start. ``restored_to``: when it is started again, its store is as it was after that write.
    """

    write: int = 0
    committed: bool = True
    after: float | None = None
    away: float | None = 0.5
    restored_to: int | None = None


@dataclass(frozen=True)
class FaultPlan:
    """``crashes``: for each party, those of its first life, second life and so on."""

    conditions: NetworkConditions = field(default_factory=NetworkConditions)
    crashes: Mapping[PartyId, Sequence[Crash]] = field(default_factory=dict)
    round_timeout: float = 4.0
    start_timeout: float = 200.0
    # Of each party, in a study with hybrid links.
    pairs: Sequence[PairKeys] = ()


@dataclass(frozen=True, eq=False)
class FaultOutcome:
    """``results`` of the parties that finished; ``failures`` (by party) of those that gave up; ``gone``: left for good.

    ``writes``: how many durable writes each party made in its first life. ``handed``, ``handed_late``: see
    :class:`FaultyNetwork`. ``stalled``: what each party said of its own machine.
    """

    faults: FaultPlan
    results: dict[PartyId, NodeResult]
    failures: dict[PartyId, ProtocolFailure]
    gone: frozenset[PartyId]
    writes: tuple[int, ...]
    seconds: float
    handed: frozenset[tuple[int, int, PartyId, PartyId]]
    handed_late: frozenset[tuple[int, int, PartyId, PartyId]]
    stalled: tuple[tuple[str, ...], ...] = ()


def check_run(plan: Plan, values: Vector, outcome: FaultOutcome, weights: NDArray[np.float64] | None = None) -> None:
    """The invariant: what the parties report is what the machines give, run in lockstep under the history that they report.

    With the same noise, so to rounding. Left out are results where somebody told nothing, or did not learn what came of a share.
    Nobody has more weight than there is, unless a share is reported to count twice. Raises AssertionError.
    """
    weights = np.ones(len(values)) if weights is None else weights
    noise = _RunNoise(plan, outcome.faults, len(values))
    # As they came through the door.
    values = np.array([plan.admit(value, weight) for value, weight in zip(values, weights.tolist(), strict=True)])
    for party, result in outcome.results.items():
        for other, there in outcome.results.items():
            if plan.releases_are_copies and other not in result.silent:
                # Two results of others' releases: who has more of them says so.
                said = {missing for missing, whose in result.not_there if whose == other}
                assert said == set(result.heard) - set(there.heard), f"party {party} on party {other}: {said}"
        if result.silent or any(other.unresolved for other in outcome.results.values()):
            # Nobody can know what came of the messages between parties that told nothing.
            continue
        releases = result.execution.run(values, noise).releases
        heard = [releases[other] for other in result.heard if other in releases]
        wanted = sum(release.weight for release in heard)
        assert np.isclose(result.total_weight, wanted, rtol=1e-9), f"party {party}: weight {result.total_weight}, not {wanted}"
        if not result.counted_twice:
            assert result.total_weight <= weights.sum() * (1 + 1e-9), f"party {party}: more weight than there is"
        total = np.sum([release.vector for release in heard], axis=0)
        scale = np.abs([release.vector for release in heard]).max() + np.abs(values).max() + 1.0
        assert np.allclose(result.total_vector, total, rtol=0, atol=1e-9 * scale), f"party {party}: wrong total"


class _RunNoise:
    """What the parties of a run draw, for running their machines in lockstep."""

    def __init__(self, plan: Plan, faults: FaultPlan, parties: int) -> None:
        self._seeds = [_secret(faults, party, 0) for party in range(parties)]
        self._keys = [ExchangeKey(seed) for seed in self._seeds]
        self._protocol = plan.protocol.name

    def party(self, party: PartyId) -> NoiseSource:
        own, keys = self._seeds[party].derive(STUDY, self._protocol), self._keys
        return SecureNoise(own, lambda other: keys[party].shared_seed(keys[other].public, f"{STUDY} {self._protocol}"))

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.stack([self.party(party).normal(purpose, index, dimension) for party in range(len(self._seeds))])

    def shared_normal(self, pairs: NDArray[np.int64], purpose: str, index: int, dimension: int) -> Vector:
        drawn = [self.party(one).shared_normal(other, purpose, index, dimension) for one, other in pairs.tolist()]
        return np.array(drawn).reshape(len(pairs), dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return np.stack(
            [self.party(party).discrete(purpose, index, scale, dimension, shares) for party in range(len(self._seeds))]
        )

    def shared_discrete(self, pairs: NDArray[np.int64], purpose: str, index: int, scale: float, dimension: int) -> Units:
        drawn = [self.party(one).shared_discrete(other, purpose, index, scale, dimension) for one, other in pairs.tolist()]
        return np.array(drawn, dtype=np.int64).reshape(len(pairs), dimension)


def _secret(faults: FaultPlan, party: PartyId, number: int) -> Seed:
    # Not from the operating system: a run is the same each time.
    return insecure_seed(faults.conditions.seed, "story", party, number)


class _Died(BaseException):
    """Unwinds what the process was doing. Nothing of it runs any more."""


def _files(path: Path) -> list[Path]:
    """Of a store: the database, its journal, the large vectors. Not all need to exist."""
    return [path.with_name(path.name + ending) for ending in ("", "-wal", ".vectors")]


def _backup(file: Path) -> Path:
    return file.with_name("backup of " + file.name)


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    if source.exists():
        shutil.copy(source, target)


class MortalStore(Store):
    """A store whose process dies at a given write. A dead process writes nothing more."""

    crash: Crash | None = None
    writes = 0
    bound_here = False
    dead = False
    # What else ends with the process; whoever runs it says so.
    on_death: Callable[[], None] | None = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._check_alive()
        due = self.crash is not None and self.crash.after is None and self.crash.write == self.writes
        with super()._transaction():
            yield
            if due and self.crash is not None and not self.crash.committed:
                self.die()
        if self.crash is not None and self.crash.restored_to == self.writes:
            for file in _files(self._path):
                _copy(file, _backup(file))
        self.writes += 1
        if due:
            self.die()

    def save_standing(self, progress: bytes, seed: bytes | None = None) -> None:
        """What is heard at once is written at once: the last write of the start has the number that it has without that."""
        found = load_progress(progress)
        if found.bound and found.attempt is not None and not self.bound_here:
            self.bound_here, self.writes = True, max(self.writes, 2 * len(found.attempt.members) - 1)
        super().save_standing(progress, seed)

    def die(self) -> None:
        self.dead = True
        if self.on_death is not None:
            self.on_death()
        raise _Died

    def _check_alive(self) -> None:
        if self.dead:
            raise _Died


def run_with_faults(
    plan: Plan, values: Vector, faults: FaultPlan, directory: Path, weights: NDArray[np.float64] | None = None
) -> FaultOutcome:
    """Run a study on values (n, d). Stores are made in ``directory``, which must be empty; a memory file system makes it fast."""
    weights = np.ones(len(values)) if weights is None else weights
    return run_virtually(World(plan, values, weights, faults, directory).run())


class _RunSettings(NodeSettings):
    """The keys of a run's parties are new each time; what is drawn from the study's name is not."""

    study = cached_property(lambda self: STUDY)


class World:
    """The parties of a fault plan; the network between them is in memory."""

    def __init__(self, plan: Plan, values: Vector, weights: NDArray[np.float64], faults: FaultPlan, directory: Path) -> None:
        self._plan = plan
        self._values = values
        self._weights = weights
        self._faults = faults
        self._directory = directory
        self._network = FaultyNetwork(len(values), faults.conditions)
        self._writes = [0] * len(values)
        self._identities = [Identity.generate() for _ in values]
        entries = [
            RosterEntry(f"party-{party}", ("127.0.0.1", 1 + party), identity.public_key)
            for party, identity in enumerate(self._identities)
        ]
        self._roster = Roster(tuple(entries))
        self._failures: dict[PartyId, ProtocolFailure] = {}
        self._defects: list[BaseException] = []
        self._told: list[list[Event]] = [[] for _ in values]

    async def run(self) -> FaultOutcome:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_defect)
        async with asyncio.timeout(_LONGEST):
            finished = await asyncio.gather(*(self._live(party) for party in range(len(self._values))))
        if self._defects:
            raise self._defects[0]
        results = {party: result for party, result in enumerate(finished) if result is not None}
        gone = frozenset(range(len(finished))) - results.keys() - self._failures.keys()
        network = self._network
        return FaultOutcome(
            self._faults,
            results,
            self._failures,
            gone,
            tuple(self._writes),
            loop.time(),
            frozenset(network.handed),
            frozenset(network.handed_late),
            tuple(tuple(event.reason for event in told if isinstance(event, Stalled)) for told in self._told),
        )

    async def _live(self, party: PartyId) -> NodeResult | None:
        """All lives of a party."""
        crashes = iter(self._faults.crashes.get(party, ()))
        crash = next(crashes, None)
        for life in itertools.count():
            try:
                return await self._one_life(party, crash, life)
            except ProtocolFailure as error:
                self._failures[party] = error
                return None
            except StorageError as outage:
                # It ends with this sentence, and a service manager starts it again.
                self._told[party].append(Stalled(str(outage)))
                await asyncio.sleep(_RESTART_SECONDS)
            except _Died:
                if crash is None or crash.away is None:
                    return None
                await asyncio.sleep(crash.away)
                if crash.restored_to is not None:
                    for file in _files(self._directory / f"{party}.store"):
                        _copy(_backup(file), file)
                crash = next(crashes, None)
        return None

    async def _one_life(self, party: PartyId, crash: Crash | None, life: int) -> NodeResult:
        path, value, weight = self._directory / f"{party}.store", self._values[party], float(self._weights[party])
        drawn = itertools.count()
        owner = _secret(self._faults, party, -1)
        store = MortalStore.open(
            path, STUDY, value, weight, lambda: _secret(self._faults, party, next(drawn)), owner, self._plan.grid
        )
        if (before := kept_result(store)) is not None:
            store.close()
            return before
        running = asyncio.ensure_future(self._run_session(party, store))

        def on_death() -> None:
            self._network.die(party)
            running.cancel()

        store.writes, store.crash, store.on_death = 0, crash, on_death
        timer = None
        if crash is not None and crash.after is not None:
            timer = asyncio.get_running_loop().call_later(crash.after, self._kill, store)
        try:
            return await running
        except asyncio.CancelledError:
            if store.dead:
                raise _Died from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if life == 0:
                self._writes[party] = store.writes
            if not store.dead:
                self._network.die(party)
            store.close()

    def _kill(self, store: MortalStore) -> None:
        with contextlib.suppress(_Died):
            store.die()

    async def _run_session(self, party: PartyId, store: MortalStore) -> NodeResult:
        participant = Participant(self._settings(party), store)
        return await take_part(participant, self._network, party, self._told[party].append)

    def _settings(self, party: PartyId) -> NodeSettings:
        return _RunSettings(
            identity=self._identities[party],
            roster=self._roster,
            brought=PlannedValue(self._plan, self._plan.admit(self._values[party], float(self._weights[party]))),
            store=self._directory / f"{party}.store",
            waits=Waits(round=self._faults.round_timeout, start=self._faults.start_timeout),
            keys=LinkKeys(pairs=self._faults.pairs[party] if self._faults.pairs else None),
        )

    def _note_defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, _Died):
            self._defects.append(error or RuntimeError(context["message"]))
