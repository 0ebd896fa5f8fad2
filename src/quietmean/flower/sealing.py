"""Frames between two clients that only they can read, through a server that may do anything with them.

Each client signs one exchange key for the session with its identity key, with hybrid links an ML-KEM-768 key behind it. A frame
is sealed with AES-256-GCM under a key that only sender and recipient can derive, and is bound to agreement, round, step, sender
and recipient: anywhere else it does not open. With hybrid links each frame begins with what its sender encapsulated for it alone:
nothing has to be sent before, and its key rests on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quietmean.core.codec import canonical_json, decode
from quietmean.core.domain import Links
from quietmean.core.errors import InputError
from quietmean.core.party import Message, PartyId
from quietmean.flower.agreement import FlowerAgreement
from quietmean.node.net import KEM_CIPHERTEXT_BYTES, KEM_KEY_BYTES, Identity, Purpose, is_signed
from quietmean.randomness import Encapsulated, ExchangeKey, Seed, fresh_bytes


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
    """What a client answers to one step of a round.

    ``frames``: sealed, by recipient, for step ``step``. ``idle``: this client expects nothing more in the round.

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
    """Read a request of the server. Raises :class:`InputError` for what is not a request."""
    request: Request = decode(raw, Request, partial(_other_version, "the server's message is not a request"))
    return request


def read_answer(raw: bytes) -> ClientAnswer:
    """Read the answer of a client. Raises :class:`InputError` for what is not an answer."""
    return decode(raw, ClientAnswer, partial(_other_version, "a client's answer is not one"))


def _other_version(subject: str, reason: str) -> InputError:
    return InputError(f"{subject} of this version of quietmean. Use one version.")


_NONCE = 12
_X25519 = 32
_PREFIX = "quietmean flower 1"


class SealedHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client's exchange key for one session, signed; with hybrid links its ML-KEM-768 key behind it."""

    party: int
    exchange: bytes
    signature: bytes


class _Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    weight: float
    vector: bytes
    content: bytes


def signed_hello(agreement: FlowerAgreement, identity: Identity, exchange: bytes) -> bytes:
    """The hello of this client. Raises :class:`InputError` if it is not in the agreement."""
    party = agreement.party_of(identity.public_key)
    signature = identity.sign(Purpose.HELLO, _signed_bytes(agreement, party, exchange))
    return msgspec.msgpack.encode(SealedHello(party, exchange, signature))


def read_hello(agreement: FlowerAgreement, raw: bytes) -> SealedHello | None:
    """What a client said, or None if it is not a hello that one of the agreement's clients signed for this session."""
    try:
        hello = decode(raw, SealedHello, InputError)
    except InputError:
        return None
    size = _X25519 + (KEM_KEY_BYTES if agreement.study.keyed_by == Links.HYBRID else 0)
    if not 0 <= hello.party < agreement.parties or len(hello.exchange) != size or len(hello.signature) != 64:
        return None
    content = _signed_bytes(agreement, hello.party, hello.exchange)
    return hello if is_signed(agreement.identities[hello.party], Purpose.HELLO, content, hello.signature) else None


def _signed_bytes(agreement: FlowerAgreement, party: PartyId, exchange: bytes) -> bytes:
    return canonical_json({"agreement": agreement.digest, "party": party, "exchange": exchange.hex()})


class ClientKeys:
    """One client's keys for one session, from its secret ``seed``; ``public``: what its hello tells."""

    def __init__(self, seed: Seed, links: Links) -> None:
        self.exchange = ExchangeKey(seed)
        self.encapsulation: MLKEM768PrivateKey | None = None
        self.public = self.exchange.public
        if links == Links.HYBRID:
            halves = (seed.derive("encapsulation key", half).secret for half in range(2))
            self.encapsulation = MLKEM768PrivateKey.from_seed_bytes(b"".join(halves))
            self.public += self.encapsulation.public_key().public_bytes_raw()


