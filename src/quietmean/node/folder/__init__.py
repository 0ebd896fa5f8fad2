"""A folder as the wire: sealed and signed files in slots, for parties that no connection joins.

Requests and answers of two parties as files in a folder: the links of a session where no connection joins the parties.

The requests of each party to each other one are numbered, and read in that order; an answer has the number of its request. So a
party knows at any time which files are due, lists only those, and reads nothing twice: old files, however often they are shown,
are of numbers that its own store has. Each message is durable in the outbox before it is put, and is put again until its receiver
said that it has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import InputError, NotYet, PeerError, StorageError, named
from quietmean.core.party import PartyId
from quietmean.node.folder.place import DiskPlace, FolderStorage, OwnFile, Poller, Seen, parse_folder
from quietmean.node.folder.slot import OVERHEAD, Outbox, Parties, Slot, SlotKind, Timetable, open_file, seal_file
from quietmean.node.mailbox import Mailbox
from quietmean.node.net import (
    ACCEPTED,
    AnswerFrame,
    AnyRequest,
    ConfirmTransfer,
    Endpoint,
    Handler,
    Heartbeat,
    Identity,
    OnAnswer,
    Payload,
    WithheldError,
    decode_header,
    encode_frame,
)
from quietmean.node.phase import Position
from quietmean.node.tasks import Tasks

# Answers of one party that are looked for at a time.
_ANSWERS: Final = 8
# Requests of one party that are being answered at a time; the next ones wait in the folder.
WINDOW: Final = 16
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 2.0
# A process that is to end soon looks so often in vain before; on a slow share that is long.
_QUIET_LOOKS: Final = 3
# Before a round is closed, or all, what is there is read; who shows something new for ever is not waited for.
_LAST_LOOKS: Final = 64
# The clock may be set while nobody looks at it; a time shorter than the least may be none (s).
_LEAST_NAP, _LONGEST_NAP = 0.01, 30.0
# Of a frame's encoding before its header.
_LENGTHS: Final = 8
_SPARE: Final = 1024


@dataclass(frozen=True)
class FolderSettings:
    """The folder as one site has it: ``place`` of the session (by its digest), own mailbox key and everybody's public ones.

    ``quiet``: a process ends once nothing new came for so many seconds, to be started again later. ``clock``: the time of
    this machine, seconds since 1970.
    """

    place: Callable[[str], FolderStorage]
    mailbox: Mailbox | None = field(repr=False)
    mailboxes: Mapping[PartyId, bytes] = field(repr=False)
    timetable: Timetable
    quiet: float = math.inf
    clock: Callable[[], float] = time.time


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """What is sealed. ``received``: all answers up to this number have come to the sender."""

    received: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    header: bytes
    payload: bytes


@dataclass
class _Peer:
    """What is known of one other party."""

    next_number: int
    answered: set[int]
    # The next request of it to be read, and those that are being answered.
    expected: int = 1
    answering: int = 0
    waiting: dict[int, list[tuple[asyncio.Future[AnswerFrame], OnAnswer]]] = field(default_factory=dict)
    # Own requests whose answers have not come; those of processes that died included.
    unanswered: set[int] = field(default_factory=set)
    # Why nothing of it is read any more.
    refused: str = ""

    @property
    def received(self) -> int:
        return min(self.unanswered, default=self.next_number) - 1

    def skip_answered(self) -> None:
        while self.expected in self.answered:
            self.expected += 1


class FolderTransport:
    """All links of one party. ``handle`` answers requests; ``answered`` gets every answer that somebody waits for.

    Raises :class:`InputError` without a mailbox key, and, from :meth:`watch`, where files of this party are there that its outbox
    does not have.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        settings: FolderSettings,
        outbox: Outbox,
        handle: Handler,
    ) -> None:
        if settings.mailbox is None:
            raise InputError(
                "the keys of this party for this study were deleted with its result. Give "
                f"{named('store')} with the one that has it."
            )
        self._endpoint, self._identity, self._outbox = endpoint, identity, outbox
        self._handle = handle
        keys = [entry.public_key for entry in endpoint.roster.entries]
        self._parties = Parties(endpoint.study, keys, settings.mailboxes)
        limits = endpoint.limits
        largest = OVERHEAD + _SPARE + limits.header + max(8 * limits.dimension + limits.content, limits.log)
        self._looker = Poller(settings.place(endpoint.study), self._parties, settings.mailbox, largest)
        self._outgoing = {slot: OwnFile.of(slot, file) for slot, file in outbox.waiting()}
        self._timetable, self._clock = settings.timetable, settings.clock
        # How many looks into the folder have begun, and the last of them that found nothing new.
        self._looks = self._quiet_look = 0
        self._look_ended = asyncio.Condition()
        self._wake = asyncio.Event()
        self._tasks = Tasks(endpoint.fail)
        self._first_look = True
        self._peers = {party: self._peer(party) for party in range(len(keys)) if party != endpoint.party}
        self.links = {party: FolderLink(self, party) for party in self._peers}

    def _peer(self, party: PartyId) -> _Peer:
        peer = _Peer(self._outbox.next_number(party), self._outbox.answered(party))
        peer.unanswered = {slot.number for slot in self._outgoing if (slot.kind, slot.receiver) == (SlotKind.REQUEST, party)}
        peer.skip_answered()
        return peer

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, party: PartyId, request: AnyRequest, payload: Payload, on_answer: OnAnswer) -> AnswerFrame:
        """The answer to one request, which stays in the folder also where its caller gives up.

        What a process before asked is not asked again.
        """
        if isinstance(request, Heartbeat | ConfirmTransfer):
            # Nobody is known to be there now; and what a party takes back it tells by a file, in its order.
            raise TimeoutError
        peer = self._peers[party]
        digest = hashlib.sha256(encode_frame(msgspec.structs.replace(request, number=0), len(payload)) + payload).digest()
        number, before = self._outbox.last_request(party, digest) or (0, None)
        if before is not None and (earlier := _answer(before)).status == ACCEPTED:
            on_answer(earlier)
            return earlier
        if number == 0 or before is not None:
            number = self._ask_anew(peer, party, request, payload, digest)
        answer: asyncio.Future[AnswerFrame] = asyncio.get_running_loop().create_future()
        waiting = peer.waiting.setdefault(number, [])
        waiting.append((answer, on_answer))
        try:
            received = await answer
            self._endpoint.answered(party, request, received)
            return received
        finally:
            waiting.remove((answer, on_answer))

    def _ask_anew(self, peer: _Peer, party: PartyId, request: AnyRequest, payload: Payload, digest: bytes) -> int:
        slot = Slot(SlotKind.REQUEST, peer.next_number, self._endpoint.party, party)
        request = msgspec.structs.replace(request, number=slot.number)
        # What is in the outbox will be put: from here on it counts as sent.
        self._send(slot, encode_frame(request, len(payload))[_LENGTHS:], bytes(payload), digest)
        peer.next_number += 1
        peer.unanswered.add(slot.number)
        return slot.number

    def _send(self, slot: Slot, header: bytes, payload: bytes = b"", request: bytes | None = None) -> None:
        content = msgspec.msgpack.encode(_Content(self._peers[slot.receiver].received, header, payload))
        file = seal_file(self._parties, slot, content, self._identity)
        self._outbox.add(slot, file, request)
        self._outgoing[slot] = OwnFile.of(slot, file)
        self._endpoint.traffic.sent += len(file)
        self._wake.set()

    # --- the folder --------------------------------------------------------------------------------------------------

    async def watch(self, quiet: float = math.inf) -> None:
        """Put and read until cancelled, or until nothing new has come or gone for ``quiet`` seconds, which raises NotYet.

        Raises :class:`InputError` for a store that is not the newest of this party.
        """
        pause, since, in_vain = _FIRST_PAUSE, time.monotonic(), 0
        while True:
            self._wake.clear()
            self._looks += 1
            trouble = ""
            try:
                sent = set(self._outgoing)
                news = await self._once()
                if not news:
                    self._quiet_look = self._looks
            except OSError as error:
                news, trouble = False, f"the folder cannot be used now ({error.strerror or error})"
            async with self._look_ended:
                self._look_ended.notify_all()
            if news or self._outgoing.keys() != sent:
                since, in_vain = time.monotonic(), 0
            in_vain += 1
            if in_vain > _QUIET_LOOKS and time.monotonic() - since > quiet:
                raise NotYet(trouble or "all is done that can be done now. Run the same command again later, the study goes on.")
            for link in self.links.values():
                link.trouble = trouble or link.usual_trouble
            pause = _FIRST_PAUSE if news else min(2 * pause, _LAST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def closed(self, position: Position) -> None:
        """Returns when this party waits for nobody at a position any more: after its time, when all that was there is read.

        The time of a file says nothing: who can write to the folder can set it.
        """
        end = self._timetable.end(position)
        while (seconds := end - self._clock()) > 0:
            await asyncio.sleep(min(max(seconds, _LEAST_NAP), _LONGEST_NAP))
        begun = self._looks
        self._wake.set()
        async with self._look_ended:
            await self._look_ended.wait_for(lambda: self._quiet_look > begun or self._looks >= begun + _LAST_LOOKS)

    def came(self) -> set[PartyId]:
        """The parties of whom anything came that this party has answered, in any process of it."""
        return {party for party, peer in self._peers.items() if peer.answered}

    async def _once(self) -> bool:
        """Look at the folder once; whether there was anything new."""
        outgoing, due = dict(self._outgoing), self._due()
        own = self._unknown_own() if self._first_look else []
        files = await asyncio.to_thread(self._looker.look, outgoing, due, own)
        self._first_look = False
        for seen in sorted(files, key=lambda seen: seen.slot.number):
            self._take(seen)
        return bool(files) or self._looker.in_vain > 0

    def _due(self) -> list[Slot]:
        """The slots that are listed: answers that are missing, and of each party the next request."""
        own, slots = self._endpoint.party, []
        for party, peer in self._peers.items():
            if peer.refused:
                continue
            slots += [Slot(SlotKind.ANSWER, number, party, own) for number in sorted(peer.unanswered)[:_ANSWERS]]
            if peer.answering < WINDOW:
                slots.append(Slot(SlotKind.REQUEST, peer.expected, party, own))
        return slots

    def _unknown_own(self) -> list[Slot]:
        """Where a message of this party would be that its outbox does not know."""
        own, slots = self._endpoint.party, []
        for party, peer in self._peers.items():
            slots.append(Slot(SlotKind.REQUEST, peer.next_number, own, party))
            slots.append(Slot(SlotKind.ANSWER, peer.expected, own, party))
        return slots

    # --- what came ---------------------------------------------------------------------------------------------------

    def _take(self, seen: Seen) -> None:
        slot = seen.slot
        peer = self._peers[slot.sender]
        self._looker.forget(slot)
        self._endpoint.traffic.received += seen.size
        try:
            if seen.fault:
                raise PeerError(seen.fault)
            content = _decode(seen.content)
            if slot.kind == SlotKind.ANSWER:
                self._take_answer(slot, peer, content)
            else:
                self._take_request(slot, peer, content)
        except PeerError as error:
            peer.refused = str(error)
            self.links[slot.sender].usual_trouble = str(error)
            self._endpoint.refusal(self._endpoint.roster.name(slot.sender), str(error))

    def _take_answer(self, slot: Slot, peer: _Peer, content: _Content) -> None:
        answer = _answer(content.header)
        if answer.number != slot.number:
            raise PeerError("it sent something else than the answer that this party waits for")
        own = Slot(SlotKind.REQUEST, slot.number, slot.receiver, slot.sender)
        peer.unanswered.discard(slot.number)
        self._outbox.received(own, content.header)
        self._outgoing.pop(own, None)
        self._heard_of(slot.sender)
        self._endpoint.heard(slot.sender, (answer.phase, answer.round))
        for waiting, on_answer in peer.waiting.get(slot.number, ()):
            if not waiting.done():
                on_answer(answer)
                waiting.set_result(answer)

    def _take_request(self, slot: Slot, peer: _Peer, content: _Content) -> None:
        limits = self._endpoint.limits
        limits.check(len(content.header), len(content.payload))
        request = decode_header(content.header)
        limits.check_payload(request, len(content.payload))
        if not isinstance(request, AnyRequest) or request.number != slot.number:
            raise PeerError("it sent something else than a request with its number")
        self._heard_of(slot.sender)
        for answer in [each for each in self._outgoing if each.kind == SlotKind.ANSWER and each.receiver == slot.sender]:
            if answer.number <= content.received:
                self._outbox.received(answer)
                self._outgoing.pop(answer)
        peer.expected = slot.number + 1
        peer.skip_answered()
        peer.answering += 1
        self._tasks.spawn(self._answer(slot, peer, request, content.payload))

    def _heard_of(self, party: PartyId) -> None:
        self.links[party].usual_trouble = "its files have stopped coming"

    async def _answer(self, slot: Slot, peer: _Peer, request: AnyRequest, payload: bytes) -> None:
        try:
            answer = await self._handle(slot.sender, request, payload)
        except PeerError as error:
            self._endpoint.refusal(self._endpoint.roster.name(slot.sender), str(error))
            return
        except ConnectionAbortedError:
            # Anyone who handles requests knows: they are read again once there is another session.
            return
        finally:
            peer.answering -= 1
            self._wake.set()
        own = Slot(SlotKind.ANSWER, slot.number, slot.receiver, slot.sender)
        self._send(own, encode_frame(answer)[_LENGTHS:])
        peer.answered.add(slot.number)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def close(self, *, answering: bool = True) -> None:
        """End; before that answer what came, and put what waits: of each party, a look reads one request."""
        with contextlib.suppress(OSError, InputError, StorageError):
            for _ in range(_LAST_LOOKS if answering else 0):
                put = set(self._outgoing)
                news = await self._once()
                if self._tasks:
                    await asyncio.wait(list(self._tasks), timeout=_FIRST_PAUSE)
                if not news and self._outgoing.keys() <= put:
                    break
        await self._tasks.stop()


class FolderLink:
    """The files to and from one party, as a session asks for it."""

    unreachable = False

    def __init__(self, post: FolderTransport, party: PartyId) -> None:
        self._post, self._party = post, party
        self.usual_trouble = "no file of it has come to the folder"
        self.trouble = self.usual_trouble

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: OnAnswer = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        """Send a request to the peer by files: see :meth:`quietmean.node.net.Link.ask`."""
        if unless():
            raise WithheldError
        return await self._post.ask(self._party, request, payload, on_answer)

    async def close(self) -> None:
        """The post closes all of them."""


def _answer(header: bytes) -> AnswerFrame:
    answer = decode_header(header)
    if not isinstance(answer, AnswerFrame):
        raise PeerError("it sent something else than the answer that this party waits for")
    return answer


def _decode(raw: bytes) -> _Content:
    return decode(raw, _Content, lambda reason: PeerError("the content of the file cannot be read"))


__all__ = [
    "DiskPlace",
    "FolderLink",
    "FolderSettings",
    "FolderStorage",
    "FolderTransport",
    "Outbox",
    "Parties",
    "Slot",
    "SlotKind",
    "Timetable",
    "open_file",
    "parse_folder",
    "seal_file",
]
