"""The members' own exchange as a protocol of those who are there: what a node needs to know of it to run one.

Its parties are the members of a committee, who have no values; what is promised and certified is of the contributors
(:mod:`quietmean.protocols.committee.mechanism`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core.party import Message, NoiseSource, PartyId, PartyMachine, Step, Vector
from quietmean.core.schema import parameter
from quietmean.graphs import Schedule, everybody
from quietmean.protocols import literature
from quietmean.protocols.committee.mechanism import DESIGNED, CommitteeFields
from quietmean.protocols.committee.member import CommitteeMachine, warnings
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.voting import CommitteeState
from quietmean.protocols.mechanism import Closing, Mechanism
from quietmean.protocols.traits import Traits, Volume
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes that any statement has room for, besides what grows with the study.
_SLACK = 4096


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CommitteeOpening(CommitteeFields, Mechanism):
    """Members deal noise, list contributions, agree on a choice of them, and open one sum."""

    name = "committee-opening"
    TRAITS = Traits(
        summary="the members of a committee open one sum of what others contributed",
        sources=(literature.SHARING, literature.PACKED_SHARING),
        guarantee="none of its own: members have no values",
        private=False,
        linear=False,
        batchable=False,
        releases_are_public=False,
        refuses_messages=True,
        sends_to_all=True,
    )

    admitted: int = parameter(help="who may contribute", at_least=1, remedy="choose 1 or more")

    @classmethod
    def of_session(cls, parameters: CommitteeParameters) -> CommitteeOpening:
        """The protocol with the parameters of a session's design."""
        fields = {name: getattr(parameters, name) for name in DESIGNED}
        return cls(**fields | {"size": str(parameters.size)}, admitted=parameters.contributors)

    @property
    def whole(self) -> CommitteeParameters:
        """The parameters of the session."""
        return self.parameters(self.admitted)

    @property
    def rounds(self) -> int:
        return self.whole.rounds

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        """Everybody who is there may send to all others in every round: who leads is public, and not drawn from the seed."""
        table = np.empty((self.rounds, parties, parties - 1), dtype=np.int32)
        table[:] = everybody(parties)
        return Schedule(table)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """Make no machine. Raises TypeError: a member's machine needs its keys and what it holds, see :class:`QuorumMachine`."""
        raise TypeError("a member's machine is made of its keys and what it holds")

    def traffic(self, parties: int, dimension: int) -> Volume:
        return replace(super().traffic(parties, dimension), content_limit=most_content(self.whole))

    def ending(self, state: CommitteeState) -> Closing:
        return Closing(self, warnings(self.whole, state))


def most_content(parameters: CommitteeParameters) -> int:
    """The most bytes of what one member sends another at once: lists, choices, a result."""
    return _SLACK + CommitteeMachine.most_content(parameters)


class QuorumMachine:
    """A member's machine for the members who are there: these have other numbers, and nobody hears of the others.

    ``places``: the member number of each party that is there. ``opened``: called with a state that has a result, before it is
    kept, as often as it takes.
    """

    state_type = CommitteeState

    def __init__(self, machine: CommitteeMachine, places: Sequence[int], opened: Callable[[CommitteeState], None]) -> None:
        self._machine, self._places, self._opened = machine, tuple(places), opened
        self._parties = {member: party for party, member in enumerate(self._places)}

    @property
    def rounds(self) -> int:
        return self._machine.rounds

    def start(self) -> Step[CommitteeState]:
        return self._told(self._machine.start())

    def end_round(
        self, state: CommitteeState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[CommitteeState]:
        heard = [replace(message, sender=self._places[message.sender]) for message in received]
        return self._told(self._machine.end_round(state, heard, frozenset(self._places[party] for party in delivered)))

    def miss_round(self, state: CommitteeState) -> Step[CommitteeState]:
        return self._told(self._machine.miss_round(state))

    def expects(self, state: CommitteeState) -> frozenset[PartyId]:
        return frozenset(self._parties[member] for member in self._machine.expects(state) if member in self._parties)

    def _told(self, step: Step[CommitteeState]) -> Step[CommitteeState]:
        if step.state.has_result:
            self._opened(step.state)
        return replace(step, send=tuple(message for sent in step.send if (message := self._renumbered(sent)).recipients))

    def _renumbered(self, message: Message) -> Message:
        recipients = tuple(self._parties[member] for member in message.recipients if member in self._parties)
        return replace(message, sender=self._parties[message.sender], recipients=recipients)
