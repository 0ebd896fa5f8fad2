"""What checks of bits and of a relation tell, by exact enumeration over the field of 7 elements with five members, T = 2.

A contribution of two bits of which at most one is set, with a third bit beside that relation. All random points and all masks of
products are run through, so that there is no error rate. What is not enumerated besides, masks of degrees and other dealings, is
independent of it (``test_committee_secrecy``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.statement import ProductRelation, WholeRecord
from quietmean.protocols.committee.contribution import Part
from quietmean.protocols.committee.layout import Layout, WholeRelation
from quietmean.protocols.committee.lists import combine_verified, proven
from quietmean.protocols.committee.records import RecordProducts
from quietmean.protocols.packed_sharing.packing import Packing

PRIME, MEMBERS = 7, 5
# The secret is at 1, and members are at 2..6.
POINTS = np.arange(2, 2 + MEMBERS)
PACKING = Packing(MEMBERS, 1, 1, PRIME)
LAYOUT = Layout.of(np.array([0, 0]), np.array([1, 1]), (WholeRelation(np.array([0, 1]), np.array([1, 1]), 0, 1),))
Columns = NDArray[np.int64]


def lines(secret: int, slopes: Columns) -> Columns:
    """Values of polynomials of degree 1 through (1, secret), shape (5, cases)."""
    return np.asarray((secret + slopes * (POINTS[:, None] - 1)) % PRIME)


@cache
def cases(points: int, masks: int) -> Columns:
    """Slopes of three bits and two coefficients of a mask, (5, cases); fewer of them where they are not drawn."""
    return np.array(list(itertools.product(range(points), range(points), range(points), range(masks), range(masks)))).T


def products(secrets: tuple[int, ...], r: tuple[int, ...], points: int = PRIME, masks: int = PRIME) -> tuple[Columns, ...]:
    """Shares of three bits, masks of products, and what members tell of these: each (5, cases). By the formulas."""
    drawn = cases(points, masks)
    bits = [lines(secret, slope) for secret, slope in zip(secrets, drawn, strict=False)]
    # (x - 1)(a + b x), of degree 2 and 0 at the secret.
    mask = (POINTS[:, None] - 1) * (drawn[3] + drawn[4] * POINTS[:, None]) % PRIME
    told = mask + sum(factor * (bit * bit - bit) for factor, bit in zip(r, bits, strict=False))
    told = told + r[3] * (bits[0] + bits[1] - bits[2])
    return *bits, mask, np.asarray(told % PRIME)


def view(coalition: int, *told: Columns, seen: tuple[Columns, ...]) -> Columns:
    """How often each joint value occurs of what one member holds, ``seen``, and of all that is ``told``; ordered by value."""
    rows = [*(held[coalition] for held in seen), *(row for one in told for row in one)]
    encoded = PRIME ** np.arange(len(rows), dtype=np.int64) @ np.array(rows)
    values, counts = np.unique(encoded, return_counts=True)
    return np.array([values, counts])


def view_of(secrets: tuple[int, ...], r: tuple[int, ...], coalition: int, **drawn: int) -> Columns:
    *bits, mask, told = products(secrets, r, **drawn)
    return view(coalition, told, seen=(*bits, mask))


# The values 00, 10 and 01, with the bit beside the relation.
VALUES = ((0, 0, 0), (1, 0, 1), (0, 1, 1))


@pytest.mark.parametrize("coalition", range(MEMBERS))
@pytest.mark.parametrize("r", [(1, 0, 0, 0), (3, 5, 2, 6), (0, 0, 0, 4)])
def test_one_members_view_with_all_check_numbers_is_the_same_for_every_value(coalition: int, r: tuple[int, ...]) -> None:
    views = [view_of(value, r, coalition) for value in VALUES]
    assert all(np.array_equal(one, views[0]) for one in views[1:])


@pytest.mark.parametrize("drawn", [{"points": 1}, {"masks": 1}], ids=["no random points", "no masks of products"])
def test_a_build_without_randomness_gives_values_away(drawn: dict[str, int]) -> None:
    assert not np.array_equal(view_of(VALUES[0], (3, 5, 2, 6), 1, **drawn), view_of(VALUES[1], (3, 5, 2, 6), 1, **drawn))


# --- a product ---

# Of two bits, which is the third; and of two sums of bits, as where one level is set at most.
PRODUCTS = [ProductRelation({0: 1}, {1: 1}, {2: -1}), ProductRelation({0: 1, 2: -1}, {1: 1, 2: -1}, {2: 0})]
NAMES = ["of bits", "of sums"]


def of_record(relation: ProductRelation) -> Layout:
    three = np.ones(3, dtype=np.int64)
    record = WholeRecord(0 * three, three, three, np.array([1.0, 1.0, 0.0]), np.empty(0, dtype=np.int64), (), (relation,))
    return Layout.of(record.lows, record.highs, (), RecordProducts.of([(0, record)], 3, 0))


def value_of(relation: ProductRelation, numbers: Sequence[Any]) -> Any:
    """What is 0 where it holds. By the formula."""
    first, second, added = (
        sum(factor * numbers[place] for place, factor in terms.items())
        for terms in (relation.first, relation.second, relation.added)
    )
    return first * second + added


def product_told(relation: ProductRelation, secrets: tuple[int, ...], r: tuple[int, ...], **drawn: int) -> tuple[Columns, ...]:
    """As :func:`products`, with a product for the relation."""
    *bits, mask, told = products(secrets, (*r[:3], 0), **drawn)
    return *bits, mask, np.asarray((told + r[3] * value_of(relation, bits)) % PRIME)


@pytest.mark.parametrize("coalition", [0, 3])
@pytest.mark.parametrize("r", [(3, 5, 2, 6), (0, 0, 0, 4)])
@pytest.mark.parametrize("relation", PRODUCTS, ids=NAMES)
def test_a_view_with_a_product_is_the_same_for_every_value(relation: ProductRelation, r: tuple[int, ...], coalition: int) -> None:
    views = []
    holding = [bits for bits in itertools.product(range(2), repeat=3) if value_of(relation, bits) == 0]
    assert len(holding) == (4 if relation is PRODUCTS[0] else 6)
    for value in holding:
        *bits, mask, told = product_told(relation, value, r)
        views.append(view(coalition, told, seen=(*bits, mask)))
    assert all(np.array_equal(one, views[0]) for one in views[1:])
    *bits, mask, told = product_told(relation, (1, 1, 1), r, masks=1)
    assert not np.array_equal(view(coalition, told, seen=(*bits, mask)), views[0])


@pytest.mark.parametrize("relation", PRODUCTS, ids=NAMES)
def test_the_real_check_numbers_of_a_product_are_those_of_the_formulas_and_prove_it(relation: ProductRelation) -> None:
    layout = of_record(relation)
    assert (layout.relations, layout.bits) == (1, 3)
    for secrets in itertools.product(range(2), repeat=3):
        r = (3, 5, 2, 6)
        *bits, mask, told = product_told(relation, secrets, r)
        assert proven(PACKING, range(MEMBERS), _numbers(told[:, ::997])).all() == (value_of(relation, secrets) == 0)
        for case, member in itertools.product(range(0, told.shape[1], 4999), range(MEMBERS)):
            values = np.array([one[member, case] for one in bits], dtype=np.uint32)
            part = Part(values, np.array([4, mask[member, case]], dtype=np.uint32), layout)
            assert combine_verified(np.array([r], dtype=np.uint32), part, layout, PRIME)[1] == told[member, case]


def test_two_r_under_the_same_masks_give_values_away() -> None:
    views = []
    for value in VALUES:
        *bits, mask, told = products(value, (3, 5, 2, 6))
        views.append(view(1, told, products(value, (1, 2, 2, 6))[-1], seen=(*bits, mask)))
    assert not np.array_equal(views[0], views[1])


def test_masks_that_are_not_0_at_the_secret_let_everything_pass() -> None:
    """A dealer whose masks may be anything proves nothing: for each bad bit some mask makes it look good, whatever r is."""
    *_, told = products((3, 0, 3), (1, 0, 0, 0))
    # What is missing at the secret: r (b^2 - b), which an unbound mask takes off.
    numbers = (told - (3 * 3 - 3)) % PRIME
    assert proven(PACKING, range(MEMBERS), _numbers(numbers)).all()
    assert not proven(PACKING, range(MEMBERS), _numbers(told)).any()


def _numbers(told: Columns) -> NDArray[np.uint32]:
    return np.asarray(told, dtype=np.uint32)[:, :, None]


@pytest.mark.parametrize(
    ("secrets", "good"),
    [((0, 0, 0), True), ((1, 0, 1), True), ((2, 0, 2), False), ((1, 1, 2), False), ((1, 1, 1), False), ((0, 0, 1), False)],
)
def test_what_is_proven_are_bits_of_which_at_most_one_is_set(secrets: tuple[int, ...], good: bool) -> None:
    """By the share of all r, 7^4 of them, for which it passes: all or a seventh."""
    passed = 0
    for r in itertools.product(range(PRIME), repeat=4):
        value = sum(factor * (bit * bit - bit) for factor, bit in zip(r, secrets, strict=False))
        value += r[3] * (secrets[0] + secrets[1] - secrets[2])
        passed += value % PRIME == 0
    assert passed == (PRIME**4 if good else PRIME**3)
    for r in ((1, 3, 2, 6), (2, 1, 5, 3), (6, 2, 4, 1)):
        value = sum(factor * (bit * bit - bit) for factor, bit in zip(r, secrets, strict=False))
        value += r[3] * (secrets[0] + secrets[1] - secrets[2])
        *_, told = products(secrets, r)
        assert proven(PACKING, range(MEMBERS), _numbers(told[:, ::997])).all() == (value % PRIME == 0)


def test_the_real_check_numbers_are_those_of_the_formulas() -> None:
    for r in ((3, 5, 2, 6), (1, 0, 4, 2)):
        *bits, mask, told = products((0, 1, 1), r)
        for case in range(0, told.shape[1], 1499):
            for member in range(MEMBERS):
                part = Part(
                    np.array([one[member, case] for one in bits], dtype=np.uint32),
                    np.array([4, mask[member, case]], dtype=np.uint32),
                    LAYOUT,
                )
                numbers = combine_verified(np.array([r], dtype=np.uint32), part, LAYOUT, PRIME)
                degree = 4 + sum(factor * int(bit) for factor, bit in zip(r, part.values, strict=False))
                assert numbers.tolist() == [degree % PRIME, told[member, case]]


def test_a_sum_that_is_opened_tells_the_sum_and_nothing_else() -> None:
    """Two contributions of one bit with all check numbers, and the sums of all members over both."""
    drawn = np.array(list(itertools.product(range(PRIME), repeat=3))).T

    def one_bit(secret: int, r: int) -> tuple[Columns, ...]:
        bit = lines(secret, drawn[0])
        mask = (POINTS[:, None] - 1) * (drawn[1] + drawn[2] * POINTS[:, None]) % PRIME
        return bit, mask, np.asarray((mask + r * (bit * bit - bit)) % PRIME)

    def joint(first: int, other: int, coalition: int) -> Columns:
        size = drawn.shape[1]
        left = [np.repeat(one, size, axis=1) for one in one_bit(first, 3)]
        right = [np.tile(one, size) for one in one_bit(other, 5)]
        sums = (left[0] + right[0]) % PRIME
        return view(coalition, left[2], right[2], sums, seen=(left[0], left[1], right[0], right[1]))

    for coalition in (0, 3):
        assert np.array_equal(joint(1, 0, coalition), joint(0, 1, coalition))
        assert not np.array_equal(joint(1, 0, coalition), joint(1, 1, coalition))
