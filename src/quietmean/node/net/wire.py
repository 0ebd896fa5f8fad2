"""The wire format: frames of two lengths, a MessagePack header, and raw float64 or int32 values.

``4 bytes header length | 4 bytes payload length | header | payload``, lengths big-endian, values little-endian. Every length is
checked against its limit before anything of that size is read or reserved. Anything malformed raises PeerError.

A payload longer than :data:`PART` is announced by its header and follows in parts, ``4 zero bytes | 4 bytes length | bytes``, of
which all but the last have that size. Other frames may come between the parts, so that an answer never waits behind megabytes;
two long payloads are not sent at a time. A part of length zero says that the sender took the message back: it is dropped.

Where a study has hybrid links, all frames and parts after the exchange of keys are sealed: the lengths stay as they are, and what
follows them is longer by :data:`TAG` bytes. See :mod:`.sealing`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import NotYet, PeerError, StorageError
from quietmean.node.net.terms import FIELD_BYTES, LONGEST_PATH, MOST_FIELDS

VERSION = 12
# What sealing adds to a frame.
TAG: Final = 16
# With its lengths and what sealing adds, 64 KiB: a longer payload is sent in parts of this size.
PART: Final = 64 * 1024 - 8 - TAG
HELLO_LIMIT = 1024
# Of the frames that carry a key of ML-KEM-768, or what is encapsulated to it.
EXCHANGE_LIMIT = 2048
KEM_KEY_BYTES: Final = 1184
KEM_CIPHERTEXT_BYTES: Final = 1088
# What answers a greeting may list the terms of a study; it comes from the party that was dialled, whose key is known.
REPLY_LIMIT = 512 * 1024
HEADER_LIMIT = 64 * 1024
# What an answer says of a request.
ACCEPTED: Final = "ok"
REFUSED: Final = "no"
# Lengths of header and payload.
PREFIX: Final = struct.Struct(">II")

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Bytes32: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
ForPair: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=KEM_CIPHERTEXT_BYTES)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=500)]
# Digests of the terms of a study, by their path.
Fields: TypeAlias = Annotated[
    dict[
        Annotated[str, msgspec.Meta(max_length=LONGEST_PATH)],
        Annotated[bytes, msgspec.Meta(min_length=FIELD_BYTES, max_length=FIELD_BYTES)],
    ],
    msgspec.Meta(max_length=MOST_FIELDS),
]
# Bytes of one number of a vector: int32, in steps of the study's grid, or float64.
Width: TypeAlias = Annotated[int, msgspec.Meta(ge=4, le=8, multiple_of=4)]
# A memoryview has bytes for items.
Payload: TypeAlias = bytes | memoryview


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Base of all headers: MessagePack arrays of a tag and the fields in order."""


class Hello(Frame, frozen=True, tag="H"):
    """The dialling side's first frame. ``study``: the session digest, hexadecimal."""

    version: Count
    party: Count
    study: Text


class Welcome(Frame, frozen=True, tag="W"):
    """The listening side's consent, with where it is in the protocol."""

    phase: Count
    round: Count


class Refused(Frame, frozen=True, tag="N"):
    """A refusal instead of a welcome; the connection ends."""

    reason: Text


class Differs(Frame, frozen=True, tag="D"):
    """An answer instead of a welcome, where another study is expected.

    ``fields``: digests of the terms of this side's study, by path.
    """

    reason: Text
    fields: Fields


class KeyOffer(Frame, frozen=True, tag="K"):
    """Right behind the hello, where the study has hybrid links: a nonce, and a fresh ML-KEM-768 key for this connection."""

    nonce: Bytes32
    key: Annotated[bytes, msgspec.Meta(min_length=KEM_KEY_BYTES, max_length=KEM_KEY_BYTES)]


class KeyAnswer(Frame, frozen=True, tag="E"):
    """The listening side's nonce, what it encapsulated to the key, and its signature of all that. See :mod:`.key_exchange`."""

    nonce: Bytes32
    ciphertext: Annotated[bytes, msgspec.Meta(min_length=KEM_CIPHERTEXT_BYTES, max_length=KEM_CIPHERTEXT_BYTES)]
    signature: Signature


class KeyProof(Frame, frozen=True, tag="S"):
    """The dialling side's signature of the same, in the first frame that is sealed; the welcome is the other side's first."""

    signature: Signature


class Begin(Frame, frozen=True, tag="b"):
    """The dialling side's consent after the welcome, with where it is: from here on the connection serves both directions."""

    phase: Count
    round: Count


class Ending(IntEnum):
    """Why the process of a party ends, as far as others learn it."""

    OVER = 0
    STOPPED = 1
    LATER = 2
    OUTAGE = 3
    FAILED = 4

    @property
    def in_words(self) -> str:
        return (
            "its part is over",
            "it was stopped, and goes on by the same command",
            "it goes on later",
            "its machine has no room on its disk or in its memory, and it goes on by the same command",
            "its program ended with an error",
        )[self]

    @classmethod
    def of(cls, kind: type[BaseException] | None) -> Ending:
        """The ending of a process with this kind of error, or without one."""
        if kind is None:
            return cls.OVER
        if issubclass(kind, NotYet):
            return cls.LATER
        if issubclass(kind, StorageError | MemoryError):
            return cls.OUTAGE
        return cls.FAILED if issubclass(kind, Exception) else cls.STOPPED


