"""Dealing, adding and opening packed shares (Franklin and Yung 1992): exact, modulo a prime.

The numbers of a value are cut into blocks of l numbers. A block's polynomial has degree < T = c_m + l. It passes through its
numbers at the points 1..l, and through the shares of c_m members, which are uniform. Member j holds its value at l + 1 + j. Those
c_m members get a 32-byte seed of their shares instead of numbers: of member i's values these are i+1..i+c_m modulo m.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Ints
from quietmean.core.party import Units
from quietmean.core.pieces import pieces
from quietmean.protocols.packed_sharing.field import centred, lagrange, powers, product, residues_of, uniform
from quietmean.randomness import BitStream, Seed

if TYPE_CHECKING:
    from quietmean.protocols.packed_sharing.spec import PackedSharingParameters

# Residues 0..p-1.
Elements = NDArray[np.uint32]


@dataclass(frozen=True)
class Packing:
    """``members`` (m), ``secrets`` a polynomial (l), ``randoms``: its random points (c_m), ``prime`` (p): m + l < p."""

    members: int
    secrets: int
    randoms: int
    prime: int

    @classmethod
    def of(cls, parameters: PackedSharingParameters) -> Packing:
        """That of a protocol."""
        return cls(parameters.members, parameters.secrets, parameters.colluding_members, parameters.prime)

    @property
    def threshold(self) -> int:
        """T, the number of shares that determine a polynomial."""
        return self.secrets + self.randoms

    def blocks(self, size: int) -> int:
        """Polynomials for ``size`` numbers: the numbers in one share."""
        return -(-size // self.secrets)

    def seeded(self, dealer: int) -> tuple[int, ...]:
        """The members that get seeds from dealer number ``dealer``; never the dealer itself."""
        return tuple((dealer + 1 + offset) % self.members for offset in range(self.randoms))

    def unseeded(self, dealer: int) -> tuple[int, ...]:
        """The members that get numbers from dealer number ``dealer``, in rising order."""
        return tuple(sorted(set(range(self.members)) - set(self.seeded(dealer))))


@dataclass(frozen=True, eq=False)
class Dealt:
    """What a dealer hands out. ``shares[j]``: member j's share (blocks,), or, in ``seeds``, 32 bytes for it."""

    shares: Mapping[int, Elements] = field(repr=False)
    seeds: Mapping[int, bytes] = field(repr=False)


def deal(packing: Packing, numbers: Units, dealer: int, secret: Seed) -> Dealt:
    """Shares of ``numbers``, shape (size,), signed, between -p/2 and p/2, by dealer number ``dealer`` for all members.

    ``secret``: the dealer's own for this study, from which all random points follow: the same one gives the same shares. It must
    never serve for other numbers.
    """
    return deal_residues(packing, padded(packing, numbers.size, [numbers]), dealer, secret)


def deal_residues(packing: Packing, secrets: Elements, dealer: int, secret: Seed) -> Dealt:
    """The shares of numbers that are :func:`padded` residues, shape (l, blocks); a piece of the blocks at a time."""
    seeds = {member: secret.derive("share", member).secret for member in packing.seeded(dealer)}
    streams = [BitStream(Seed(seed)) for seed in seeds.values()]
    others, count = packing.unseeded(dealer), secrets.shape[1]
    rows = [np.empty(count, dtype=np.uint32) for _ in others]
    for piece in pieces(count):
        randoms = [uniform(stream, piece.stop - piece.start, packing.prime) for stream in streams]
        drawn = np.array(randoms, dtype=np.uint32).reshape(len(streams), piece.stop - piece.start)
        for row, points in zip(rows, deal_points(packing, secrets[:, piece], drawn, dealer), strict=True):
            row[piece] = points
    return Dealt(dict(zip(others, rows, strict=True)), seeds)


def padded(packing: Packing, size: int, numbers: Iterable[Units]) -> Elements:
    """Signed ``numbers``, ``size`` of them in pieces, as residues, shape (l, blocks), with zeros behind: each column is one
    polynomial's."""
    count = packing.blocks(size)
    filled, begin = np.zeros(count * packing.secrets, dtype=np.uint32), 0
    for piece in numbers:
        # What is drawn is hardly ever that large, and to divide all of it takes six times as long.
        small = -packing.prime < piece.min(initial=0) and piece.max(initial=0) < packing.prime
        filled[begin : begin + piece.size] = residues_of(piece if small else piece % packing.prime, packing.prime)
        begin += piece.size
    return filled.reshape(packing.secrets, count)


