"""The contents of messages as bytes. Received bytes are not trusted: anything but the exact form raises :class:`ContentError`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quietmean.core.party import PartyId
from quietmean.protocols.content import ContentError
from quietmean.protocols.secagg.keys import Words
from quietmean.protocols.secagg.shamir import PRIME, SHARE_BYTES

_GO_ON, _ENDED = b"\1", b"\0"
REASON_LIMIT = 200


def set_size(parties: int) -> int:
    """Bytes of a set of parties."""
    return -(-parties // 8)


def write_set(members: Iterable[PartyId], parties: int) -> bytes:
    """One bit for each party."""
    mask = np.zeros(parties, dtype=np.bool_)
    mask[list(members)] = True
    return np.packbits(mask).tobytes()


def read_set(raw: bytes, parties: int) -> frozenset[PartyId]:
    """The inverse of :func:`write_set`. Raises :class:`ContentError`."""
    bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8))
    if len(raw) != set_size(parties) or bits[parties:].any():
        raise ContentError("a set of parties of the wrong size")
    return frozenset(np.nonzero(bits)[0].tolist())


def go_on(content: bytes) -> bytes:
    """The aggregator's usual message."""
    return _GO_ON + content


def ended(reason: str) -> bytes:
    """The aggregator's last message: why there will be no result."""
    return _ENDED + reason.encode()[:REASON_LIMIT]


def read_from_aggregator(raw: bytes) -> bytes:
    """The content of a usual message. Raises :class:`ContentError` for any other, also for the last one, with its reason."""
    if raw[:1] == _ENDED:
        reason = "".join(sign for sign in raw[1 : REASON_LIMIT + 1].decode(errors="replace") if sign.isprintable())
        raise ContentError(f"the aggregator ended the run: {reason}")
    if raw[:1] != _GO_ON:
        raise ContentError("the aggregator sent something that cannot be read")
    return raw[1:]


def split_items(raw: bytes, owners: Sequence[PartyId], size: int) -> dict[PartyId, bytes]:
    """Items of a fixed size in bytes, one for each owner in order. Raises :class:`ContentError`."""
    if len(raw) != size * len(owners):
        raise ContentError(f"{len(raw)} bytes where {len(owners)} items of {size} bytes are due")
    return {owner: raw[index * size : (index + 1) * size] for index, owner in enumerate(owners)}


def write_words(words: Words) -> bytes:
    """Numbers of shape (words,), little-endian."""
    return words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()


def read_words(raw: bytes, bits: int, length: int) -> Words:
    """Numbers below 2**bits, shape (length,). Raises :class:`ContentError`."""
    kind = np.dtype("<u2" if bits <= 16 else "<u4")
    if len(raw) != kind.itemsize * length:
        raise ContentError(f"{len(raw)} bytes where {length} numbers of {kind.itemsize} bytes are due")
    words: Words = np.frombuffer(raw, dtype=kind)
    if bits < 8 * kind.itemsize and words.size and int(words.max()) >> bits:
        raise ContentError(f"a number of more than {bits} bits")
    return words


def write_shares(shares: Mapping[PartyId, bytes], owners: Sequence[PartyId]) -> bytes:
    """For each owner in order whether there is a share, and the share."""
    return b"".join(b"\1" + shares[owner] if owner in shares else bytes(1 + SHARE_BYTES) for owner in owners)


def read_shares(raw: bytes, owners: Sequence[PartyId]) -> dict[PartyId, int]:
    """The inverse of :func:`write_shares`. Raises :class:`ContentError`."""
    shares = {}
    for owner, item in split_items(raw, owners, 1 + SHARE_BYTES).items():
        value = int.from_bytes(item[1:], "big")
        if item[0] > 1 or value >= PRIME or (item[0] == 0 and value):
            raise ContentError(f"a share of party {owner} that is none")
        if item[0]:
            shares[owner] = value
    return shares
