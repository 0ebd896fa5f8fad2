"""The gate before the release: what a history lets every coalition know must stay below the target, or nothing is released.

A protocol with a gate (:class:`~quietmean.protocols.traits.ReleaseGate`) hides every value before the release, in every history,
as its ``variance`` says. What the releases add depends on who was online and on which shares arrived. So the parties
certify the history that they have, releases included, against every coalition of the planned size, and release only if its mu is
below that of the target. A release that is missing afterwards only takes something away from the view. So the mu of any history
is at most :func:`a_priori_mu`. The decision follows from public records alone, and reveals nothing else. The nodes of a study
hold the gate (see :mod:`quietmean.node.session.gate`) where the plan does, and so can simulations.

Where the target says that later messages are read, the gate counts them, whichever coalition it tries; what was proven for
coalitions alone is then not used. A party that left may have sent what nobody who stayed knows of, and it was read: so those who
left count as corrupt beside any coalition.

Through a folder what a party that left has sent can be read at any later time, also after the gate: so there, too, those who left
count as corrupt beside any coalition.

Parties that left have sent the others only a part of their history. Whatever they did after that can be known to parties that
left and to no others. So against a coalition with one of them as a member all of them count as corrupt. A party that left
releases nothing, so of its own value nobody learns more than what is known before releases.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.codec import convert, digest
from quietmean.core.errors import InputError, ProtocolFailure, unfit_field
from quietmean.core.party import PartyId
from quietmean.core.workers import one_thread
from quietmean.graphs import NEVER, ExecutionTrace, Schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import CONFIDENCE, MOST_TRIED, exceed_bound, most_tried
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.fields import Hints
from quietmean.protocols.mechanism import hidden_variance

# Digits to which all parties compute the same number.
_DIGITS = 6


@dataclass(frozen=True)
class Decision:
    """``mu``: an upper bound for every coalition of the planned size, releases included; ``limit``: that of the target.

    ``exhaustive``: every coalition was tried; else a bound for all of them was computed. No units.
    """

    mu: float
    limit: float
    exhaustive: bool

    @property
    def passes(self) -> bool:
        """Is mu below the limit, to 6 digits? Equal numbers do not pass: machines could differ in the last bits."""
        return _rounded(self.mu) < _rounded(self.limit)


def decide(target: Target, execution: Execution, incomplete: Collection[PartyId] | None = None) -> Decision:
    """May the parties that are online in the last round release what they hold? All of them count as releasing.

    ``incomplete``: the parties of whose history only a part is known. None: the history is simulated, and is decided on as nodes
    would record it, see :func:`as_recorded`.
    """
    if incomplete is None:
        incomplete = np.nonzero(~execution.trace.finished)[0].tolist()
        execution = execution.with_trace(as_recorded(execution.schedule, execution.trace))
    exhaustive = tries_all(target, execution)
    worst = _worst_tried if exhaustive else worst_bound
    mu = worst(execution, target, frozenset(incomplete))
    return Decision(mu, mu_of_budget(target.epsilon, target.delta), exhaustive)


def tries_all(target: Target, execution: Execution) -> bool:
    """Does the gate try every coalition of such executions, one by one?"""
    size = target.colluding
    coalitions = math.comb(execution.parties, size)
    return coalitions <= MOST_TRIED and coalitions <= most_tried(execution.privacy(target.delta).solver, size)


def as_recorded(schedule: Schedule, trace: ExecutionTrace) -> ExecutionTrace:
    """A simulated history as the logs of those who stayed would have it.

    What anybody was sent counts as seen. Who left counts as online in one more round before the last: what it may have sent
    there was seen and not used, and of what it was sent nobody knows whether it was used, so it counts in both places.
    """
    online, kept = trace.online.copy(), []
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_) if trace.lost is None else trace.lost.copy()
    for party in np.nonzero(~trace.finished)[0].tolist():
        following = int(np.nonzero(trace.online[:, party])[0].max()) + 1
        if following >= schedule.rounds:
            continue
        online[following, party] = True
        partners = schedule.neighbours[following - 1]
        sent_to_party = (partners == party) & trace.online[following][:, None] & ~lost[following - 1]
        kept += [(following, sender, party, NEVER) for sender in np.nonzero(sent_to_party.any(axis=1))[0].tolist()]
        lost[following - 1, party] |= partners[party] != NOBODY
    settled = np.concatenate([trace.settled, np.array(kept, dtype=np.int64).reshape(-1, 4)])
    return replace(trace, online=online, lost=lost if lost.any() else None, settled=settled).all_handed(schedule)


def _worst_tried(execution: Execution, target: Target, gone: frozenset[PartyId]) -> float:
    privacy, size = execution.privacy(target.delta), target.colluding
    mu = privacy.coalitions(size).max_mu
    read = execution.interception is not None or target.by_folder
    if not (gone if read else size >= 1 and len(gone) >= 2):
        return mu
    # If the coalition has one party that left, or may have read all that they sent, it is taken to have all of them.
    staying = [party for party in range(execution.parties) if party not in gone]
    others = itertools.combinations(staying, min(size if read else size - 1, max(len(staying) - 1, 0)))
    certificates = privacy.each(gone.union(some) for some in others)
    return max([mu, *(float(certificate.mu_upper.max(initial=0.0)) for certificate in certificates)])


def worst_bound(
    execution: Execution, target: Target, gone: frozenset[PartyId], watched: frozenset[PartyId] | None = None
) -> float:
    """The largest mu of the parties, or of those ``watched``, at most, where the coalitions are too many to try.

    ``gone``: the parties of whose history only a part is known.
    """
    if execution.interception is not None:
        return float(_counted(execution, target, None).max())
    size = target.colluding
    asked = np.isin(np.arange(execution.parties), list(range(execution.parties) if watched is None else watched))
    worst = _worst_coalition(execution, size, frozenset(), watched)
    mu = float(_counted(execution, target, None if worst is None else worst.mu)[asked].max(initial=0.0))
    if not gone if target.by_folder else len(gone) < 2:
        return mu
    asked[sorted(gone)] = False
    beside = size if target.by_folder else size - 1
    worst = _worst_coalition(execution, beside, gone, watched)
    return max(mu, float(_counted(execution, target, None if worst is None else worst.mu)[asked].max(initial=0.0)))


def _worst_coalition(
    execution: Execution, size: int, given: frozenset[PartyId], watched: frozenset[PartyId] | None
) -> CoalitionBound | None:
    """Bound the loss by ``size`` parties that collude with all of ``given``, on the parties ``watched``.

    Of others it may say anything.
    """
    protocol, of_execution = execution.protocol, (execution.schedule, execution.trace, execution.sensitivity)
    gate = protocol.TRAITS.gate
    if gate is None:
        # What holds for more colluders holds for fewer.
        return protocol.worst_coalition(*of_execution, min(size + len(given), execution.parties - 1))
    bound: CoalitionBound = gate.worst_coalition(protocol, *of_execution, size, given, watched)
    return bound


def _counted(execution: Execution, target: Target, view: Array | None) -> Array:
    """mu that counts of every party, (n,), where ``view`` bounds that of the transcript."""
    view = np.full(execution.parties, np.inf) if view is None else view
    conversion = execution.privacy(target.delta).terms.conversion
    return conversion.mu_against_any(target.colluding, view, execution.sensitivity)


def mu_before_release(protocol: Mechanism, sensitivity: float) -> float:
    """mu of what all others together know of a party before it releases anything, at most, in every history."""
    return sensitivity / math.sqrt(hidden_variance(protocol))


def a_priori_at_gate(target: Target, protocol: Mechanism) -> APriori:
    """What a study costs at most whose parties hold the gate; never more than without it."""
    promised = protocol.a_priori(target.parties, target.colluding, target.sensitivity, target.delta)
    mu = a_priori_mu(target, protocol)
    if mu >= promised.mu:
        return promised
    why = "a gate before the release: every party certifies what happened, and publishes nothing that could cost more"
    return APriori(mu, why, promised.beta, promised.tv)


def kept_at_gate(target: Target, execution: Execution) -> Execution:
    """The execution, of which certificates know what the gate promised before the start."""
    return replace(execution, kept={target.colluding: a_priori_at_gate(target, execution.protocol)})


def a_priori_mu(target: Target, protocol: Mechanism) -> float:
    """The mu that no history exceeds, against any coalition of the planned size, if all honest parties keep to the gate."""
    return max(mu_before_release(protocol, target.sensitivity), mu_of_budget(target.epsilon, target.delta))


@dataclass(frozen=True)
class GateVote:
    """``digest``: of the history that a party has, hexadecimal; ``passes``: does its certificate of that history?"""

    digest: str
    passes: bool


@dataclass(frozen=True, eq=False)
class GateRecord:
    """What one party knows of the gate of its study, for a receipt.

    ``execution`` is the history that it certified, as if all that were online in the last round released; of ``incomplete``
    parties only a part of it is known. ``decision`` is its own. ``votes``, by party, are those that came, its own included.
    ``published``: did this party release what it holds? It does only if its decision passes, more than half of all parties voted
    for the same history, and all of them found that it passes. ``by_folder``: what those who left have sent counts as read.
    """

    execution: Execution
    incomplete: tuple[PartyId, ...]
    decision: Decision
    votes: Mapping[PartyId, GateVote]
    published: bool
    by_folder: bool = False

    @cached_property
    def digest(self) -> str:
        """The digest of the history: what parties vote on."""
        return history_digest(self.execution, self.incomplete)

    @property
    def supporters(self) -> int:
        """How many parties voted for this history, and that it passes."""
        return sum(vote == GateVote(self.digest, True) for vote in self.votes.values())

    @property
    def agreed(self) -> bool:
        """Did more than half of all parties vote for this history, and that it passes?"""
        return 2 * self.supporters > self.execution.parties

    @property
    def may_pass_elsewhere(self) -> bool:
        """Could some history still have the votes of more than half of the parties, also if those that are missing support it?"""
        missing = self.execution.parties - len(self.votes)
        support = Counter(vote for vote in self.votes.values() if vote.passes)
        return 2 * (missing + max(support.values(), default=0)) > self.execution.parties

    @property
    def reason(self) -> str:
        """Why this party published what it holds, or did not; one clause."""
        mu, limit = self.decision.mu, self.decision.limit
        if not self.decision.passes:
            return f"this history could cost a mu of {mu:.4g} (upper bound), and the target allows less than {limit:.4g}"
        if not self.agreed:
            return f"{self.supporters} of {self.execution.parties} parties saw the same messages, and more than half must"
        if not self.published:
            return "this party was away in the last round, or had decided before the votes came that were missing"
        return f"{self.supporters} of {self.execution.parties} parties saw the same messages, which cost at most a mu of {mu:.4g}"

    @property
    def before_release(self) -> float:
        """The mu that a party costs at most which published nothing, whatever the others did."""
        return mu_before_release(self.execution.protocol, self.execution.sensitivity)

    def to_json(self, happened: Execution | None = None) -> dict[str, Any]:
        """The history is left out where it is that of ``happened``."""
        history = self.execution.to_json()
        return {
            **({} if happened is not None and happened.to_json() == history else {"history": history}),
            "digest": self.digest,
            "incomplete": list(self.incomplete),
            "mu": self.decision.mu,
            "limit": self.decision.limit,
            "exhaustive": self.decision.exhaustive,
            "passes": self.decision.passes,
            "votes": [[party, vote.digest, vote.passes] for party, vote in sorted(self.votes.items())],
            "published": self.published,
            **({"by_folder": True} if self.by_folder else {}),
            "reason": self.reason,
            "mu_before_release": self.before_release,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], happened: Execution) -> GateRecord:
        """The inverse of :meth:`to_json`. Raises :class:`InputError` for what cannot be read."""
        fields = convert(raw, _Written, partial(unfit_field, "gate"), strict=False)
        execution = happened if fields.history is None else Execution.from_json(fields.history)
        votes = {party: GateVote(digest, passes) for party, digest, passes in fields.votes}
        decision = Decision(fields.mu, fields.limit, fields.exhaustive)
        return cls(execution, tuple(fields.incomplete), decision, votes, fields.published, fields.by_folder)

    @classmethod
    def of_receipt(cls, receipt: Mapping[str, Any], happened: Execution) -> GateRecord | None:
        """The gate of a receipt, recomputed; None without one. Raises :class:`InputError` where it contradicts itself."""
        stated = receipt.get("gate")
        if stated is None:
            return None
        target = _target_of(receipt, happened)
        record = cls.from_json(stated, kept_at_gate(target, happened))
        record.check(target, stated)
        return record

    def check(self, target: Target, stated: Mapping[str, Any]) -> None:
        """Recompute everything from the history and the votes. Raises :class:`InputError` where ``stated`` says otherwise.

        A bound may have been larger, or there where now every coalition is tried: so it was with versions before this one.
        """
        target = replace(target, by_folder=self.by_folder)
        recomputed, recorded = decide(target, self.execution, self.incomplete), self.decision
        tried = recomputed.exhaustive and recorded.exhaustive
        mu, stated_mu = _rounded(recomputed.mu), _rounded(recorded.mu)
        same = {
            "digest": stated.get("digest") == self.digest,
            "mu": (mu == stated_mu if tried else mu <= stated_mu) and recomputed.exhaustive >= recorded.exhaustive,
            "limit": _rounded(recomputed.limit) == _rounded(recorded.limit),
            "passes": stated.get("passes") == recorded.passes,
            "published": not self.published or (recorded.passes and self.agreed),
        }
        for name, holds in same.items():
            if not holds:
                raise InputError(
                    f"the receipt's gate does not fit its history: {name} is not what follows from it. Take the receipt as it "
                    "was written."
                )


def as_promised(receipt: Mapping[str, Any], happened: Execution) -> Execution:
    """The execution of a receipt, which knows what its gate kept, where there was one."""
    return happened if receipt.get("gate") is None else kept_at_gate(_target_of(receipt, happened), happened)


def _target_of(receipt: Mapping[str, Any], happened: Execution) -> Target:
    hints = Hints.of(receipt)
    if hints.epsilon is None or hints.delta is None or hints.colluding is None:
        raise InputError(
            "field 'certify' does not say what the gate kept. Give a receipt with epsilon, delta and colluding there."
        )
    return Target(
        parties=happened.parties,
        epsilon=hints.epsilon,
        delta=hints.delta,
        colluding=hints.colluding,
        sensitivity=happened.sensitivity,
    )


class _Written(msgspec.Struct):
    digest: str
    incomplete: list[int]
    mu: float
    limit: float
    exhaustive: bool
    votes: list[tuple[int, str, bool]]
    published: bool
    history: dict[str, Any] | None = None
    by_folder: bool = False


class GateRefused(ProtocolFailure):
    """No result: this party published nothing, and nothing of the others arrived. ``record`` says why."""

    def __init__(self, record: GateRecord) -> None:
        super().__init__(
            f"no result, because the gate before the release is closed: {record.reason}. This party published "
            f"nothing. All others together know of its value at most mu {record.before_release:.4g}"
        )
        self.record = record


def history_digest(execution: Execution, incomplete: Collection[PartyId]) -> str:
    """SHA-256 in hexadecimal of all that decides: the history, and the parties of which only a part is known."""
    return digest({"format": "quietmean-gate-1", "history": execution.to_json(), "incomplete": sorted(incomplete)})


@dataclass(frozen=True)
class GateTrials:
    """Simulated histories, dropouts as planned: the largest ``mu`` at the gate, and how many of them were ``refused``.

    ``attempt``: which plan this was the trial of, if earlier ones were given up after theirs.
    """

    mu: float
    trials: int
    refused: int
    attempt: int = 1

    @property
    def no_result(self) -> float:
        """An upper bound on the chance of no result (Clopper-Pearson, 95 % confidence, for all attempts at once)."""
        return exceed_bound(self.trials, self.refused, choices=self.attempt)

    def describe(self) -> dict[str, object]:
        """The trial as an entry of a plan's prediction."""
        bound = float(f"{self.no_result:.3g}")
        return {
            "no_result_probability": bound,
            "gate": f"the release is refused with a chance of at most {bound:.2g} ({self.refused} of {self.trials} simulated "
            f"histories, {CONFIDENCE:.0%} confidence), where dropouts are as planned",
        }


def try_gate(target: Target, executions: Iterable[Execution], attempt: int = 1) -> GateTrials:
    """The gate's decisions on histories."""
    with one_thread():
        decisions = [decide(target, execution) for execution in executions]
    refused = sum(not decision.passes for decision in decisions)
    return GateTrials(max(decision.mu for decision in decisions), len(decisions), refused, attempt)


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
