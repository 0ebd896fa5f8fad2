"""Contributions of single records: every power is the product that it has to be, and who deals another one is seen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from quietmean.core.column_blocks import Blocks, block_diameter, block_in_steps
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.mixtures import Simplex
from quietmean.core.statement import FEWEST_STEPS, MOST_STEPS, ProductRelation, StatedValue
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import (
    ContributionError,
    excerpt,
    make_contribution,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.design import design, encode
from quietmean.protocols.committee.keys import raw_key
from quietmean.protocols.committee.layout import Layout, layout_of
from quietmean.protocols.committee.lists import check_numbers, fitting
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.packed_sharing.encoding import rounded_sensitivity
from quietmean.protocols.packed_sharing.packing import open_sums
from quietmean.randomness import Seed
from support.committee_world import SEALER, CommitteeWorld
from support.refusals import refused

Numbers = np.ndarray[Any, np.dtype[np.int64]]
MEMBERS, PRIME = 5, 2**31 - 1
WEIGHTS = {1: 1.65, 2: 0.9}


def block(groups: int) -> Blocks:
    return Blocks(groups=groups, weight=WEIGHTS[groups], scale=0.5, products=True)


@cache
def planned(contributors: int, groups: int = 1) -> CommitteeParameters:
    domain = InputDomain((block(groups),))
    target = Target(contributors, 1.0, 1e-6, domain.size, domain.diameter)
    sharing = CommitteeSharing.planned(target, Committee(MEMBERS, verified=True, products=True), domain).protocol
    assert isinstance(sharing, CommitteeSharing)
    return sharing.parameters(contributors)


@cache
def layout(contributors: int = 100, groups: int = 1, seed: int = 0) -> Layout:
    """That of one contributor."""
    whole = layout_of(planned(contributors, groups), InputDomain((block(groups),)).statement, 1.0)
    return whole.of_contributor(Seed.public("test of products", seed))


def levels(own: Layout, values: dict[int, int]) -> Numbers:
    """All numbers of a record with these values by group, dealt honestly."""
    made = np.zeros(len(own.lows), dtype=np.int64)
    for group, value in values.items():
        made[5 * group], made[5 * group + 1] = 1, value
    assert own.records is not None
    own.records.follow(made, own.lows)
    for slack in range(own.slacks):
        made[own.dimension + slack] = len(values)
    return made


def residues(numbers: Numbers) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.asarray(numbers % PRIME, dtype=np.uint64)


def holds(own: Layout, numbers: Numbers) -> bool:
    """Are all numbers in their ranges, and all relations 0 modulo p?"""
    within = bool((numbers >= own.lows).all() and (numbers <= own.lows + own.spans).all())
    return within and not own.broken_relations(residues(numbers), PRIME).any()


def reach_of(contributors: int = 100, groups: int = 1) -> int:
    return int(layout(contributors, groups).spans[1] // 2)


# --- honest records ---


@pytest.mark.parametrize(("contributors", "groups"), [(100, 1), (30_000, 1), (200_000, 1), (100, 2)])
def test_every_record_passes_and_its_numbers_are_the_block_within_a_step(contributors: int, groups: int) -> None:
    parameters, own, reach = planned(contributors, groups), layout(contributors, groups), reach_of(contributors, groups)
    steps = 0.5 / parameters.step
    assert FEWEST_STEPS <= reach <= MOST_STEPS
    for value in {*range(-reach, reach + 1, max(1, reach // 30)), -reach, 0, reach}:
        for group in range(groups):
            made = levels(own, {group: value})
            assert holds(own, made)
            x = value / reach
            exact = np.array([value / steps, 1.4 * (x**2 - 0.75), 1.5 * (x**3 - x), 1.5 * (x**4 - x**2)]) * steps
            # Coefficients are up to a part of 1 / 12 less, and rounding takes a step.
            assert (np.abs(made[5 * group + 1 : 5 * group + 5] - exact) <= 1.3 + np.abs(exact) / 12).all()
    absent = levels(own, {})
    assert holds(own, absent)
    assert not absent[: own.dimension].any()


def test_no_number_of_a_record_may_be_another_one_alone() -> None:
    own = layout()
    for value in (-reach_of(), -17, 0, 1, 40, reach_of()):
        made = levels(own, {0: value})
        for place, by in itertools.product(range(len(made)), (-1, 1)):
            wrong = made.copy()
            wrong[place] += by
            assert not holds(own, wrong)


def test_the_bits_of_what_was_encoded_are_those_of_its_products() -> None:
    own, parameters = layout(), planned(100)
    for x in (-1.0, -0.3, 0.0, 0.77, 1.0):
        vector = 0.5 * np.array([1.65, x, 1.4 * (x**2 - 0.75), 1.5 * (x**3 - x), 1.5 * (x**4 - x**2)])
        numbers = encode(parameters, vector, 1.0, Seed.public("one", round(100 * x)), own)
        bits = own.bits_of(numbers)
        assert set(bits.tolist()) <= {0, 1}
        shares = own.numbers_of(bits.astype(np.uint32), PRIME)
        assert not own.broken_relations(shares, PRIME).any()
        assert own.summed_of(bits.astype(np.uint32), PRIME).tolist() == numbers.tolist()
        assert abs(numbers[1] - parameters.range // 2 - x * reach_of()) < 1
        for place in range(5):
            wrong = numbers.copy()
            wrong[place] += 1
            refused("Let the plan of the study encode them", own.bits_of, wrong)


def test_what_is_no_record_is_dealt_as_one_and_nothing_is_refused_for_it() -> None:
    """A mixture of records, as a domain moves any vector into it."""
    for vector in ([0.4, 0.1, 0.0, 0.0, 0.0], [0.825, 9.0, -9.0, 3.0, 3.0], [9.0, -0.2, 7.0, 7.0, 7.0]):
        own = layout()
        own.bits_of(encode(planned(100), np.array(vector), 1.0, Seed(bytes(32)), own))


# --- the mean, and what it may cost ---


def test_values_that_are_frequent_are_right_in_the_mean() -> None:
    """All with the same value, where nothing but each contributor's public numbers differs: no bias of half a step."""
    parameters, reach = planned(100), reach_of()
    steps, count = 0.5 / parameters.step, 1000
    for value in (reach // 3, -reach + 5):
        whole = layout_of(parameters, InputDomain((block(1),)).statement, 1.0)
        dealt = np.array([levels(whole.of_contributor(Seed.public("c", one)), {0: value})[1:5] for one in range(count)])
        exact = block_in_steps(steps, 1.65).response[1:] @ (value / reach) ** np.arange(5) * steps
        off = dealt.mean(axis=0) - exact
        assert (np.abs(off) < 4 * 0.5 / np.sqrt(count)).all()
        # Which the nearest whole number would not be.
        assert np.abs(np.rint(exact) - exact).max() > 4 * 0.5 / np.sqrt(count)


@pytest.mark.parametrize(("contributors", "groups"), [(100, 1), (100, 2), (200_000, 1)])
def test_no_two_records_are_dealt_further_apart_than_is_charged(contributors: int, groups: int) -> None:
    parameters, reach = planned(contributors, groups), reach_of(contributors, groups)
    allowed = rounded_sensitivity(parameters.numbers, 0.5 * block_diameter(groups, WEIGHTS[groups]))
    for seed in range(3):
        own = layout(contributors, groups, seed)
        assert own.records is not None
        values = sorted({*range(-reach, reach + 1, max(1, reach // 80)), -reach, reach})
        records = [levels(own, {})] + [levels(own, {group: value}) for group in range(groups) for value in values]
        dealt = np.array([own.records.steps_of(record) for record in records], dtype=np.float64)
        squares = (dealt**2).sum(axis=1)
        farthest = np.sqrt((squares[:, None] + squares[None, :] - 2 * dealt @ dealt.T).max())
        assert 0.95 * 0.5 / parameters.step * block_diameter(groups, WEIGHTS[groups]) < farthest <= allowed


def test_rounding_biases_a_square_by_less_than_a_tenth_of_the_standard_error_or_there_is_no_plan() -> None:
    for contributors in (1000, 200_000):
        parameters = planned(contributors)
        deviation = np.sqrt(parameters.dealings) * parameters.sigma
        assert contributors * 2 / reach_of(contributors) * parameters.step <= 0.1 * deviation
    refused("have no room: rounding would bias squares by more than a tenth", planned, 1_000_000)


# --- lies ---


def lies(rng: np.random.Generator, own: Layout, reach: int) -> Numbers:
    """A record of which something is not as it has to be, as well hidden as it can be."""
    value, other = (int(drawn) for drawn in rng.integers(-reach, reach + 1, 2))
    made, wrong = levels(own, {0: value}), levels(own, {0: other})
    kind, place = int(rng.integers(5)), int(rng.choice([2, 3, 4]))
    relation = next(one for one in own.records.relations if one.digits and one.digits[-1][0] == place)  # type: ignore[union-attr]
    low = [place for place, _ in relation.digits[:-1]]
    if kind == 0:
        # One step more, and the remainder as much less: out of its range.
        made[place] += 1
        made[low[-1]] -= relation.digits[-1][1] // relation.digits[-2][1]
    elif kind == 1 and abs(value) != abs(other):
        # The product of another value, remainders included.
        made[place], made[low] = wrong[place], wrong[low]
    elif kind == 2 and value:
        # A value that is not present.
        made[0] = 0
    elif kind == 3:
        # What makes the relation 0 modulo p, for another product.
        made[low[0]] += int(own.broken_relations(residues(made), PRIME)[0]) - int(rng.integers(1, 50))
    else:
        made[0] = 2
    return made


def test_a_thousand_lies_are_seen_and_honest_records_are_not() -> None:
    rng, reach = np.random.default_rng(36), reach_of()
    for case in range(1000):
        own = layout(seed=case % 7)
        assert holds(own, levels(own, {0: int(rng.integers(-reach, reach + 1))}))
        assert not holds(own, lies(rng, own, reach))


def test_a_record_is_in_one_group() -> None:
    own = layout(groups=2)
    both = levels(own, {0: 5, 1: -9})
    assert not holds(own, both)
    both[own.dimension] = 1
    assert not holds(own, both)


def test_a_product_that_would_wrap_is_refused_and_would_prove_nothing() -> None:
    """In a field of 10007 elements there is a false product of a value whose square is above p."""
    own = layout()
    assert own.records is not None
    highs = own.lows + own.spans
    own.records.require_room(own.lows, highs, PRIME)
    refused("a product reaches", own.records.require_room, own.lows, highs, 10_007)
    # The square of the largest value less 1009 has other digits, with which the relation holds in a field of 1009 elements.
    made = levels(own, {0: reach_of()})
    (lowest, _), (low, coarse), (square, radix) = own.records.relations[1].digits
    left = int(made[lowest] + coarse * made[low] + radix * made[square]) - 1009
    for place, count in ((lowest, coarse), (low, radix // coarse)):
        made[place] = (left - own.lows[place]) % count + own.lows[place]
        left = (left - int(made[place])) // count
    made[square] = left
    assert own.lows[square] <= left <= highs[square]
    assert own.records.broken(np.asarray(made % 1009, dtype=np.uint64), 1009)[1] == 0
    assert own.records.broken(residues(made), PRIME)[1] != 0
    refused("a product reaches", own.records.require_room, own.lows, highs, 1009)


# --- files ---


@cache
def world() -> CommitteeWorld:
    made = CommitteeWorld(Committee(MEMBERS, verified=True), contributors=100, dimension=5)
    made.parameters = planned(100)
    statement = InputDomain((block(1),)).statement
    made.session = replace(
        made.session,
        parameters=made.parameters,
        statement=statement,
        contributors={made.contributor(number).public_key: 1.0 for number in range(100)},
    )
    return made


def file_of(vector: list[float], number: int = 0) -> bytes:
    session, signer = world().session, world().contributor(number)
    own = session.layout_of(False, 1.0, raw_key(signer.public_key))
    numbers = encode(session.parameters, np.array(vector), 1.0, Seed(bytes(32)), own)
    return make_contribution(session, signer, SEALER, numbers, 1.0, Seed(bytes(32)))


def told(raw: bytes) -> np.ndarray[Any, np.dtype[np.uint32]]:
    header, rows = read_header(world().session, raw), []
    for member in range(MEMBERS):
        own = excerpt(world().session, raw, member)
        part = open_excerpt(world().session, header, own, member, world().opener(member))
        rows.append([check_numbers(world().session, header.digest, part)])
    return np.array(rows, dtype=np.uint32)


VECTOR = [0.825, 0.25, 0.7 * -0.5, -0.28125, -0.140625]


def test_members_see_of_shares_that_products_are_right_or_that_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = world().parameters.packing
    raw = file_of(VECTOR)
    assert fitting(packing, range(MEMBERS), told(raw)).all()
    honest = Layout.bits_of

    def another_square(self: Layout, numbers: Numbers) -> Numbers:
        """x and its bits right, and x^2 one step more."""
        bits = honest(self, numbers)
        first = int(self.starts[2])
        bits[first] = 1 - bits[first]
        return bits

    with monkeypatch.context() as patch:
        patch.setattr(Layout, "bits_of", another_square)
        lying = told(file_of(VECTOR))
    assert fitting(packing, range(MEMBERS), lying[..., :6]).all()
    assert not fitting(packing, range(MEMBERS), lying).any()


def test_shares_of_a_record_add_up_to_its_numbers() -> None:
    session, raw, shares = world().session, file_of(VECTOR), {}
    header = read_header(session, raw)
    for member in (1, 3):
        part = open_excerpt(session, header, excerpt(session, raw, member), member, world().opener(member))
        shares[member] = part.summed(PRIME)
    opened = open_sums(session.parameters.packing, shares, 5) - session.parameters.range // 2
    assert np.abs(opened * session.parameters.step - VECTOR).max() <= 1.4 * session.parameters.step + 0.05 * 0.35


def test_a_contribution_has_the_bytes_that_are_planned() -> None:
    sharing = CommitteeSharing.of(world().parameters)
    assert abs(len(file_of(VECTOR)) - sharing.traffic(100, 5).message_bytes) <= 100
    # The remainders of products, beside the bits of five numbers.
    assert sharing.bits_of_record == layout().bits == int(np.sum([len(f"{span:b}") for span in layout().spans.tolist()]))


def test_another_weight_than_one_counts_for_nothing() -> None:
    session, signer = world().session, world().contributor(0)
    with pytest.raises(ContributionError, match="may have 1, as its products are checked"):
        make_contribution(session, signer, SEALER, np.zeros(5, dtype=np.int64), 0.5, Seed(bytes(32)))
    assert not session.takes_weight(0.5, 1.0)
    assert session.takes_weight(1.0, 1.0)


# --- documents and refusals ---


def test_documents_of_before_say_nothing_of_products() -> None:
    plain = Blocks(weight=1.65, scale=0.5, groups=1)
    assert "products" not in plain.describe()
    assert not InputDomain((plain,)).statement.records
    domain = InputDomain((block(1), Simplex(size=3, scale=0.5)))
    assert InputDomain.parse(domain.describe()) == domain
    assert domain.is_stated_in_full
    assert "bits_of_record" not in replace(planned(100), bits_of_record=0).to_json()
    assert CommitteeParameters.from_json(planned(100).to_json()) == planned(100)
    assert "products" not in Committee(5, verified=True).describe()
    committee = Committee(5, verified=True, products=True)
    assert Committee.parse(committee.describe()) == committee


def test_what_cannot_be_is_refused() -> None:
    refused("Give verified, or leave products out", Committee, 5, products=True)
    refused("products are checked of single records only", replace, planned(100), largest_weight=2.0)
    refused("products are those of a single record", layout_of, planned(100), InputDomain((block(1),)).statement, 0.5)
    refused("Checks of products need 64 to 1800", block(1).in_steps, 0.1)
    with pytest.raises(InputError, match="the plan's products are others than those of its domain"):
        replace(world().session, statement=StatedValue(-np.ones(5), np.ones(5)))
    other = Target(100, 1.0, 1e-6, 5, 1.0)
    assert design(other, Committee(5, verified=True)).bits_of_record == 0


def test_a_relation_is_read_at_the_places_of_its_record() -> None:
    """Two blocks beside a table: each has products of its own."""
    domain = InputDomain((block(1), Simplex(size=3, scale=0.5), block(2)))
    parameters = replace(planned(100), dimension=domain.size)
    own = layout_of(parameters, domain.statement, 1.0)
    assert own.records is not None
    assert own.dimension == 18
    assert own.slacks == 2
    assert own.records.places.tolist() == [*range(5), *range(8, 18)]
    value = np.zeros(18)
    value[[0, 1, 6, 13, 14]] = [0.825, 0.3, 0.5, 0.45, -0.2]
    shares = own.numbers_of(own.bits_of(encode(parameters, value, 1.0, Seed(bytes(32)), own)).astype(np.uint32), PRIME)
    assert not own.broken_relations(shares, PRIME).any()
    assert isinstance(own.records.relations[-1], ProductRelation)
    for place in (1, 2, 14, 15, len(shares) - 1):
        shares[place] += 1
        assert own.broken_relations(shares, PRIME).any()
        shares[place] -= 1