class Farewell(Frame, frozen=True, tag="x"):
    """The last frame of a process that ends, on each of its connections."""

    why: Ending


class Check(Frame, frozen=True, tag="?", forbid_unknown_fields=False):
    """A question instead of a hello, before the start: are you ready? The answer is a :class:`Readiness`, then the
    connection ends.

    These two frames keep their meaning in all versions, so that a difference of versions can be reported; fields may be added
    at the end.
    """

    version: Count


class Readiness(Frame, frozen=True, tag="!", forbid_unknown_fields=False):
    """What a party has, to be compared with what the asking one has: no more than all parties of a study know of each other.

    ``version``: of this protocol; ``release``: of the package. ``roster``, ``study`` and ``plan`` are SHA-256 digests; ``study``
    is that of columns, bounds, target and protocol. ``joined``: its node runs and is in (phase, round), else it only checks.
    ``time``: its clock, in seconds since 1970. ``fields``: digests of the terms, by path.
    """

    version: Count
    release: Text
    roster: Bytes32
    study: Bytes32
    plan: Bytes32
    joined: bool
    phase: Count
    round: Count
    time: float
    fields: Fields = {}


class Request(Frame, frozen=True):
    """A request of either side; its answer carries the same number. Each side numbers its own."""

    number: Count


class Transfer(Request, frozen=True, tag="t"):
    """A message of (phase, round): the payload is a vector of ``dimension`` values, then the protocol's own content.

    Each value takes ``width`` bytes: 4 only in studies with a grid, and only if all of the vector fits. The message must not be
    accepted later than ``valid_for`` milliseconds after its arrival.

    ``agreement``: a check value of the public seed that the sender derived, so that parties who received different nonces notice
    it. ``gossip``: the sender's log and all logs that came to it, encoded, for protocols that transfer shares; it is what the
    others know of a party that never comes back.
    """

    phase: Count
    round: Count
    weight: float
    valid_for: Count
    agreement: bytes
    dimension: Count
    gossip: bytes = b""
    width: Width = 8


class CancelTransfer(Request, frozen=True, tag="w"):
    """The sender cancels its transfer of (phase, round): the receiver forgets it, or answers "ok" if it was used already."""

    phase: Count
    round: Count


class ConfirmTransfer(Request, frozen=True, tag="f"):
    """A restarted receiver asks whether the sender's transfer of (phase, round) still stands."""

    phase: Count
    round: Count


class ResendRequest(Request, frozen=True, tag="g"):
    """A party that missed the release of (phase, round) asks for it: the release is sent again, then this is answered."""

    phase: Count
    round: Count


class Heartbeat(Request, frozen=True, tag="p"):
    """Ask whether the receiver runs, and for its position; carries the own position."""

    phase: Count
    round: Count


class Log(Request, frozen=True, tag="l"):
    """The final log of a party; the payload is a :class:`PartyLog`, encoded. ``gossip``: as in a transfer."""

    gossip: bytes = b""


class GateLog(Request, frozen=True, tag="k"):
    """A message before a gate: the payload is the sender's log and all logs that it has, encoded. ``stage``: of the gate."""

    stage: Count


class Vote(Request, frozen=True, tag="v"):
    """A party's only vote at a gate: the digest of the history that it has, and whether its own certificate of it passes."""

    digest: Bytes32
    passes: bool


class Revealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """What one party of an attempt to start revealed."""

    party: Count
    nonce: Bytes32
    weight: float
    exchange: Bytes32


class Start(Request, frozen=True, tag="s"):
    """Where the sender is in the attempts to start; ``attempt`` 0 is nowhere yet. See :mod:`quietmean.node.start`.

    ``members``: none where all are in. ``encapsulated``, with hybrid links and a commitment, to a party with a larger number: to
    its ML-KEM-768 key.
    """

    attempt: Count = 0
    members: tuple[Count, ...] = ()
    signature: Annotated[bytes, msgspec.Meta(max_length=64)] = b""
    commit: Annotated[bytes, msgspec.Meta(max_length=32)] = b""
    openings: tuple[Revealed, ...] = ()
    bound: bool = False
    encapsulated: ForPair = b""


class InRound(Request, frozen=True, tag="i"):
    """A request of one round of several over the same connections; ``request``: its header. See :mod:`quietmean.node.series`.

    Its payload follows, and its number counts.
    """

    round: Count
    request: bytes


class AnswerFrame(Frame, frozen=True, tag="a"):
    """The answer to one request, with the position of the answering side."""

    number: Count
    status: Literal["ok", "no"]
    phase: Count
    round: Count
    reason: Text = ""


