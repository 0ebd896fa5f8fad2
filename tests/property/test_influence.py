"""What one party says is searched for what moves an answer most: under every protocol that is no more than is stated.

A liar knows all bounds. It lies in the direction in which a term moves most, as far as receivers accept. Other lies begin
anywhere that receivers accept, and go from edge to edge of what they accept, coordinate by coordinate, as long as the answer
moves further. Where a release is seen alone the liar says it; elsewhere it is given the sum itself, which is more than it has.
By file, where nobody stated a weight, it says a weight too. The bound must not be far above the worst that is found either, else
it would say nothing. It holds for what is shown, and before that is moved to the nearest possible value, which hides lies that
go beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.party import Release
from quietmean.core.readable import bound_text
from quietmean.planning import Plan
from quietmean.planning import influence as planned
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.influence import Checked, ImpossibleResult, ReleasedSum, influence_of
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics.influence_bounds import Shift
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.influence import Move, StudyInfluence, moves
from quietmean.studies.outcome.outcome import require_possible_result
from support.at_the_edges import NAMES, PARTIES, PLACES, WAYS, encoded, executions, study_of, sums, values_released

Array = NDArray[np.float64]
LIAR = 2
BY_FILE = ("cordp-dme", "local-dp")
# Of which each result takes long to judge.
LONG = ("consensus", "muffliato")
ASKED: list[dict[str, Any]] = [
    {"kind": "mean", "column": "age"},
    {"kind": "mean", "column": "score"},
    {"kind": "cdf", "column": "age", "bins": 4},
    {"kind": "variance", "column": "age"},
    {"kind": "histogram", "column": "age", "bins": 3},
    {"kind": "sum", "column": "age"},
    {"kind": "count", "column": "score"},
]
# Halvings of a distance, rounds over all coordinates from each beginning, and beginnings: the first one is of the true weight.
HALVINGS, SWEEPS, BEGINNINGS = 14, 1, 2
# Halvings in the direction in which a term moves most.
CLOSELY = 24
# Of weights that a file may say.
MOST_RECORDS = 30


@dataclass(frozen=True, eq=False)
class Said:
    """What the liar says: in place of the sum, or of its own release, of a weight."""

    vector: Array
    weight: float


@dataclass(frozen=True, eq=False)
class Shown:
    """Of a result that is shown: each term's value, the same before it was moved to the nearest possible one, which hides
    lies that go beyond, and how far one party moves either at most."""

    values: dict[tuple[str, str], float]
    released: dict[tuple[str, str], float]
    moves: dict[tuple[str, str], Move]

    def moved(self, term: tuple[str, str], other: Shown, *, anywhere: bool = False) -> float:
        """How far it is from another. What is beyond all that values give says so itself, and counts as the end, if it does
        not count ``anywhere``."""
        between = self.moves[term].range
        pairs = np.array([(self.values[term], other.values[term]), (self.released[term], other.released[term])])
        if between is not None and not anywhere:
            pairs = np.clip(pairs, *between)
        return float(np.fmax.reduce(np.abs(pairs[:, 0] - pairs[:, 1])))

    def most(self, term: tuple[str, str]) -> float:
        return self.moves[term].most or 0.0


class Receiver:
    """Everybody else, once all have said what they say: what is shown of it, or that nothing is."""

    def __init__(
        self, study: StudyTerms, plan: Plan, places: tuple[float, ...], *, by_file: bool = False, history: int = 0
    ) -> None:
        self._study, self._plan, self._by_file = study, plan, by_file
        values, self._weights = encoded(study, plan, places)
        self._execution = executions(plan, self._weights)[history]
        self._possible = PossibleReleases.of(plan, self._execution.schedule, None if by_file else self._weights)
        if self._possible is None:
            self._honest = sums(self._execution, values, 1)[0]
            self.own = Said(self._honest.total, self._honest.weight)
        else:
            releases = self._execution.run(values, InsecurePopulationNoise(1, PARTIES)).releases
            self.own = Said(releases[LIAR].vector, releases[LIAR].weight)
            rest = [release for party, release in releases.items() if party != LIAR]
            total = np.sum([release.vector for release in rest], axis=0)
            self._honest = ReleasedSum(total, sum(release.weight for release in rest))
        self._bounds: dict[float, Any] = {}

    def accepts(self, said: Said) -> bool:
        possible = self._possible
        if possible is not None and possible.cannot_be(LIAR, Release(said.vector, said.weight)):
            return False
        try:
            require_possible_result(self._plan, self._study.workload, self._execution_of(said.weight), self._opened(said))
        except ImpossibleResult:
            return False
        return True

    def farthest(self, said: Said, direction: Array, far: float, halvings: int = HALVINGS) -> Said:
        """What is accepted of the same weight and is farthest in a direction; what is ``said`` is accepted."""
        low, high = 0.0, far
        for _ in range(halvings):
            middle = (low + high) / 2
            low, high = (middle, high) if self.accepts(replace(said, vector=said.vector + middle * direction)) else (low, middle)
        return replace(said, vector=said.vector + low * direction)

    def directions(self) -> Iterator[Array]:
        """In which the first and the last term of each statistic but variances, which are no lines, rises or falls most."""
        workload = self._study.workload
        decoder = workload.decoder(self._plan.protocol.numbers().step)
        for statistic in workload.statistics:
            readings = statistic.readings(workload.declared) if statistic.name != "variance" else ()
            for reading in {*readings[:1], *readings[-1:]}:
                slope = decoder.read.combined(reading.top, decoder.places[reading.feature])
                sign = np.sign(np.where(np.abs(slope) > 1e-12, slope, 0.0))
                yield from (sign, -sign)

    def without_the_liar(self) -> Shown | None:
        """What is shown where its release is left out; None where none is seen alone."""
        return None if self._possible is None else self._shown(self._execution.without(frozenset({LIAR})), self._honest)

    def shown(self, said: Said) -> Shown:
        return self._shown(self._execution_of(said.weight), self._opened(said), said.weight)

    def _shown(self, execution: Execution, opened: ReleasedSum, weight: float = 0.0) -> Shown:
        """Of an execution that depends on the ``weight`` that is said alone."""
        workload = self._study.workload
        if weight not in self._bounds:
            noise = float(np.sqrt(stated_variance(execution)))
            self._bounds[weight] = influence_of(self._plan, execution), noise, execution.counted_weight()
        influence, noise, counted = self._bounds[weight]
        mean, step = execution.decode(opened.total, opened.weight), execution.protocol.numbers().step
        answers = workload.decode(mean, noise, counted, step=step)
        values = {
            (answer.statistic.text, term): float(value)
            for answer in answers
            for term, value in zip(answer.estimates.terms, answer.estimates.value, strict=True)
        }
        stated = StudyInfluence.of(workload, influence, step, mean, noise, answers)
        released = values_released(workload, execution, opened)
        return Shown(values, released, {(move.statistic, move.term): move for move in stated.moves})

    def _execution_of(self, weight: float) -> Execution:
        if not self._by_file or weight == self._weights[LIAR]:
            return self._execution
        weights = self._weights.copy()
        weights[LIAR] = weight
        return replace(self._execution, weights=weights)

    def _opened(self, said: Said) -> ReleasedSum:
        if self._possible is None:
            return replace(self._honest, total=said.vector)
        return ReleasedSum(self._honest.total + said.vector, self._honest.weight + said.weight)


def beginnings(receiver: Receiver, far: float, rng: np.random.Generator, *, by_file: bool) -> Iterator[Said]:
    """What receivers accept, at the end of ways at random; by file of other weights too."""
    honest = receiver.own
    for number in range(BEGINNINGS):
        weight = float(rng.integers(1, MOST_RECORDS)) if by_file and number else honest.weight
        said = Said(honest.vector * weight / honest.weight, weight)
        if receiver.accepts(said):
            yield receiver.farthest(said, rng.normal(size=honest.vector.size), far)


def largest_part(receiver: Receiver, rng: np.random.Generator, *, by_file: bool = False) -> float:
    """The largest part of a stated bound that was reached by anything that the liar may say."""
    truth = receiver.shown(receiver.own)
    far = 1e3 * (1 + float(np.abs(receiver.own.vector).max()))
    reached = 0.0

    def part(said: Said) -> float:
        found = receiver.shown(said)
        # Whoever sees a result knows the bound with the weight that was said; beforehand, that of the true one.
        bound = {term: max(found.most(term), truth.most(term) if by_file else 0.0) for term in found.moves}
        parts = [found.moved(term, truth) / most for term, most in bound.items() if most > 0]
        return float(np.nanmax(parts)) if parts else 0.0

    ends = [receiver.farthest(receiver.own, one, far, CLOSELY) for one in receiver.directions()] if not by_file else []
    for found in filter(None, [*map(receiver.shown, ends), None if by_file else receiver.without_the_liar()]):
        lines = [term for term in found.moves if not term[0].startswith("variance") and truth.most(term) > 0]
        reached = float(np.nanmax([reached, *(found.moved(one, truth, anywhere=True) / truth.most(one) for one in lines)]))
    for begin in beginnings(receiver, far, rng, by_file=by_file):
        said, best = begin, part(begin)
        for _ in range(SWEEPS):
            before = best
            for coordinate in rng.permutation(said.vector.size):
                for sign in (1.0, -1.0):
                    direction = np.zeros(said.vector.size)
                    direction[coordinate] = sign
                    tried = receiver.farthest(said, direction, far)
                    if (now := part(tried)) > best:
                        said, best = tried, now
            if best <= before:
                break
        reached = max(reached, best)
    return reached


def searched(name: str, way: int, *, by_file: bool = False, history: int = 0, **options: Any) -> float:
    only_means = "unit" in WAYS[way]
    study, plan = study_of(name, way, ASKED[:3] if only_means else ASKED, **options)
    rng = np.random.default_rng(7)
    return max(
        largest_part(Receiver(study, plan, PLACES[place], by_file=by_file, history=history), rng, by_file=by_file)
        for place in ("low", "both")
    )


EVERY = [(name, way) for name in NAMES for way in range(len(WAYS))]
# Whoever adds up, how the mean is decoded, what is sent, and how much is left over to check with.
OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    ("cordp-dme", {"aggregator": 0}),
    ("cordp-dme", {"decoder": "biased", "radius": 10.0}),
    ("gopa", {"aggregator": 0}),
    ("consensus", {"bits": 4}),
    ("consensus", {"bits": 2}),
    ("consensus", {"bits": 3, "theta": 0.0}),
    ("consensus", {"open_edges": "all", "mode": "broadcast"}),
    ("packed-sharing", {"lies": 1}),
    ("packed-sharing", {"prime": 2147483647}),
    ("secagg", {"bits": 32}),
    ("inca", {"injection": "early"}),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "way"), EVERY)
def test_nothing_that_one_party_says_moves_an_answer_by_more_than_is_stated(name: str, way: int) -> None:
    found = searched(name, way)
    assert found <= 1 + 1e-9
    # Half of the bound is room for honest noise on the other side.
    assert found > (0.25 if get_protocol(name).TRAITS.gaussian_noise else 1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "options"), [pytest.param(*case, marks=pytest.mark.slow if case[0] in LONG else ()) for case in OTHERWISE], ids=str
)
def test_nor_where_the_options_are_others(name: str, options: dict[str, Any]) -> None:
    assert searched(name, 0, **options) <= 1 + 1e-9


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in NAMES
        if get_protocol(name).TRAITS.tolerates_dropouts
    ],
)
def test_nor_after_a_party_has_left(name: str) -> None:
    """In the middle, or where there is none at the end: others' noise and shares then stay in what is added up."""
    assert searched(name, 0, history=-1) <= 1 + 1e-9


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BY_FILE)
def test_nor_of_any_weight_by_file(name: str) -> None:
    assert searched(name, 0, by_file=True) <= 1 + 1e-9


