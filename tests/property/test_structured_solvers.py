"""Structured solvers and conditions against dense computations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from property.test_statistic_kinds import COLUMNS, EXAMPLES, people, statistic
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.graphs import SCHEDULES, ExecutionTrace, churn, make_schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.privacy import Adversary, bound_mu, noise_levels
from quietmean.privacy.information import CoalitionSolver
from quietmean.privacy.information.round_recursion import find_rounds, private_diagonal, recursive_information
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, Columns, Estimates, Statistic, Workload, parse_statistic
from quietmean.statistics.conditions import RowCondition
from quietmean.testing import check_statistic, theorem41
from quietmean.testing.examples import certificate_of
from support.workloads import exact_of, workload_of

# -- The solver by rounds and the iterative bounds against the sparse solver and against Theorem 4.1, on random executions.
CASES, BLOCKS = 240, 8
AGREEMENT = 1e-8
WIDTH = 1e-3


@dataclass(frozen=True)
class Case:
    """A random execution with incremental injection and its adversary, all from one printed number."""

    execution: Execution
    adversary: Adversary

    @property
    def protocol(self) -> IncA:
        assert isinstance(self.execution.protocol, IncA)
        return self.execution.protocol

    @property
    def floor(self) -> float:
        """Less than this is what rounding makes of a leak of zero: 1e-6 of local DP, in mu^2."""
        return 1e-6 / self.protocol.sigma_star**2

    def reference(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """mu^2 per honest party, by Theorem 4.1."""
        exact = theorem41(self.execution.to_json(), self.adversary.corrupt, self.adversary.observed)
        return np.array(list(exact.values()))


def make_case(number: int) -> Case:
    numbers = np.random.default_rng([number, 41])
    parties, rounds, out_degree = int(numbers.integers(4, 21)), int(numbers.integers(1, 9)), 1 + number % 3
    kinds = [kind for kind in SCHEDULES if kind not in ("hypercube", "complete")]
    if rounds * out_degree > parties - 1:
        kinds.remove("never-same")
    kind = kinds[number % len(kinds)]
    if number % 16 == 0:
        kind, parties = "hypercube", 8
    elif number % 16 == 1:
        kind, parties = "complete", 6
    seed = insecure_seed(number, "structured")
    schedule = make_schedule(kind, seed, parties, rounds, min(out_degree, parties - 1))
    permanent, temporary = numbers.choice([0.0, 0.1, 0.3], 2)
    trace = churn(seed, rounds, parties, float(permanent), float(temporary))
    lost = (numbers.random(schedule.neighbours.shape) < numbers.choice([0.0, 0.15])) & (schedule.neighbours != NOBODY)
    raw = {
        "rounds": rounds,
        "sigma_star": 10.0 ** numbers.uniform(-1, 1),
        "sigma_delta": 10.0 ** numbers.uniform(-1, 1),
    }
    execution = Execution(IncA.read(raw).resolved(parties), schedule, ExecutionTrace(trace.online, lost), 1.0, np.ones(parties))
    return Case(execution, _adversary(numbers, execution, number // 2 % 4))


def _adversary(numbers: np.random.Generator, execution: Execution, kind: int) -> Adversary:
    """In turn: collusion, eavesdropping, both, and an outsider."""
    parties, rounds = execution.parties, execution.schedule.rounds
    corrupt = numbers.permutation(parties)[: numbers.integers(1, max(2, parties // 2))].tolist() if kind in (0, 2) else []
    fraction = numbers.choice([0.1, 0.5, 1.0]) if kind in (1, 2) else 0.0
    # What a party held after a round in which it was away is what it held before.
    sent = [(i, t) for t in range(rounds) for i in range(parties) if execution.trace.online[t + 1 :, i].any()]
    return Adversary(frozenset(corrupt), frozenset(pair for pair in sent if numbers.random() < fraction))


def _online_observed(case: Case) -> Case:
    """Theorem 4.1 reads (i, t) as y_i^(t) of round t; keep the pairs for which that was sent in the next round."""
    online = case.execution.trace.online
    kept = frozenset((i, t) for i, t in case.adversary.observed if online[t + 1, i])
    return Case(case.execution, Adversary(case.adversary.corrupt, kept))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_by_rounds_equals_sparse_and_theorem_4_1(block: int) -> None:
    worst = 0.0
    for number in range(block, CASES, BLOCKS):
        case = _online_observed(make_case(number))
        transcript, reference = case.execution.transcript(), case.reference()
        structure = find_rounds(transcript)
        assert structure is not None, f"case {number}"
        information = recursive_information(structure, case.adversary)
        assert information is not None, f"case {number}"
        sparse = certificate_of(transcript, case.adversary, 1.0, "sparse")
        assert information.honest == sparse.honest
        for other in (reference, sparse.mu**2):
            deviation = np.abs(information.mu(1.0) ** 2 - other) / np.maximum(other, case.floor)
            assert deviation.max() <= AGREEMENT, f"case {number} deviates by {deviation.max():.3g}"
            worst = max(worst, float(deviation.max()))
        assert (information.mu_upper(1.0) ** 2 >= reference * (1 - 1e-11)).all()
        np.testing.assert_allclose(
            information.finite, sparse.information.finite, rtol=AGREEMENT, atol=1e4 * AGREEMENT * case.floor
        )
    print(f"worst relative deviation of mu^2 in block {block}: {worst:.2e}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_message_waiting_for_its_sender_to_return_is_intercepted_when_sent(block: int) -> None:
    for number in range(block, CASES, BLOCKS):
        case = make_case(number)
        transcript = case.execution.transcript()
        structure = find_rounds(transcript)
        assert structure is not None
        information = recursive_information(structure, case.adversary)
        assert information is not None
        mine, sparse = information.mu(1.0) ** 2, certificate_of(transcript, case.adversary, 1.0, "sparse").mu ** 2
        assert (np.abs(mine - sparse) <= AGREEMENT * np.maximum(sparse, case.floor)).all(), f"case {number}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_bounds_bracket_theorem_4_1(block: int) -> None:
    widest = 0.0
    for number in range(block, CASES, BLOCKS):
        case = _online_observed(make_case(number))
        transcript, mu = case.execution.transcript(), np.sqrt(case.reference())
        honest = case.adversary.honest(case.execution.parties)
        nothing = 1e-3 * np.sqrt(case.floor)
        for bounds in (bound_mu(transcript, case.adversary, 1.0, honest), bound_mu(transcript, case.adversary, 1.0)):
            for bound, exact in zip(bounds, mu, strict=True):
                # The reference itself is good to about 1e-12.
                assert bound.lower <= exact * (1 + 1e-11) + nothing, f"case {number}"
                assert bound.upper >= exact * (1 - 1e-11) - nothing, f"case {number}"
                if exact > np.sqrt(case.floor):
                    assert bound.relative_width <= WIDTH, f"case {number}"
                    widest = max(widest, bound.relative_width)
    print(f"widest bound in block {block}: {widest:.2e}")


@pytest.mark.parametrize("number", range(0, CASES, 12))
def test_one_decomposition_serves_all_noise_levels(number: int) -> None:
    case = make_case(number)
    transcript = case.execution.transcript()
    levels = noise_levels(transcript, case.adversary)
    for star, delta in ((0.1, 1.0), (2.0, 0.3), (1.0, 10.0)):
        other = transcript.with_noise_scales({"star": star, "delta": delta})
        expected = certificate_of(other, case.adversary, 2.0, "sparse").mu
        mine = levels.mu(star, delta / case.protocol.sigma_delta, 2.0)
        np.testing.assert_allclose(mine, expected, rtol=AGREEMENT, atol=1e-4 / star)


@pytest.mark.slow
def test_coalitions_of_a_large_execution_go_by_rounds() -> None:
    numbers = np.random.default_rng(5)
    seed = insecure_seed(5, "large")
    schedule = make_schedule("uniform", seed, 150, 20, 1)
    trace = churn(seed, 20, 150, 0.1, 0.1)
    protocol = IncA.read({"rounds": 20, "sigma_star": 0.5, "sigma_delta": 3.0}).resolved(150)
    transcript = Execution(protocol, schedule, trace, 1.0, np.ones(150)).transcript()
    solver = CoalitionSolver(transcript)
    for _ in range(3):
        coalition = numbers.permutation(150)[:15].tolist()
        expected = certificate_of(transcript, Adversary.collusion(coalition), 1.0, "sparse").mu
        np.testing.assert_allclose(solver.information(coalition).mu(1.0), expected, rtol=AGREEMENT, atol=1e-5)


def test_the_diagonal_alone_is_the_same() -> None:
    for number in range(0, CASES, 6):
        case = make_case(number)
        structure = find_rounds(case.execution.transcript())
        assert structure is not None
        information, found = recursive_information(structure, case.adversary), private_diagonal(structure, case.adversary)
        assert information is not None
        assert found is not None
        np.testing.assert_allclose(found[0], information.diagonal, rtol=AGREEMENT, atol=AGREEMENT * case.floor * 1e6)


def test_the_cases_cover_what_they_should() -> None:
    cases = [make_case(number) for number in range(CASES)]
    traces = [case.execution.trace for case in cases]
    assert sum(not trace.finished.all() for trace in traces) > CASES / 4
    assert sum(bool((~trace.online[:, trace.finished]).any()) for trace in traces) > CASES / 4
    assert sum(trace.lost is not None and bool(trace.lost.any()) for trace in traces) > CASES / 4
    assert sum(bool(case.adversary.corrupt and case.adversary.observed) for case in cases) > CASES / 5
    assert {int(case.execution.schedule.out_degree.max()) for case in cases} >= {1, 2, 3}


# -- A statistic with ``where`` is that of the records inside, for every kind, and costs no more sensitivity.
Array = NDArray[np.float64]

CONDITION = "age >= 35 and (sex == 'f' or weight < 85) and chance < 0.9"
RECORDS = people(400, 3)
AGE, WEIGHT, SEX, SMOKER, CHANCE, ENDED = RECORDS.T
INSIDE = RECORDS[(AGE >= 35) & ((SEX == 0) | (WEIGHT < 85)) & (CHANCE < 0.9)]
INDICATED = Columns([one.model_copy(update={"missing": "indicator"}) if one.numeric else one for one in COLUMNS])
# What is said of all records, in which those outside count as missing.
# Nobody inside is above that: nothing over nothing, but for rounding.
NOBODY_OF_CONDITIONS = "120:ppv"
# With a condition a sampling error is that of a part of all records: so it is where weights make estimates, as in a survey.
OF_ALL = ("proportion(sex)", "histogram", "crosstab", "synthetic-table")


def asked(text: str, condition: str = CONDITION) -> Statistic:
    return statistic(f"{text[:-1]}, where={condition})")


def answer(one: Statistic, records: Array, columns: Columns = INDICATED) -> Estimates:
    workload = Workload(columns, (one,), PrivacyUnit.RECORD)
    return exact_of(workload, records)


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_is_the_statistic_of_the_records_inside(text: str) -> None:
    with_condition, alone = answer(asked(text), RECORDS, COLUMNS), answer(statistic(text), INSIDE)
    compared = [
        index
        for index, term in enumerate(alone.terms)
        if not ((text.startswith((*OF_ALL, "first-look")) and "missing" in term) or term == NOBODY_OF_CONDITIONS)
    ]
    # A count of none is "fewer than 1" where rounding makes it less than 0.
    values = [np.nan_to_num(one.value) if text.startswith("table-1") else one.value for one in (with_condition, alone)]
    np.testing.assert_allclose(values[0][compared], values[1][compared], rtol=1e-6, atol=1e-9)
    for name, test in alone.tests.items():
        np.testing.assert_allclose(with_condition.tests[name].statistic, test.statistic, rtol=1e-6)
    if not text.startswith((*OF_ALL, "calibration", "table-1")) and "weight=" not in text and alone.of_population is not None:
        assert with_condition.of_population is not None
        np.testing.assert_allclose(with_condition.of_population, alone.of_population, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("text", EXAMPLES)
def test_no_record_counts_more_than_without_the_condition(text: str) -> None:
    free, restricted = (Workload(INDICATED, (one,), PrivacyUnit.RECORD) for one in (statistic(text), asked(text)))
    # Table 1 also counts the records inside.
    features = sum(not hasattr(one, "inner") for one in restricted.scales)
    assert features == text.startswith(("table-1", "synthetic-table"))
    assert len(restricted.scales) == len(free.scales) + features
    for feature in free.scales:
        assert any(getattr(one, "inner", None) == feature and one.sensitivity == feature.sensitivity for one in restricted.scales)
    outside = RECORDS[~(AGE >= 35)]
    nothing = restricted.of_records(np.full((1, len(COLUMNS)), np.nan))
    np.testing.assert_array_equal(restricted.of_records(outside), np.repeat(nothing, len(outside), axis=0))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "text",
    [
        "mean(weight)",
        "table-1(age, smoker)",
        pytest.param("correlation(age, weight)", marks=pytest.mark.slow),
        pytest.param("quantiles(age, bins=12)", marks=pytest.mark.slow),
    ],
)
def test_it_keeps_its_promises(text: str) -> None:
    check_statistic(asked(text, "chance < 0.8 or sex == 'f'"), COLUMNS, RECORDS[:150])


def test_answers_with_and_without_a_condition_do_not_mix() -> None:
    """One vector for several subgroups of the same columns: nothing is taken for the same that is not."""
    texts = ["mean(weight)", "mean(weight, where=smoker)", "mean(weight, where=not smoker)", "correlation(age, weight)"]
    texts += ["correlation(age, weight, where=smoker)", "crosstab(sex, smoker)", "crosstab(sex, smoker, where=age > 50)"]
    for count in CountVisibility:
        workload = Workload(INDICATED, tuple(map(statistic, texts)), PrivacyUnit.RECORD, None, count, 500)
        encoded = workload.encode(RECORDS)
        answers = workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)
        smokes, old = RECORDS[SMOKER == 1], RECORDS[AGE > 50]
        assert answers[0].estimates.value[0] == pytest.approx(WEIGHT.mean())
        assert answers[1].estimates.value[0] == pytest.approx(smokes[:, 1].mean())
        assert answers[2].estimates.value[0] == pytest.approx(WEIGHT[SMOKER == 0].mean())
        there = ~np.isnan(smokes[:, 0])
        assert answers[4].estimates.value[0] == pytest.approx(np.corrcoef(smokes[there, 0], smokes[there, 1])[0, 1])
        assert answers[6].estimates.value[0] == pytest.approx(((old[:, 2] == 0) & (old[:, 3] == 0)).sum())


DATED = Columns(
    [
        Column.model_validate({"name": "day", "low": "2020-01-01", "high": "2024-12-31", "missing": "indicator"}),
        Column(name="systolic bp", low=0, high=300),
        Column(name="age", low=0, high=120),
        Column(name="stage", levels=("I", "II", "III, late")),
        Column(name="grade", levels=("1", "2")),
        Column(name="treated", boolean=True),
    ]
)
ROWS = np.array(
    list(
        itertools.product(
            [0.0, 800.0, np.nan], [90.0, 180.0, np.nan], [30.0, 70.0, 500.0, np.nan], [0, 1, 2, np.nan], [0, 1], [0, 1, np.nan]
        )
    )
)
DAY, BP, YEARS, STAGE, GRADE, TREATED = ROWS.T


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("age >= 50", YEARS >= 50),
        ("age == 500", YEARS == 500),
        ("50 <= age < 80", (YEARS >= 50) & (YEARS < 80)),
        ("`systolic bp` / 2 > age", BP / 2 > YEARS),
        ("log(age) < 4 and age^2 > 100", (np.log(YEARS) < 4) & (YEARS**2 > 100)),
        ("stage == 'III, late'", STAGE == 2),
        ('"I" != stage', (STAGE == 1) | (STAGE == 2)),
        ("stage in ('I', 'III, late')", (STAGE == 0) | (STAGE == 2)),
        ("stage not in ('I',)", (STAGE == 1) | (STAGE == 2)),
        ("age in (30, 70)", (YEARS == 30) | (YEARS == 70)),
        ("grade == 2", GRADE == 1),
        ("treated", TREATED == 1),
        ("not treated", TREATED == 0),
        ("treated == 'no'", TREATED == 0),
        ("treated == True", TREATED == 1),
        # A missing value leaves it open, unless the rest decides.
        ("treated or age > 50", (TREATED == 1) | (YEARS > 50)),
        ("not (treated or age > 50)", (TREATED == 0) & (YEARS <= 50)),
        ("not (treated and age > 50)", (TREATED == 0) | (YEARS <= 50)),
        ("day >= '2021-06-01'", DAY >= 517),
        ("'2021-06-01' > day", DAY < 517),
        ("day < 100 and treated", (DAY < 100) & (TREATED == 1)),
    ],
)
def test_what_a_condition_means(text: str, holds: NDArray[np.bool_]) -> None:
    workload = workload_of(DATED, f"mean(age, where={text})")
    np.testing.assert_array_equal(RowCondition(text).holds(DATED, workload.inside(ROWS)), holds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age >", "cannot be read. Write for example age >= 50 and sex == 'f'"),
        ("age = 50", "cannot be read"),
        ("1and age > 5", "cannot be read"),
        ("age", "has a part that is not known"),
        ("stage", "has a part that is not known"),
        ("age > 50 & treated", "has a part that is not known"),
        ("agee > 50", r"has 'agee', which is not a declared column \(did you mean 'age'"),
        ("age in 65..110", r"bounds, which do not belong there. Write age >= 65 and age <= 110. Add \"age in LOW..HIGH\" as"),
        ("sex == 'f' and age in 0.5 .. 9", r"Write age >= 0.5 and age <= 9"),
        ("stage == II", "has 'II', which is not a declared column.* levels between quotes"),
        ("stage == 'IV'", r"compares stage with 'IV': it has the levels I, II, III, late"),
        ("stage > 'I'", "has an order of stage, whose levels have none"),
        ("stage == age", "compares stage with something else"),
        ("stage + 1 > 2", "computes with stage, which has levels"),
        ("stage in 'I'", "has no values in brackets after in"),
        ("age is 5", "compares in a way that is not known"),
        ("day > '1 June 2021'", "Write days as 'YEAR-MONTH-DAY'"),
        ("age > 'old'", "has a part that is not known"),
        ("1 > 2", "has no column in it"),
        ("__import__('os').system('true') > 1", "has"),
        ("age.real > 1", "has a part that is not known"),
        ("exec(age) > 1", "has '?exec|has no function 'exec'"),
        ("(lambda: age)() > 1", "has a part that is not known"),
        ("age > " + "1" * 300, "at most 300"),
        ("(" * 250 + "age", "cannot be read"),
        ("age ** treated > 1", "has a power that is not a number"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        _ = Workload(DATED, (parse_statistic({"kind": "mean", "column": "age", "where": text}),), PrivacyUnit.RECORD).scales
    assert "\n" not in str(caught.value)


def test_a_statistic_that_cannot_tell_missing_records_has_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    from quietmean.statistics.features import ColumnBlock

    def refused() -> object:
        return Workload(
            DATED, (parse_statistic({"kind": "mean", "column": "age", "where": "treated"}),), PrivacyUnit.RECORD
        ).scales

    assert refused()
    monkeypatch.setattr(ColumnBlock, "complete", None)
    check: Callable[[], object] = refused
    with pytest.raises(InputError, match="cannot tell records in which nothing is present"):
        check()
