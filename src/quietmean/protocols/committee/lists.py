"""What a member states of the contributions and noise dealings that it holds: one signed list in its life.

``4 bytes length | front | entries | 64 bytes signature``. The front (MessagePack) names session and member, and how many entries
of contributions and of noise follow. An entry is 96 bytes: header digest, dealer's key, weight and six check numbers, or twelve
where contributions are verified; entries are sorted by dealer, of whom each occurs once. The *list digest*, by which lists are
named and fetched, is the SHA-256 of all but the signature.

Check numbers: whether the shares of a contribution lie on polynomials of degree < T, without anything else being disclosed.

In repetition t member j publishes mask_t(j) + sum_b r_tb P_b(j), with mask_t a random polynomial of degree < T: a point of a
random polynomial of degree < T if all P_b are of degree < T. If one is not, the sum is not either, but for a chance of 1 / p,
whichever the members. r is a stream of a hash of session and header digest: it is fixed only once all shares and masks are.

Where contributions are verified, each P_b is 0 or 1 at the secret point s, and member j also publishes mask'_t(j) + sum_b r_tb
(P_b(j)^2 - P_b(j)) + sum_e r_te E_e(j), with mask'_t a random polynomial of degree <= 2T - 2 that is 0 at s, and E_e of the P_b a
combination that is 0 there if relation e holds. If anything is not 0 at s, the sum is not either, but for a chance of 1 / p.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Mask
from quietmean.core.codec import decode
from quietmean.core.output import require_version
from quietmean.protocols.committee.contribution import (
    ContributionError,
    DealtParts,
    Header,
    Part,
    excerpt_of,
    front_bytes,
    largest_part,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.keys import DIGEST_BYTES, KEY_BYTES, SIGNATURE_BYTES, Kind, Opener, Signer
from quietmean.protocols.committee.layout import Layout
from quietmean.protocols.committee.parameters import REPETITIONS
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.packing import (
    Packing,
    Residues,
    inner_products,
    lagrange,
    member_points,
    product,
    remainders,
    secret_points,
    uniform,
)
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import BitStream, Seed

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
    """Read a list of a member.

    Raises :class:`ContentError` for anything but a list that its member signed for this session, all of it possible.
    """
    begin = _LENGTH + int.from_bytes(raw[:_LENGTH], "little")
    front = decode(raw[_LENGTH:begin], _Front, lambda reason: ContentError("it sent a list without its beginning"))
    content, parameters = raw[:-SIGNATURE_BYTES], session.parameters
    entry = entry_of(parameters.checks)
    if (front.label, front.session) != (_LABEL, session.session) or not 0 <= front.member < parameters.members:
        raise ContentError("it sent a list for another session")
    fits = 0 <= front.values <= parameters.contributors and 0 <= front.noise <= parameters.members
    if not fits or len(content) != begin + (front.values + front.noise) * entry.itemsize:
        raise ContentError("it sent a list of another size than it says")
    if msgspec.msgpack.encode(front) != raw[_LENGTH:begin]:
        raise ContentError("it sent a list in another encoding")
    if not session.keys.is_signed(session.members[front.member], Kind.LIST, content, raw[-SIGNATURE_BYTES:]):
        raise ContentError("it sent a list that its member did not sign")
    entries = np.frombuffer(content, dtype=entry, offset=begin)
    values, noise = entries[: front.values], entries[front.values :]
    if len(entries) and int(entries["numbers"].max()) >= session.parameters.prime:
        raise ContentError("it sent a list with a number that is not of this study")
    session.require_admitted(values["dealer"], values["weight"])
    _require_members(session, noise)
    return CheckList(front.member, list_digest(raw), values, noise)


def _require_members(session: CommitteeSession, noise: Entries) -> None:
    """Each dealer is a member and occurs once, in order, and noise has no weight."""
    members = np.array(sorted(session.raw_members), dtype=f"S{KEY_BYTES}")
    once = bool((noise["dealer"][1:] > noise["dealer"][:-1]).all())
    if not (once and bool(np.isin(noise["dealer"], members).all()) and bool((noise["weight"] == 0).all())):
        raise ContentError("it sent a list with an entry that cannot be")


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


@dataclass(frozen=True, eq=False)
class Held:
    """One contribution, by its header digest; ``dealer``: the raw identity key of who made it."""

    digest: bytes
    dealer: bytes
    weight: float
    part: Part = field(repr=False)


class Holdings(Protocol):
    """Contributions with different dealers, all of them checked. They are gone through twice, for the list and for the sum."""

    def __iter__(self) -> Iterator[Held]: ...


class UsedVouchers:
    """How many contributions by voucher a member took: not more than the study has, whatever its registrar certified."""

    def __init__(self, session: CommitteeSession) -> None:
        self._session, self._taken = session, 0

    def take(self, dealer: bytes) -> None:
        """Count the first contribution of a dealer. Raises :class:`ContributionError` for one more than the sum has room for."""
        if self._session.is_listed(dealer):
            return
        if self._taken >= self._session.vouchers:
            raise ContributionError(f"{self._taken} others came by voucher before, and the study has no more vouchers")
        self._taken += 1


class HeldInMemory:
    """What a member holds, for as many contributions as fit the memory.

    ``left_out``: of each file not taken the contributor, if known, and why.
    """

    def __init__(self, session: CommitteeSession, member: int, opener: Opener) -> None:
        self._session, self._member, self._opener = session, member, opener
        self._held: dict[bytes, Held] = {}
        self._vouchered = UsedVouchers(session)
        self.left_out: list[tuple[str, str]] = []

    def take(self, raw: bytes) -> bool:
        """Whether a whole file, or this member's excerpt of one, is of those taken. The first one of a contributor is."""
        dealer = ""
        try:
            header = read_header(self._session, raw)
            dealer = header.contributor
            held = self._opened(header, raw)
            if held.dealer not in self._held:
                self._vouchered.take(held.dealer)
        except ContributionError as error:
            self.left_out.append((dealer, str(error)))
            return False
        before = self._held.setdefault(held.dealer, held)
        if before.digest != held.digest:
            self.left_out.append((dealer, "another contribution of the same contributor came first"))
        return before.digest == held.digest

    def _opened(self, header: Header, raw: bytes) -> Held:
        if header.kind != DealtParts.VALUE:
            raise ContributionError("it is a member's noise, not a contribution")
        own = excerpt_of(self._session, header, raw, self._member)
        part = open_excerpt(self._session, header, own, self._member, self._opener)
        return Held(header.digest, header.dealer, header.weight, part)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)


