"""What a party has of a round of a series that is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from quietmean.core.party import PartyId
from quietmean.node.session import NodeResult
from quietmean.planning import Plan
from quietmean.protocols.execution import Execution


@dataclass(frozen=True)
class RoundEnd:
    """``number``: of the round, from 1. ``bytes_sent``: of this party in it.

    ``not_heard``: parties whose releases did not arrive here, or cannot be; they may be in what others have. ``execution``: the
    round as it really went, without these where nothing of their values can be in the mean.
    """

    number: int
    result: NodeResult
    bytes_sent: int
    not_heard: tuple[PartyId, ...]
    execution: Execution

    @classmethod
    def of(cls, number: int, result: NodeResult, bytes_sent: int, plan: Plan) -> Self:
        missing, execution = what_arrived(result, plan)
        return cls(number, result, bytes_sent, tuple(sorted(missing)), execution)


def what_arrived(result: NodeResult, plan: Plan) -> tuple[frozenset[PartyId], Execution]:
    """Whose releases did not arrive here, and the execution as :class:`RoundEnd` has it."""
    releasers = plan.protocol.releasers(plan.target.parties)
    inside = frozenset(np.nonzero(result.execution.contributors())[0].tolist())
    missing = (releasers & inside) - set(result.heard) if plan.releases_are_copies else frozenset()
    without = missing if len(releasers) == plan.target.parties else frozenset()
    if plan.protocol.transfers_mass:
        # What a party passed on others may have released: nothing is in the result of who passed on nothing that anybody took.
        taken = np.nonzero(result.execution.trace.delivered(result.execution.schedule))[1]
        without -= set(taken.tolist())
    return missing, result.execution.without(without) if without else result.execution
