"""A contribution: the one file of a contributor, from which each member reads its own part and no other; and a noise dealing.

``8 bytes magic | 4 bytes length | header | 64 bytes signature | admission | one ciphertext a member``. Of a contributor that no
list names the admission is 72 bytes of its voucher, see :mod:`~.admission`; else nothing. The header (MessagePack) names session,
kind, dealer, weight and the SHA-256 of each ciphertext. Its own SHA-256 is the *header digest*: it covers exactly what is signed,
so that nobody but the dealer can make a second one over the same shares. A ciphertext holds a share of the values, as numbers or
as the 32-byte seed of them, and the member's share of each mask. Values follow from the dealer's durable seed; masks and the
randomness of ciphertexts are fresh whenever a file is made: the same masks under two headers would give values away.
Where contributions are verified, what is shared are the bits of a value (:mod:`~quietmean.protocols.committee.layout`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
import numpy as np

from quietmean.core.codec import decode
from quietmean.core.errors import InputError
from quietmean.core.output import require_version
from quietmean.core.party import Units
from quietmean.protocols.committee.keys import (
    ADMISSION_BYTES,
    DIGEST_BYTES,
    KEY_BYTES,
    SEAL_BYTES,
    SIGNATURE_BYTES,
    AdmissionByVoucher,
    Kind,
    Opener,
    Sealer,
    Signer,
    key_line,
    raw_key,
)
from quietmean.protocols.committee.layout import Layout, layout_of_noise
from quietmean.protocols.committee.parameters import REPETITIONS, CommitteeParameters
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.packing import (
    Elements,
    deal,
    expand,
    member_points,
    secret_points,
    uniform,
    values_on_polynomials,
)
from quietmean.randomness import BitStream, Seed

_MAGIC = b"qmcommi1"
_LENGTH = 4
_LABEL = "quietmean committee contribution 1"
_SEED_BYTES = 32
_WORD = np.dtype("<u4")


class ContributionError(InputError):
    """A file that counts for nothing; the sentence says why."""


class DealtParts(StrEnum):
    """What a file deals."""

    VALUE = "value"
    NOISE = "noise"


class _Header(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    label: str
    session: bytes
    kind: str
    dealer: bytes
    weight: float
    ciphertexts: bytes


@dataclass(frozen=True)
class Header:
    """``digest``: what lists and results name it by; ``dealer``: the raw identity key. The signature is that of the dealer."""

    digest: bytes
    kind: DealtParts
    dealer: bytes
    weight: float
    ciphertexts: tuple[bytes, ...] = field(repr=False)
    size: int = field(repr=False)

    @property
    def contributor(self) -> str:
        """The identity key of who dealt."""
        return key_line(self.dealer)


@dataclass(frozen=True, eq=False)
class Part:
    """What one member holds of a file: shares of the ``values``, shape (blocks,), and of the ``masks``, shape (6,).

    Where it is verified there is a ``layout``: ``values`` are of bits, (bits,), and ``masks`` 6 of degrees and 6 of products.
    """

    values: Elements = field(repr=False)
    masks: Elements = field(repr=False)
    layout: Layout | None = None

    def summed(self, prime: int) -> Elements:
        """The shares of the numbers that are added up, shape (blocks,)."""
        if self.layout is None:
            return self.values
        return self.layout.summed_of(self.values, prime)


def make_contribution(
    session: CommitteeSession,
    signer: Signer,
    sealer: Sealer,
    numbers: Units,
    weight: float,
    seed: Seed,
    admission: AdmissionByVoucher | None = None,
) -> bytes:
    """The file of a contributor for its whole ``numbers``, shape (d,), see :func:`~.encoding.encode`.

    ``seed``: the contributor's own for this study, durable. ``admission``: of its voucher, where no list names it. The file has
    to be durable before it leaves, and the ledger charged; afterwards it is given again, never made again. Raises
    :class:`ContributionError` if it would not be taken.
    """
    dealer = raw_key(signer.public_key)
    _check_admission(session, dealer, weight, admission)
    header = _opening(session, DealtParts.VALUE, dealer, weight)
    return _make(session, signer, sealer, header, numbers, seed, Seed.from_os, b"" if admission is None else admission.to_bytes())


def make_noise(
    session: CommitteeSession,
    signer: Signer,
    sealer: Sealer,
    noise: Units,
    seed: Seed,
    fresh: Callable[[], Seed] = Seed.from_os,
) -> bytes:
    """The file of a member's noise, shape (d,): once in its life, durable before any part of it is sent."""
    header = _opening(session, DealtParts.NOISE, raw_key(signer.public_key), 0.0)
    return _make(session, signer, sealer, header, noise, seed, fresh)


