"""What plans and pages say of widths, bits and expectations before a study."""

from __future__ import annotations

import itertools
import math
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from quietmean.cli import main, run
from quietmean.core.errors import InputError
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.influence import planned_influence
from quietmean.privacy import mu_of_budget
from quietmean.protocols import configure
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME
from quietmean.statistics.allocation import made_up
from quietmean.statistics.drawn_studies import fewer_than_half
from quietmean.statistics.expectation import Expectation
from quietmean.statistics.tails import Z
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data.sources import parties_of_table
from quietmean.studies.outcome.forecast import Forecast

# -- What a plan says that a width or a power takes: of which interval the width is, and the spread that nobody guessed.
AGE: dict[str, Any] = {"name": "age", "low": 0, "high": 100}
GUESSED = AGE | {"guess": [50, 18]}
SMOKER = {"name": "smoker", "boolean": True}


@pytest.mark.parametrize(
    ("column", "statistic", "interval", "assumed"),
    [
        (AGE, "mean(age)", "population", {"age": 25.0}),
        (GUESSED, "mean(age)", "population", {}),
        (SMOKER, "proportion(smoker)", "population", {}),
        (AGE, "count(age)", "noise", {}),
    ],
)
def test_a_width_names_its_interval_and_its_spread(
    column: dict[str, Any], statistic: str, interval: str, assumed: dict[str, float]
) -> None:
    asked = {"kind": statistic.partition("(")[0], "column": column["name"]}
    study = StudyTerms.parse({"name": "ages", "column": [column], "statistic": [asked], "epsilon": 1.0, "delta": 1e-6})
    forecast = Forecast(study, study.choice(5).plan, 5000.0, studies=25)
    (needed,) = forecast.needed(2.0 if column is not SMOKER else 0.1, None)
    assert (needed.interval, needed.assumed) == (interval, assumed)
    assert f"of the {interval}'s interval" in needed.sentence
    assert ("assumes a standard deviation of 25 of age" in needed.sentence) is bool(assumed)
    (expected,) = forecast.sentences()
    (term,) = forecast.expected
    differ = any(pair is not None and pair[0] != pair[1] for pair in (term.noise, term.population))
    assert ("standard deviation is 10% to 33% of the bounds" in expected) is differ
    assert needed.to_json().get("assumed", {}) == assumed


def of_noise(kind: str) -> Forecast:
    study = StudyTerms.parse(
        {
            **{"name": "ages", "column": [AGE], "statistic": [{"kind": "count", "column": "age"}], "epsilon": 1.0, "delta": 1e-6},
            **{"count": "private", "most_records": 1000, "protocol": "packed-sharing", "options": {"noise": kind}},
        }
    )
    return Forecast(study, study.choice(8).plan, 800.0, studies=25)


def test_a_forecast_takes_the_quantile_of_the_noise_that_is_drawn() -> None:
    """Of one number: 1.96 standard deviations, or of 8 Laplace shares of 1/7 the quantile of shape 8/7, 2.106."""
    for kind, quantile in (("gaussian", Z), ("laplace", 2.106)):
        forecast = of_noise(kind)
        (term,) = forecast.expected
        assert isinstance(forecast.study, StudyTerms)
        (scale,) = forecast.study.workload.scales.values()
        assert term.noise[0] / (forecast.noise / scale) == pytest.approx(quantile, rel=2e-3), kind


def test_half_of_the_laplace_noise_needs_twice_the_epsilon() -> None:
    forecast = of_noise("laplace")
    (needed,) = forecast.needed(forecast.expected[0].noise[0] / 2, None)
    assert needed.epsilon == pytest.approx(2.0, rel=0.05)


# -- What the page of packed sharing says of spare bits in sums modulo a number: accidents that are seen, influence, bytes, error.
PAGE = (Path(__file__).parents[2] / "docs" / "proofs" / "packed-sharing.md").read_text()
PRIMES = {2: SMALL_PRIME, 4: LARGE_PRIME}


def table() -> list[list[str]]:
    part = PAGE.split("## Why sums have no spare bits")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")][1:]


