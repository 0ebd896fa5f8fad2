"""What a party concludes once all logs are there: the execution, the total, and what nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from quietmean.core.arrays import Array
from quietmean.core.errors import NothingPublished, ProtocolFailure
from quietmean.core.party import PartyId, Release
from quietmean.graphs import Schedule
from quietmean.node.phase import Phase
from quietmean.node.session.carrier import MadeOnce
from quietmean.node.session.logs import PartialLog, PartyLog
from quietmean.node.session.reconstruction import reconstruct
from quietmean.node.session.settings import NodeSettings
from quietmean.node.storage import IN_DOUBT, Store
from quietmean.planning import Plan
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import Mechanism
from quietmean.randomness import Seed

# Final logs, who else released, and gossiped logs.
Said: TypeAlias = tuple[Mapping[PartyId, PartyLog], tuple[PartyId, ...], Mapping[PartyId, PartialLog]]


@dataclass(frozen=True)
class Mixed:
    """What the mixing rounds left at a party: the ``protocol`` as carried out, all ``weights``, and why there may be nothing, in
    words and as a fact.
    """

    protocol: Mechanism
    weights: Array
    remarks: tuple[str, ...]
    nothing_published: bool


def total_of(settings: NodeSettings, store: Store, heard_from: tuple[PartyId, ...], mixed: Mixed) -> Release:
    """The total of those who were heard. Raises :class:`ProtocolFailure` where this party has none."""
    protocol, parties = settings.plan.protocol, settings.plan.target.parties
    if not protocol.traits.releases_are_public:
        return _own_result(store, mixed)
    total = store.release(Phase.DISSEMINATION)
    others = protocol.traits.releasers(parties) - {settings.party}
    if total is None or (total.weight <= 0 and mixed.weights.any()) or (others and not others & set(heard_from)):
        reason = "; ".join(mixed.remarks) or "the others had left or finished, ask one for the result"
        raise ProtocolFailure(f"no other party's result arrived here: {reason}")
    return total


def _own_result(store: Store, mixed: Mixed) -> Release:
    release = store.release(Phase.MIXING)
    if release is None:
        away = "this party was away at the end and has no result: the others have it, ask one of them"
        failure = NothingPublished if mixed.nothing_published else ProtocolFailure
        raise failure(f"no result: {'; '.join(mixed.remarks)}" if mixed.remarks else away)
    return release


def unresolved(plan: Plan, store: Store, known_until: Mapping[PartyId, int]) -> tuple[tuple[int, int, PartyId], ...]:
    """The messages of which nobody knows whether they were used, as (phase, round, receiver)."""
    found = []
    for phase, round_, receiver in store.taken_back(IN_DOUBT):
        if phase == Phase.MIXING:
            open_ = plan.protocol.traits.transfers_mass and round_ > known_until.get(receiver, 0)
        else:
            # Releases that are sent to all are copies: no share is in doubt.
            open_ = plan.dissemination.transfers_mass
        if open_:
            found.append((phase, round_, receiver))
    return tuple(found)


def execution_of(plan: Plan, drawn: tuple[Schedule, Seed], mixed: Mixed, said: Said, shared: MadeOnce) -> Execution:
    """The mixing phase as it really went, by what was said of it; ``drawn``: with the public seed."""
    (schedule, seed), (logs, heard_from, gossip) = drawn, said
    released = frozenset(heard_from).union(*(log.heard for log in logs.values()))

    def made() -> Execution:
        trace = reconstruct(schedule, logs, released, gossip, transfers_mass=plan.protocol.traits.transfers_mass)
        return replace(plan.execution(seed, trace, mixed.weights), protocol=mixed.protocol)

    heard = tuple(sorted(logs.items())), tuple(sorted(gossip.items()))
    return shared(("execution", plan, seed.secret, tuple(mixed.weights), mixed.protocol, released, heard), made)