def _opening(session: CommitteeSession, kind: DealtParts, dealer: bytes, weight: float) -> _Header:
    """The header of a file, before it names its ciphertexts."""
    return _Header(_LABEL, session.session, str(kind), dealer, weight, b"")


def _make(
    session: CommitteeSession,
    signer: Signer,
    sealer: Sealer,
    header: _Header,
    numbers: Units,
    seed: Seed,
    fresh: Callable[[], Seed],
    admission: bytes = b"",
) -> bytes:
    parameters = session.parameters
    # Not from the seed: that would be the same for a second file.
    masks = _deal_masks(session, fresh())
    # A dealer's number is that of the member before the first that gets a seed.
    first = session.first_seeded(header.dealer) - 1
    layout = session.layout_of(header.kind == DealtParts.NOISE, header.weight, header.dealer)
    dealt_numbers = numbers if layout is None else layout.bits_of(numbers)
    dealt = deal(parameters.packing, dealt_numbers, first, seed.derive("committee shares", header.kind))
    ciphertexts = []
    for member, mailbox in enumerate(session.mailboxes):
        values = dealt.seeds[member] if member in dealt.seeds else dealt.shares[member].astype(_WORD).tobytes()
        content = values + masks[member].astype(_WORD).tobytes()
        ciphertexts.append(sealer.seal(mailbox, _info(session, header, member), content))
    digests = b"".join(hashlib.sha256(ciphertext).digest() for ciphertext in ciphertexts)
    raw = msgspec.msgpack.encode(msgspec.structs.replace(header, ciphertexts=digests))
    front = _MAGIC + len(raw).to_bytes(_LENGTH, "little") + raw + signer.sign(Kind.CONTRIBUTION, raw) + admission
    return front + b"".join(ciphertexts)


def _deal_masks(session: CommitteeSession, secret: Seed) -> Elements:
    """Shares of random polynomials of degree < T, shape (m, 6); of 12 where the second half are for products."""
    parameters = session.parameters
    of_degrees = _random_polynomials(session, secret.derive("committee masks"), parameters.threshold)
    if not parameters.verified:
        return of_degrees
    # Of degree 2T - 2 at most, and 0 where polynomials have their secret.
    packing = parameters.packing
    others = _random_polynomials(session, secret.derive("committee product masks"), parameters.product_threshold - 1)
    away = (member_points(packing, range(packing.members)) - secret_points(packing)[0]).astype(np.uint64)
    of_products = (others * away[:, None] % np.uint64(parameters.prime)).astype(np.uint32)
    return np.concatenate([of_degrees, of_products], axis=1)


def _random_polynomials(session: CommitteeSession, secret: Seed, coefficients: int) -> Elements:
    """The values at all members of 6 polynomials with so many uniform coefficients, shape (m, 6)."""
    drawn = uniform(BitStream(secret), coefficients * REPETITIONS, session.parameters.prime)
    return values_on_polynomials(session.parameters.packing, drawn.reshape(coefficients, REPETITIONS))


def _info(session: CommitteeSession, header: Header | _Header, member: int) -> bytes:
    """What a ciphertext is bound to: nobody else's opens under another name, weight or session, or for another member."""
    fields = [_LABEL, session.session, str(header.kind), header.dealer, header.weight, session.raw_members[member]]
    return msgspec.msgpack.encode(fields)


# --- reading: all of it may be wrong -----------------------------------------------------------------------------------------


def header_digest(content: bytes) -> bytes | None:
    """The digest of the header of a file that is meant to be a contribution to a committee, whichever; None of another file."""
    if not content.startswith(_MAGIC):
        return None
    begin = len(_MAGIC) + _LENGTH
    return hashlib.sha256(content[begin : begin + int.from_bytes(content[len(_MAGIC) : begin], "little")]).digest()


def front_bytes(session: CommitteeSession) -> int:
    """How many bytes of the front of a file hold all of its header, signature and admission."""
    most = len(_LABEL) + len(session.session) + 8 + KEY_BYTES + 9 + DIGEST_BYTES * session.parameters.members + 32
    return len(_MAGIC) + _LENGTH + most + SIGNATURE_BYTES + (ADMISSION_BYTES if session.vouching is not None else 0)