@pytest.mark.parametrize("name", [*(pytest.param(one, marks=pytest.mark.slow) for one in BY_FILE), "secagg"])
def test_half_of_what_is_stated_is_found_to_be_exceeded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(workload: Any, shift: Shift, *given: Any) -> Any:
        return tuple(replace(move, most=None if move.most is None else move.most / 2) for move in moves(workload, shift, *given))

    monkeypatch.setattr("quietmean.studies.outcome.influence.moves", halved)
    assert searched(name, 1) > 1


@pytest.mark.slow
def test_a_bound_that_forgets_what_pairs_share_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = PossibleReleases.of

    def alone(plan: Plan, *given: object) -> PossibleReleases | None:
        possible = own(plan, *given)  # type: ignore[arg-type]
        assert possible is not None
        return replace(possible, deviations=np.full(PARTIES, 1e-9))

    class _Forgets:
        of = staticmethod(alone)

    monkeypatch.setattr(planned, "PossibleReleases", _Forgets)
    assert searched("cordp-dme", 0) > 1


def test_what_is_checked_of_each_protocol() -> None:
    for name, expected in (("cordp-dme", Checked.EACH_RELEASE), ("local-dp", Checked.EACH_RELEASE), ("secagg", Checked.RESULT)):
        study, plan = study_of(name, 0, ASKED)
        found = StudyInfluence.planned(study.workload, plan, 600.0)
        assert found is not None
        assert found.checked == expected
        most = found.most("mean(age)")
        assert most is not None
        # One party of six, or anything within the bounds of 70 years, and noise.
        assert most > (70 / 6 if expected == Checked.EACH_RELEASE else 70)
        assert any(f"mean(age) by at most {bound_text(most)}" in sentence for sentence in found.sentences())
        assert found.sentences()[-1].endswith("as if no cell were missing")
        # Of a column whose missing cells do not count, too.
        assert found.most("mean(score)") is not None


