"""Incoming transfers: accepted when their round is in progress here, parked when it is still to come, refused when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import cast

from quietmean.core.errors import PeerError
from quietmean.core.party import Message, PartyId, Vector
from quietmean.node.net import (
    ACCEPTED,
    REFUSED,
    AnswerFrame,
    CancelTransfer,
    ConfirmTransfer,
    Payload,
    Transfer,
    check_finite,
    decode_vector,
)
from quietmean.node.phase import Phase, Position
from quietmean.node.storage import COMMITTED, PENDING, Store

# Contents that are shorter are copied out of what they came in.
_LONG = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A checked message, and its vector's bytes as they came."""

    message: Message
    encoded: Payload


@dataclass(frozen=True)
class _Parked:
    transfer: Transfer
    arrival: _Arrival
    until: float
    verdict: asyncio.Future[bool]


class Inbox:
    """At most one transfer per sender is parked: a sender is in one round at a time."""

    def __init__(
        self,
        store: Store,
        party: PartyId,
        agreement: Callable[[], bytes],
        on_change: Callable[[], None],
        merge_gossip: Callable[[bytes], None],
        rounds: int,
        grid: float = 0.0,
        *,
        copies: bool = False,
    ) -> None:
        """``merge_gossip`` takes over the encoded logs of a message, or raises PeerError. ``rounds``: of the mixing phase.

        ``grid``: of all vectors, or 0. ``copies``: each party's release is sent to the others, rather than parts of sums.
        """
        self._store = store
        self._party = party
        self._agreement = agreement
        self._on_change = on_change
        self._merge_gossip = merge_gossip
        self._rounds = rounds
        self._grid = grid
        self._copies = copies
        self._parked: dict[PartyId, _Parked] = {}
        self._cancelled: dict[PartyId, Position] = {}
        # The last message of each sender whose gossip is durable.
        self._noted: dict[PartyId, Position] = {}
        # Messages that came before their round, with the agreement that they name, until it is known whether they were used.
        self._early: dict[tuple[Position, PartyId], bytes] = {}
        self._seen: set[tuple[Position, PartyId]] = set()
        self._expected: frozenset[PartyId] = frozenset()
        self._unwanted: frozenset[PartyId] = frozenset()
        self.position: Position = (0, 0)

    def enter(self, position: Position, expected: frozenset[PartyId], unwanted: frozenset[PartyId] = frozenset()) -> None:
        """A new round is in progress: decide on parked transfers. ``unwanted``: senders in the schedule that are refused."""
        self.position, self._expected, self._unwanted = position, expected, unwanted
        now = asyncio.get_running_loop().time()
        for sender, parked in list(self._parked.items()):
            if parked.verdict.done() or _place(parked.transfer) > position:
                continue
            try:
                parked.verdict.set_result(now < parked.until and self._take(sender, parked.transfer, parked.arrival))
            except PeerError as error:
                parked.verdict.set_exception(error)
        due = [message for message in self._early if message[0] <= position]
        early = {message: self._early.pop(message) for message in due}
        self.note_seen([message for message, agreement in early.items() if agreement == self._agreement()])

    def is_early(self, transfer: Transfer) -> bool:
        """Whether the round of a transfer has not begun here: its answer comes when that does."""
        return _place(transfer) > self.position

    def take(self, sender: PartyId, transfer: Transfer, payload: Payload) -> AnswerFrame:
        """The answer to a transfer that is not early. PeerError for an invalid one."""
        return self._answer(transfer, self._take(sender, transfer, self._arrival(sender, transfer, payload)))

    async def transfer(self, sender: PartyId, transfer: Transfer, payload: Payload) -> AnswerFrame:
        """The answer; for an early transfer it comes when its round begins here. PeerError for an invalid transfer."""
        if not self.is_early(transfer):
            return self.take(sender, transfer, payload)
        return self._answer(transfer, await self._park(sender, transfer, self._arrival(sender, transfer, payload)))

    def _arrival(self, sender: PartyId, transfer: Transfer, payload: Payload) -> _Arrival:
        encoded, vector = read_vector(transfer, payload, self._grid)
        content = _content(payload, len(encoded))
        return _Arrival(Message(sender, (self._party,), transfer.round, vector, transfer.weight, content), encoded)

    def cancel(self, sender: PartyId, request: CancelTransfer) -> AnswerFrame:
        """The sender cancels a transfer. It is undone while its round is open here; else the answer says that it was used."""
        position = _place(request)
        parked = self._parked.get(sender)
        if parked is not None and _place(parked.transfer) == position and not parked.verdict.done():
            parked.verdict.set_result(False)
        self._cancelled[sender] = max(position, self._cancelled.get(sender, position))
        taken = self._store.has_accepted(*position, sender)
        if taken and position == self.position:
            self._store.forget(*position, sender)
            self._on_change()
            taken = False
        return self._answer(request, taken)

    def confirm(self, receiver: PartyId, request: ConfirmTransfer) -> AnswerFrame:
        """A restarted receiver asks whether its copy of this party's transfer still stands."""
        status = self._store.sent_status(*_place(request), receiver)
        return self._answer(request, status in (PENDING, ACCEPTED, COMMITTED))

    def _take(self, sender: PartyId, transfer: Transfer, arrival: _Arrival) -> bool:
        position = _place(transfer)
        if self._store.has_accepted(*position, sender):
            if self._store.contradicts(position[0], arrival.message):
                raise PeerError(f"it said something else before in round {transfer.round}: its store was copied, or it lies")
            return True
        if position != self.position or position <= self._cancelled.get(sender, (0, 0)) or sender in self._unwanted:
            self._note_refused(sender, transfer)
            return False
        if sender not in self._expected:
            raise PeerError(f"it sent a message that the schedule does not have in round {transfer.round}")
        if transfer.agreement != self._agreement():
            raise PeerError("it was sent other nonces than this node: some party did not send everybody the same")
        self._merge_gossip(transfer.gossip)
        self._store.accept(position[0], arrival.message, arrival.encoded, transfer.gossip)
        self._noted[sender] = position
        self._on_change()
        return True

    def _note_refused(self, sender: PartyId, transfer: Transfer) -> None:
        """What is not used was seen all the same, and tells of its sender's rounds: the record must not be without it."""
        if self._agreement() != transfer.agreement:
            return
        position = _place(transfer)
        self.note_seen([(position, sender)])
        if not transfer.gossip:
            return
        self._merge_gossip(transfer.gossip)
        # What a sender knows only grows, but old messages may come late.
        if position > self._noted.get(sender, (0, 0)):
            self._store.keep_gossip(sender, transfer.gossip)
            self._noted[sender] = position

    def note_seen(self, messages: Iterable[tuple[Position, PartyId]]) -> None:
        """Note in the log, durably, that messages were seen: their sender may tell nobody that it sent them."""
        new = {
            message
            for message in messages
            if self._is_logged(message[0]) and not self._store.has_accepted(*message[0], message[1])
        }
        new -= self._seen
        if new:
            self._store.note_seen(sorted((*position, sender) for position, sender in new))
            self._seen |= new
            self._on_change()

    def _is_logged(self, position: Position) -> bool:
        """Shares of the mixing rounds, and releases: anyone who was handed one knows it, whether or not it is in any total."""
        if position[0] == Phase.MIXING:
            return 1 <= position[1] <= self._rounds
        return self._copies and position == (int(Phase.DISSEMINATION), 1)

    def _note_parked(self, transfer: Transfer) -> None:
        # Not durable, which would cost a write for each: if it is used or refused, that is. Before the agreement there is
        # nothing to know.
        if transfer.gossip and self._agreement() == transfer.agreement:
            self._merge_gossip(transfer.gossip)

    async def _park(self, sender: PartyId, transfer: Transfer, arrival: _Arrival) -> bool:
        loop = asyncio.get_running_loop()
        self._note_parked(transfer)
        if self._is_logged(_place(transfer)):
            # Whatever becomes of it: its connection may be lost, or a later one of the same sender take its place.
            self._early[_place(transfer), sender] = transfer.agreement
        earlier = self._parked.pop(sender, None)
        parked = _Parked(transfer, arrival, loop.time() + transfer.valid_for / 1000, loop.create_future())
        self._parked[sender] = parked
        if earlier is not None and not earlier.verdict.done():
            if _place(earlier.transfer) == _place(transfer):
                # Two copies of one transfer get the same verdict.
                parked.verdict.add_done_callback(partial(_share_verdict, earlier.verdict))
            else:
                earlier.verdict.set_result(False)
        try:
            return await parked.verdict
        finally:
            # Also when the connection is lost: nobody could receive the answer, so nothing may be accepted.
            if self._parked.get(sender) is parked:
                del self._parked[sender]

    def _answer(self, request: Transfer | CancelTransfer | ConfirmTransfer, yes: bool) -> AnswerFrame:
        return AnswerFrame(request.number, ACCEPTED if yes else REFUSED, *self.position)


def read_vector(transfer: Transfer, payload: Payload, grid: float) -> tuple[Payload, Vector]:
    """The vector of a message as it came, and its numbers. Raises :class:`PeerError` for what is not a message at all."""
    check_finite(transfer.weight, "weight")
    encoded = payload[: transfer.width * transfer.dimension]
    return encoded, decode_vector(encoded, transfer.width, grid)


def _content(payload: Payload, begin: int) -> bytes:
    """What is behind the vector. A long one stays where it came, as a view: those of all others are in memory at once."""
    content = payload[begin:]
    # A view does all that is asked of a content's bytes.
    return bytes(content) if len(content) < _LONG else cast(bytes, memoryview(content).toreadonly())


def _share_verdict(copy: asyncio.Future[bool], verdict: asyncio.Future[bool]) -> None:
    if not copy.done():
        copy.set_result(not verdict.cancelled() and verdict.exception() is None and verdict.result())


def _place(request: Transfer | CancelTransfer | ConfirmTransfer) -> Position:
    return request.phase, request.round