def planned(parties: int, prime: int | None = None, dimension: int = 1) -> tuple[Plan, float, float]:
    """The plan, how far one party moves the mean, and the chance that a number uniform modulo p makes no possible sum."""
    target = Target(parties, 1.0, 1e-6, dimension, 1.0, max(1, parties // 10), 0.1)
    plan = calibrate(target, configure("packed-sharing", {} if prime is None else {"prime": prime}))
    influence, protocol = planned_influence(plan), plan.protocol
    assert influence is not None
    assert isinstance(protocol, PackedSharing)
    # Possible sums are as far apart as one party can move them.
    possible = influence.largest * parties / (protocol.step * protocol.prime)
    return plan, influence.largest, max(0.0, 1.0 - possible)


@pytest.mark.parametrize("row", table(), ids=lambda row: "-".join(row[:2]))
def test_the_table_is_of_the_plans(row: list[str]) -> None:
    parties, word_bytes = int(row[0]), int(row[1])
    plan, moved, seen = planned(parties, PRIMES[word_bytes])
    digits = len(row[2].split()[0].partition(".")[2])
    assert row[2] == f"{100 * seen:.{digits}f} %"
    assert row[3] == f"{moved:.3g}"
    assert row[4] == f"{float(plan.prediction['mse_noise']):.3g}"
    assert isinstance(plan.protocol, PackedSharing)
    assert plan.protocol.word_bytes == word_bytes


def test_plans_take_few_bytes_and_influence_does_not_depend_on_it() -> None:
    rows = table()
    assert {int(row[0]) for row in rows} == {5, 20, 100}
    for parties in (5, 20, 100):
        (small, *few), (_, *many) = ([row[1], *row[3:]] for row in rows if int(row[0]) == parties)
        assert few == many
        plan = planned(parties)[0]
        assert isinstance(plan.protocol, PackedSharing)
        assert plan.protocol.word_bytes == int(small) == 2


def test_of_twenty_wrong_coordinates_one_is_seen_among_few_parties() -> None:
    assert [1 - (1 - planned(parties, dimension=20)[2]) ** 20 > 0.98 for parties in (5, 20, 100)] == [True, True, False]


# -- Widths before a study: what linear theory says, from public numbers; hopeless questions with what would do.
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "low": 0, "high": 100, "guess": [40, 15]},
    {"name": "bmi", "low": 10, "high": 60},
    {"name": "sex", "levels": ["f", "m"], "guess": [0.3, 0.7]},
]


def study(*statistics: dict[str, Any], **more: Any) -> StudyTerms:
    return StudyTerms.parse({"column": COLUMNS, "statistic": list(statistics), "protocol": "local-dp", **more})


def test_a_public_table_has_the_guessed_moments() -> None:
    records = made_up(study().workload.columns, 0.25)
    assert records[:, 0].mean() == pytest.approx(40, abs=0.1)
    assert records[:, 0].std() == pytest.approx(15, rel=0.01)
    assert records[:, 1].std() == pytest.approx(12.5, rel=0.01)
    assert records[:, 2].mean() == pytest.approx(0.7, abs=0.001)
    together = np.asarray(np.corrcoef(records.T))
    assert abs(together[0, 1]) < 0.08


@pytest.mark.slow
def test_columns_go_together_where_that_is_the_question() -> None:
    columns = study().workload.columns
    alone, related = made_up(columns, 0.25), made_up(columns, 0.25, 0.5)
    np.testing.assert_array_equal(np.sort(related, axis=0), np.sort(alone, axis=0))
    assert np.asarray(np.corrcoef(alone.T))[0, 1] == pytest.approx(0, abs=0.005)
    assert np.asarray(np.corrcoef(related.T))[0, 1] == pytest.approx(0.5, abs=0.02)
    # Of independent columns no direction is the first, and nothing tells cases from the rest, however little the noise.
    for asked in ({"kind": "pca", "columns": ["age", "bmi"]}, {"kind": "logistic-regression", "formula": "sex ~ age + bmi"}):
        boolean = [*COLUMNS[:2], {"name": "sex", "boolean": True}]
        workload = StudyTerms.parse({"column": boolean, "statistic": [asked], "protocol": "local-dp"}).workload
        one, many = (Expectation(workload, noise, 1000.0).expected[0] for noise in (1e4, 1e-3))
        assert one.hopeless
        assert not many.hopeless


def test_the_widths_of_a_mean_are_those_of_the_formulas() -> None:
    workload = study({"kind": "mean", "column": "age"}).workload
    noise, records = 2.0, 1000.0
    (found,) = Expectation(workload, noise, records).expected
    # Half a width of the bounds is 1 there; the column's block has the factor 1/2 in the vector.
    error = noise / records * 50 * workload.sensitivity * 2
    assert found.noise[0] == pytest.approx(2 * Z * error, rel=1e-9)
    assert found.population is not None
    assert found.population[0] == pytest.approx(2 * Z * math.sqrt(error**2 + 15**2 / records), rel=0.01)
    assert found.ratio[0] == pytest.approx(error / (15 / math.sqrt(records)), rel=0.01)
    assert not found.hopeless