def deal_points(packing: Packing, secrets: Elements, randoms: Elements, dealer: int) -> Elements:
    """The shares of the members without seeds, in rising order, shape (m - c_m, blocks).

    From residues ``secrets`` (l, blocks) and the shares ``randoms`` (c_m, blocks) of the members with seeds, in their order.
    """
    return product(_dealing_matrix(packing, dealer % packing.members), np.concatenate([secrets, randoms]), packing.prime)


@functools.lru_cache(maxsize=256)
def _dealing_matrix(packing: Packing, dealer: int) -> Elements:
    """From the numbers of a block and the shares of the members with seeds to the shares of all others."""
    nodes = np.concatenate([secret_points(packing), member_points(packing, packing.seeded(dealer))])
    return lagrange(nodes, member_points(packing, packing.unseeded(dealer)), packing.prime)


def values_on_polynomials(packing: Packing, coefficients: Elements) -> Elements:
    """The shares of all members, shape (m, count), of polynomials with these ``coefficients``, shape (T, count)."""
    matrix = powers(member_points(packing, range(packing.members)), len(coefficients), packing.prime)
    return product(matrix, coefficients, packing.prime)


def expand(packing: Packing, seed: bytes, blocks: int) -> Elements:
    """The share, shape (blocks,), that a 32-byte seed expands to.

    Whole 64-bit words of its stream modulo p, each within 2^-62 of uniform in total variation.
    """
    return uniform(BitStream(Seed(seed)), blocks, packing.prime)


def add(packing: Packing, shares: Sequence[Elements | bytes], blocks: int) -> Elements:
    """The sum of one or more shares modulo p, shape (blocks,): numbers (blocks,), or the 32-byte seeds that expand to them."""
    total = np.empty(blocks, dtype=np.uint32)
    sources = [BitStream(Seed(share)) if isinstance(share, bytes) else share for share in shares]
    for piece in pieces(blocks):
        # 2^32 residues fit 64 bits.
        added = np.zeros(piece.stop - piece.start, dtype=np.uint64)
        for source in sources:
            added += uniform(source, added.size, packing.prime) if isinstance(source, BitStream) else source[piece]
        total[piece] = added % np.uint64(packing.prime)
    return total


def open_sums(packing: Packing, sums: Mapping[int, Elements], size: int) -> Units:
    """The sum of all dealers' numbers, shape (size,), between -p/2 and p/2, from the ``sums`` (blocks,) of T members or more.

    By number of the member; of more than T, the first T count. Raises ValueError for fewer.
    """
    points, blocks = secret_points(packing), packing.blocks(size)
    opened = np.empty((packing.secrets, blocks), dtype=np.int64)
    for piece in pieces(blocks):
        part = {member: share[piece] for member, share in sums.items()}
        opened[:, piece] = centred(values_at(packing, part, points), packing.prime)
    return opened.reshape(-1)[:size]


def values_at(packing: Packing, sums: Mapping[int, Elements], points: Ints) -> Elements:
    """The polynomials through the first T of ``sums`` at other ``points``, shape (points, blocks).

    Raises ValueError for fewer.
    """
    members = list(sums)[: packing.threshold]
    if len(members) < packing.threshold:
        raise ValueError(f"{len(members)} sums do not determine polynomials of degree {packing.threshold - 1}")
    matrix = lagrange(member_points(packing, members), points, packing.prime)
    return product(matrix, np.array([sums[member] for member in members], dtype=np.uint32), packing.prime)


def member_points(packing: Packing, members: Sequence[int]) -> Ints:
    """Where these members hold the values of polynomials, shape (members,)."""
    return np.array(members, dtype=np.int64) + packing.secrets + 1


def secret_points(packing: Packing) -> Ints:
    """Where polynomials take the values of the secrets, shape (l,)."""
    return np.arange(1, packing.secrets + 1)
