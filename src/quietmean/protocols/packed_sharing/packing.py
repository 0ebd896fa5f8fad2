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

from quietmean.core.arrays import Array, Ints, pieces
from quietmean.core.party import Units
from quietmean.randomness import BitStream, Seed

if TYPE_CHECKING:
    from quietmean.protocols.packed_sharing.spec import PackedSharingParameters

Residues = NDArray[np.uint32]
Wide = NDArray[np.uint64]

# Terms in one exact sum: 120 products of 15 and 31 bits stay below 2^53 - 2^49, so that what is added to them fits besides.
_TERMS = 120
_LIMB = 2.0**16
_WORD_BITS = 64
# What is computed at once stays in the cache: memory of its own costs more than the arithmetic.
_AT_ONCE = 1 << 14
_COLUMNS = 512
# Products of two residues are added up as their lower 32 bits and what is above these, 2^32 of them in a word.
_UPPER, _LOWER = np.uint64(32), np.uint64(2**32 - 1)


def words_for(prime: int) -> int:
    """How many 64-bit words one uniform residue takes, so that it is within 2^-62 of uniform.

    2^64 is 4 modulo 2^31 - 1, and one word is enough. Modulo 65521 it is 50625, and one word would be off by 2^-50.
    """
    return 1 if reduction_distance(prime, 1) < 2.0**-62 else 2


def reduction_distance(prime: int, words: int) -> float:
    """Total variation distance from uniform of ``words`` uniform 64-bit words (b bits) modulo ``prime``: r (p - r) / (p 2^b)."""
    left = pow(2, _WORD_BITS * words, prime)
    return left * (prime - left) / (prime << (_WORD_BITS * words))


def uniform(stream: BitStream, count: int, prime: int) -> Residues:
    """``count`` residues, shape (count,), each one or two 64-bit words of the stream (:func:`words_for`) modulo ``prime``."""
    modulus, words = np.uint64(prime), words_for(prime)
    residues = remainders(stream.words(words * count), prime)
    if words == 1:
        return residues
    by_word = residues.reshape(count, words).astype(np.uint64)
    total = by_word[:, 0]
    for word in range(1, words):
        total = (total + by_word[:, word] * np.uint64(pow(2, _WORD_BITS * word, prime))) % modulus
    return total.astype(np.uint32)


def remainders(values: Wide, prime: int) -> Residues:
    """``values``, shape (count,), modulo ``prime``: in less than half the time of numpy's own, which divides one by one."""
    modulus, residues = np.uint64(prime), np.empty(len(values), dtype=np.uint32)
    for first in range(0, len(values), _AT_ONCE):
        piece = values[first : first + _AT_ONCE]
        multiples = piece // modulus
        multiples *= modulus
        np.subtract(piece, multiples, out=residues[first : first + _AT_ONCE], casting="unsafe")
    return residues


def inverses(values: Wide, prime: int) -> Wide:
    """1 / values modulo ``prime``, for residues other than 0 of any shape: by Fermat, values^(p - 2)."""
    modulus, exponent = np.uint64(prime), prime - 2
    power, inverse = values % modulus, np.ones_like(values)
    while exponent:
        if exponent & 1:
            inverse = inverse * power % modulus
        power = power * power % modulus
        exponent >>= 1
    return inverse


def lagrange(nodes: Ints, points: Ints, prime: int) -> Residues:
    """The matrix, shape (points, nodes), that takes the values of a polynomial at ``nodes`` to those at ``points``.

    For degrees below the number of nodes. All nodes are different, and no point is one of them; all lie in 0..p-1.
    """
    modulus = np.uint64(prime)
    apart = ((nodes[:, None] - nodes[None, :]) % prime).astype(np.uint64)
    np.fill_diagonal(apart, 1)
    steps = points[:, None] - nodes[None, :]
    through = _row_products((steps % prime).astype(np.uint64), modulus)
    weights = inverses(_row_products(apart, modulus), prime)
    matrix = _inverses_of_steps(steps, prime) * weights % modulus * through[:, None] % modulus
    return matrix.astype(np.uint32)


def _inverses_of_steps(steps: Ints, prime: int) -> Wide:
    """1 / steps modulo ``prime``: those between numbers of members are few different ones, and each takes 60 products."""
    least, most = int(steps.min(initial=0)), int(steps.max(initial=0))
    if most - least >= steps.size:
        return inverses((steps % prime).astype(np.uint64), prime)
    table = inverses((np.arange(least, most + 1) % prime).astype(np.uint64), prime)
    return table[steps - least]


def _row_products(matrix: Wide, modulus: np.uint64) -> Wide:
    products = np.ones(len(matrix), dtype=np.uint64)
    for column in np.ascontiguousarray(matrix.T):
        products = products * column % modulus
    return products


def powers(points: Ints, count: int, prime: int) -> Residues:
    """The Vandermonde matrix, shape (points, count): x^0..x^(count - 1)."""
    modulus, at = np.uint64(prime), (points % prime).astype(np.uint64)
    table = np.ones((len(points), count), dtype=np.uint64)
    for exponent in range(1, count):
        table[:, exponent] = table[:, exponent - 1] * at % modulus
    return table.astype(np.uint32)


