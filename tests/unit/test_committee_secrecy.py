"""A committee by exact enumeration over the field of 7 elements: whole views depend on the opened sum only.

A view: all shares and masks of one member, the check numbers of all members for a contribution and for honest noise, and all
members' sums. All random points and masks of both dealers are run through, so there is no error rate.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.protocols.committee.contribution import Part
from quietmean.protocols.committee.lists import combine
from quietmean.protocols.packed_sharing.packing import Packing, deal_points, values_on_polynomials

PRIME = 7
# Four members, one number a polynomial, one random point: T = 2.
PACKING = Packing(4, 1, 1, PRIME)
Columns = NDArray[np.int64]


def dealt(secret: int, dealer: int, points: int = PRIME, mask_degrees: int = 2) -> tuple[Columns, Columns]:
    """Shares and masks of all members, each shape (4, cases): for all random points, and all mask polynomials."""
    cases = np.array(list(product(range(points), *[range(PRIME)] * mask_degrees)), dtype=np.uint32).T
    held = np.empty((4, cases.shape[1]), dtype=np.int64)
    secrets = np.full((1, cases.shape[1]), secret, dtype=np.uint32)
    held[list(PACKING.unseeded(dealer))] = deal_points(PACKING, secrets, np.ascontiguousarray(cases[:1]), dealer)
    held[list(PACKING.seeded(dealer))] = cases[0]
    coefficients = np.zeros((2, cases.shape[1]), dtype=np.uint32)
    coefficients[:mask_degrees] = cases[1:]
    return held, values_on_polynomials(PACKING, coefficients).astype(np.int64)


def told(shares: Columns, masks: Columns, r: int) -> Columns:
    """The check numbers of all members, by the real code, shape (4, cases)."""
    rows = []
    for member in range(4):
        part = Part(np.array([0], dtype=np.uint32), masks[member].astype(np.uint32))
        # One repetition a case: each with its own share, which stands in the place of r.
        rows.append(combine(shares[member].astype(np.uint32)[:, None], Part(np.array([r], dtype=np.uint32), part.masks), PRIME))
    return np.array(rows, dtype=np.int64)


def view(rows: Columns) -> Columns:
    """How often each value of the rows together occurs, in an order of its own."""
    encoded = PRIME ** np.arange(len(rows), dtype=np.int64) @ rows
    values, counts = np.unique(encoded, return_counts=True)
    return np.array([values, counts])


def joint_view(value: int, noise: int, r: tuple[int, int], coalition: int) -> Columns:
    """Of a contribution and of one honest noise dealing, with sums over both."""
    (one, mask), (other, other_mask) = dealt(value, 0), dealt(noise, 1)
    first = np.concatenate([one[[coalition]], mask[[coalition]], told(one, mask, r[0]), one])
    second = np.concatenate([other[[coalition]], other_mask[[coalition]], told(other, other_mask, r[1]), other])
    left, right = np.repeat(first, second.shape[1], axis=1), np.tile(second, first.shape[1])
    sums = (left[6:] + right[6:]) % PRIME
    return view(np.concatenate([left[:6], right[:6], sums]))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("coalition", range(4))
@pytest.mark.parametrize("r", [(0, 0), (1, 0), (3, 5), (6, 6)])
def test_whole_views_depend_on_the_sum_only(coalition: int, r: tuple[int, int]) -> None:
    # The sum is 4 in all three.
    views = [joint_view(value, (4 - value) % PRIME, r, coalition) for value in (0, 1, 5)]
    assert all(np.array_equal(one, views[0]) for one in views[1:])
    assert not np.array_equal(joint_view(0, 5, r, coalition), views[0])


def single_view(value: int, r: tuple[int, ...], coalition: int, points: int = PRIME, mask_degrees: int = 2) -> Columns:
    """Of a contribution alone: check numbers with each of ``r``, under the same masks."""
    shares, masks = dealt(value, 0, points, mask_degrees)
    return view(np.concatenate([shares[[coalition]], masks[[coalition]], *[told(shares, masks, one) for one in r]]))


@pytest.mark.parametrize("coalition", range(4))
def test_before_a_sum_is_opened_nothing_is_seen_for_any_r(coalition: int) -> None:
    for r in range(PRIME):
        views = [single_view(value, (r,), coalition) for value in range(PRIME)]
        assert all(np.array_equal(one, views[0]) for one in views[1:])


@pytest.mark.parametrize(
    ("r", "points", "mask_degrees"),
    [((2, 3), PRIME, 2), ((2,), 1, 2), ((2,), PRIME, 1), ((2,), PRIME, 0)],
    ids=["two r under the same masks", "c_m = 0", "masks of degree 0", "no masks"],
)
def test_wrong_builds_give_values_away(r: tuple[int, ...], points: int, mask_degrees: int) -> None:
    views = [single_view(value, r, 3, points, mask_degrees) for value in (0, 1)]
    assert not np.array_equal(views[0], views[1])


def test_check_numbers_of_a_higher_degree_do_not_fit_for_most_r() -> None:
    # x^2 at the members' points 2..5, which is of degree 2.
    shares = np.array([[4], [9 % PRIME], [16 % PRIME], [25 % PRIME]])
    line = values_on_polynomials(PACKING, np.array([[3], [2]], dtype=np.uint32)).astype(np.int64)
    unfit = 0
    for r in range(PRIME):
        numbers = told(shares, line, r)[:, 0]
        # On a line second differences are 0.
        unfit += bool(np.any(np.diff(numbers, 2) % PRIME))
    assert unfit == PRIME - 1