def largest_file(session: CommitteeSession) -> int:
    """The largest size of a contribution's file, in bytes."""
    return front_bytes(session) + session.parameters.members * largest_part(session)


def largest_part(session: CommitteeSession) -> int:
    """The largest size of a member's part of a contribution, in bytes, without its header."""
    return SEAL_BYTES + max(_SEED_BYTES, session.largest_dealing * _WORD.itemsize) + _mask_bytes(session)


def largest_noise_part(parameters: CommitteeParameters) -> int:
    """The largest size of a member's part of a noise dealing, in bytes, without its header."""
    numbers = layout_of_noise(parameters).bits if parameters.verified else parameters.blocks
    return SEAL_BYTES + max(_SEED_BYTES, numbers * _WORD.itemsize) + parameters.checks * _WORD.itemsize


def file_bytes(session: CommitteeSession, header: Header) -> int:
    """The size of a file without its header, in bytes."""
    return sum(_part_bytes(session, header, member) for member in range(session.parameters.members))


def read_header(session: CommitteeSession, raw: bytes) -> Header:
    """The header of a file, or of the front of one, once it is certain that its dealer signed it for this session.

    Raises :class:`ContributionError` for anything else, and for somebody who is not admitted or claims too large a weight.
    """
    if not raw.startswith(_MAGIC):
        require_version(raw[: len(_MAGIC)], _MAGIC, "it", ContributionError)
        raise ContributionError("it is not a contribution to a committee")
    begin = len(_MAGIC) + _LENGTH
    end = begin + int.from_bytes(raw[len(_MAGIC) : begin], "little")
    signed = end + SIGNATURE_BYTES
    if signed > front_bytes(session) or len(raw) < signed:
        raise ContributionError("it is cut off, or was changed on the way")
    header = _read_body(session, raw[begin:end])
    if header.session != session.session:
        raise ContributionError("it is for another study")
    size = signed
    if header.kind == DealtParts.VALUE:
        admission = _admission_in(session, header.dealer, raw[signed:])
        _check_admission(session, header.dealer, header.weight, admission)
        size += 0 if admission is None else ADMISSION_BYTES
    elif header.kind != DealtParts.NOISE or header.dealer not in session.raw_members or header.weight != 0.0:
        raise ContributionError("it is not a contribution to this study")
    if not session.keys.is_signed(key_line(header.dealer), Kind.CONTRIBUTION, raw[begin:end], raw[end:signed]):
        raise ContributionError("it does not match its contributor's signature, so somebody changed it on the way")
    digests = tuple(header.ciphertexts[at : at + DIGEST_BYTES] for at in range(0, len(header.ciphertexts), DIGEST_BYTES))
    return Header(hashlib.sha256(raw[begin:end]).digest(), DealtParts(header.kind), header.dealer, header.weight, digests, size)


def _read_body(session: CommitteeSession, body: bytes) -> _Header:
    header = decode(body, _Header, lambda reason: ContributionError("it has no header of a contribution"))
    # The one encoding: a digest means one content.
    canonical = header.label == _LABEL and msgspec.msgpack.encode(header) == body
    sized = len(header.dealer) == KEY_BYTES and len(header.ciphertexts) == DIGEST_BYTES * session.parameters.members
    if not (canonical and sized):
        raise ContributionError("it has no header of a contribution to this study")
    return header


def _admission_in(session: CommitteeSession, dealer: bytes, raw: bytes) -> AdmissionByVoucher | None:
    """What a file has of a voucher, ``raw`` behind its signature; None of who is listed, or where there are no vouchers."""
    if session.vouching is None or session.is_listed(dealer):
        return None
    if len(raw) < ADMISSION_BYTES:
        raise ContributionError("it is cut off, or was changed on the way")
    return AdmissionByVoucher.of_bytes(raw[:ADMISSION_BYTES])


def _check_admission(session: CommitteeSession, dealer: bytes, weight: float, admission: AdmissionByVoucher | None) -> None:
    contributor = key_line(dealer)
    largest = session.contributors.get(contributor)
    if largest is None:
        if session.vouching is None:
            raise ContributionError("its contributor is not admitted to this study")
        if admission is None or not session.vouching.admits(session.keys, contributor, admission):
            raise ContributionError("its contributor has no voucher that the registrar certified for this study and this key")
        largest = min(session.parameters.largest_weight, math.inf if admission.weight is None else admission.weight)
    if not session.takes_weight(weight, largest):
        may = "1, as its products are checked" if session.parameters.bits_of_record else f"{largest:g} at most"
        raise ContributionError(f"its weight is {weight:g}, and its contributor may have {may}")