_FRONT = struct.Struct("<8s32sH")
_RECORD = struct.Struct("<Id")
_MAGIC = b"qmsegm1\n"
FRONT_BYTES: Final = _FRONT.size


def segment_front(session: CommitteeSession, member: int) -> bytes:
    """The first bytes of a segment for a member."""
    return _FRONT.pack(_MAGIC, session.session, member)


def record(excerpt: bytes, time: float) -> bytes:
    """One contribution in a segment."""
    return _RECORD.pack(len(excerpt), time) + excerpt


def is_segment(start: bytes) -> bool:
    """Whether a file that begins so is meant to be a segment. Raises :class:`ContributionError` for one of another version."""
    require_version(start[: len(_MAGIC)], _MAGIC, "it", ContributionError)
    return start.startswith(_MAGIC)


@dataclass(frozen=True)
class DropChain:
    """What a drop took, in its order: a chain of SHA-256 over header digests. ``head``: of the first ``position`` of them."""

    position: int
    head: bytes

    @classmethod
    def of(cls, session: CommitteeSession, digests: Iterable[bytes] = ()) -> DropChain:
        """The chain of these header digests, in this order."""
        chain = cls(0, hashlib.sha256(_CHAIN_LABEL + session.session).digest())
        for digest in digests:
            chain = chain.after(digest)
        return chain

    def after(self, digest: bytes) -> DropChain:
        """The chain with one more."""
        return DropChain(self.position + 1, hashlib.sha256(self.head + digest).digest())


_CHAIN_LABEL = b"quietmean drop chain 1\0"


def read_segment(session: CommitteeSession, file: IO[bytes], member: int) -> Iterator[tuple[bytes, float]]:
    """The excerpts for a member and when they came, one after the other; none from another member's segment.

    Raises :class:`ContributionError` for the segment of another study, and where one ends within a contribution.
    """
    start = file.read(FRONT_BYTES)
    if len(start) < FRONT_BYTES:
        raise ContributionError("it is cut off, or was changed on the way")
    _, digest, number = _FRONT.unpack(start)
    if digest != session.session:
        raise ContributionError("it is for another study")
    if number != member:
        return
    largest = front_bytes(session) + largest_part(session)
    while front := file.read(_RECORD.size):
        # A drop that was killed leaves a contribution that it did not acknowledge.
        if len(front) < _RECORD.size:
            raise ContributionError("it ends within a contribution")
        length, time = _RECORD.unpack(front)
        if length > largest:
            raise ContributionError("it has something larger than any contribution, so somebody changed it on the way")
        excerpt = file.read(length)
        if len(excerpt) < length:
            raise ContributionError("it ends within a contribution")
        yield excerpt, time


_CHECKS_LABEL = b"quietmean committee challenge 1\0"


def challenge(session: CommitteeSession, digest: bytes, size: int) -> Residues:
    """r, shape (6, size), for a header digest."""
    seed = Seed(hashlib.sha256(_CHECKS_LABEL + session.session + digest).digest())
    return uniform(BitStream(seed), REPETITIONS * size, session.parameters.prime).reshape((REPETITIONS, size))


def check_numbers(session: CommitteeSession, digest: bytes, part: Part) -> Residues:
    """What a member publishes of a part, shape (6,); where it is verified, (12,)."""
    prime, size = session.parameters.prime, len(part.values)
    if part.layout is None:
        return combine(challenge(session, digest, size), part, prime)
    return combine_verified(challenge(session, digest, size + part.layout.relations), part, part.layout, prime)


