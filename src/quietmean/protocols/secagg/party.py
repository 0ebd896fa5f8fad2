"""The state machines: a client, and the aggregator, which is also a client of itself, without a network.

Odd rounds go to the aggregator, even ones come from it: adverts, key list, sealed shares, the same forwarded, masked input, the
list of arrivals, unmasking. A client that missed a round, or received a request that it must refuse, sends nothing more; its
``failure`` states why. An aggregator that cannot go on sends the reason to all others and releases nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.publishing import ContentError
from quietmean.protocols.secagg import keys as wire
from quietmean.protocols.secagg.client import Aggregator, Client, ClientRules, Keyed, Shared
from quietmean.protocols.secagg.spec import decode_sum, empty_sum, wrap
from quietmean.randomness import ExchangeKey, Seed

ROUNDS = 7
_NOTHING = np.empty(0)

Content = TypeVar("Content")
Reader: TypeAlias = Callable[[Message], Content]


@dataclass(frozen=True, slots=True)
class ClientState:
    """The state of a client of secure aggregation.

    ``failure``: the reason why this party takes no further part; empty while it takes part.
    """

    round: int
    failure: str = ""
    keyed: Keyed | None = None
    shared: Shared | None = None


class ClientParty:
    """A client: answers each message of the aggregator. Its value has shape (d,)."""

    rounds = ROUNDS
    state_type = ClientState

    def __init__(
        self, rules: ClientRules, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        self._client = Client(rules, party, schedule.partners(party), value, weight, noise)
        self._aggregator = rules.parameters.aggregator
        self._party = party
        self._weight = weight

    def start(self) -> Step[ClientState]:
        return self._send(ClientState(1), self._client.advertise())

    def end_round(self, state: ClientState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[ClientState]:
        following = replace(state, round=state.round + 1)
        if state.failure or state.round % 2:
            return Step(following)
        try:
            return self._answer(following, wire.read_from_aggregator(self._only_content(state.round, received)))
        except ContentError as refusal:
            return Step(ClientState(following.round, str(refusal)))

    def _answer(self, state: ClientState, content: bytes) -> Step[ClientState]:
        if state.keyed is None:
            keyed = self._client.read_keys(content)
            return self._send(replace(state, keyed=keyed), self._client.share_keys(keyed))
        if state.shared is None:
            shared = self._client.read_shares(state.keyed, content)
            masked = wire.write_words(self._client.masked_input(state.keyed, shared))
            return self._send(replace(state, shared=shared), masked, self._weight)
        return self._send(state, self._client.unmask(state.keyed, state.shared, content))

    def miss_round(self, state: ClientState) -> Step[ClientState]:
        away = f"this party was away in round {state.round}"
        return Step(replace(state, round=state.round + 1, failure=state.failure or away))

    def expects(self, state: ClientState) -> frozenset[PartyId]:
        silent = state.failure or state.round % 2 or state.round > ROUNDS
        return frozenset() if silent else frozenset({self._aggregator})

    def _send(self, state: ClientState, content: bytes, weight: float = 0.0) -> Step[ClientState]:
        return Step(state, (Message(self._party, (self._aggregator,), state.round, _NOTHING, weight, content),))

    def _only_content(self, round_: int, received: Sequence[Message]) -> bytes:
        contents = [message.content for message in received if message.sender == self._aggregator and message.round == round_]
        if len(contents) != 1 or len(received) != 1:
            raise ContentError(f"the aggregator sent nothing in round {round_}")
        return contents[0]


@dataclass(frozen=True, slots=True)
class AggregatorState:
    """The state of the aggregator.

    ``due``: the parties whose messages are awaited; ``adverts``: by party; ``sharing`` and ``arrived``: the parties whose
    shares and inputs arrived; ``own``: the shares sealed for itself. ``total`` and ``weight`` are the sum of the masked inputs,
    as words, and of the public weights.
    """

    round: int
    failure: str = ""
    due: tuple[PartyId, ...] = ()
    adverts: dict[PartyId, bytes] | None = None
    sharing: tuple[PartyId, ...] = ()
    own: bytes = b""
    arrived: tuple[PartyId, ...] = ()
    total: bytes = b""
    weight: float = 0.0


class AggregatorParty:
    """The aggregator of all clients, which is also the client of its own value (d,)."""

    rounds = ROUNDS
    state_type = AggregatorState

    def __init__(
        self, rules: ClientRules, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        self._rules = rules
        self._schedule = schedule
        self._party = party
        self._value = value
        self._weight = weight
        self._noise = noise
        self._client = Client(rules, party, schedule.partners(party), value, weight, noise)

    @cached_property
    def _aggregator(self) -> Aggregator:
        return Aggregator(self._rules, tuple(self._schedule.partners(party) for party in range(self._rules.parties)))

    def start(self) -> Step[AggregatorState]:
        return Step(AggregatorState(1, due=tuple(other for other in range(self._rules.parties) if other != self._party)))

    def expects(self, state: AggregatorState) -> frozenset[PartyId]:
        return frozenset() if state.failure or state.round % 2 == 0 else frozenset(state.due)

    def miss_round(self, state: AggregatorState) -> Step[AggregatorState]:
        return self._give_up(state, state.failure or f"the aggregator was away in round {state.round}", ())

    def end_round(
        self, state: AggregatorState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[AggregatorState]:
        if state.failure:
            return Step(replace(state, round=state.round + 1))
        if state.round % 2 == 0:
            return Step(replace(state, round=state.round + 1, due=tuple(sorted(delivered))))
        inbox = self._inbox(state, received)
        close = {1: self._close_adverts, 3: self._close_shares, 5: self._close_inputs, 7: self._close_unmasking}[state.round]
        try:
            return close(state, inbox)
        except ProtocolFailure as failure:
            return self._give_up(state, str(failure), tuple(inbox))

    def _inbox(self, state: AggregatorState, received: Sequence[Message]) -> dict[PartyId, Message]:
        """The messages of this round by sender. A sender of two messages counts as absent."""
        senders = [message.sender for message in received if message.round == state.round]
        usable = [message for message in received if message.round == state.round and senders.count(message.sender) == 1]
        return {message.sender: message for message in sorted(usable, key=lambda message: message.sender)}

    def _close_adverts(self, state: AggregatorState, inbox: Mapping[PartyId, Message]) -> Step[AggregatorState]:
        # A key made only to test whether the others' keys are valid.
        probe = ExchangeKey(Seed(self._noise.secret("key probe", 0)))
        adverts = {sender: m.content for sender, m in inbox.items() if self._aggregator.accept_advert(m.content, probe)}
        adverts = dict(sorted((adverts | {self._party: self._client.advertise()}).items()))
        self._check_minimum(len(adverts), "keys")
        contents = {other: self._aggregator.key_list(other, adverts) for other in adverts}
        return self._send(replace(state, adverts=adverts), contents)

    def _close_shares(self, state: AggregatorState, inbox: Mapping[PartyId, Message]) -> Step[AggregatorState]:
        listed = frozenset(state.adverts or {})
        sealed = self._readable(inbox, lambda m: self._aggregator.read_sealed(m.sender, listed, m.content))
        try:
            own = self._client.share_keys(self._keyed(state))
            sealed = dict(sorted((sealed | {self._party: self._aggregator.read_sealed(self._party, listed, own)}).items()))
        except ContentError:
            pass  # Too few of its own neighbours: it stops as a client and continues as the aggregator.
        self._check_minimum(len(sealed), "shares")
        contents = {other: self._aggregator.forwarded(other, sealed) for other in sealed}
        return self._send(replace(state, sharing=tuple(sealed), own=contents.get(self._party, b"")), contents)

    def _close_inputs(self, state: AggregatorState, inbox: Mapping[PartyId, Message]) -> Step[AggregatorState]:
        parameters = self._rules.parameters
        total = empty_sum(parameters, self._value.size)
        masked = self._readable(
            {sender: m for sender, m in inbox.items() if 0 <= m.weight <= parameters.largest_weight},
            lambda m: wire.read_words(m.content, parameters.bits, total.size),
        )
        weights = {sender: inbox[sender].weight for sender in masked}
        try:
            keyed, shared = self._keyed(state), self._shared(state)
            masked[self._party] = self._client.masked_input(keyed, shared)
            weights[self._party] = self._weight
        except ContentError:
            pass
        for words in masked.values():
            total += words
        arrived = tuple(sorted(masked))
        self._check_minimum(len(arrived), "inputs")
        weight = float(sum(weights[party] for party in arrived))
        summed = wire.write_words(wrap(total, parameters.bits))
        following = replace(state, arrived=arrived, total=summed, weight=weight)
        content = self._aggregator.request(frozenset(state.sharing), frozenset(arrived))
        return self._send(following, dict.fromkeys(arrived, content))

    def _close_unmasking(self, state: AggregatorState, inbox: Mapping[PartyId, Message]) -> Step[AggregatorState]:
        parameters, sharing, arrived = self._rules.parameters, frozenset(state.sharing), frozenset(state.arrived)
        answers = self._readable(inbox, lambda m: self._aggregator.read_unmasking(m.sender, sharing, m.content))
        try:
            request = self._aggregator.request(sharing, arrived)
            own = self._client.unmask(self._keyed(state), self._shared(state), request)
            answers[self._party] = self._aggregator.read_unmasking(self._party, sharing, own)
        except ContentError:
            pass
        masked = wire.read_words(state.total, parameters.bits, parameters.words(self._value.size))
        total = self._aggregator.unmask(masked, sharing, arrived, state.adverts or {}, answers)
        vector = decode_sum(parameters, total, state.weight, self._value.size)
        return Step(AggregatorState(ROUNDS + 1, arrived=state.arrived), release=Release(vector, state.weight))

    def _readable(self, inbox: Mapping[PartyId, Message], read: Reader[Content]) -> dict[PartyId, Content]:
        """The contents that can be read; a message that cannot counts as not arrived."""
        contents = {}
        for sender, message in inbox.items():
            try:
                contents[sender] = read(message)
            except ContentError:
                continue
        return contents

    def _keyed(self, state: AggregatorState) -> Keyed:
        return self._client.read_keys(self._aggregator.key_list(self._party, state.adverts or {}))

    def _shared(self, state: AggregatorState) -> Shared:
        return self._client.read_shares(self._keyed(state), state.own)

    def _check_minimum(self, count: int, subject: str) -> None:
        minimum = self._rules.parameters.minimum
        if count < minimum:
            raise ProtocolFailure(f"{subject} of {count} parties arrived, fewer than the minimum of {minimum}. Run again.")

    def _send(self, state: AggregatorState, contents: Mapping[PartyId, bytes]) -> Step[AggregatorState]:
        following = replace(state, round=state.round + 1, due=())
        messages = [
            Message(self._party, (other,), following.round, _NOTHING, 0.0, wire.go_on(content))
            for other, content in contents.items()
            if other != self._party
        ]
        return Step(following, tuple(messages))

    def _give_up(self, state: AggregatorState, reason: str, recipients: tuple[PartyId, ...]) -> Step[AggregatorState]:
        """End the run. No secret is kept, so that nothing can be unmasked later."""
        following = AggregatorState(state.round + 1, reason)
        if not recipients or following.round > ROUNDS:
            return Step(following)
        return Step(following, (Message(self._party, recipients, following.round, _NOTHING, 0.0, wire.ended(reason)),))
