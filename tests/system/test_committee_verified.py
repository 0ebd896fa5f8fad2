"""Members check contributions and each other's noise without learning them: what is not as it has to be is out, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from quietmean.core.codec import StableBytes
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import NoiseGroup, Step, Units
from quietmean.core.statement import LinearRelation, StatedValue
from quietmean.node.committee import rehearse
from quietmean.protocols.committee import Committee, Size
from quietmean.protocols.committee.contribution import make_contribution
from quietmean.protocols.committee.design import decode, encode
from quietmean.protocols.committee.layout import Layout
from quietmean.protocols.committee.lists import list_digest, read_list, write_list
from quietmean.protocols.committee.member import CommitteeMachine
from quietmean.protocols.committee.result import read_result
from quietmean.protocols.committee.voting import CommitteeState
from quietmean.randomness import Seed
from quietmean.statistics import Columns, Statistic, Workload
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.contribution import sharing_of
from support.committee_liars import VERIFIED, Liar
from support.committee_run import CommitteeRun
from support.committee_world import SEALER, CommitteeWorld, OwnNoise
from support.every_kind import COLUMNS, all_statistics

TABLE = StatedValue(np.zeros(4), np.ones(4), (LinearRelation(np.arange(1, 4), np.ones(3, dtype=np.int64), 0.0, 2.0),))
WORLD = CommitteeWorld(Committee(5, verified=True), contributors=8, statement=TABLE)
LYING = CommitteeWorld(Committee(6, size=Size.LYING), contributors=8)
SPARE = CommitteeWorld(Committee(7, gone=2, verified=True), contributors=8, statement=TABLE)
OUT_OF_RANGE = "a number of it is out of its range, or is not what it has to be beside others"


@cache
def files(world: CommitteeWorld) -> dict[int, bytes]:
    return {number: world.contribution(number) for number in range(world.contributors)}


def expected(world: CommitteeWorld, counted: set[int], dealers: tuple[int, ...]) -> np.ndarray:
    """The sum of what these dealt and of the noise of these members."""
    parameters = world.parameters
    numbers = sum(encode(parameters, world.value(number), 1.0, Seed.public("contribution", number)) for number in counted)
    noise = sum(
        OwnNoise(Seed.public("run", member)).discrete(NoiseGroup.INDEPENDENT, 0, parameters.scale, parameters.dimension)
        for member in dealers
    )
    return decode(parameters, np.asarray(numbers + noise), [1.0] * len(counted))


def require_result(run: CommitteeRun, counted: set[int], members: set[int]) -> None:
    """These members, and no others, have the result over these contributions; it is right to the last digit."""
    results = run.results()
    assert {member for member, checked in enumerate(results) if checked is not None} == members
    assert run.counted() == {frozenset(run.world.contributor(number).public_key for number in counted)}
    for member in members:
        checked = results[member]
        assert checked is not None
        result = read_result(run.world.session, run.states[member].result.content)
        assert np.array_equal(checked.total, expected(run.world, counted, result.noise))


def cheat(world: CommitteeWorld, number: int, change: Callable[[Layout, np.ndarray], np.ndarray]) -> bytes:
    """The file of a contributor whose software deals other bits than those of its value."""
    honest, layout = Layout.bits_of, world.session.layout(1.0)
    Layout.bits_of = lambda self, numbers: change(layout, honest(self, numbers))  # type: ignore[method-assign]
    try:
        return make_contribution(
            world.session, world.contributor(number), SEALER, np.zeros(4, dtype=np.int64), 1.0, Seed(bytes(32))
        )
    finally:
        Layout.bits_of = honest  # type: ignore[method-assign]


def too_large(layout: Layout, bits: np.ndarray) -> np.ndarray:
    """A first number of 1000 times its range."""
    bits[0] = 1000 * int(layout.spans[0])
    return bits


def breaks_the_table(layout: Layout, bits: np.ndarray) -> np.ndarray:
    """All cells as large as they may be, and nothing beside them."""
    bits[np.isin(layout.number, [1, 2, 3])] = 1
    return bits


def no_bit(layout: Layout, bits: np.ndarray) -> np.ndarray:
    """Half a bit: the number whose double is 1 modulo p."""
    bits[0] = (WORLD.parameters.prime + 1) // 2
    return bits


@pytest.mark.parametrize("world", [WORLD, SPARE], ids=["five", "seven, two gone"])
def test_contributions_that_are_not_what_they_have_to_be_are_out_and_named(world: CommitteeWorld) -> None:
    cheats = {2: too_large, 5: breaks_the_table, 6: no_bit}
    run = CommitteeRun(world, files(world) | {number: cheat(world, number, change) for number, change in cheats.items()}).run()
    members = set(range(world.parameters.members))
    require_result(run, {0, 1, 3, 4, 7}, members)
    names = {world.contributor(number).public_key for number in cheats}
    for state in run.states:
        assert {name for name, _ in state.left_out} == names
        assert {why for _, why in state.left_out} == {OUT_OF_RANGE}
        assert not state.remarks


def test_members_may_be_gone_and_died_ones_go_on() -> None:
    restarts = frozenset((round_, member) for round_ in range(1, 8) for member in range(5))
    require_result(CommitteeRun(WORLD, files(WORLD), restarts=restarts, gone={3: 2}).run(), set(range(8)), {0, 1, 2, 4})


class DealsTooMuchNoise(CommitteeMachine):
    """Its dealing has a number beyond 8 standard deviations."""

    def start(self) -> Step[CommitteeState]:
        honest = Layout.bits_of

        def bits_of(self: Layout, numbers: Units) -> Units:
            bits = honest(self, numbers)
            bits[1] = 500
            return bits

        Layout.bits_of = bits_of  # type: ignore[method-assign]
        try:
            return super().start()
        finally:
            Layout.bits_of = honest  # type: ignore[method-assign]


@pytest.mark.parametrize("member", [0, 3])
def test_a_member_whose_noise_is_out_of_range_is_out_of_the_sum_and_named(member: int) -> None:
    run = CommitteeRun(WORLD, files(WORLD), kinds={member: DealsTooMuchNoise}).run()
    require_result(run, set(range(8)), set(range(5)))
    for state in run.states:
        assert member not in read_result(WORLD.session, state.result.content).noise
        assert state.remarks == (f"member {member + 1} dealt noise that does not count, {OUT_OF_RANGE}: it lies",)


@cache
def tells_wrong(place: int) -> type[CommitteeMachine]:
    """A member whose list has wrong check numbers at one place: of all contributions, and of all noise."""

    class TellsWrong(CommitteeMachine):
        def _listed(self, state: CommitteeState, arrived: dict[int, bytes]) -> CommitteeState:
            listed = super()._listed(state, arrived)
            own = read_list(self._session, listed.own_list.content)
            values, noise = own.values.copy(), own.noise.copy()
            values["numbers"][:, place] ^= 1
            noise["numbers"][:, place] ^= 1
            raw = write_list(self._session, self._signer, self._member, values, noise)
            return replace(listed, own_list=StableBytes(raw), lists={list_digest(raw): StableBytes(raw)})

    return TellsWrong


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("world", "place", "member"),
    [(WORLD, 7, 0), (LYING, 3, 4), (WORLD, 2, 3), (WORLD, 11, 4), (LYING, 0, 0)],
    ids=["products", "degrees, not verified", "degrees", "last product", "first degree, not verified"],
)
def test_a_member_that_lies_in_its_list_is_left_out_and_nobody_else(world: CommitteeWorld, place: int, member: int) -> None:
    run = CommitteeRun(world, files(world), kinds={member: tells_wrong(place)}).run()
    honest = set(range(world.parameters.members)) - {member}
    for other in honest:
        result, checked = read_result(world.session, run.states[other].result.content), run.checked(other)
        assert set(result.members) == honest
        assert checked is not None
        assert np.array_equal(checked.total, expected(world, set(range(8)), result.noise))
        # Neither a contributor nor a dealer of noise is named for it.
        assert not run.states[other].left_out
        assert not run.states[other].remarks


ROWS = 40


def of_parties(statistic: Statistic) -> bool:
    """Can it be asked where a whole party is the unit?"""
    try:
        return bool(Workload(Columns(COLUMNS), (statistic,), PrivacyUnit.PARTY).dimension)
    except InputError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "party"])
def test_what_records_of_every_kind_of_statistic_encode_to_is_what_is_stated_of_it(unit: str) -> None:
    rng = np.random.default_rng(15)
    sex, smoker, ended = rng.integers(2, size=ROWS), rng.integers(2, size=ROWS), rng.integers(3, size=ROWS)
    numbers = [rng.uniform(1, 99, ROWS), rng.uniform(41, 139, ROWS), rng.uniform(0.01, 0.99, ROWS)]
    records = np.column_stack([*numbers, sex, ended, smoker]).astype(np.float64)
    # A hole, a bound and beyond.
    records[0, 0], records[1, 1], records[2, 2], records[3, 3] = np.nan, 140, 7.0, np.nan
    study = StudyTerms.parse(
        {
            "name": "all",
            "unit": unit,
            "epsilon": 8.0,
            "accept_wide": True,
            "committee": {"members": 5, "contribute_by": "2027-03-01T12:00:00Z", "verified": True}
            | ({"largest_weight": ROWS} if unit == "record" else {}),
            "column": [column.describe() for column in COLUMNS],
            "statistic": [one.describe() for one in all_statistics() if unit == "record" or of_parties(one)],
        }
    )
    plan = study.plan(4)
    parameters = sharing_of(plan).parameters(4)
    parts = [records, records[:1], records[5:6], records[::3]]
    admitted = [plan.admit(one.vector, one.weight) for one in (study.workload.encode(part) for part in parts)]
    values, weights = np.array([one.vector for one in admitted]), [one.weight for one in admitted]
    statement = plan.input_domain.statement
    assert statement.relations
    rehearsal = rehearse(parameters, values, weights, statement=statement)
    assert rehearsal.counted == (0, 1, 2, 3)
    off = (rehearsal.checked.total - values.sum(axis=0)) / (rehearsal.checked.standard_error * rehearsal.checked.weight)
    assert 0.8 < np.sqrt((off**2).mean()) < 1.2


@pytest.mark.parametrize("gone", [None, 0])
def test_of_all_liars_none_counts_but_who_gives_a_wrong_share_to_a_member_that_is_gone(gone: int | None) -> None:
    """One wrong share leaves a value that the others' shares fix: it is out where the member who has it takes part."""
    world = CommitteeWorld(Committee(5, 1, 1, verified=True), contributors=len(VERIFIED) + 3, dimension=4)
    contributions = files(world)
    for place, way in enumerate(VERIFIED, 1):
        contributions[place] = way(Liar(world.session, world.contributor(place).identity, contributions[0]))
    run = CommitteeRun(world, contributions, gone={} if gone is None else {gone: 0}).run()
    honest = {0, len(VERIFIED) + 1, len(VERIFIED) + 2}
    counts = honest if gone is None else {*honest, 1 + VERIFIED.index(Liar.one_share_changed)}
    assert run.counted() == {frozenset(world.contributor(number).public_key for number in counts)}
