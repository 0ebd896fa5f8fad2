"""Of a party that left the others repeat what anybody told them: one that lies makes no stated error smaller than it is.

What the log of a party said goes on from hand to hand, so that a liar can say that it was never there, or that all arrived.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core.party import PartyId
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.net import AnswerFrame, Transfer
from quietmean.node.session.logs import GossipedLogs
from quietmean.node.session.session import StudySession
from quietmean.planning import Plan, Target
from quietmean.planning.accuracy import stated_variance
from quietmean.protocols.inca import IncA
from quietmean.protocols.result_broadcast import ResultBroadcast
from support.faults import Crash, FaultOutcome, FaultPlan
from support.gated import gated_plan
from support.liars import LiarMayFail
from support.network import NetworkConditions

LIAR, LEAVES, PARTIES, ROUNDS = 2, 0, 5, 6
MEMORY = next((path for path in (Path("/dev/shm"),) if path.is_dir()), None)  # noqa: S108
TARGET = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=1)
PLANS = {
    "inca": Plan(TARGET, IncA(rounds=ROUNDS, sigma_star=0.5, sigma_delta=4.0), ResultBroadcast()),
    "inca with a gate": gated_plan(PARTIES, ROUNDS),
}


def forged(schedule: Any, kind: str) -> bytes:
    """Of everybody, up to the end."""
    gossip = GossipedLogs(schedule)
    gossip.until[:] = schedule.rounds
    if kind == "all arrived":
        there = schedule.neighbours >= 0
        gossip._online[:], gossip._sent[:], gossip._received[:] = True, there, there
    return gossip.encode(LIAR)


class _Forging:
    """A connection of the liar."""

    def __init__(self, link: Any, told: Callable[[], bytes | None]) -> None:
        self._link, self._told = link, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    async def ask(self, request: Any, *given: Any, **more: Any) -> AnswerFrame:
        told = self._told()
        if isinstance(request, Transfer) and told is not None:
            request = msgspec.structs.replace(request, gossip=told)
        answer: AnswerFrame = await self._link.ask(request, *given, **more)
        return answer


class ForgedWorld(LiarMayFail):
    kind = ""
    schedule: Any = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        honest = self._network.links

        def links(party: PartyId) -> Any:
            made = honest(party)
            return {peer: _Forging(link, self.told) for peer, link in made.items()} if party == LIAR else made

        self._network.links = links  # type: ignore[method-assign]

    def told(self) -> bytes | None:
        return forged(self.schedule, self.kind) if self.kind and self.schedule is not None else None


def run(plan: Plan, seed: int, after: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> FaultOutcome:
    faults = FaultPlan(NetworkConditions(seed), round_timeout=2.0, crashes={LEAVES: [Crash(after=after, away=None)]})
    honest = StudySession.run

    async def begun(session: StudySession) -> Any:
        ForgedWorld.schedule = session._schedule
        return await honest(session)

    monkeypatch.setattr(StudySession, "run", begun)
    monkeypatch.setattr(ForgedWorld, "kind", kind)
    monkeypatch.setattr(ForgedWorld, "schedule", None)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        values = np.linspace(0.0, 1.0, PARTIES).reshape(PARTIES, 1)
        outcome = run_virtually(ForgedWorld(plan, values, np.ones(PARTIES), faults, Path(directory)).run())
    monkeypatch.undo()
    return outcome


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["never there", "all arrived"])
@pytest.mark.parametrize("name", PLANS)
def test_a_liar_makes_no_stated_error_smaller(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, after in ((0, 0.08), (0, 0.16), (1, 0.16), (3, 0.16)):
        truth, lied = (run(PLANS[name], seed, after, told, monkeypatch) for told in ("", kind))
        assert LEAVES not in truth.results
        for party in set(range(PARTIES)) - {LIAR, LEAVES}:
            before, result = truth.results[party], lied.results[party]
            assert result.heard == before.heard
            stated, least = (stated_variance(each.arrived(PLANS[name])[1]) for each in (result, before))
            assert stated >= least * (1 - 1e-9), (seed, after, party)
