"""Models by rounds against their reference library without noise, and how far one record moves what a round releases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.learning import GeneralizedLinearModel, ProportionalHazards
from quietmean.learning.models.families import Binomial
from quietmean.learning.models.formulas import FormulaTerms, ModelDesign
from quietmean.learning.models.glm import asked_model, model_of
from quietmean.learning.models.model import ModelByRounds
from quietmean.learning.models.newton import Newton
from quietmean.learning.models.scored import ScoredRounds
from quietmean.learning.models.state import DesignRows
from quietmean.statistics import Column, Columns
from quietmean.statistics.models import asked_by_rounds, asked_in_one_release
from support.model_rounds import fitted, moved
from support.refusals import refused, refused_rows

Array = NDArray[np.float64]

BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6}
COLUMNS = (
    Column(name="age", low=20, high=90),
    Column(name="bmi", low=15, high=50),
    Column(name="arm", levels=("a", "b", "c")),
    Column(name="ill", boolean=True),
    Column(name="visits", low=0, high=15),
    Column(name="cost", low=0.5, high=400),
    Column(name="years", low=0, high=10),
    Column(name="died", boolean=True),
)


def patients(n: int = 1500, seed: int = 3) -> Array:
    """Records (n, columns) of :data:`COLUMNS`, some of them incomplete."""
    rng = np.random.default_rng(seed)
    age, bmi, arm = rng.uniform(22, 88, n), rng.uniform(17, 45, n), rng.integers(0, 3, n).astype(float)
    eta = 0.03 * (age - 55) + 0.04 * (bmi - 27) + 0.4 * (arm == 1)
    years = np.minimum(rng.exponential(9 * np.exp(-eta)), rng.uniform(2, 9.99, n))
    died = (rng.random(n) < 0.7) * 1.0
    ill = (rng.random(n) < 1 / (1 + np.exp(-eta))) * 1.0
    visits = np.minimum(rng.negative_binomial(2, 1 / (1 + 0.5 * np.exp(eta) * (0.2 + years / 10))), 15).astype(float)
    cost = np.clip(rng.gamma(3, np.exp(eta) * 6), 0.5, 400)
    records = np.column_stack([age, bmi, arm, ill, visits, cost, years, died])
    records[:20, 0], records[20:30, 2], records[30:40, 3] = np.nan, -1, np.nan
    return records


def glm(formula: str, **more: Any) -> GeneralizedLinearModel:
    return GeneralizedLinearModel(formula, COLUMNS, **BUDGET, **{"rounds": 20, **more})


def complete(records: Array, *places: int) -> Array:
    """The records that have a value in these columns."""
    values = records[:, places]
    kept: Array = records[(np.isfinite(values) & ~((values < 0) & np.isin(places, (2, 3, 7)))).all(axis=1)]
    return kept


def reference(kind: str, model: GeneralizedLinearModel, records: Array, outcome: int, offset: Array | None = None) -> Any:
    import statsmodels.api as sm

    log = sm.families.links.Log()
    families = {
        "binomial": sm.families.Binomial(),
        "poisson": sm.families.Poisson(),
        "gamma": sm.families.Gamma(log),
        "negative-binomial": sm.families.NegativeBinomial(alpha=1.0),
        "gaussian": sm.families.Gaussian(),
    }
    by_name = dict(zip([column.name for column in COLUMNS], records.T, strict=True))
    design = model.terms.design({name: by_name[name] for name in model.terms.used})
    fit = sm.GLM(records[:, outcome], design, family=families[kind], offset=offset)
    return fit.fit(cov_type="HC1", tol=1e-12, maxiter=100)


CASES = [
    ("binomial", "ill ~ age + bmi", 3, {}),
    ("binomial", "ill ~ age * arm + bs(bmi, knots=[25, 35])", 3, {}),
    ("binomial", "ill ~ poly(age, 2) + C(arm) + log(bmi)", 3, {}),
    ("poisson", "visits ~ age + bmi + arm", 4, {"exposure": "years"}),
    ("negative-binomial", "visits ~ age + arm", 4, {}),
    ("gamma", "cost ~ age + bmi + arm", 5, {}),
    ("gaussian", "cost ~ age * arm + bmi", 5, {}),
    ("gaussian", "cost ~ 0 + age + bmi", 5, {}),
]


@pytest.mark.parametrize(("kind", "formula", "outcome", "more"), CASES)
def test_without_noise_it_is_the_reference(kind: str, formula: str, outcome: int, more: dict[str, Any]) -> None:
    model, records = glm(formula, family=kind, **more), patients()
    needed = [place for place, column in enumerate(COLUMNS) if column.name in (*model.terms.used, more.get("exposure"))]
    own = complete(records, *needed, outcome)
    fit = fitted(model, [records[::3], records[1::3], records[2::3]])
    answer = fit.coefficients
    exact = reference(kind, model, own, outcome, np.log(own[:, 6]) if more.get("exposure") else None)
    assert answer.terms == model.terms.names
    np.testing.assert_allclose(answer.value, exact.params, rtol=1e-5, atol=1e-6)
    assert answer.population is not None
    # statsmodels does not count degrees of freedom here.
    np.testing.assert_allclose(answer.population, exact.bse * np.sqrt(len(own) / (len(own) - len(exact.params))), rtol=1e-4)
    assert answer.standard_error.max() < 1e-9
    assert not answer.flags
    assert answer.completeness is not None
    assert (round(answer.completeness.present), round(answer.completeness.missing)) == (len(own), len(records) - len(own))
    if kind == "gaussian":
        return
    ratios = fit.ratios
    assert ratios.of_population is not None
    np.testing.assert_allclose(ratios.value, np.exp(exact.params), rtol=1e-5)
    np.testing.assert_allclose(np.log(ratios.of_population[-1]), exact.conf_int()[-1], atol=2e-3)


@pytest.mark.parametrize("kind", ["gaussian"])
def test_a_gaussian_model_has_no_ratios(kind: str) -> None:
    model = glm("cost ~ age", family=kind, rounds=5)
    table = pd.DataFrame(complete(patients(300), *range(8))[:, [0, 5]], columns=["age", "cost"])
    table = table.assign(bmi=20.0, arm="a", ill=0, visits=0, years=1.0, died=0)
    model.fit(table, parties=3)
    assert model.epsilon <= BUDGET["epsilon"]
    refused("differences of means, not ratios. Read coefficients", lambda: model.ratios)


def test_a_term_of_several_coefficients_has_walds_test() -> None:
    model, records = glm("ill ~ age + arm"), patients()
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    exact = reference("binomial", model, complete(records, 0, 2, 3), 3)
    # The matrix is scaled to variances that hold whatever the model, and is not theirs throughout.
    wald = exact.wald_test(np.eye(4)[[1, 2]] if model.terms.names[1].startswith("arm") else np.eye(4)[2:], scalar=True)
    assert set(answer.tests) == {"arm"}
    assert answer.tests["arm"].statistic == pytest.approx(float(wald.statistic), rel=0.05)
    assert answer.tests["arm"].degrees == (2.0,)


def expanded(records: Array, edges: Array) -> tuple[Array, Array, Array, Array]:
    """Persons in intervals: whose row it is, its interval, whether it ends in the event, and the logarithm of the part seen."""
    rows = []
    for who, (years, died) in enumerate(records[:, 6:8]):
        for interval, (low, high) in enumerate(pairwise(edges.tolist())):
            if years <= low:
                break
            happens = died == 1 and years <= high
            rows.append((who, interval, happens, 0.0 if happens else np.log(min((years - low) / (high - low), 1.0))))
    who, interval, happens, offset = np.array(rows, dtype=float).T
    return who.astype(int), interval, happens, offset


@pytest.mark.parametrize("baseline", ["common", "shifted", "own"])
def test_hazards_without_noise_are_the_reference(baseline: str) -> None:
    import statsmodels.api as sm

    edges = np.array([0.0, 2, 4, 7, 10])
    model = ProportionalHazards(
        "~ age + arm",
        COLUMNS,
        time="years",
        event="died",
        edges=edges.tolist(),
        baseline=baseline,
        rounds=20,
        **BUDGET,
    )
    records = patients()
    parts = [records[::2], records[1::2]]
    answer = fitted(model, parts).coefficients
    own = np.vstack([part[np.isfinite(part[:, 0]) & (part[:, 2] >= 0)] for part in parts])
    party = np.concatenate(
        [np.full(int((np.isfinite(part[:, 0]) & (part[:, 2] >= 0)).sum()), place) for place, part in enumerate(parts)]
    )
    who, interval, happens, offset = expanded(own, edges)
    cells = {"common": interval, "shifted": interval, "own": interval * 2 + party[who]}[baseline]
    design = [np.asarray(cells == cell, dtype=float) for cell in np.unique(cells)]
    design += [np.asarray(party[who] == 1, dtype=float)] if baseline == "shifted" else []
    design += [np.asarray(own[who, 2] == 1, dtype=float), np.asarray(own[who, 2] == 2, dtype=float), own[who, 0]]
    link = sm.families.links.CLogLog()
    exact = sm.GLM(happens, np.column_stack(design), family=sm.families.Binomial(link), offset=offset).fit(
        cov_type="cluster", cov_kwds={"groups": who, "use_correction": False}, tol=1e-12, maxiter=100
    )
    places = [answer.terms.index(name) for name in ("arm[T.b]", "arm[T.c]", "age")]
    assert tuple(answer.terms[place] for place in places) == ("arm[T.b]", "arm[T.c]", "age")
    np.testing.assert_allclose(answer.value[places], exact.params[-3:], rtol=1e-4)
    assert answer.population is not None
    np.testing.assert_allclose(answer.population[places], exact.bse[-3:], rtol=5e-3)
    assert set(answer.headline) == {"age", "arm[T.b]", "arm[T.c]"} | set()
    assert not answer.flags


# -- least squares at the scale of the data --------------------------------------------------------------------------------------


def least_squares(rounds: int = 8, scale: float = 1.0, formula: str = "cost ~ age + bmi + arm") -> GeneralizedLinearModel:
    """Costs are in units of 1 / ``scale``."""
    columns = [column if column.name != "cost" else Column(name="cost", low=0.0, high=4000 * scale) for column in COLUMNS]
    return GeneralizedLinearModel(formula, columns, family="gaussian", rounds=rounds, **BUDGET)


def states(model: ModelByRounds, records: Array, noise: float, seed: int) -> Iterator[tuple[ScoredRounds, DesignRows]]:
    """The state before each round, and after the last."""
    design, rng = model._design_for(1), np.random.default_rng(seed)
    newton, rows = model._begin(design), model._rows(design, records, 0)
    assert isinstance(newton, ScoredRounds)
    for _ in range(model.rounds):
        yield newton, rows
        moved(newton, [rows], noise, rng)
    yield newton, rows


def scaled_models() -> list[ModelByRounds]:
    return [
        least_squares(),
        glm("visits ~ age + bmi + arm", family="poisson", exposure="years", rounds=8),
        glm("visits ~ age + arm", family="negative-binomial", rounds=8),
        glm("cost ~ age + bmi", family="gamma", rounds=8),
        ProportionalHazards("~ age + arm", COLUMNS, time="years", event="died", edges=[0, 2, 5, 10], rounds=8, **BUDGET),
    ]


def called(model: ModelByRounds) -> str:
    return f"{model.kind}-{model.describe().get('family', '')}"


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02])
@pytest.mark.parametrize("model", scaled_models(), ids=called)
def test_no_record_is_longer_than_the_session_takes_in_any_scored_round(model: ModelByRounds, noise: float) -> None:
    """Whatever was released before: rows within bounds, at them and beyond, and outcomes far away."""
    longest = list[float]()
    for seed, (newton, _) in enumerate(states(model, complete(patients(), *range(8)), noise, 3)):
        if newton.round == model.rounds:
            break
        own = model._rows(model._design_for(1), odd_records(np.random.default_rng(seed), 400), 0)
        vectors = newton.vectors(own)
        assert np.isfinite(vectors).all()
        # Nothing is shortened at the end: what is cut is cut in its part, and the parts fit.
        longest.append(float(np.linalg.norm(vectors, axis=1).max()))
    assert max(longest) <= 1 + 1e-12
    # Without noise scores are not cut at any length that occurs.
    assert min(longest) > (0.4 if noise else 0.1)


def test_what_is_chosen_comes_from_releases_alone() -> None:
    """The scale, the start and the rounding are those of what was released, also for who has other records."""
    model, records = least_squares(), complete(patients(), *range(8))
    design, rng = model._design_for(1), np.random.default_rng(4)
    one, other = model._begin(design), model._begin(design)
    rows, few = model._rows(design, records, 0), model._rows(design, records[:7], 0)
    for number in range(1, model.rounds + 1):
        before = {name: np.copy(getattr(other, name)) for name in other._FIELDS}
        # What a record hands in depends on it alone, and on what was released.
        np.testing.assert_allclose(other.vectors(few), one.vectors(rows)[:7], atol=1e-12)
        mean = one.vectors(rows).mean(axis=0) + 1e-3 * rng.standard_normal(one.dimension)
        assert all(np.array_equal(before[name], getattr(other, name)) for name in other._FIELDS)
        for newton in (one, other):
            newton.moved(number, mean, 1e-3, float(len(records)))
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in one._FIELDS)
        # What a round is for, and with it what it costs, does not depend on what was released.
        assert one.schedule == ("moments", "lengths", "scores", "lengths", *["scores"] * 4)


@pytest.mark.parametrize("far", range(8, 16))
def test_what_noise_hides_in_any_cell_is_in_the_bound_on_what_is_cut_off(far: int) -> None:
    """Wherever a few very long scores are: the bound is not below what they add to the mean of what is cut off."""
    model, rng, noise, low = least_squares(), np.random.default_rng(far), 1e-3, list[bool]()
    newton = model._begin(model._design_for(1))
    assert isinstance(newton, ScoredRounds)
    shares, edges = np.zeros(16), newton._edges
    shares[3:8] = [0.1, 0.3, 0.4, 0.15, 0.05]
    shares[far] += noise / 2
    for _ in range(300):
        clip, tail = newton._chosen(shares + noise * rng.standard_normal(16), noise, noise)
        low.append(bool(tail < shares @ np.maximum(edges - clip, 0.0)))
    assert sum(low) <= 4


def test_noise_is_proportional_to_the_scale_of_the_data_and_not_of_the_bounds() -> None:
    records = complete(patients(), *range(8))
    scaled = records.copy()
    scaled[:, 5] *= 1024.0
    wide = GeneralizedLinearModel(
        "cost ~ age + bmi + arm",
        [column if column.name != "cost" else Column(name="cost", low=0, high=20_000) for column in COLUMNS],
        family="gaussian",
        **BUDGET,
        rounds=8,
    )
    plain = fitted(least_squares(), [records], 1e-3, np.random.default_rng(1)).coefficients
    large = fitted(least_squares(scale=1024.0), [scaled], 1e-3, np.random.default_rng(1)).coefficients
    np.testing.assert_allclose(large.value, 1024.0 * plain.value, rtol=1e-9)
    np.testing.assert_allclose(large.standard_error, 1024.0 * plain.standard_error, rtol=1e-9)
    # Bounds that are five times as wide: as much noise, within a cell of C.
    further = fitted(wide, [records], 1e-3, np.random.default_rng(1)).coefficients
    assert (further.standard_error < 2.5 * plain.standard_error).all()


def clipped_solution(newton: ScoredRounds, rows: DesignRows) -> Array:
    """The solution of the clipped equation of these records, in the coordinates of the state."""
    rounded, solution = rows.rows @ newton.rounding.T, newton.coefficients.copy()
    for _ in range(40):
        scores = (rows.outcome - rounded @ solution)[:, None] * rounded
        lengths = np.linalg.norm(scores, axis=1)
        scores *= np.minimum(1.0, newton.clip / np.maximum(lengths, 1e-300))[:, None]
        inside = rounded * (lengths <= newton.clip)[:, None]
        solution += np.linalg.solve(inside.T @ rounded / len(rounded), scores.mean(axis=0))
    return solution


def test_the_noise_of_least_squares_is_that_about_the_solution_of_the_clipped_equation() -> None:
    model, records, errors = least_squares(), complete(patients(4000), *range(8)), []
    for seed in range(60):
        (*_, (newton, rows)) = states(model, records, 2e-3, seed)
        answer = model.fit_of(model._design_for(1), newton).coefficients
        truth = newton.scaled(model._design_for(1).scaling).T @ clipped_solution(newton, rows)
        errors.append((answer.value - truth) / answer.standard_error)
        assert newton.cut < 0.05
    # 60 runs: the root mean square is within 0.73 to 1.27 but once in 300.
    size = np.sqrt(np.nanmean(np.square(errors), axis=0))
    assert ((size > 0.73) & (size < 1.27)).all(), size


@pytest.mark.parametrize("model", scaled_models()[1:], ids=called)
def test_the_noise_of_scored_rounds_is_in_their_errors(model: ModelByRounds) -> None:
    model.rounds, records, values, noise = 12, patients(), [], []
    exact = fitted(model, [records]).coefficients
    for seed in range(60):
        answer = fitted(model, [records], 1.5e-3, np.random.default_rng(seed)).coefficients
        values.append(answer.value)
        noise.append(answer.standard_error)
        assert not {flag.code for flag in answer.flags} & {"not-identified", "separated"}
    # 60 runs: a standard deviation is within 0.7 to 1.3 of the stated one but once in 1000, and any of five once in 200.
    size = np.std(values, axis=0) / np.sqrt(np.mean(np.square(noise), axis=0))
    assert ((size > 0.7) & (size < 1.3)).all(), size
    # Where scores that are cut draw a term by more than 0.4 of its error, it says so.
    # The mean is known to an eighth of the noise's.
    assert exact.population is not None
    drawn = np.abs(np.mean(values, axis=0) - exact.value) / exact.population
    assert (drawn < 0.4).all(), drawn


@pytest.mark.parametrize(("side", "said"), [(0.01, "above what is expected"), (-0.01, "below what"), (0.0, "far off and")])
def test_terms_that_cut_scores_may_have_drawn_away_have_no_p_value(side: float, said: str) -> None:
    """A term says of what its interval is, and on which side scores are cut."""
    model, (*_, (newton, _)) = least_squares(), states(least_squares(), complete(patients(), *range(8)), 1e-3, 5)
    newton.cut, newton.side, newton.tail = 0.012, side, newton.clip
    answer = model.fit_of(model._design_for(1), newton).coefficients
    (cut,) = (flag for flag in answer.flags if flag.code == "cut")
    assert said in cut.text
    assert "count with less weight, as in a robust regression. The estimate and its interval are those" in cut.text
    assert cut.terms == answer.terms
    assert answer.p_value is None or np.isnan(answer.p_value).all()
    assert not answer.tests
    assert np.isfinite(answer.value).all()
    newton.tail = 0.0
    tested = model.fit_of(model._design_for(1), newton).coefficients
    assert tested.p_value is not None
    assert np.isfinite(tested.p_value).all()


def test_least_squares_go_on_from_their_file(tmp_path: Any) -> None:
    model, records = least_squares(), complete(patients(), *range(8))
    for number, (newton, rows) in enumerate(states(model, records, 1e-3, 6)):
        again = model._begin(model._design_for(1))
        newton.save(tmp_path / f"{number}.npz")
        again.load(tmp_path / f"{number}.npz")
        assert all(np.array_equal(getattr(again, name), getattr(newton, name)) for name in newton._FIELDS)
        if number < model.rounds:
            np.testing.assert_array_equal(again.vectors(rows), newton.vectors(rows))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"rounds": 4}, "needs 4 to find its scale. Choose at least 5"),
        ({"residual": 2.0}, "GeneralizedLinearModel has no keyword 'residual'"),
        ({"exposure": "years"}, "a gaussian model adds its terms. Leave it out"),
        ({"formula": "ill ~ age"}, "Declare it with bounds"),
    ],
)
def test_what_a_gaussian_model_cannot_be_is_refused(more: dict[str, Any], sentence: str) -> None:
    refused(sentence, glm, **{"formula": "cost ~ age", "family": "gaussian", **more})


# -- how far one record moves a round --------------------------------------------------------------------------------------------


def every_model() -> list[ModelByRounds]:
    return [
        glm("ill ~ age * arm + bs(bmi, df=4)", rounds=2),
        glm("visits ~ age + bmi + arm", family="poisson", exposure="years", rounds=6),
        glm("visits ~ age + arm", family="negative-binomial", rounds=6),
        glm("cost ~ age + bmi", family="gamma", rounds=6),
        ProportionalHazards(
            "~ age + arm", COLUMNS, time="years", event="died", edges=[0, 2, 5, 10], baseline="own", rounds=6, **BUDGET
        ),
    ]


def odd_records(rng: np.random.Generator, n: int) -> Array:
    """Records at bounds, beyond them, and of no meaning at all."""
    values = np.array([-np.inf, -1e9, -1, 0, 0.5, 1, 2, 9.99, 15, 20, 90, 400, 1e9, np.inf, np.nan])
    records = rng.choice(values, size=(n, len(COLUMNS)))
    records[:, 2] = rng.choice([-1, 0, 1, 2, np.nan], size=n)
    records[:, [3, 7]] = rng.choice([-1, 0, 1, np.nan], size=(n, 2))
    return np.vstack([records, patients(n)])


def largest_norm(model: ModelByRounds, last: bool, change: Callable[[Array], Array] = lambda vectors: vectors) -> float:
    rng = np.random.default_rng(8)
    design = model._design_for(2)
    newton = model._begin(design)
    newton.round = 1 if last else 0
    norms = []
    for scale in (0.0, 1.0, 10.0):
        newton.coefficients = scale * rng.standard_normal(design.size)
        vectors = change(newton.vectors(model._rows(design, odd_records(rng, 300), 1)))
        assert np.isfinite(vectors).all()
        norms.append(float(np.linalg.norm(vectors, axis=1).max()))
    return max(norms)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("model", every_model(), ids=called)
def test_no_record_is_longer_than_the_session_takes(model: ModelByRounds, last: bool) -> None:
    assert 0.5 < largest_norm(model, last) <= 1 + 1e-12


@pytest.mark.parametrize("model", every_model()[:1])
def test_vectors_that_are_not_shortened_are_caught(model: ModelByRounds) -> None:
    assert largest_norm(model, True, lambda vectors: vectors * 1.01) > 1 + 1e-12


def test_who_has_no_value_adds_nothing_but_that() -> None:
    model, records = glm("ill ~ age + arm"), patients()
    design = model._design_for(2)
    vectors = model._begin(design).vectors(model._rows(design, records, 0))
    assert not vectors[:40].any()
    assert (np.abs(vectors[40:]).max(axis=1) > 0).all()


def test_the_formula_of_the_noise_is_the_noise_of_the_rounds_that_are_read() -> None:
    """Of six rounds four, where the first two have led near the answer: half of the noise of the last alone."""
    model, records = glm("ill ~ age + bmi", rounds=6), patients(600)
    design, deviation = model._design_for(1), 3e-3
    rows, exact = model._rows(design, records, 0), fitted(glm("ill ~ age + bmi", rounds=8), [records]).coefficients.value
    errors, noises = [], []
    for seed in range(80):
        rng, newton = np.random.default_rng(seed), model._begin(design)
        for _ in range(model.rounds):
            moved(newton, [rows], deviation, rng)
        answer = model.fit_of(design, newton).coefficients
        noises.append(newton.noise)
        errors.append((answer.value - exact) / answer.standard_error)
    # 80 runs: the root mean square is within 0.77 to 1.23 but once in 300.
    assert ((np.sqrt(np.mean(np.square(errors), axis=0)) > 0.77) & (np.sqrt(np.mean(np.square(errors), axis=0)) < 1.23)).all()
    assert np.median(noises) == pytest.approx(deviation / 2)


def test_a_round_far_from_the_answer_is_not_read() -> None:
    model, records = glm("ill ~ age", rounds=6), patients()
    design = model._design_for(1)
    newton, rows = model._begin(design), model._rows(design, records, 0)
    for _ in range(4):
        moved(newton, [rows], 1e-4, np.random.default_rng(1))
    assert newton.read > 0
    newton.coefficients = newton.coefficients + 0.5
    place = newton.coefficients.copy()
    moved(newton, [rows], 1e-4, np.random.default_rng(2))
    assert newton.read == 0
    np.testing.assert_array_equal(newton.place, place)
    assert newton.noise == 1e-4
    moved(newton, [rows], 1e-4, np.random.default_rng(3))
    assert newton.noise == 1e-4


def test_what_hides_in_a_direction_that_is_not_known_is_in_the_error() -> None:
    """Age and how long people have been ill go together: what they do together is known, and of each alone next to nothing."""
    rng = np.random.default_rng(3)
    records = complete(patients(800), *range(8))
    records[:, 1] = 15 + (records[:, 0] - 20) / 2 + rng.normal(0, 0.4, len(records))
    model = glm("ill ~ age + bmi + arm", rounds=6)
    exact = fitted(glm("ill ~ age + bmi + arm", rounds=10), [records]).coefficients
    place = exact.terms.index("arm[T.b]")
    errors = []
    for seed in range(30):
        answer = fitted(model, [records], 3e-3, np.random.default_rng(seed)).coefficients
        assert not np.isfinite(answer.value[exact.terms.index("bmi")])
        errors.append((answer.value[place] - exact.value[place]) / answer.standard_error[place])
    assert np.sqrt(np.mean(np.square(errors))) < 1.3


# -- data that a model cannot be had of ------------------------------------------------------------------------------------------


def wrong_data() -> Mapping[str, tuple[str, Array]]:
    records = complete(patients(2000), *range(8))
    separated, rare, collinear, constant = (records.copy() for _ in range(4))
    separated[:, 3] = separated[:, 2] == 1
    rare[:, 2] = np.where(rare[:, 2] == 1, 0, rare[:, 2])
    rare[:3, 2] = 1
    collinear[:, 1] = 15 + (collinear[:, 0] - 20) / 2
    constant[:, 3] = 0
    return {
        "separated": ("ill ~ age + arm", separated),
        "rare": ("ill ~ age + arm", rare),
        "collinear": ("ill ~ age + bmi", collinear),
        "constant": ("ill ~ age", constant),
    }


# Three records of a level are enough where there is hardly any noise.
@pytest.mark.parametrize(
    ("what", "noise"), [(what, noise) for what in wrong_data() for noise in (1e-5, 1e-3) if (what, noise) != ("rare", 1e-5)]
)
def test_what_cannot_be_fitted_is_flagged(what: str, noise: float) -> None:
    formula, records = wrong_data()[what]
    for seed in range(3):
        answer = fitted(glm(formula, rounds=4), [records], noise, np.random.default_rng(seed)).coefficients
        assert {flag.code for flag in answer.flags} & {"not-identified", "not-settled", "cut"}, what
    if what == "rare":
        # What the few do not touch is known as without them.
        exact = fitted(glm("ill ~ age + arm"), [records]).coefficients
        place = answer.terms.index("age")
        assert answer.value[place] == pytest.approx(exact.value[exact.terms.index("age")], abs=4 * answer.standard_error[place])
        assert answer.standard_error[place] < 0.01


# -- formulas --------------------------------------------------------------------------------------------------------------------


@refused_rows("a_formula_that_cannot_be_is_refused_in_a_sentence")
def test_a_formula_that_cannot_be_is_refused_in_a_sentence(formula: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        glm(formula)._design_for(2).scaling  # noqa: B018


def test_what_a_term_computes_does_not_depend_on_the_records() -> None:
    terms = FormulaTerms("~ bs(age, df=4) + poly(bmi, 2) + scale(age)", Columns(COLUMNS))
    both = terms.design({"age": np.array([30.0, 60]), "bmi": np.array([20.0, 40])})
    alone = terms.design({"age": np.array([30.0]), "bmi": np.array([20.0])})
    np.testing.assert_array_equal(both[:1], alone)


def test_no_value_within_the_bounds_has_a_long_row() -> None:
    for formula in ("~ age + bmi", "~ age * arm", "~ bs(age, df=5) + log(bmi)", "~ poly(age, 3):arm", "~ 1"):
        design = ModelDesign(FormulaTerms(formula, Columns(COLUMNS)))
        rng = np.random.default_rng(1)
        used = {"age": rng.uniform(20, 90, 500), "bmi": rng.uniform(15, 50, 500), "arm": rng.integers(0, 3, 500).astype(float)}
        rows = design.terms.design(used) @ design.scaling.T
        longest = np.linalg.norm(rows, axis=1).max()
        assert 0.8 < longest < 1.02, formula


def test_a_state_goes_on_from_its_file(tmp_path: Any) -> None:
    model, records = glm("ill ~ age", rounds=6), patients()
    design = model._design_for(1)
    rows, first, again = model._rows(design, records, 0), model._begin(design), model._begin(design)
    for seed in range(4):
        moved(first, [rows], 1e-3, np.random.default_rng(seed))
    assert first.read == 2
    first.save(tmp_path / "a.npz")
    again.load(tmp_path / "a.npz")
    for newton in (first, again):
        moved(newton, [rows], 1e-3, np.random.default_rng(4))
    assert first.errors == again.errors
    np.testing.assert_array_equal(first.coefficients, again.coefficients)
    other = glm("ill ~ age + bmi")
    refused(re.escape("is not a file of this model"), other._begin(other._design_for(1)).load, tmp_path / "a.npz")


@pytest.mark.parametrize("model", [glm("ill ~ age", rounds=6), least_squares()], ids=["newton", "least squares"])
def test_a_party_in_a_part_of_the_averaged_rounds_is_named(model: GeneralizedLinearModel) -> None:
    """Who is in all of them, in none, or away before they begin changes nothing of whom the answer is about."""
    design, records = model._design_for(1), complete(patients(), *range(8))
    for away, named in (((), ()), ((1,), ()), (range(1, 9), ()), ((model.rounds,), (2,)), ((model.rounds - 1,), (2,))):
        newton, rng = model._begin(design), np.random.default_rng(1)
        for number in range(1, model.rounds + 1):
            moved(newton, [model._rows(design, records, 0)], 1e-3, rng, (1.0, 1.0, float(number not in away)))
        assert newton.read > 1
        flags = [flag.text for flag in model.fit_of(design, newton).coefficients.flags if flag.code == "changing-sites"]
        assert [f"party {place} (weight " in text for text, place in zip(flags, named, strict=True)] == [True] * len(named)


def test_rows_of_a_record_are_added_up() -> None:
    newton = Newton(Binomial(0.0, 1.0), 2, None, 1)
    twice = DesignRows(np.full((2, 2), 0.1), np.ones(2), np.zeros(2), np.zeros(2, dtype=np.intp), 1)
    apart = DesignRows(twice.rows, twice.outcome, twice.offset, np.arange(2), 2)
    np.testing.assert_allclose(newton.vectors(twice)[0, :2], newton.vectors(apart)[:, :2].sum(axis=0))


def test_what_a_fit_is_expected_to_show_is_what_it_shows() -> None:
    names = [column.name for column in COLUMNS]
    table = pd.DataFrame(complete(patients(900), *range(len(names))), columns=names)
    for column in COLUMNS:
        if column.levels and not column.boolean:
            table[column.name] = [column.levels[int(level)] for level in table[column.name]]
    model = GeneralizedLinearModel("ill ~ age", COLUMNS, epsilon=8, delta=1e-5)
    hoped = model.expect(table, 3)
    assert hoped.population is not None
    # In one fit of thirty fewer rounds are read, as noise has it, and errors are twice these: the middle of five.
    fits = [model.fit(table, parties=3).coefficients for _ in range(5)]
    np.testing.assert_allclose(np.median([fit.standard_error for fit in fits], axis=0), hoped.standard_error, rtol=0.3)
    both = np.array([fit.population for fit in fits], dtype=np.float64)
    np.testing.assert_allclose(np.median(both, axis=0), hoped.population, rtol=0.3)
    # More records: less of both.
    more = model.expect(table, 3, records=9000)
    assert (more.standard_error < 0.15 * hoped.standard_error).all()
    # Too few are seen before anything is asked of anybody.
    assert "not-identified" in {flag.code for flag in model.expect(table, 3, records=20).flags}
    refused("nothing is to be expected of no records", model.expect, table, 3, records=0)


def test_a_second_fit_has_answers_of_its_own() -> None:
    """What was read of the first is not shown for the second."""
    columns = [Column(name="age", low=0, high=1), Column(name="ill", boolean=True)]
    model = GeneralizedLinearModel("ill ~ age", columns, rounds=1, epsilon=8, delta=1e-5)
    coefficients, ratios = [], []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        tables = [pd.DataFrame({"age": rng.random(400), "ill": rng.integers(0, 2, 400)}) for _ in range(3)]
        model.fit(tables)
        coefficients.append(model.coefficients.value.tolist())
        ratios.append(model.ratios.value.tolist())
    assert coefficients[0] != coefficients[1]
    assert ratios[0] != ratios[1]


def test_means_above_the_bound_of_a_count_are_flagged_and_of_costs_are_means() -> None:
    """Counts and costs that grow tenfold, and stop at their bound: the reference expects more than that of some."""
    import statsmodels.api as sm

    rng = np.random.default_rng(6)
    x = rng.random(3000)
    y = np.minimum(rng.poisson(np.exp(0.5 + 3.2 * x)), 12) + 0.25
    columns = [Column(name="x", low=0, high=1), Column(name="y", low=0, high=12.25)]
    records = np.column_stack([x, y])
    families: dict[str, Any] = {"gamma": sm.families.Gamma(sm.families.links.Log()), "poisson": sm.families.Poisson()}
    for family, flagged in (("gamma", False), ("poisson", True)):
        model = GeneralizedLinearModel("y ~ x", columns, family=family, rounds=16, epsilon=4.0, delta=1e-6)
        answer = fitted(model, [records[::2], records[1::2]]).coefficients
        exact = sm.GLM(y, sm.add_constant(x), family=families[family]).fit(tol=1e-12, maxiter=100).params
        assert np.exp(exact.sum()) > 12.25
        assert ("cut" in [flag.code for flag in answer.flags]) == flagged
        if not flagged:
            np.testing.assert_allclose(answer.value, exact, rtol=1e-4)


@pytest.mark.parametrize("model", scaled_models(), ids=called)
def test_noise_that_hides_every_direction_shows_no_term(model: ModelByRounds) -> None:
    """An information that noise alone has made large would make errors small, and intervals that hold nothing."""
    model.rounds, records = 12, patients(500)
    for seed in range(12):
        answer = fitted(model, [records], 0.08, np.random.default_rng(seed)).coefficients
        assert np.isnan(answer.value).all()
        assert "not-identified" in {flag.code for flag in answer.flags}


OF_SOME: tuple[Callable[..., GeneralizedLinearModel], ...] = (
    lambda **more: glm("ill ~ age + arm", **more),
    lambda **more: glm("bmi ~ age + arm", family="gaussian", **more),
    lambda **more: glm("visits ~ age", family="poisson", exposure="years", **more),
)


@pytest.mark.parametrize("model", OF_SOME)
def test_a_condition_leaves_all_other_records_out(model: Callable[..., GeneralizedLinearModel]) -> None:
    """Without noise it is the same model of the records that meet it; in no round does another one add anything."""
    records = patients()
    records[40:60, 1] = np.nan
    # What is missing, or a level that nobody has, does not meet a condition.
    inside = (records[:, 1] >= 25) & (records[:, 2] != 0) & (records[:, 2] >= 0)
    some = model(where="bmi >= 25 and arm in ('b', 'c')")
    here, alone = (each.without_noise([part]).coefficients for each, part in ((some, records), (model(), records[inside])))
    assert here.terms == alone.terms
    for one, other in ((here.value, alone.value), (here.population, alone.population)):
        assert one == pytest.approx(other, rel=1e-6, nan_ok=True)
    assert here.completeness is not None
    assert alone.completeness is not None
    assert here.completeness.present == alone.completeness.present
    assert "outside" in here.completeness.to_json()
    rows = some._rows(some._design_for(1), records, 0)
    assert set(rows.record.tolist()) <= set(np.flatnonzero(inside).tolist())
    assert not some._begin(some._design_for(1)).vectors(rows)[~inside].any()


def test_a_condition_is_in_what_parties_agree_on_and_in_the_question() -> None:
    model = glm("ill ~ age", where="bmi >= 25")
    assert model_of(model.session_study(3), 3).where == "bmi >= 25"
    assert model.text == "generalized-linear-model(ill ~ age, family=binomial, where=bmi >= 25, rounds=20)"
    asked = asked_model([model.text, "ill in yes/no", "age in 20..90", "bmi in 15..50"], **BUDGET)
    assert asked.describe() == {**glm("ill ~ age", where="bmi >= 25").describe(), "columns": asked.describe()["columns"]}
    assert "where" not in glm("ill ~ age").describe()
    linear = "linear-regression(bmi ~ age, where=arm == 'b')"
    assert asked_by_rounds(linear) == "glm(bmi ~ age, family=gaussian, where=arm == 'b')"
    by_rounds = asked_model([asked_by_rounds(linear), "bmi in 15..50", "age in 20..90", "arm in {a, b}"], **BUDGET)
    assert asked_in_one_release({"formula": by_rounds.formula, **by_rounds.describe()}) == linear
    with pytest.raises(InputError, match="'weight', which is not a declared column"):
        glm("ill ~ age", where="weight > 3")