def combine(challenge: Residues, part: Part, prime: int) -> Residues:
    """mask + sum_b r_b P_b modulo p, shape (repetitions,), for r of shape (repetitions, blocks)."""
    return _masked(inner_products(part.values[None], challenge, prime)[0], part.masks, prime)


def combine_verified(challenge: Residues, part: Part, layout: Layout, prime: int) -> Residues:
    """Combine the checks of the bits P_b, and then of P_b^2 - P_b and of relations, shape (2 repetitions,).

    r has shape (repetitions, bits + relations), and there are twice as many masks.
    """
    modulus, repetitions = np.uint64(prime), len(challenge)
    bits = part.values.astype(np.uint64)
    # x (x - 1), which is 0 for 0 and 1 only.
    products = remainders(bits * (bits + (modulus - np.uint64(1))), prime)
    of_bits, of_relations = challenge[:, : layout.bits], challenge[:, layout.bits :]
    # One pass over r for both kinds.
    combined = inner_products(np.stack([part.values, products]), of_bits, prime)
    if layout.relations:
        broken = layout.broken_relations(layout.numbers_of(part.values, prime), prime)
        combined[1] = _masked(combined[1], inner_products(broken[None], of_relations, prime)[0], prime)
    return _masked(combined.reshape(2 * repetitions), part.masks, prime)


def _masked(combined: Residues, masks: Residues, prime: int) -> Residues:
    return ((combined.astype(np.uint64) + masks) % np.uint64(prime)).astype(np.uint32)


def fitting(packing: Packing, members: Sequence[int], numbers: Residues) -> Mask:
    """Which contributions' check ``numbers``, shape (|M|, n, 6 or 12), of these members are as they have to be; shape (n,).

    The first 6 lie on polynomials of degree < T, and the others on such of degree <= 2T - 2 that are 0 at the secret point.
    """
    degrees, products = numbers[..., :REPETITIONS], numbers[..., REPETITIONS:]
    right = _on_polynomials(packing, members, degrees)
    if products.shape[2]:
        right &= proven(packing, members, products)
    return right


def proven(packing: Packing, members: Sequence[int], products: Residues) -> Mask:
    """Say of which contributions the check numbers of products, shape (|M|, n, 6), show that all is as stated; shape (n,)."""
    wide = of_products(packing)
    flat = np.ascontiguousarray(products.reshape(len(members), -1)[: wide.threshold])
    matrix = lagrange(member_points(wide, members)[: wide.threshold], secret_points(wide), wide.prime)
    zero = (product(matrix, flat, wide.prime) == 0).reshape(products.shape[1:]).all(axis=1)
    return np.asarray(_on_polynomials(wide, members, products) & zero, dtype=np.bool_)


def by_degree(packing: Packing, numbers: Residues) -> list[tuple[Packing, Residues]]:
    """Check ``numbers``, shape (..., 6 or 12), of degrees, and of products if there are such, with their polynomials."""
    kinds = ((packing, numbers[..., :REPETITIONS]), (of_products(packing), numbers[..., REPETITIONS:]))
    return [(kind, stated) for kind, stated in kinds if stated.shape[-1]]


def of_products(packing: Packing) -> Packing:
    """The packing, as ``packing`` with one number a polynomial, for products of two of its polynomials."""
    return Packing(packing.members, packing.secrets, 2 * packing.randoms, packing.prime)


def _on_polynomials(packing: Packing, members: Sequence[int], numbers: Residues) -> Mask:
    threshold = packing.threshold
    points = member_points(packing, members)
    matrix = lagrange(points[:threshold], points[threshold:], packing.prime)
    flat = numbers.reshape(len(members), -1)
    expected = product(matrix, np.ascontiguousarray(flat[:threshold]), packing.prime)
    right = np.all(expected == flat[threshold:], axis=0).reshape(numbers.shape[1:])
    return np.asarray(np.all(right, axis=1), dtype=np.bool_)


def expected_numbers(packing: Packing, members: Sequence[int], numbers: Residues, member: int) -> Residues:
    """What the polynomials through these members' ``numbers``, (|M|, n, 6 or 12), are at another one; shape (n, 6 or 12)."""
    chosen = list(members)
    if member in chosen:
        own: Residues = numbers[chosen.index(member)]
        return own
    return np.concatenate([_expected(kind, chosen, stated, member) for kind, stated in by_degree(packing, numbers)], axis=1)


def _expected(packing: Packing, members: Sequence[int], numbers: Residues, member: int) -> Residues:
    points = member_points(packing, members[: packing.threshold])
    matrix = lagrange(points, member_points(packing, [member]), packing.prime)
    flat = np.ascontiguousarray(numbers.reshape(len(members), -1)[: packing.threshold])
    due: Residues = product(matrix, flat, packing.prime).reshape(numbers.shape[1:])
    return due
