"""Packed sharing by exact enumeration over the field of 7 elements: what members see depends on the published sum only.

Nothing is drawn: all random points of all dealers are run through, so there is no error rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.protocols.packed_sharing.packing import Packing, deal_points

PRIME = 7
# (members, secrets, random points): all that have m + l < 7 and a dealer outside of the coalition.
SHAPES = [(4, 2, 1), (5, 1, 1), (4, 1, 2), (4, 2, 2), (3, 2, 1), (5, 1, 2)]


@cache
def holdings(packing: Packing, secrets: tuple[int, ...], dealer: int, random_points: int) -> NDArray[np.int64]:
    """What each member holds of one block of a dealer, (m, 7^random_points): for all values of the random points.

    Only so many of the points are random, the others are 0.
    """
    count = PRIME**random_points
    drawn = np.zeros((packing.randoms, count), dtype=np.uint32)
    drawn[:random_points] = np.array(list(product(range(PRIME), repeat=random_points)), dtype=np.uint32).T
    column = np.repeat(np.array(secrets, dtype=np.uint32)[:, None], count, axis=1)
    held = np.empty((packing.members, count), dtype=np.int64)
    held[list(packing.unseeded(dealer))] = deal_points(packing, column, drawn, dealer)
    held[list(packing.seeded(dealer))] = drawn
    return held


def views(
    packing: Packing,
    inputs: Sequence[tuple[int, ...]],
    coalition: Iterable[int],
    published: Iterable[int],
    random_points: int,
) -> Counter[int]:
    """How often each joint view occurs: the coalition's shares of two honest dealers, and some members' sums of these."""
    watching, telling = list(coalition), list(published)
    one, other = (holdings(packing, secrets, dealer, random_points) for dealer, secrets in enumerate(inputs))
    # All pairs of both dealers' random points.
    first, second = np.repeat(one, other.shape[1], axis=1), np.tile(other, one.shape[1])
    seen = np.concatenate([first[watching], second[watching], (first[telling] + second[telling]) % PRIME])
    return Counter((PRIME ** np.arange(len(seen)) @ seen).tolist())


def pairs_of_equal_sum(packing: Packing) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Inputs of two dealers with the same sum in every secret."""
    total = np.arange(packing.secrets) + 3
    firsts = [(0,) * packing.secrets, (1,) + (0,) * (packing.secrets - 1), tuple(range(2, 2 + packing.secrets))]
    return [(first, tuple(((total - np.array(first)) % PRIME).tolist())) for first in firsts]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("members", "secrets", "randoms", "sums"),
    [(*shape, sums) for shape in SHAPES for sums in (0, 1, 2, 4) if sums <= shape[0]],
)
def test_any_coalition_of_c_m_members_sees_the_sum_only(members: int, secrets: int, randoms: int, sums: int) -> None:
    packing = Packing(members, secrets, randoms, PRIME)
    for coalition in combinations(range(members), randoms):
        for published in combinations(range(members), sums):
            seen = [views(packing, inputs, coalition, published, randoms) for inputs in pairs_of_equal_sum(packing)]
            assert all(one == seen[0] for one in seen[1:])


@pytest.mark.parametrize(("members", "secrets", "randoms"), SHAPES)
def test_without_published_sums_they_see_nothing(members: int, secrets: int, randoms: int) -> None:
    packing = Packing(members, secrets, randoms, PRIME)
    zero, other = (0,) * secrets, tuple(range(1, 1 + secrets))
    for coalition in combinations(range(members), randoms):
        assert views(packing, [zero, zero], coalition, (), randoms) == views(packing, [other, zero], coalition, (), randoms)


@pytest.mark.parametrize(("members", "secrets", "randoms"), SHAPES)
def test_one_random_point_less_is_found(members: int, secrets: int, randoms: int) -> None:
    packing = Packing(members, secrets, randoms, PRIME)
    zero, other = (0,) * secrets, tuple(range(1, 1 + secrets))
    assert any(
        views(packing, [zero, zero], coalition, (), randoms - 1) != views(packing, [other, zero], coalition, (), randoms - 1)
        for coalition in combinations(range(members), randoms)
    )


@pytest.mark.parametrize(("members", "secrets", "randoms"), SHAPES)
def test_a_coalition_of_one_more_member_sees_more(members: int, secrets: int, randoms: int) -> None:
    """Of some inputs at least: it sees one combination of the secrets."""
    packing, coalition = Packing(members, secrets, randoms, PRIME), range(randoms + 1)
    zero = (0,) * secrets
    nothing = views(packing, [zero, zero], coalition, (), randoms)
    units = [tuple(int(place == one) for place in range(secrets)) for one in range(secrets)]
    assert any(views(packing, [unit, zero], coalition, (), randoms) != nothing for unit in units)


@pytest.mark.parametrize(("members", "secrets", "randoms"), SHAPES)
def test_different_sums_are_told_apart_by_t_of_them(members: int, secrets: int, randoms: int) -> None:
    packing = Packing(members, secrets, randoms, PRIME)
    zero, other = (0,) * secrets, tuple(range(1, 1 + secrets))
    published = range(packing.threshold)
    one, two = (views(packing, [zero, inputs], (), published, randoms) for inputs in (zero, other))
    assert not set(one) & set(two)
