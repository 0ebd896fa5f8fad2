"""Check numbers: whether the shares of a contribution lie on polynomials of degree < T, without anything else being told.

In repetition t member j tells mask_t(j) + sum_b r_tb P_b(j), with mask_t a random polynomial of degree < T: a point of a random
polynomial of degree < T if all P_b are of degree < T. If one is not, the sum is not either, but for a chance of 1 / p, whichever
the members. r is a stream of a hash of session and header digest: it is fixed only once all shares and masks are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quietmean.protocols.committee.contribution import Part
from quietmean.protocols.committee.parameters import REPETITIONS
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.field import Residues, lagrange, product, uniform
from quietmean.protocols.packed_sharing.packing import Packing, member_points
from quietmean.randomness import BitStream, Seed

_LABEL = b"quietmean committee challenge 1\0"


def challenge(session: CommitteeSession, digest: bytes) -> Residues:
    """r, shape (6, blocks), for a header digest."""
    seed = Seed(hashlib.sha256(_LABEL + session.session + digest).digest())
    blocks = session.parameters.blocks
    return uniform(BitStream(seed), REPETITIONS * blocks, session.parameters.prime).reshape((REPETITIONS, blocks))


def check_numbers(session: CommitteeSession, digest: bytes, part: Part) -> Residues:
    """What a member tells of a part, shape (6,)."""
    return combine(challenge(session, digest), part, session.parameters.prime)


def combine(challenge: Residues, part: Part, prime: int) -> Residues:
    """mask + sum_b r_b P_b modulo p, shape (repetitions,), for r of shape (repetitions, blocks)."""
    modulus = np.uint64(prime)
    # Residues of 31 bits: 2^32 of them have a sum below 2^63.
    products = challenge.astype(np.uint64) * part.values % modulus
    told: Residues = ((products.sum(axis=1) + part.masks) % modulus).astype(np.uint32)
    return told


def fitting(packing: Packing, members: Sequence[int], numbers: Residues) -> NDArray[np.bool_]:
    """Which contributions' ``numbers``, shape (|M|, n, 6), of these members lie on polynomials of degree < T; shape (n,)."""
    threshold = packing.threshold
    points = member_points(packing, members)
    matrix = lagrange(points[:threshold], points[threshold:], packing.prime)
    flat = numbers.reshape(len(members), -1)
    expected = product(matrix, np.ascontiguousarray(flat[:threshold]), packing.prime)
    right = np.all(expected == flat[threshold:], axis=0).reshape(numbers.shape[1:])
    return np.asarray(np.all(right, axis=1), dtype=np.bool_)


def expected_numbers(packing: Packing, members: Sequence[int], numbers: Residues, member: int) -> Residues:
    """What the polynomials through the first T of these members' ``numbers``, (|M|, n, 6), are at another one; shape (n, 6)."""
    chosen = list(members)
    if member in chosen:
        told: Residues = numbers[chosen.index(member)]
        return told
    points = member_points(packing, chosen[: packing.threshold])
    matrix = lagrange(points, member_points(packing, [member]), packing.prime)
    flat = np.ascontiguousarray(numbers.reshape(len(chosen), -1)[: packing.threshold])
    due: Residues = product(matrix, flat, packing.prime).reshape(numbers.shape[1:])
    return due