def test_without_a_guess_there_is_a_range() -> None:
    (found,) = Expectation(study({"kind": "mean", "column": "bmi"}).workload, 2.0, 1000.0).expected
    assert found.ratio[1] / found.ratio[0] == pytest.approx(10 / 3, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("count", range(1, 9))
def test_half_of_the_studies_are_looked_at_until_they_decide(count: int) -> None:
    for held in itertools.product((False, True), repeat=count):
        left = iter(held)
        assert fewer_than_half(left, count) == (np.mean(held) < 0.5)
        seen = held[: count - len(list(left))]
        # What was seen decides, and nothing less of it did.
        assert 2 * sum(seen) >= count or 2 * (len(seen) - sum(seen)) > count
        assert 2 * sum(seen[:-1]) < count
        assert 2 * (len(seen[:-1]) - sum(seen[:-1])) <= count


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "crosstab", "row": "smoker", "column": "ill", "expect": {"odds-ratio": 1.5}},
        {"kind": "linear-regression", "formula": "age ~ bmi"},
        {"kind": "group-means", "column": "age", "by": "smoker", "expect": {"difference": 5}},
    ],
)
def test_a_power_is_known_before_all_studies_are_drawn(asked: dict[str, Any]) -> None:
    """The same answer for every goal as the part of all studies that reject, of little noise and of much."""
    columns = [AGE, {"name": "bmi", "low": 10, "high": 50}, SMOKER, {"name": "ill", "boolean": True}]
    workload = StudyTerms.parse({"column": columns, "statistic": [asked], "protocol": "local-dp"}).workload
    (statistic,), powers = workload.statistics, set()
    for noise in (1.0, 10.0, 30.0, 1000.0):
        expectation = Expectation(workload, noise, 1000.0, studies=30)
        power = expectation.drawn(statistic).power
        powers.add(power)
        for goal in (0.02, power - 0.01, power, power + 0.01, 0.5, 0.8, 1.0):
            assert expectation.has_power(statistic, goal) == (power >= goal), (noise, goal)
    assert len(powers) > 1


def test_what_is_hopeless_is_refused_with_what_would_do() -> None:
    asked = study({"kind": "correlation", "columns": ["age", "bmi"]}, {"kind": "mean", "column": "age"})
    plan = asked.plan(10)
    forecast = Forecast(asked, plan, 300.0)
    correlation, mean = forecast.expected
    assert correlation.hopeless
    assert not mean.hopeless
    with pytest.raises(
        InputError,
        match=r"correlation\(age, bmi, robust=false\): noise .*show an answer with .* records in all or .* parties of this size",
    ) as told:
        forecast.require_hope()
    assert "mean" not in str(told.value)
    # What is said to do does, and half of it does not.
    enough = forecast.to_json()[0]
    assert not Forecast(asked, plan, enough["records_needed"]).expected[0].hopeless
    assert Forecast(asked, plan, enough["records_needed"] / 2).expected[0].hopeless
    larger = asked.model_copy(update={"epsilon": enough["epsilon_needed"]})
    assert not Forecast(larger, larger.plan(10), 300.0).expected[0].hopeless
    Forecast(asked.model_copy(update={"accept_wide": True}), plan, 300.0).require_hope()


