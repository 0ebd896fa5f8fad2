"""Means and products of columns of single records: each product is that of its columns, and who deals another one is seen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from quietmean.core.input_domain import InputDomain
from quietmean.core.moment_products import MomentsInSteps, RecordMoments
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.design import encode
from quietmean.protocols.committee.layout import Layout, layout_of
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.packed_sharing.encoding import rounded_sensitivity
from quietmean.randomness import Seed
from quietmean.statistics.columns import Column
from quietmean.statistics.complete_records import moments_of
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.statistic import presence_of
from support.refusals import refused

Numbers = np.ndarray[Any, np.dtype[np.int64]]
PRIME = 2**31 - 1
AGE, PAY = Column(name="age", low=0, high=100), Column(name="pay", low=0, high=1000)
JOB, ARM = Column(name="job", levels=("none", "some", "full")), Column(name="arm", levels=("no", "yes"))
# Two numbers, three levels of one column and two of another, the last one an outcome.
VERTICES = (Vertex(AGE), Vertex(JOB, "some"), Vertex(JOB, "full"), Vertex(ARM, "yes"), Vertex(PAY))


@cache
def feature(by: bool = False) -> Moments:
    moments = moments_of(VERTICES[:1] + VERTICES[4:]) if by else moments_of(VERTICES, heavy=VERTICES[4])
    return replace(moments, by=ARM) if by else moments


@cache
def part(by: bool = False) -> RecordMoments:
    (record,) = feature(by).for_single_record(of_party=False).domain.parts
    assert isinstance(record, RecordMoments)
    return record


@cache
def planned(by: bool = False, contributors: int = 100) -> CommitteeParameters:
    domain = InputDomain((part(by),))
    target = Target(contributors, 1.0, 1e-6, domain.size, domain.diameter)
    sharing = CommitteeSharing.planned(target, Committee(5, verified=True, products=True), domain).protocol
    assert isinstance(sharing, CommitteeSharing)
    return sharing.parameters(contributors)


@cache
def layout(by: bool = False, seed: int = 0, contributors: int = 100) -> Layout:
    """That of one contributor."""
    whole = layout_of(planned(by, contributors), InputDomain((part(by),)).statement, 1.0)
    return whole.of_contributor(Seed.public("test of moments", seed))


def records(ages: Any, jobs: Any, arms: Any, pays: Any) -> dict[str, Any]:
    by_name = {"age": ages, "job": jobs, "arm": arms, "pay": pays}
    filled = {name: np.nan_to_num(np.array(values, dtype=np.float64)) for name, values in by_name.items()}
    return filled | {presence_of(name): 1.0 - np.isnan(values) for name, values in by_name.items()}


def drawn_records(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Values anywhere and at bounds, and some missing."""
    numbers = [np.where(rng.random(count) < 0.3, rng.choice([0.0, 1.0, 0.5], count), rng.random(count)) for _ in range(2)]
    ages = np.where(rng.random(count) < 0.05, np.nan, 100 * numbers[0])
    return records(ages, rng.integers(0, 3, count), rng.integers(0, 2, count), 1000 * numbers[1])


def dealt(own: Layout, parameters: CommitteeParameters, value: np.ndarray[Any, np.dtype[np.float64]], seed: int = 0) -> Numbers:
    """All numbers of the record with this value, dealt honestly."""
    numbers = encode(parameters, value, 1.0, Seed.public("dealt", seed), own)
    bits = own.bits_of(numbers)
    assert set(bits.tolist()) <= {0, 1}
    made = np.add.reduceat(bits * own.weights, own.starts) + own.lows
    return np.asarray(made, dtype=np.int64)


def holds(own: Layout, numbers: Numbers) -> bool:
    """Are all numbers in their ranges, and all relations 0 modulo p?"""
    within = bool((numbers >= own.lows).all() and (numbers <= own.lows + own.spans).all())
    return within and not own.broken_relations(np.asarray(numbers % PRIME, dtype=np.uint64), PRIME).any()


def steps(own: Layout, numbers: Numbers) -> Numbers:
    assert own.records is not None
    return own.records.steps_of(numbers) - own.records.offset


# --- honest records ---


