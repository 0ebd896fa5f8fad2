"""Check numbers: whether the shares of a contribution lie on polynomials of degree < T, without anything else being disclosed.

In repetition t member j publishes mask_t(j) + sum_b r_tb P_b(j), with mask_t a random polynomial of degree < T: a point of a
random polynomial of degree < T if all P_b are of degree < T. If one is not, the sum is not either, but for a chance of 1 / p,
whichever the members. r is a stream of a hash of session and header digest: it is fixed only once all shares and masks are.

Where contributions are verified, each P_b is 0 or 1 at the secret point s, and member j also publishes mask'_t(j) + sum_b r_tb
(P_b(j)^2 - P_b(j)) + sum_e r_te E_e(j), with mask'_t a random polynomial of degree <= 2T - 2 that is 0 at s, and E_e of the P_b a
combination that is 0 there if relation e holds. If anything is not 0 at s, the sum is not either, but for a chance of 1 / p.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.protocols.committee.contribution import Part
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
from quietmean.randomness import BitStream, Seed

_LABEL = b"quietmean committee challenge 1\0"


def challenge(session: CommitteeSession, digest: bytes, size: int) -> Residues:
    """r, shape (6, size), for a header digest."""
    seed = Seed(hashlib.sha256(_LABEL + session.session + digest).digest())
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
