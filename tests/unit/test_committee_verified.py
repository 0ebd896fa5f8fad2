"""Verified contributions: what is dealt are bits of numbers in their ranges, and members see that without learning them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from quietmean.core.column_blocks import Blocks
from quietmean.core.input_domain import Box, InputDomain
from quietmean.core.mixtures import Simplex
from quietmean.core.statement import LinearRelation, StatedValue
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee, Size
from quietmean.protocols.committee.contribution import (
    ContributionError,
    excerpt,
    make_contribution,
    make_noise,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.design import charge, design
from quietmean.protocols.committee.layout import Layout, WholeRelation, layout_of
from quietmean.protocols.committee.lists import check_numbers, expected_numbers, fitting
from quietmean.protocols.committee.parameters import NOISE_BEYOND, CommitteeParameters
from quietmean.protocols.packed_sharing.packing import open_sums
from quietmean.randomness import Seed
from support.committee_world import SEALER, CommitteeWorld
from support.refusals import raised, refused

# A table of three cells, and a number beside it.
STATED = StatedValue(np.zeros(4), np.ones(4), (LinearRelation(np.arange(3), np.ones(3, dtype=np.int64), 0.0, 1.0),))
WORLD = CommitteeWorld(Committee(5, verified=True), contributors=9, changes={"step": 2.0**-6, "sigma": 2.0}, statement=STATED)
MEMBERS = range(5)
STEPS = 64


def told(raw: bytes, world: CommitteeWorld = WORLD) -> np.ndarray:
    """The check numbers of all members, shape (5, 1, 12)."""
    header, rows = read_header(world.session, raw), []
    for member in MEMBERS:
        own = excerpt(world.session, raw, member)
        part = open_excerpt(world.session, header, own, member, world.opener(member))
        rows.append([check_numbers(world.session, header.digest, part)])
    return np.array(rows, dtype=np.uint32)


def dealt(numbers: list[int], weight: float = 1.0, world: CommitteeWorld = WORLD) -> bytes:
    """The file of a contributor that deals these numbers."""
    return make_contribution(world.session, world.contributor(0), SEALER, np.array(numbers), weight, Seed(bytes(32)))


def is_good(raw: bytes) -> bool:
    return bool(fitting(WORLD.parameters.packing, MEMBERS, told(raw)).all())


# --- bits ---


@pytest.mark.parametrize("span", [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 31, 33])
def test_subsets_of_weights_give_every_number_of_a_range_and_no_other(span: int) -> None:
    layout = Layout.of(np.array([-2]), np.array([span - 2]))
    weights = layout.weights.tolist()
    sums = {sum(chosen) for count in range(len(weights) + 1) for chosen in itertools.combinations(weights, count)}
    assert sums == set(range(span + 1))
    for number in range(-4, span + 2):
        bits = layout.bits_of(np.array([number]))
        assert set(bits.tolist()) <= {0, 1}
        # What is beyond a range is moved into it.
        assert layout.numbers_of(bits.astype(np.uint32), 101).tolist() == [min(max(number, -2), span - 2) % 101]


def test_a_relation_has_a_number_of_its_own_by_which_it_is_exact() -> None:
    relation = WholeRelation(np.array([0, 2]), np.array([1, -2]), -3, 4)
    layout = Layout.of(np.array([0, 0, 0]), np.array([5, 9, 5]), (relation,))
    for first, other in itertools.product(range(6), range(6)):
        numbers = np.array([first, 4, other])
        if not -3 <= first - 2 * other <= 4:
            refused("Let the plan of the study", layout.bits_of, numbers)
            continue
        shares = layout.numbers_of(layout.bits_of(numbers).astype(np.uint32), 1009)
        assert shares[3] == (first - 2 * other) % 1009
        assert not layout.broken_relations(shares, 1009).any()
        for wrong in range(4):
            shares[wrong] += 1
            # The number beside the relation may be any.
            assert layout.broken_relations(shares, 1009).any() == (wrong != 1)
            shares[wrong] -= 1


def test_of_several_relations_each_is_its_own() -> None:
    kept, broken = (
        WholeRelation(np.array([0, 1, 2]), np.array([1, 1, 1]), 5, 5),
        WholeRelation(np.array([1]), np.array([3]), 0, 30),
    )
    layout = Layout.of(np.array([0, 0, 0]), np.array([5, 9, 5]), (kept, broken, kept))
    shares = layout.numbers_of(layout.bits_of(np.array([1, 2, 2])).astype(np.uint32), 1009)
    assert layout.broken_relations(shares, 1009).tolist() == [0, 0, 0]
    shares[4] += 1
    assert layout.broken_relations(shares, 1009).tolist() == [0, 1008, 0]
    shares[2] += 1
    assert layout.broken_relations(shares, 1009).tolist() == [1, 1008, 1]


# --- a contribution ---


@pytest.mark.parametrize("numbers", [[0, 0, 0, 0], [64, 0, 0, 64], [0, 64, 0, 1], [21, 21, 21, 33], [-5, 99, 0, 200]])
def test_every_value_of_a_record_passes_and_is_what_is_added_up(numbers: list[int]) -> None:
    raw = dealt(numbers)
    assert is_good(raw)
    header = read_header(WORLD.session, raw)
    shares = {}
    for member in (0, 3):
        part = open_excerpt(WORLD.session, header, excerpt(WORLD.session, raw, member), member, WORLD.opener(member))
        shares[member] = part.summed(WORLD.parameters.prime)
    # What lies outside is moved to the bound, as for every study: nothing is refused for a value.
    assert open_sums(WORLD.parameters.packing, shares, 4).tolist() == np.clip(numbers, 0, STEPS).tolist()


def bits_for(layout: Layout, above: list[int]) -> np.ndarray:
    """Bits of these numbers above their lower bounds, whatever relations say."""
    parts = [Layout.of(np.array([0]), np.array([span])) for span in layout.spans.tolist()]
    return np.concatenate([HONEST(part, np.array([number])) for part, number in zip(parts, above, strict=True)])


HONEST = Layout.bits_of


def dealt_bits(monkeypatch: pytest.MonkeyPatch, bits: np.ndarray) -> bytes:
    """The file of a contributor that deals something else than bits of its value."""
    with monkeypatch.context() as patch:
        patch.setattr(Layout, "bits_of", lambda self, numbers: bits)
        return dealt([0, 0, 0, 0])


@pytest.mark.parametrize("place", [0, 6, 20, 27, 28, 34])
@pytest.mark.parametrize("value", [2, -1, 64])
def test_a_bit_that_is_none_is_seen_by_all_members_together(monkeypatch: pytest.MonkeyPatch, place: int, value: int) -> None:
    layout = WORLD.session.layout(1.0)
    assert layout.bits == 4 * 7 + 7
    bits = layout.bits_of(np.array([1, 2, 3, 4]))
    assert is_good(dealt_bits(monkeypatch, bits))
    bits[place] = value
    numbers = told(dealt_bits(monkeypatch, bits))
    # Its shares lie on polynomials, as those of any number do.
    assert fitting(WORLD.parameters.packing, MEMBERS, numbers[..., :6]).all()
    assert not fitting(WORLD.parameters.packing, MEMBERS, numbers).any()


def test_cells_that_do_not_add_up_are_seen_though_each_is_in_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = WORLD.session.layout(1.0)
    beside = STEPS - int(layout.lows[4])
    assert is_good(dealt_bits(monkeypatch, bits_for(layout, [STEPS, 0, 0, 7, beside])))
    # Two records in a table of one, whatever is dealt beside the relation.
    for other in (beside, int(layout.spans[4]), 0):
        numbers = told(dealt_bits(monkeypatch, bits_for(layout, [STEPS, STEPS, 0, 7, other])))
        assert fitting(WORLD.parameters.packing, MEMBERS, numbers[..., :6]).all()
        assert not fitting(WORLD.parameters.packing, MEMBERS, numbers).any()


def test_a_contributors_own_software_refuses_what_would_not_count() -> None:
    refused("Let the plan of the study encode them", dealt, [STEPS, STEPS, 0, 0])


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("place", [0, 6])
def test_one_wrong_check_number_is_seen_and_those_of_the_others_tell_what_it_has_to_be(member: int, place: int) -> None:
    numbers = told(dealt([5, 6, 7, 8]))
    packing, others = WORLD.parameters.packing, [other for other in MEMBERS if other != member]
    assert np.array_equal(expected_numbers(packing, others, numbers[others], member), numbers[member])
    numbers[member, 0, place] = (int(numbers[member, 0, place]) + 1) % WORLD.parameters.prime
    assert not fitting(packing, MEMBERS, numbers).any()


@pytest.mark.parametrize("changes", ["values", "masks"])
def test_one_changed_share_or_mask_of_products_is_seen(changes: str) -> None:
    raw = dealt([5, 6, 7, 8])
    header, numbers = read_header(WORLD.session, raw), told(raw)
    part = open_excerpt(WORLD.session, header, excerpt(WORLD.session, raw, 2), 2, WORLD.opener(2))
    wrong = getattr(part, changes).copy()
    wrong[-1] = (wrong[-1] + 1) % WORLD.parameters.prime
    numbers[2, 0] = check_numbers(WORLD.session, header.digest, replace(part, **{changes: wrong}))
    assert not fitting(WORLD.parameters.packing, MEMBERS, numbers).any()


def test_a_weight_has_a_range_of_its_own_and_no_ciphertext_opens_under_another() -> None:
    changes = {"step": 2.0**-6, "sigma": 2.0, "largest_weight": 3.0}
    world = CommitteeWorld(Committee(5, verified=True), changes=changes, statement=STATED)
    assert world.session.layout(3.0).spans[:4].tolist() == [3 * STEPS] * 4
    assert world.session.layout(0.5).spans[:4].tolist() == [STEPS // 2] * 4
    light, heavy = dealt([40, 20, 3, 60], 1.0, world), dealt([40, 20, 130, 190], 3.0, world)
    header = read_header(world.session, light)
    assert len(heavy) > len(light)
    raised(ContributionError, "cut off", excerpt, world.session, light[: header.size] + heavy[header.size :], 0)


def test_masks_of_products_are_others_than_those_of_degrees() -> None:
    raw = dealt([5, 6, 7, 8])
    header, masks = read_header(WORLD.session, raw), []
    for member in MEMBERS:
        own = excerpt(WORLD.session, raw, member)
        masks.append(open_excerpt(WORLD.session, header, own, member, WORLD.opener(member)).masks.astype(object))
    # Members are at 2..6: over x - 1 the masks of products are random polynomials of degree < T, too.
    ratios = [[int(one) * pow(member + 1, -1, WORLD.parameters.prime) for one in masks[member][6:]] for member in MEMBERS]
    for told_masks, over in zip(masks, ratios, strict=True):
        assert all(one % WORLD.parameters.prime != mask for one, mask in zip(over, told_masks[:6], strict=True))
    assert len({int(mask) for row in masks for mask in row}) == 60


def test_a_number_has_the_range_that_is_stated_of_it_and_not_the_plans() -> None:
    stated = StatedValue(np.array([0.25, -1.0, 0.5, 0.999]), np.array([0.5, 9.0, 0.5, 1.0]))
    layout = layout_of(replace(WORLD.parameters, largest_weight=4.0), stated, 2.0)
    # Outwards to whole steps, inside the plan's range, and never without any choice.
    assert layout.lows.tolist() == [32, 0, 63, 127]
    assert (layout.lows + layout.spans).tolist() == [64, 128, 64, 128]


# --- noise ---


def test_noise_is_dealt_within_eight_standard_deviations_and_beyond_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    most = WORLD.parameters.largest_noise
    assert most == 8 * 128

    def made(bits: np.ndarray | None = None, noise: list[int] | None = None) -> bytes:
        with monkeypatch.context() as patch:
            if bits is not None:
                patch.setattr(Layout, "bits_of", lambda self, numbers: bits)
            drawn = np.array(noise or [0, 0, 0, 0])
            return make_noise(WORLD.session, WORLD.signer(1), SEALER, drawn, Seed(bytes(32)))

    raw = made(noise=[most, -most, 3, 9 * most])
    assert is_good(raw)
    header, shares = read_header(WORLD.session, raw), {}
    for member in (2, 4):
        part = open_excerpt(WORLD.session, header, excerpt(WORLD.session, raw, member), member, WORLD.opener(member))
        shares[member] = part.summed(WORLD.parameters.prime)
    assert open_sums(WORLD.parameters.packing, shares, 4).tolist() == [most, -most, 3, most]
    beyond = WORLD.session.noise_layout.bits_of(np.zeros(4, dtype=np.int64))
    beyond[0] = 3
    assert not is_good(made(bits=beyond))


def test_what_is_moved_of_noise_and_all_random_points_are_in_the_charge() -> None:
    plain = design(Target(100, 1.0, 1e-6, 20, 20**0.5), Committee(5, size=Size.LYING))
    checked = replace(plain, verified=True)
    moved = charge(checked, 20**0.5).tv - charge(plain, 20**0.5).tv
    assert moved >= 5 * 20 * NOISE_BEYOND
    assert moved <= 2 * 5 * 20 * NOISE_BEYOND


# --- plans and what is stated ---


@pytest.mark.parametrize(
    ("numbers", "factor"), [((5, 1, 1), 4 / 3), ((9, 2, 2), 7 / 5), ((15, 3, 3), 4 / 3), ((31, 6, 6), 25 / 19)]
)
def test_a_verified_design_has_one_number_a_polynomial_and_enough_lists_for_products(
    numbers: tuple[int, int, int], factor: float
) -> None:
    members, colluding, gone = numbers
    designed = design(Target(1000, 1.0, 1e-6, 20, 20**0.5), Committee(*numbers, verified=True))
    assert (designed.secrets, designed.dealings) == (1, members - gone)
    assert designed.lists_needed == 2 * (colluding + 1) - 1 + colluding <= members - gone
    assert charge(designed, 20**0.5).epsilon(1e-6) <= 1.0
    assert designed.dealings / (designed.dealings - designed.colluding) == pytest.approx(factor)


def test_too_small_a_committee_cannot_verify() -> None:
    refused("that checks contributions is too small for 1 colluding and 1 gone or lying. Take 5", Committee, 4, verified=True)


def test_a_document_says_that_contributions_are_verified_and_one_of_before_says_nothing() -> None:
    parameters = WORLD.parameters
    assert CommitteeParameters.from_json(parameters.to_json()) == parameters
    assert "verified" not in replace(parameters, verified=False).to_json()
    committee = Committee(5, verified=True)
    assert Committee.parse(committee.describe()) == committee
    assert "verified" not in Committee(5).describe()
    refused("norm of a value in a ball is not verified", replace, parameters, region="ball")


def test_a_domain_states_the_bounds_of_each_number_and_the_sums_of_tables() -> None:
    domain = InputDomain((Box(size=2, low=-1.0, high=3.0), Simplex(size=3, scale=0.5)))
    statement = domain.statement
    assert statement.low.tolist() == [-1, -1, 0, 0, 0]
    assert statement.high.tolist() == [3, 3, 0.5, 0.5, 0.5]
    (relation,) = statement.relations
    assert (relation.places.tolist(), relation.low, relation.high) == ([2, 3, 4], 0.0, 0.5)
    assert domain.is_stated_in_full
    assert not InputDomain((Blocks(weight=1.65, scale=1.0),)).is_stated_in_full


def test_a_relation_without_room_is_refused_before_anything_is_contributed() -> None:
    wide = LinearRelation(np.arange(4), np.full(4, 2**25), 0.0, 1.0)
    refused("a relation of 4 numbers reaches", layout_of, WORLD.parameters, replace(STATED, relations=(wide,)), 1.0)