@pytest.mark.parametrize("by", [False, True])
def test_every_record_passes_and_its_numbers_are_its_moments_within_a_step(by: bool) -> None:
    parameters, own, values = planned(by), layout(by), feature(by).encode(drawn_records(np.random.default_rng(36), 30))
    exact = MomentsInSteps.of(part(by), parameters.step)
    factors = np.tile(exact.coefficients * parameters.step / feature(by).factors, part(by).groups)
    # One at most, and little less.
    assert (factors <= 1 + 1e-12).all()
    assert (factors > 0.9).all()
    for number, value in enumerate(values):
        made = dealt(own, parameters, value, number)
        assert holds(own, made)
        # Of products a step, and what rounding a column to one of 64 or more is.
        apart = np.abs(steps(own, made) - factors * value / parameters.step)
        assert apart.max() < 4.5
        assert (np.abs(own.records.steps_of(made) - encode(parameters, value, 1.0, Seed.public("dealt", number), own)) == 0).all()  # type: ignore[union-attr]


def test_a_record_with_a_missing_column_is_all_zero() -> None:
    own, value = layout(), feature().encode(records([np.nan], [1], [1], [700.0]))[0]
    made = dealt(own, planned(), value)
    assert holds(own, made)
    assert not steps(own, made).any()


def test_the_mean_of_many_equal_records_is_theirs() -> None:
    """Only public numbers and the rounding of columns differ: no bias, but a quarter of a step of squares of columns."""
    parameters, count = planned(), 200
    value = feature().encode(records([33.3], [2], [0], [712.0]))[0]
    own = [
        layout_of(parameters, InputDomain((part(),)).statement, 1.0).of_contributor(Seed.public("c", one)) for one in range(count)
    ]
    made = np.array([steps(layout_, dealt(layout_, parameters, value, number)) for number, layout_ in enumerate(own)])
    response = replace(feature(), of_single_record=True).response(1.0, parameters.step) / parameters.step
    quantities = np.linalg.solve(feature().response(1.0, 0.0), value)
    off = np.abs(made.mean(axis=0) - response @ quantities)
    assert (off < 4.5 * made.std(axis=0) / np.sqrt(count) + 0.01).all()


@pytest.mark.parametrize("by", [False, True])
def test_no_two_records_are_dealt_further_apart_than_is_charged(by: bool) -> None:
    parameters = planned(by)
    allowed = rounded_sensitivity(parameters.numbers, feature(by).sensitivity)
    ends = list(itertools.product([0.0, 50.0, 100.0], [0, 1, 2], [0, 1], [0.0, 500.0, 1000.0]))
    values = feature(by).encode(records(*zip(*ends, strict=True)))
    values = np.vstack([values, np.zeros((1, values.shape[1]))])
    for seed in range(2):
        own = layout(by, seed)
        made = np.array([steps(own, dealt(own, parameters, value)) for value in values], dtype=np.float64)
        squares = (made**2).sum(axis=1)
        farthest = np.sqrt((squares[:, None] + squares[None, :] - 2 * made @ made.T).max())
        assert 0.9 * feature(by).sensitivity / parameters.step < farthest <= allowed


def test_what_is_no_record_is_dealt_as_one_and_nothing_is_refused_for_it() -> None:
    """A mixture of records, as a mean would be: of the levels of a column one at most."""
    own, rng = layout(), np.random.default_rng(1)
    for number in range(20):
        value = rng.uniform(-1, 1, own.dimension) * np.sqrt(3)
        assert holds(own, dealt(own, planned(), value, number))


# --- lies ---


def test_no_number_of_a_record_may_be_another_one_alone() -> None:
    rng = np.random.default_rng(2)
    for by in (False, True):
        own, values = layout(by), feature(by).encode(drawn_records(rng, 4))
        for value in values:
            made = dealt(own, planned(by), value)
            for place, change in itertools.product(range(len(made)), (-1, 1)):
                wrong = made.copy()
                wrong[place] += change
                assert not holds(own, wrong)