def excerpt(session: CommitteeSession, raw: bytes, member: int) -> bytes:
    """The header of a whole file and one member's ciphertext: all that this member needs. Raises :class:`ContributionError`."""
    return excerpt_of(session, read_header(session, raw), raw, member)


def excerpt_of(session: CommitteeSession, header: Header, raw: bytes, member: int) -> bytes:
    """Return the excerpt of a file whose header was read; an excerpt for this member is one already."""
    size = _part_bytes(session, header, member)
    if len(raw) == header.size + size:
        return raw
    if len(raw) != header.size + file_bytes(session, header):
        raise ContributionError("it is cut off, or was changed on the way")
    begin = header.size + sum(_part_bytes(session, header, other) for other in range(member))
    return raw[: header.size] + raw[begin : begin + size]


def read_whole(session: CommitteeSession, raw: bytes) -> tuple[Header, list[bytes]]:
    """The header of a whole contribution, and the excerpt of each member, all as its contributor made them.

    Who takes it for others opens nothing: whether a part opens, only its member knows. Raises :class:`ContributionError`.
    """
    header = read_header(session, raw)
    if header.kind != DealtParts.VALUE:
        raise ContributionError("it is a member's noise, not a contribution")
    if len(raw) != header.size + file_bytes(session, header):
        raise ContributionError("it is cut off, or was changed on the way")
    excerpts = [excerpt_of(session, header, raw, member) for member in range(session.parameters.members)]
    # Others could send a header that they saw with parts of their own, and so take its contributor's place.
    if any(
        hashlib.sha256(own[header.size :]).digest() != digest for own, digest in zip(excerpts, header.ciphertexts, strict=True)
    ):
        raise ContributionError("a part of it is missing, or was changed on the way")
    return header, excerpts


def open_excerpt(session: CommitteeSession, header: Header, raw: bytes, member: int, opener: Opener) -> Part:
    """What an excerpt holds for its member. Raises :class:`ContributionError` for anything that its dealer did not seal to it."""
    ciphertext = raw[header.size :]
    if hashlib.sha256(ciphertext).digest() != header.ciphertexts[member]:
        raise ContributionError("the part for this member is missing, or was changed on the way")
    if len(ciphertext) != _part_bytes(session, header, member):
        raise ContributionError("the part for this member has another size than this study's")
    try:
        content = opener.open(_info(session, header, member), ciphertext)
    except ValueError:
        raise ContributionError("the part for this member was not sealed to it by its contributor for this study") from None
    return _read_part(session, header, content, _is_seeded(session, header.dealer, member))


def _read_part(session: CommitteeSession, header: Header, content: bytes, seeded: bool) -> Part:
    parameters, masks = session.parameters, session.parameters.checks
    numbers = np.frombuffer(content[-_mask_bytes(session) :] if seeded else content, dtype=_WORD)
    if int(numbers.max()) >= parameters.prime:
        raise ContributionError("the part for this member has a number that is not of this study")
    layout = session.layout_of(header.kind == DealtParts.NOISE, header.weight, header.dealer)
    if seeded:
        dealt_numbers = session.dealt_numbers(header.kind == DealtParts.NOISE, header.weight)
        return Part(expand(parameters.packing, content[:_SEED_BYTES], dealt_numbers), numbers, layout)
    return Part(numbers[:-masks], numbers[-masks:], layout)


def _is_seeded(session: CommitteeSession, dealer: bytes, member: int) -> bool:
    first, parameters = session.first_seeded(dealer), session.parameters
    return (member - first) % parameters.members < parameters.colluding


def _part_bytes(session: CommitteeSession, header: Header, member: int) -> int:
    numbers = session.dealt_numbers(header.kind == DealtParts.NOISE, header.weight)
    values = _SEED_BYTES if _is_seeded(session, header.dealer, member) else numbers * _WORD.itemsize
    return SEAL_BYTES + values + _mask_bytes(session)


def _mask_bytes(session: CommitteeSession) -> int:
    return session.parameters.checks * _WORD.itemsize
