"""What a party and a relay say to each other before a stream begins: who somebody is, who is called, who calls.

A party proves its identity key by a signature over words of both sides: the relay's fresh nonce, the relay's name as the party
dialled it, and what it asks for, under a label of its own. What a relay chooses alone is never signed. The clock is not asked:
the nonce shows that a proof is fresh, and clocks of parties may be wrong.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import InputError, PeerError
from quietmean.node.net import Group, Identity, Purpose, format_public_key, is_signed, public_key_bytes

PATH: Final = "/quietmean/1"
HEALTH: Final = "/health"
NONCE_BYTES: Final = 32
TICKET_BYTES: Final = 16
# Longest message, in bytes.
LONGEST_MESSAGE: Final = 2048
# A party sends a ping so often (s): proxies and routers forget connections on which nothing moves.
PING_SECONDS: Final = 20.0
# Who was not heard for so long is gone (s).
SILENCE_SECONDS: Final = 65.0
# How long a call waits for its receiver (s).
CALL_SECONDS: Final = 8.0

Role: TypeAlias = Literal["attend", "visit", "call", "answer"]


class Nonce(msgspec.Struct, frozen=True, tag="nonce", forbid_unknown_fields=True):
    """The relay's first word: a nonce to be signed."""

    nonce: bytes


class Proof(msgspec.Struct, frozen=True, tag="proof", forbid_unknown_fields=True):
    """A party's first word: its signature of the nonce.

    ``attend``: it can be called under ``label``, its own, from now on instead of any other process of it; ``visit``: only if
    none is there. ``call``: it calls ``label``. ``answer``: it answers the call with this ``ticket``.

    ``group`` is that of the session, ``key`` the party's identity (32 bytes), ``relay`` the name under which it dialled.
    """

    role: Role
    group: bytes
    label: bytes
    key: bytes
    relay: str
    ticket: bytes
    signature: bytes


class Attending(msgspec.Struct, frozen=True, tag="attending", forbid_unknown_fields=True):
    """The relay's answer to ``attend`` and ``visit``."""


class Call(msgspec.Struct, frozen=True, tag="call", forbid_unknown_fields=True):
    """The relay to one that attends: ``caller`` (32 bytes of its key) calls; dial back with the ticket."""

    ticket: bytes
    caller: bytes


class Joined(msgspec.Struct, frozen=True, tag="joined", forbid_unknown_fields=True):
    """The relay to both: from here on the bytes are those of the other party."""


class Turned(msgspec.Struct, frozen=True, tag="turned", forbid_unknown_fields=True):
    """The relay turns a party away, or its call found nobody. ``absent``: the called party is not there now."""

    reason: str
    absent: bool = False


FromRelay: TypeAlias = Nonce | Attending | Call | Joined | Turned
_encode = msgspec.msgpack.Encoder().encode


def encode_message(message: FromRelay | Proof) -> bytes:
    return _encode(message)


def decode_message(raw: bytes) -> FromRelay:
    """Read a message of the relay. Raises :class:`PeerError`."""
    message: FromRelay = decode(raw, FromRelay, lambda reason: PeerError("it said something that no relay says"))
    return message


def decode_proof(raw: bytes) -> Proof:
    """A proof whose parts have the right sizes. Its signature is not looked at. Raises :class:`PeerError`."""
    proof = decode(raw, Proof, lambda reason: PeerError("it said something else than who it is"))
    sizes = [len(part) for part in (proof.group, proof.label, proof.key, proof.signature)]
    tickets = TICKET_BYTES if proof.role == "answer" else 0
    if sizes != [32, 32, 32, 64] or len(proof.ticket) != tickets:
        raise PeerError("parts of its proof are too long or too short")
    return proof


def prove(
    identity: Identity, role: Role, group: Group, relay: str, nonce: bytes, *, peer: bytes = b"", ticket: bytes = b""
) -> Proof:
    """Prove who this party is: sign the relay's nonce.

    ``peer``: the key (32 bytes) of the party that is called; the own label is taken for the other roles.
    """
    if len(nonce) != NONCE_BYTES:
        raise PeerError("its nonce is too long or too short")
    key = public_key_bytes(identity.public_key)
    label = group.label(peer or key)
    signature = identity.sign(Purpose.RELAY, _signed(role, group.tag, label, relay, ticket, nonce))
    return Proof(role, group.tag, label, key, relay, ticket, signature)


def is_proved(proof: Proof, nonce: bytes) -> bool:
    """Whether the owner of the key in it said so, to this nonce."""
    content = _signed(proof.role, proof.group, proof.label, proof.relay, proof.ticket, nonce)
    try:
        return is_signed(format_public_key(proof.key), Purpose.RELAY, content, proof.signature)
    except InputError:
        return False


def _signed(role: Role, group: bytes, label: bytes, relay: str, ticket: bytes, nonce: bytes) -> bytes:
    return _encode([role, relay, group, label, ticket, nonce])