def test_lies_of_every_kind_are_seen() -> None:
    """Numbers of two records mixed, a product moved to its remainder, two levels at once, a record that is not there."""
    own, rng = layout(), np.random.default_rng(36)
    assert own.records is not None
    means = {vertex: place for place, vertex in enumerate(VERTICES, 1)}
    products = [relation for relation in own.records.relations if len(relation.digits) > 1]
    alone = [relation for relation in own.records.relations if len(relation.digits) == 1]
    # Products of two levels of different columns: arm with two of job.
    assert len(alone) == 2
    for case in range(90):
        values = feature().encode(drawn_records(rng, 2))
        made, other = (dealt(own, planned(), value, case) for value in values)
        wrong, kind = made.copy(), case % 6
        if kind == 0:
            # The product of another record, with its remainder.
            relation = products[case // 6 % len(products)]
            places = [place for place, _ in relation.digits]
            wrong[places] = other[places]
        elif kind == 1:
            (low, _), (place, radix) = products[case // 6 % len(products)].digits
            wrong[place] += 1
            wrong[low] -= radix
        elif kind == 2:
            # Two levels of one column, with all products that they then have.
            wrong[[means[VERTICES[1]], means[VERTICES[2]]]] = made[0]
            own.records.follow(wrong, own.lows)
        elif kind == 3:
            wrong[0] = 1 - made[0]
        elif kind == 4:
            # A level that is neither.
            wrong[means[VERTICES[3]]] = 0
            own.records.follow(wrong, own.lows)
        else:
            # A column beyond what is present.
            wrong[0] = 0
            own.records.follow(wrong, own.lows)
        assert holds(own, made)
        same = kind in (0, 2, 3, 4, 5) and (wrong == made).all()
        nothing = kind in (2, 4, 5) and not made[: own.dimension].any()
        assert same or nothing or not holds(own, wrong)


def test_a_record_is_in_one_group() -> None:
    own = layout(by=True)
    values = feature(by=True).encode(records([20.0, 90.0], [0, 0], [0, 1], [10.0, 900.0]))
    one, other = (dealt(own, planned(by=True), value) for value in values)
    both = one + np.where(other > own.lows, other, 0) * (one == 0)
    both[[place for place in range(own.dimension) if not one[place]]] = other[[p for p in range(own.dimension) if not one[p]]]
    assert own.records is not None
    own.records.follow(both, own.lows)
    for slack in range(own.slacks):
        for sum_ in (1, 2):
            both[own.dimension + slack] = sum_
            assert not holds(own, both)


def test_a_product_that_would_wrap_is_refused() -> None:
    own = layout()
    assert own.records is not None
    highs = own.lows + own.spans
    own.records.require_room(own.lows, highs, PRIME)
    refused("a product reaches", own.records.require_room, own.lows, highs, 4099)


# --- documents and refusals ---


def test_a_domain_of_moments_is_read_as_it_was_written() -> None:
    for by in (False, True):
        domain = InputDomain((part(by),))
        assert InputDomain.parse(domain.describe()) == domain
        assert domain.is_stated_in_full
        assert domain.times(2.0).parts[0].diameter == 2 * domain.diameter
    assert "one of 2 groups" in part(by=True).text
    # As before where records are not alone.
    assert feature().for_single_record(of_party=True) is feature()
    assert InputDomain(feature().domain.parts).describe()[0]["kind"] == "products"
    robust = moments_of((VERTICES[0], VERTICES[4]), robust=True)
    assert robust.for_single_record(of_party=False) is robust


@pytest.mark.parametrize(
    "wrong",
    [
        {"edges": [[0, 1], [0, 2], [2, 2]]},
        {"edges": [[0, 1], [0, 2], [0, 3]]},
        {"edges": [[0, 1], [1, 2], [2, 1]]},
        {"edges": [[0, 1], [0, 2], [1, 2, 1]]},
        {"edges": "none"},
        {"levels": [0, -1]},
        {"levels": [0]},
        {"levels": [0.5, 0]},
        {"weights": [1.0]},
        {"weights": [1.0, 1.0, 1.0, 1.0, 1.0, 1e300]},
        {"groups": 2},
    ],
)
def test_what_are_no_moments_is_refused(wrong: dict[str, Any]) -> None:
    (good,) = InputDomain((part_of_two(),)).describe()
    refused(r"\. (Make a new plan|Give (pairs of )?whole numbers\.$)", InputDomain.parse, [{**good, **wrong}])


@cache
def part_of_two() -> RecordMoments:
    (record,) = moments_of((VERTICES[0], VERTICES[4])).for_single_record(of_party=False).domain.parts
    assert isinstance(record, RecordMoments)
    return record
