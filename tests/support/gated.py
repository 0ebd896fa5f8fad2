"""Studies with a gate under faults, and what they really gave away, from the stores of all parties and from the network."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean.planning.gate as gate
from quietmean.core.party import PartyId
from quietmean.node.phase import Phase
from quietmean.planning import Plan, Target
from quietmean.privacy import mu_of_budget
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import with_guard
from quietmean.protocols.result_broadcast import ResultBroadcast
from support.faults import FaultOutcome
from support.truth import true_history


def gated_plan(parties: int, rounds: int, star: float = 2.6, delta: float = 6.0, colluding: int = 1, out_degree: int = 1) -> Plan:
    """With a guard that keeps the target before the release; ``star`` and ``delta`` decide which histories pass."""
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=1, colluding=colluding)
    levels = IncA(rounds=rounds, sigma_star=star, sigma_delta=delta, out_degree=out_degree)
    hidden = (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2
    return Plan(target, with_guard(levels, hidden * 1.0001), ResultBroadcast(), gated=True)


@contextmanager
def decided_once(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Certificates are a function of the history: parties that have the same share one here."""
    known: dict[str, gate.Decision] = {}
    decide = gate.decide

    def once(target: Target, execution: Execution, incomplete: Collection[PartyId] | None = None) -> gate.Decision:
        key = gate.history_digest(execution, incomplete or ()) + str(target)
        return known.setdefault(key, decide(target, execution, incomplete)) if key not in known else known[key]

    with patch.context() as scope:
        scope.setattr(gate, "decide", once)
        yield


def published_by(outcome: FaultOutcome) -> frozenset[PartyId]:
    """Whose release anybody could read."""
    return frozenset(sender for phase, _, sender, _ in outcome.handed if phase == Phase.DISSEMINATION)


def check_gate(plan: Plan, outcome: FaultOutcome, stores: Sequence[Path]) -> str:
    """What must hold in every history. Returns how it ended: "published" or "refused". Raises AssertionError."""
    published = published_by(outcome)
    records = {party: result.gate for party, result in outcome.results.items()}
    records |= {party: error.record for party, error in outcome.failures.items() if isinstance(error, gate.GateRefused)}
    by_history = {record.digest for record in records.values() if record is not None and record.published}
    assert len(by_history) <= 1, "two histories were published"
    for party, record in records.items():
        assert record is not None
        record.check(plan.target, record.to_json())
        assert record.published or party not in published, f"party {party} published although its gate was closed"
        assert not record.published or (record.decision.passes and record.agreed)
    if not published:
        return "refused"
    known = [record for record in records.values() if record is not None and record.published]
    if known:
        limit = mu_of_budget(plan.target.epsilon, plan.target.delta)
        worst = true_worst(known[0].execution, outcome, stores, plan.target.colluding)
        assert worst <= limit * (1 + 1e-6), f"mu {worst} is beyond the target's {limit}"
    return "published"


def true_worst(told: Execution, outcome: FaultOutcome, stores: Sequence[Path], size: int) -> float:
    """The largest mu of anybody against any coalition of this size, of what could really be read."""
    execution = really(told, outcome, stores)
    public = np.isin(execution.transcript().sender, sorted(published_by(outcome)))
    transcript = replace(execution.transcript(), released=execution.transcript().released & public)
    privacy = replace(execution.privacy(1e-6), transcript=transcript)
    coalitions = itertools.combinations(range(execution.parties), size)
    return max(float(privacy.against(coalition).mu_upper.max()) for coalition in coalitions)


def really(told: Execution, outcome: FaultOutcome, stores: Sequence[Path]) -> Execution:
    """The mixing rounds as the stores have them, with all that came as far as its receiver."""
    truth = true_history(told.schedule, stores, told.trace)
    online, seen = truth.online.copy(), np.zeros(told.schedule.neighbours.shape, dtype=np.bool_)
    for phase, round_, sender, receiver in outcome.handed:
        if phase == Phase.MIXING:
            online[round_, sender] = True
            seen[round_ - 1, sender] |= told.schedule.neighbours[round_ - 1, sender] == receiver
    lost = np.zeros(seen.shape, dtype=np.bool_)
    delivered, before = replace(truth, online=online).delivered(told.schedule), truth.delivered(told.schedule)
    lost[delivered & ~before] = True
    lost |= truth.lost if truth.lost is not None else False
    seen &= ~before
    return told.with_trace(replace(truth, online=online, lost=lost, seen=seen))


def facts(outcome: FaultOutcome) -> dict[str, Any]:
    """For a failure's message."""
    return {"faults": outcome.faults, "failures": outcome.failures, "gone": outcome.gone}
