"""What server and clients say to each other: MessagePack, in one field of a Flower message. The server can read all of this."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import InputError


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class AskHello(_Message, frozen=True, tag="hello"):
    """Who are you? Answered by :class:`ClientAnswer` with a hello."""


class BeginRequest(_Message, frozen=True, tag="begin"):
    """Begin a round of the session, with an update from the model that comes along. ``hellos``: of all clients known so far."""

    round: int
    hellos: tuple[bytes, ...]


class Deliver(_Message, frozen=True, tag="deliver"):
    """The frames of one step of the protocol, by sender. ``present``: to whom the server has handed what this client sent."""

    round: int
    step: int
    frames: dict[int, bytes]
    present: tuple[int, ...]


class Finish(_Message, frozen=True, tag="finish"):
    """The round is over: what is the mean?"""

    round: int


class ClientAnswer(_Message, frozen=True, tag="answer"):
    """``frames``: sealed, by recipient, for step ``step``. ``idle``: this client expects nothing more in the round.

    ``mean``: of the round, float64, noisy and therefore public; empty without a result. ``weight``: how many are in it.
    ``refused``: why the client does not take part; a sentence without any private value.
    """

    hello: bytes = b""
    step: int = 0
    frames: dict[int, bytes] = {}
    idle: bool = False
    mean: bytes = b""
    weight: float = 0.0
    refused: str = ""


Request: TypeAlias = AskHello | BeginRequest | Deliver | Finish


def write(message: Request | ClientAnswer) -> bytes:
    return msgspec.msgpack.encode(message)


def read_request(raw: bytes) -> Request:
    """Raises :class:`InputError` for what is not a request."""
    request: Request = decode(raw, Request, partial(_other_version, "the server's message is not a request"))
    return request


def read_answer(raw: bytes) -> ClientAnswer:
    """Raises :class:`InputError` for what is not an answer."""
    return decode(raw, ClientAnswer, partial(_other_version, "a client's answer is none"))


def _other_version(subject: str, reason: str) -> InputError:
    return InputError(f"{subject} of this version of quietmean: use one version")
