"""A local run in one process: the state machines, sessions and stores of all parties, over links in memory and in virtual time.

A run of processes is a rehearsal of connections, keys and deaths, and costs each of them. What comes of it is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.party import PartyId, Vector
from quietmean.node.driver import opened, remarked
from quietmean.node.local.memory import MemoryNetwork, take_part
from quietmean.node.local.outcome import Kill, LocalOutcome, LocalReport, names_of, outcome_of, report_nothing, require_run
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.monitor import Event, RoundBegun, event_json
from quietmean.node.net import Identity, Roster, RosterEntry
from quietmean.node.party import Participant
from quietmean.node.session import NodeResult, NodeSettings, Observers, PlannedValue, Waits
from quietmean.node.storage import Lasting
from quietmean.planning import Plan


def run_together(
    plan: Plan,
    values: Vector,
    *,
    weights: Array | None = None,
    kills: Sequence[Kill] = (),
    round_timeout: float = 10.0,
    report: LocalReport = report_nothing,
) -> LocalOutcome:
    """Run a study on values (n, d) in this process. Time-outs pass at once where all wait; who is killed is not started again.

    Raises as :func:`~quietmean.node.local.run_local` does.
    """
    require_run(plan, values, kills)
    for kill in kills:
        if kill.after is not None or kill.restart_after is not None:
            raise InputError(f"party {kill.party} is to be killed at a time, or started again. Run the parties as processes.")
    weights = np.ones(len(values)) if weights is None else weights
    run = _Together(plan, values, weights, kills, Waits(round_timeout, gone=_GONE), report)
    with _few_collections():
        return run_virtually(run.run())


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Look seldom for objects that nobody uses: where millions live until the end, that takes a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 100_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


# Seconds in which nobody who is gone comes back: no process starts it again.
_GONE = 0.05


class _KilledError(BaseException):
    """Unwinds what a party was doing: nothing of it runs any more."""


class _Together:
    def __init__(
        self,
        plan: Plan,
        values: Vector,
        weights: Array,
        kills: Sequence[Kill],
        waits: Waits,
        report: LocalReport,
    ) -> None:
        self._plan, self._values, self._weights = plan, values, weights
        self._waits, self._report = waits, report
        self._leaving = {kill.party: kill for kill in kills}
        self._names = names_of(len(values))
        self._network = MemoryNetwork(len(values))
        self._identities = [Identity.generate() for _ in self._names]
        keys = [identity.public_key for identity in self._identities]
        # Nobody listens there: no two have the same, as in any roster.
        places = ((name, 1) for name in self._names)
        self._roster = Roster(tuple(map(RosterEntry, self._names, places, keys)))
        self._killed: list[PartyId] = []

    async def run(self) -> LocalOutcome:
        started = time.monotonic()
        ended = await asyncio.gather(*(self._live(party) for party in range(len(self._names))))
        results = {party: end for party, end in enumerate(ended) if isinstance(end, NodeResult)}
        errors = {party: end for party, end in enumerate(ended) if isinstance(end, QuietmeanError)}
        return outcome_of(self._names, results, errors, self._killed, time.monotonic() - started)

    async def _live(self, party: PartyId) -> NodeResult | QuietmeanError | None:
        settings = self._settings(party)
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.callback(settings.brought.forget)
                participant = Participant(settings, await stack.enter_async_context(opened(settings)))
                stack.enter_context(participant.monitor)
                stack.callback(self._network.die, party)
                result = await take_part(participant, self._network, party, participant.monitor.event)
                return remarked(result, participant.inside, participant.monitor)
        except QuietmeanError as error:
            return error
        except _KilledError:
            self._killed.append(party)
            return None

    def _settings(self, party: PartyId) -> NodeSettings:
        kill, name = self._leaving.get(party), self._names[party]

        def report(event: Event) -> None:
            fields = event_json(event)
            self._report(name, fields)
            if kill is not None and isinstance(event, RoundBegun) and kill.is_due(fields):
                self._network.die(party)
                raise _KilledError

        value = self._plan.admit(self._values[party].copy(), float(self._weights[party]), wipe=True)
        return NodeSettings(
            identity=self._identities[party],
            roster=self._roster,
            brought=PlannedValue(self._plan, value, wiped=True),
            # It has no file.
            store=Path(f"{name}.store"),
            waits=self._waits,
            observers=Observers(report),
            lasting=Lasting.NOTHING,
        )
