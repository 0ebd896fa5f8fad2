"""A party of GOPA without a collector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.party import Message, PartyId, Release, Step
from quietmean.protocols.gopa.masked_value import MaskedValue
from quietmean.protocols.gopa.spec import EXCHANGE, PEER_ROUNDS, RELEASE

# The message of a party to its partners: it is online, and adds their shared noise.
HERE = b"\x01"


@dataclass(frozen=True, slots=True)
class GopaPeerState:
    """``sharing``: the partners whose noise is on what this party publishes; empty before the first round is over."""

    round: int
    sharing: tuple[PartyId, ...] = ()


class GopaPeer(MaskedValue):
    """Tells its partners that it is there; then publishes its value under the noise that it shares with those that are.

    A partner counts if each heard the other, as far as this party knows. What others would have had to roll back is so left out
    before anything is published: nobody learns it. Whoever leaves after the first round leaves its noise with its partners.
    """

    rounds = PEER_ROUNDS
    state_type = GopaPeerState

    def start(self) -> Step[GopaPeerState]:
        recipients = self._schedule.recipients(EXCHANGE, self._party)
        if not recipients:
            return Step(GopaPeerState(EXCHANGE))
        return Step(GopaPeerState(EXCHANGE), (Message(self._party, recipients, EXCHANGE, np.zeros(0), 0.0, HERE),))

    def end_round(self, state: GopaPeerState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[GopaPeerState]:
        later = replace(state, round=state.round + 1)
        if state.round == EXCHANGE:
            heard = {message.sender for message in received if message.content == HERE and not message.vector.size}
            return Step(replace(later, sharing=tuple(other for other in self._partners if other in heard & delivered)))
        if state.round != RELEASE or len(state.sharing) < self._parameters.least_partners:
            return Step(later)
        return Step(later, release=Release(self._masked(state.sharing), self._weight))

    def miss_round(self, state: GopaPeerState) -> Step[GopaPeerState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaPeerState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)
