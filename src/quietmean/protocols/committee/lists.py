"""What a member states of the contributions and noise dealings that it holds: one signed list in its life.

``4 bytes length | front | entries | 64 bytes signature``. The front (MessagePack) names session and member, and how many entries
of contributions and of noise follow. An entry is 96 bytes: header digest, dealer's key, weight and six check numbers, or twelve
where contributions are verified; entries are sorted by dealer, of whom each occurs once. The *list digest*, by which lists are
named and fetched, is the SHA-256 of all but the signature.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.core.codec import decode
from quietmean.protocols.committee.keys import DIGEST_BYTES, KEY_BYTES, SIGNATURE_BYTES, Kind, Signer
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.content import ContentError
from quietmean.protocols.packed_sharing.field import Residues

_LABEL = "quietmean committee list 1"
_LENGTH = 4
# What is chosen of an entry.
# Fixed-size byte strings: numpy pads with zeros, so that equal bytes compare equal.
CHOSEN = np.dtype([("digest", f"S{DIGEST_BYTES}"), ("dealer", f"S{KEY_BYTES}"), ("weight", "<f8")])
Entries = NDArray[np.void]


class _Front(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    label: str
    session: bytes
    member: int
    values: int
    noise: int


@dataclass(frozen=True, eq=False)
class CheckList:
    """The list of one member: ``values`` of contributors, ``noise`` of members, each sorted by dealer."""

    member: int
    digest: bytes
    values: Entries = field(repr=False)
    noise: Entries = field(repr=False)


@functools.lru_cache
def entry_of(checks: int) -> np.dtype[np.void]:
    """An entry with so many check numbers."""
    return np.dtype([*((name, CHOSEN[name]) for name in CHOSEN.names or ()), ("numbers", "<u4", (checks,))])


def entries_of(stated: Iterable[tuple[bytes, bytes, float, Residues]], checks: int) -> Entries:
    """Sorted entries from (header digest, dealer, weight, check numbers), so many of these."""
    listed = sorted(stated, key=lambda entry: entry[1])
    entries = np.zeros(len(listed), dtype=entry_of(checks))
    for place, (digest, dealer, weight, numbers) in enumerate(listed):
        entries[place] = (digest, dealer, weight, numbers)
    return entries


def write_list(session: CommitteeSession, signer: Signer, member: int, values: Entries, noise: Entries) -> bytes:
    """The signed list of a member: made once, durable before it is sent."""
    front = msgspec.msgpack.encode(_Front(_LABEL, session.session, member, len(values), len(noise)))
    content = len(front).to_bytes(_LENGTH, "little") + front + values.tobytes() + noise.tobytes()
    return content + signer.sign(Kind.LIST, content)


def list_digest(raw: bytes) -> bytes:
    """What a list is named by."""
    return hashlib.sha256(raw[:-SIGNATURE_BYTES]).digest()


def read_list(session: CommitteeSession, raw: bytes) -> CheckList:
    """Raises :class:`ContentError` for anything but a list that its member signed for this session, all of it possible."""
    begin = _LENGTH + int.from_bytes(raw[:_LENGTH], "little")
    front = decode(raw[_LENGTH:begin], _Front, lambda reason: ContentError("a list without a front"))
    content, parameters = raw[:-SIGNATURE_BYTES], session.parameters
    entry = entry_of(parameters.checks)
    if (front.label, front.session) != (_LABEL, session.session) or not 0 <= front.member < parameters.members:
        raise ContentError("a list for another session")
    fits = 0 <= front.values <= parameters.contributors and 0 <= front.noise <= parameters.members
    if not fits or len(content) != begin + (front.values + front.noise) * entry.itemsize:
        raise ContentError("a list of another size than it says")
    if msgspec.msgpack.encode(front) != raw[_LENGTH:begin]:
        raise ContentError("a list in another encoding")
    if not session.keys.is_signed(session.members[front.member], Kind.LIST, content, raw[-SIGNATURE_BYTES:]):
        raise ContentError("a list that its member did not sign")
    entries = np.frombuffer(content, dtype=entry, offset=begin)
    values, noise = entries[: front.values], entries[front.values :]
    if len(entries) and int(entries["numbers"].max()) >= session.parameters.prime:
        raise ContentError("a list with a number that is none of this study's")
    session.require_admitted(values["dealer"], values["weight"])
    _require_members(session, noise)
    return CheckList(front.member, list_digest(raw), values, noise)


def _require_members(session: CommitteeSession, noise: Entries) -> None:
    """Each dealer is a member and occurs once, in order, and noise has no weight."""
    members = np.array(sorted(session.raw_members), dtype=f"S{KEY_BYTES}")
    once = bool((noise["dealer"][1:] > noise["dealer"][:-1]).all())
    if not (once and bool(np.isin(noise["dealer"], members).all()) and bool((noise["weight"] == 0).all())):
        raise ContentError("a list with an entry that cannot be")


def chosen_of(entries: Entries) -> Entries:
    """Digest, dealer and weight of entries, without check numbers."""
    plain: Entries = np.empty(len(entries), dtype=CHOSEN)
    for name in CHOSEN.names or ():
        plain[name] = entries[name]
    return plain


def keys_of(entries: Entries, name: str = "dealer") -> list[bytes]:
    """The raw keys of the dealers, in order; or the digests."""
    # An item of a fixed-size string would lose zeros at its end.
    raw = np.ascontiguousarray(entries[name]).tobytes()
    return [raw[place : place + KEY_BYTES] for place in range(0, len(raw), KEY_BYTES)]