def test_more_records_bound_it_closer_and_a_larger_share_less() -> None:
    study, plan = study_of("cordp-dme", 0, ASKED)
    few, many, one_sided = (
        StudyInfluence.planned(study.workload, plan, records, share)
        for records, share in ((600.0, None), (60_000.0, None), (60_000.0, 0.9))
    )
    assert few is not None
    assert many is not None
    assert one_sided is not None
    bounds = [one.most("mean(age)") for one in (few, many, one_sided)]
    assert None not in bounds
    assert bounds[1] < bounds[0]  # type: ignore[operator]
    assert many.most("mean(age)") == pytest.approx(70 / 6, rel=0.5)
    assert one_sided.share == pytest.approx(0.9)
    assert one_sided.most("mean(age)") > 0.9 * 70  # type: ignore[operator]


def test_where_nothing_bounds_it_that_is_said() -> None:
    study, plan = study_of("cordp-dme", 0, ASKED[:3])
    _, weights = encoded(study, plan, PLACES["middle"])
    found = influence_of(plan, executions(plan, weights)[0].without(frozenset(range(PARTIES))))
    assert not found.is_bounded
    told = StudyInfluence.of(study.workload, found, 0.0)
    assert told.checked == Checked.NOTHING
    assert any("mean(age) by any amount" in sentence for sentence in told.sentences())
    assert StudyInfluence.from_json(told.to_json()) == told