AnyRequest: TypeAlias = (
    Transfer | CancelTransfer | ConfirmTransfer | ResendRequest | Heartbeat | Log | GateLog | Vote | Start | InRound
)
AnyFrame: TypeAlias = (
    Hello
    | KeyOffer
    | KeyAnswer
    | KeyProof
    | Welcome
    | Begin
    | Farewell
    | Refused
    | Differs
    | Check
    | Readiness
    | AnswerFrame
    | AnyRequest
)

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest header of one connection, a vector's dimension, and the largest content and log, all in bytes but that.

    ``short``: may values take 4 bytes?
    """

    header: int
    dimension: int
    content: int
    log: int
    short: bool = False

    @classmethod
    def before_welcome(cls) -> Limits:
        return cls(HELLO_LIMIT, 0, 0, 0)

    @classmethod
    def before_reply(cls) -> Limits:
        """The limits of what the dialled party answers to a greeting or a check."""
        return cls(REPLY_LIMIT, 0, 0, 0)

    @classmethod
    def of_exchange(cls) -> Limits:
        """While keys of ML-KEM-768 are agreed on."""
        return cls(EXCHANGE_LIMIT, 0, 0, 0)

    @classmethod
    def of_study(cls, parties: int, rounds: int, dimension: int, content: int = 0, grid: float = 0.0) -> Limits:
        """A party has at most n messages out and n in each round; an entry takes at most 11 bytes, and a digest of each party's
        release 41. ``grid``: that of the plan."""
        log = HEADER_LIMIT + (11 * (4 * rounds + 1) + 41) * (parties + 1)
        return cls(HEADER_LIMIT, dimension, content, log, grid > 0)

    def check(self, header: int, payload: int) -> None:
        if header > self.header:
            raise PeerError(f"it sent a header of {header} bytes, the limit is {self.header}")
        limit = max(8 * self.dimension + self.content, self.log)
        if payload > limit:
            raise PeerError(f"it sent a payload of {payload} bytes, the limit is {limit}")

    def check_payload(self, frame: AnyFrame, payload: int) -> None:
        if isinstance(frame, InRound):
            # Before any of the payload is read.
            frame = inner_request(frame)
        if isinstance(frame, Transfer):
            self._check_transfer(frame, payload)
        if isinstance(frame, Log | GateLog) and payload > self.log:
            raise PeerError(f"it sent a log of {payload} bytes, the limit is {self.log}")
        if payload and not isinstance(frame, Transfer | Log | GateLog):
            raise PeerError(f"it sent {payload} bytes after a header that has no payload")

    def _check_transfer(self, transfer: Transfer, payload: int) -> None:
        # Only a protocol whose messages have content of their own may leave the vector out.
        if transfer.dimension != self.dimension and not (transfer.dimension == 0 and self.content):
            raise PeerError(f"it sent a vector of {transfer.dimension} values, this study's have {self.dimension}")
        if transfer.width != 8 and not self.short:
            raise PeerError(f"it sent values of {transfer.width} bytes, this study's have 8")
        content = payload - transfer.width * transfer.dimension
        if not 0 <= content <= self.content:
            raise PeerError(
                f"it sent {payload} bytes with a vector of {transfer.dimension} values: that leaves {content} of content"
            )


def encode_frame(frame: AnyFrame, payload_size: int = 0) -> bytes:
    """Lengths and header; the payload follows."""
    header = _encode(frame)
    return PREFIX.pack(len(header), payload_size) + header


def decode_header(raw: Payload) -> AnyFrame:
    frame: AnyFrame = decode(raw, AnyFrame, lambda reason: PeerError(f"it sent a header that cannot be read ({reason})"))
    return frame


def in_round(request: AnyRequest, round_: int) -> InRound:
    """Wrap a request in one of a round."""
    return InRound(0, round_, _encode(request))


def inner_request(frame: InRound) -> AnyRequest:
    """The inverse of :func:`in_round`. Raises :class:`PeerError` for what is not a request."""
    inner = decode_header(frame.request)
    if not isinstance(inner, Request) or isinstance(inner, InRound):
        raise PeerError("it sent something else than a request in a round")
    return msgspec.structs.replace(inner, number=frame.number)


def encode_part(size: int) -> bytes:
    """The lengths before a part of a long payload; 0 if the message is taken back."""
    return PREFIX.pack(0, size)


def encode_message(frame: AnyFrame, payload: Payload) -> bytes:
    """All bytes of a message, in parts where its payload is long."""
    head = encode_frame(frame, len(payload))
    if len(payload) <= PART:
        return head + payload
    parts = (payload[begin : begin + PART] for begin in range(0, len(payload), PART))
    return head + b"".join(encode_part(len(part)) + part for part in parts)


def check_finite(number: float, name: str) -> float:
    if not math.isfinite(number):
        raise PeerError(f"it sent a {name} of {number}")
    return number
