"""Keys of one connection that anyone who records it cannot compute later, also with a quantum computer.

Inside the pinned TLS 1.3, whose own secrets come from X25519, the dialling side sends a nonce and a fresh ML-KEM-768 key, and the
listening side a nonce and what it encapsulated to the key. Each signs the transcript with its identity key: nobody in between,
even with the keys of both TLS ends, can put a key of its own there. From the secret come two keys of AES-256-GCM, one for each
direction, with the digest of the transcript as salt; every frame after that is sealed. The dialling side's signature is in its
first sealed frame, the listening side's consent in its own: each shows that its sender has the keys.

The secret key lives as long as the exchange, and the keys as long as the connection. Which studies do this is in what the parties
agreed on, and not asked of the peer: nobody can talk two parties out of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.net.identity import Purpose, is_signed, public_key_bytes
from quietmean.node.net.stream import FrameCipher
from quietmean.node.net.transport import Connection, Endpoint
from quietmean.node.net.wire import VERSION, AnyFrame, KeyAnswer, KeyOffer, KeyProof, Limits, Refused
from quietmean.randomness import fresh_bytes

_LABEL: Final = "quietmean link 1"
_DIALS, _LISTENS = "dials", "listens"
_KEY_BYTES: Final = 32
NO_KEYS: Final = "it did not begin with the post-quantum keys that this study asks for (links = hybrid)"
NOT_SIGNED: Final = "it did not sign the keys of this connection: somebody in between changed them, or it lies"


@dataclass(frozen=True)
class _Transcript:
    """Who exchanged what, as both ends saw it. ``certificates``: the leaf of each, DER; all pairs: who dials first."""

    study: str
    identities: tuple[bytes, bytes]
    certificates: tuple[bytes, bytes]
    nonces: tuple[bytes, bytes]
    key: bytes
    ciphertext: bytes

    @property
    def digest(self) -> bytes:
        """The one encoding, SHA-256."""
        sides = [
            [role, *side]
            for role, side in zip(
                (_DIALS, _LISTENS), zip(self.identities, self.certificates, self.nonces, strict=True), strict=True
            )
        ]
        return hashlib.sha256(msgspec.msgpack.encode([_LABEL, VERSION, self.study, *sides, self.key, self.ciphertext])).digest()

    def ciphers(self, secret: bytes) -> tuple[FrameCipher, FrameCipher]:
        """The ciphers of what the dialling side sends, and of what the listening side sends."""
        both = HKDF(SHA256(), 2 * _KEY_BYTES, salt=self.digest, info=_LABEL.encode()).derive(secret)
        return FrameCipher(both[:_KEY_BYTES]), FrameCipher(both[_KEY_BYTES:])


def _signed_by(role: str, transcript: _Transcript) -> bytes:
    """What a side signs: with its role, so that neither signature passes for the other."""
    return role.encode() + b"\0" + transcript.digest


def _transcript(
    endpoint: Endpoint, connection: Connection, peer: PartyId, dials: bool, offer: KeyOffer, nonce: bytes, ciphertext: bytes
) -> _Transcript:
    own = (public_key_bytes(endpoint.roster.entries[endpoint.party].public_key), endpoint.credentials.certificate)
    other = (public_key_bytes(endpoint.roster.entries[peer].public_key), connection.certificate or b"")
    first, second = (own, other) if dials else (other, own)
    return _Transcript(endpoint.study, (first[0], second[0]), (first[1], second[1]), (offer.nonce, nonce), offer.key, ciphertext)


def _require_signed(endpoint: Endpoint, peer: PartyId, role: str, transcript: _Transcript, signature: bytes) -> None:
    if not is_signed(endpoint.roster.entries[peer].public_key, Purpose.LINK, _signed_by(role, transcript), signature):
        raise PeerError(NOT_SIGNED)


class KeyOffering:
    """The dialling side: :meth:`send` right behind the hello, then :meth:`finish` with what came back."""

    def __init__(self, endpoint: Endpoint, connection: Connection, peer: PartyId) -> None:
        self._endpoint, self._connection, self._peer = endpoint, connection, peer
        self._secret = MLKEM768PrivateKey.generate()
        self._offer = KeyOffer(fresh_bytes(32), self._secret.public_key().public_bytes_raw())

    async def send(self) -> None:
        await self._connection.send(self._offer)

    async def finish(self, answer: AnyFrame) -> None:
        """Seal all frames from here on, in both directions.

        Raises :class:`PeerError` for an answer without keys, or with some that the peer did not sign.
        """
        if not isinstance(answer, KeyAnswer):
            raise PeerError(NO_KEYS)
        endpoint, connection, peer = self._endpoint, self._connection, self._peer
        transcript = _transcript(endpoint, connection, peer, True, self._offer, answer.nonce, answer.ciphertext)
        _require_signed(endpoint, peer, _LISTENS, transcript, answer.signature)
        sent, received = transcript.ciphers(self._secret.decapsulate(answer.ciphertext))
        connection.seal_sent(sent)
        connection.open_received(received)
        signature = endpoint.credentials.identity.sign(Purpose.LINK, _signed_by(_DIALS, transcript))
        await connection.send(KeyProof(signature))


async def answer_offer(endpoint: Endpoint, connection: Connection, peer: PartyId) -> None:
    """The listening side, after the hello. From here on all frames are sealed, and the peer has shown that it has the keys.

    Raises :class:`PeerError` for a peer that does not exchange keys, or did not sign them.
    """
    offer, _ = await connection.receive(Limits.of_exchange())
    if not isinstance(offer, KeyOffer):
        await connection.send(Refused(NO_KEYS))
        raise PeerError(NO_KEYS)
    try:
        secret, ciphertext = MLKEM768PublicKey.from_public_bytes(offer.key).encapsulate()
    except ValueError:
        raise PeerError("it offered something that is not an ML-KEM-768 key") from None
    nonce = fresh_bytes(32)
    transcript = _transcript(endpoint, connection, peer, False, offer, nonce, ciphertext)
    signature = endpoint.credentials.identity.sign(Purpose.LINK, _signed_by(_LISTENS, transcript))
    await connection.send(KeyAnswer(nonce, ciphertext, signature))
    received, sent = transcript.ciphers(secret)
    connection.open_received(received)
    connection.seal_sent(sent)
    proof, _ = await connection.receive(Limits.before_welcome())
    if not isinstance(proof, KeyProof):
        raise PeerError(NOT_SIGNED)
    _require_signed(endpoint, peer, _DIALS, transcript, proof.signature)