class Seals:
    """Seals what one party sends and opens what it gets. ``peers``: public keys of the others, by party."""

    def __init__(
        self, agreement: FlowerAgreement, party: PartyId, keys: ClientKeys, peers: Callable[[PartyId], bytes | None]
    ) -> None:
        self._agreement, self._party, self._keys, self._peers = agreement, party, keys, peers

    def seal(self, round_: int, step: int, other: PartyId, messages: Sequence[Message]) -> bytes | None:
        """One frame with all messages to ``other`` of this step of a round, or None as long as its key is not known."""
        encapsulated = self._encapsulated(other)
        cipher = self._cipher(self._party, other, encapsulated)
        if cipher is None:
            return None
        parts = [_Content(message.weight, message.vector.astype("<f8").tobytes(), bytes(message.content)) for message in messages]
        # Random, so that a store that was set back never seals two contents under one nonce.
        nonce = fresh_bytes(_NONCE)
        sealed = cipher.encrypt(nonce, msgspec.msgpack.encode(parts), self._place(round_, step, self._party, other))
        return (encapsulated.ciphertext if encapsulated else b"") + nonce + sealed

    def open(self, round_: int, step: int, other: PartyId, frame: bytes) -> list[Message] | None:
        """The messages of a frame that ``other`` sealed for this party, this step and this round; None for anything else."""
        encapsulated = None
        if self._keys.encapsulation is not None:
            ciphertext, frame = frame[:KEM_CIPHERTEXT_BYTES], frame[KEM_CIPHERTEXT_BYTES:]
            if len(ciphertext) < KEM_CIPHERTEXT_BYTES:
                return None
            encapsulated = Encapsulated(self._keys.encapsulation.decapsulate(ciphertext), ciphertext)
        cipher = self._cipher(other, self._party, encapsulated)
        if cipher is None or len(frame) <= _NONCE:
            return None
        try:
            raw = cipher.decrypt(frame[:_NONCE], frame[_NONCE:], self._place(round_, step, other, self._party))
            parts = decode(raw, list[_Content], InputError)
            vectors = [np.frombuffer(part.vector, dtype="<f8").astype(np.float64) for part in parts]
        except (InvalidTag, InputError, ValueError):
            return None
        if not all(vector.size in (0, self._agreement.terms.dimension) and np.isfinite(vector).all() for vector in vectors):
            return None
        return [
            Message(other, (self._party,), step, vector, part.weight, part.content)
            for part, vector in zip(parts, vectors, strict=True)
        ]

    def _encapsulated(self, other: PartyId) -> Encapsulated | None:
        """A fresh encapsulated key for one frame to ``other``; None where its key is not known, or links are not hybrid."""
        public = self._peers(other)
        if self._keys.encapsulation is None or public is None:
            return None
        try:
            return Encapsulated(*MLKEM768PublicKey.from_public_bytes(public[_X25519:]).encapsulate())
        except ValueError:
            return None

    def _cipher(self, sender: PartyId, recipient: PartyId, encapsulated: Encapsulated | None) -> AESGCM | None:
        other = recipient if sender == self._party else sender
        public = None if other == self._party else self._peers(other)
        if public is None or (encapsulated is None) != (self._keys.encapsulation is None):
            return None
        try:
            context = f"{_PREFIX} {self._agreement.digest}"
            shared = self._keys.exchange.shared_seed(public[:_X25519], context, encapsulated)
        except ValueError:
            return None
        return AESGCM(shared.derive("frames", sender, recipient).secret)

    def _place(self, round_: int, step: int, sender: PartyId, recipient: PartyId) -> bytes:
        return canonical_json([_PREFIX, self._agreement.digest, round_, step, sender, recipient])


def require_hello(agreement: FlowerAgreement, raw: bytes) -> SealedHello:
    """Read a hello as :func:`read_hello` does. Raises :class:`InputError` for what is none."""
    hello = read_hello(agreement, raw)
    if hello is None:
        raise InputError("a client's greeting is not signed by a client of this agreement. Give all clients the same file.")
    return hello