@pytest.mark.parametrize("count", [{}, {"count": "private", "most_records": 400}])
def test_a_statistic_alone_reads_what_it_reads_of_the_whole_vector(count: dict[str, Any]) -> None:
    """Equalities tie it to others' features: to the quantities that are kept they still tell all that they know."""
    workload = study(
        {"kind": "crosstab", "row": "sex", "column": "sex2"},
        {"kind": "group-means", "column": "age", "by": "sex"},
        {"kind": "quantiles", "column": "bmi"},
        {"kind": "proportion", "column": "sex"},
        column=[*COLUMNS, {"name": "sex2", "levels": ["a", "b"]}],
        **count,
    ).workload
    records = made_up(workload.columns, 0.25)[:300]
    vectors = workload.of_records(records)
    whole, rng = workload.decoder(), np.random.default_rng(5)
    mean = vectors.mean(axis=0) + 0.05 * rng.standard_normal(workload.dimension)
    places = {feature: whole.places[feature] for feature in workload.scales}
    apart, tied = 0, 0
    for statistic in workload.statistics:
        asked = workload.with_columns(statistic)
        part = whole.of_features(asked.features)
        for decoder in (whole, part):
            assert decoder.read.shape[1] == workload.dimension
        first, second = (asked.decode(decoder.released(mean, 0.05, 300.0)) for decoder in (whole, part))
        np.testing.assert_allclose(second.value, first.value, rtol=1e-12)
        np.testing.assert_allclose(second.standard_error, first.standard_error, rtol=1e-12)
        read = part.features_read(places)
        others = [feature for feature in workload.scales if feature not in read]
        apart += len(others)
        tied += len(set(read) - {workload.whole(feature) for feature in asked.features})
        kept = np.concatenate([places[feature] for feature in read])
        alone = workload.sums(records, np.eye(len(records)), features=read)
        np.testing.assert_array_equal(alone, vectors[:, kept])
        changed = mean.copy()
        for feature in others:
            changed[places[feature]] += 1.0
        np.testing.assert_allclose(part.read.times(changed), part.read.times(mean), atol=1e-10)
    assert apart
    # The table of both knows how many are of each sex, as well as what asks for that alone.
    assert tied


# -- The demos of real questions: their data are real tables of 20 parties, and noise leaves something of every answer.
ROOT = Path(__file__).parents[2]
DEMOS = {"survival": ("breast_cancer.py", 686), "table-1": ("randhie.py", 20_190)}


def command(name: str) -> list[str]:
    """What the Makefile's target gives to quietmean."""
    lines = (ROOT / "Makefile").read_text().split(f"demo-{name}: ")[1].split("\n\n")[0].splitlines()
    begin = next(place for place, line in enumerate(lines) if "/quietmean run" in line)
    end = next(place for place in range(begin, len(lines)) if not lines[place].endswith("\\"))
    return shlex.split(" ".join(line.rstrip("\\").strip() for line in lines[begin : end + 1]))[1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_asks_what_can_be_answered(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, rows = DEMOS[name]
    table = tmp_path / "table.csv"
    monkeypatch.setattr("sys.argv", [script, str(table)])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    words = command(name)
    words[words.index("--data") + 1] = str(table)
    words[words.index("--out") + 1] = str(tmp_path / "out")
    asked: list[Any] = []
    monkeypatch.setattr(run, "run_local_study", lambda *arguments, **more: asked.append(arguments))
    app = main.make_app("run")
    app(words, exit_on_error=False, print_error=False, result_action="return_value")
    study, data, rehearsal = asked[0][:3]
    names, parts = parties_of_table(data, study.workload.columns, rehearsal.parties, rehearsal.party_column)
    assert len(names) == 20
    assert sum(map(len, parts)) == rows
    noise = math.sqrt(1.2) * study.workload.sensitivity / mu_of_budget(study.epsilon, study.delta)
    for one in Expectation(study.workload, noise, rows).expected:
        assert not one.hopeless, one.statistic.text
        # An answer that is worth the trouble: noise is no more than a few times the sampling error.
        assert one.ratio[0] < 4, (one.statistic.text, one.ratio)


def test_the_first_demo_asks_what_can_be_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shows is what it runs: 442 patients of 20 clinics, in a new folder."""
    asked: list[Any] = []
    monkeypatch.setattr(run, "run_local_study", lambda *arguments, **more: asked.append(arguments))
    main.main(["demo", "--out", str(tmp_path / "first")])
    study, data, rehearsal = asked[0][:3]
    names, parts = parties_of_table(data, study.workload.columns, rehearsal.parties, rehearsal.party_column)
    assert (len(names), sum(map(len, parts))) == (20, 442)
    assert Path(data) == tmp_path / "first" / "patients.csv"
    # The patients of the published table, in their order; the clinics are made up.
    published = load_diabetes(scaled=False)
    ours = np.loadtxt(data, delimiter=",", skiprows=1, usecols=(1, 2, 3, 4))
    assert np.array_equal(ours, published.data[:, [published.feature_names.index(name) for name in ("age", "bmi", "bp", "s6")]])
    noise = math.sqrt(1.3) * study.workload.sensitivity / mu_of_budget(study.epsilon, study.delta)
    assert all(not one.hopeless for one in Expectation(study.workload, noise, 442).expected)
