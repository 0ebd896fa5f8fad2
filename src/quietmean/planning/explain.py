"""Sentences that explain why the first candidate is first, and when another one would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.readable import epsilon_text
from quietmean.planning.automatic import PREFERRED, preferred
from quietmean.planning.candidates import Candidate, Ranking
from quietmean.planning.plan import Plan
from quietmean.protocols import Server, Target
from quietmean.protocols.mechanism import unprotected

Rank = Callable[[Target, Server], Ranking]


def why_first(candidates: Sequence[Candidate]) -> str:
    """One sentence on the first of a ranking, with numbers."""
    first, others = candidates[0], candidates[1:]
    name, prediction = first.plan.protocol.name, f"predicted MSE {first.mse:.3g} per coordinate"
    bare = "" if first.plan.protocol.traits.private else f"; {unprotected(first.plan.protocol)}"
    if not others:
        return f"{name} is the only candidate: {prediction}{bare}"
    cheaper = [other for other in others if other.bytes_sent < first.bytes_sent]
    sentence = (
        f"{name} has the least {prediction}, {others[0].mse / first.mse:.3g} times less than {others[0].plan.protocol.name}"
    )
    if cheaper:
        cheapest = min(cheaper, key=lambda other: other.bytes_sent)
        sentence += (
            f"; {cheapest.plan.protocol.name} sends {first.bytes_sent / cheapest.bytes_sent:.3g} times fewer bytes "
            f"for {cheapest.mse / first.mse:.3g} times the error"
        )
    return sentence + bare


def when_another(target: Target, server: Server, candidates: Sequence[Candidate], ranking: Rank) -> list[str]:
    """Under which change of the target another protocol would be first. Each change is planned anew."""
    first = candidates[0].plan.protocol.name
    sentences = []
    for condition, changed, accepted in _changes(target, server):
        try:
            winner = ranking(changed, accepted)[0]
        except InputError:
            continue
        name, above = winner.plan.protocol.name, candidates[0].mse
        outcome = f"{name} would be first" if name != first else f"{name} would stay first"
        # Of a target in nats the mean is exact.
        times = f" ({winner.mse / above:.3g} times that above)" if above else ""
        sentences.append(f"{condition} {outcome}, with predicted MSE {winner.mse:.3g}{times}")
    return sentences


def where_more_is_promised(plan: Plan, domain: InputDomain | None = None) -> list[str]:
    """Say of a plan whose epsilon a priori is above its target against whom it is calibrated, and what keeps the target.

    Empty for other plans, and for targets in nats, which no other protocol has. ``domain``: where values lie.
    """
    target, name, sentences = plan.target, plan.protocol.name, []
    if plan.above_target is None or target.nats is not None or name == PREFERRED:
        return []
    if "executions" in plan.prediction:
        sentences.append(
            f"{name}: calibrated as in its paper, where it is chance who colludes: {plan.prediction['certificate']}. The chance "
            "that other colluders learn more is not in delta, and no ledger counts on it"
        )
    instead, against = preferred(target, {}, domain, None)
    if instead is None:
        return [*sentences, f"{PREFERRED} does not keep the target either: {against}"]
    times = instead.mse / Candidate(plan, 0.0, 0.0).mse
    return [
        *sentences,
        f"{PREFERRED} promises epsilon {epsilon_text(instead.epsilon_a_priori)} a priori, no matter who of as many colludes: "
        f"predicted MSE {instead.mse:.3g} per coordinate, {times:.3g} times that of {name}",
    ]


def _changes(target: Target, server: Server) -> list[tuple[str, Target, Server]]:
    changes: list[tuple[str, Target, Server]] = []
    if target.dropouts:
        changes.append(("if nobody dropped out,", replace(target, dropouts=0.0), server))
    else:
        changes.append(("if one in ten dropped out,", replace(target, dropouts=0.1), server))
    half = target.parties // 2
    if target.colluding < half:
        changes.append((f"if {half} colluded,", replace(target, colluding=half), server))
    if target.colluding > 1:
        changes.append(("if nobody shared what it sees,", replace(target, colluding=1), server))
    if server == Server.NONE:
        changes.append(("if a collector were there that need not be trusted with values,", target, Server.AGGREGATOR))
    return changes