def centred(residues: NDArray[np.unsignedinteger], prime: int) -> NDArray[np.int32]:
    """The numbers between -p/2 and p/2 that residues of any shape represent."""
    numbers = residues.astype(np.int32)
    numbers -= np.int32(prime) * (numbers > prime // 2)
    return numbers


def residues_of(numbers: Array | NDArray[np.signedinteger], prime: int) -> Residues:
    """The inverse of :func:`centred`, for whole numbers above -p and below p, of any shape."""
    words = numbers.astype(np.int32)
    words += np.int32(prime) * (words < 0)
    return words.view(np.uint32)


def product(left: Residues, right: Residues, prime: int) -> Residues:
    """The product of matrices (a, b) and (b, c) modulo ``prime``, shape (a, c): exact."""
    small = prime < _LIMB
    left_words = centred(left, prime).astype(np.float64)
    # Limbs of 16 bits: the lower one is between -2^15 and 2^15.
    upper = np.rint(left_words * (0.0 if small else 1.0 / _LIMB))
    lower = left_words - upper * _LIMB
    result = np.empty((left.shape[0], right.shape[1]), dtype=np.uint32)
    columns = max(_COLUMNS, _AT_ONCE // max(left.shape))
    for begin in range(0, right.shape[1], columns):
        # Conversion from words with a sign is faster, and residues have no bit there.
        right_words = right[:, begin : begin + columns].view(np.int32).astype(np.float64)
        total = np.zeros((1, 1))
        for first in range(0, left.shape[1], _TERMS):
            terms = slice(first, first + _TERMS)
            part = lower[:, terms] @ right_words[terms]
            part += total
            if not small:
                above = _reduced(upper[:, terms] @ right_words[terms], prime)
                above *= _LIMB
                part += above
            total = _reduced(part, prime)
        result[:, begin : begin + columns] = residues_of(total, prime)
    return result


def inner_products(left: Residues, right: Residues, prime: int) -> Residues:
    """The products of each row of (a, n) with each row of (c, n) modulo ``prime``, shape (a, c): exact, for few long rows."""
    modulus = np.uint64(prime)
    lower, upper = np.zeros((2, len(left), len(right)), dtype=np.uint64)
    terms = max(1, _AT_ONCE // (len(left) * len(right)))
    for first in range(0, left.shape[1], terms):
        piece = slice(first, first + terms)
        products = left[:, None, piece].astype(np.uint64) * right[None, :, piece]
        upper += (products >> _UPPER).sum(axis=2)
        products &= _LOWER
        lower += products.sum(axis=2)
    total = (lower % modulus + (upper % modulus << _UPPER) % modulus) % modulus
    return total.astype(np.uint32)


def _reduced(numbers: Array, prime: int) -> Array:
    """The product modulo ``prime``, between -p/2 and p/2 up to one; whole numbers below 2^53 in, exact, in place."""
    multiples = numbers * (1.0 / prime)
    np.rint(multiples, out=multiples)
    multiples *= prime
    numbers -= multiples
    return numbers


def null_vector(matrix: Residues, prime: int) -> Residues | None:
    """Some vector other than 0 that ``matrix``, shape (a, b), takes to 0 modulo ``prime``, shape (b,); None if there is none."""
    modulus, work = np.uint64(prime), matrix.astype(np.uint64)
    pivots: list[int] = []
    for column in range(work.shape[1]):
        row = len(pivots)
        candidates = np.nonzero(work[row:, column])[0]
        if not candidates.size:
            # This column depends on those before it.
            vector = np.zeros(work.shape[1], dtype=np.uint64)
            vector[column] = 1
            vector[pivots] = (modulus - work[:row, column]) % modulus
            return vector.astype(np.uint32)
        pivot = row + int(candidates[0])
        work[[row, pivot]] = work[[pivot, row]]
        work[row] = work[row] * inverses(work[row, column : column + 1], prime) % modulus
        factors = work[:, column].copy()
        factors[row] = 0
        work = (work + (modulus - factors)[:, None] * work[row]) % modulus
        pivots.append(column)
    return None


# Residues 0..p-1.
Elements = NDArray[np.uint32]


@dataclass(frozen=True)
class Packing:
    """The numbers of a packed secret sharing.

    ``members`` (m), ``secrets`` a polynomial (l), ``randoms``: its random points (c_m), ``prime`` (p): m + l < p.
    """

    members: int
    secrets: int
    randoms: int
    prime: int

    @classmethod
    def of(cls, parameters: PackedSharingParameters) -> Packing:
        """The packing of a protocol."""
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

    def is_seeded(self, dealer: int, member: int) -> bool:
        """Whether a member is one of :meth:`seeded`, without the list: it is asked of each message."""
        return (member - dealer - 1) % self.members < self.randoms

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
    """The matrix from numbers of a block and the shares of members with seeds to the shares of all others."""
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
