"""Estimators: against scikit-learn without noise, the noise that they state, what is refused, and where nothing is installed."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import stats
from sklearn import cluster, decomposition, discriminant_analysis, linear_model, preprocessing
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.core.party import PopulationNoise
from quietmean.learning import PCA, KMeans, LinearRegression, LogisticRegression, StandardScaler
from quietmean.learning.sites import InOneProcess
from quietmean.randomness.insecure import InsecureSilentPopulation
from quietmean.randomness.noise import StackedNoise
from quietmean.sessions import MemoryEngine

Array = NDArray[np.float64]
RNG = np.random.default_rng(20_260)
X = RNG.normal(size=(1200, 3)) * [1.5, 1.0, 0.6]
Y = X @ [1.0, 2.0, -1.0] + 0.5 + RNG.normal(size=1200) * 0.3
LABELS = (RNG.logistic(size=1200) < Y).astype(int)
GROUPS = np.array(["a", "b", "c", "d"])[RNG.integers(4, size=1200)]
BOUNDS = (-6.0, 6.0)
Y_BOUNDS = (-20.0, 20.0)


def silent(round_: int, parties: int) -> PopulationNoise:
    return InsecureSilentPopulation(parties)


class Halved(StackedNoise):
    """Noise of half the standard deviation: what no party may do."""

    def normal(self, purpose: str, index: int, dimension: int) -> Array:
        return super().normal(purpose, index, dimension) / 2

    def shared_normal(self, pairs: NDArray[np.int64], purpose: str, index: int, dimension: int) -> Array:
        return super().shared_normal(pairs, purpose, index, dimension) / 2

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> NDArray[np.int64]:
        return super().discrete(purpose, index, scale, dimension, shares) // 2

    def shared_discrete(self, pairs: NDArray[np.int64], purpose: str, index: int, scale: float, dimension: int) -> Any:
        return super().shared_discrete(pairs, purpose, index, scale, dimension) // 2


def halved(round_: int, parties: int) -> PopulationNoise:
    return Halved.from_os(parties)


SILENT = InOneProcess(MemoryEngine(silent))
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "protocol": "cordp-dme"}
# Hardly any noise is planned, so that hardly any is taken off second moments; and none is drawn.
CLEAR: dict[str, Any] = {
    "bounds": BOUNDS,
    "epsilon": 1000.0,
    "delta": 1e-6,
    "protocol": "cordp-dme",
    # No sampler of whole numbers keeps a budget that large.
    "options": {"noise": "insecure-float64"},
    "site": SILENT,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A budget that protects nothing is warned of, and values beyond bounds: not what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def by_party(*arrays: Any) -> list[Any]:
    """The same rows as a list with the data of each party."""
    parts = [tuple(array[name == GROUPS] for array in arrays) for name in np.unique(GROUPS)]
    return parts if len(arrays) > 1 else [one for (one,) in parts]


# -- against scikit-learn, without noise -----------------------------------------------------------------------------------------


def test_linear_regression_is_that_of_scikit_learn() -> None:
    ours, theirs = (
        LinearRegression(**CLEAR, y_bounds=Y_BOUNDS).fit(X, Y, groups=GROUPS),
        linear_model.LinearRegression().fit(X, Y),
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=2e-3)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=5e-3)
    assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y), abs=1e-4)


def test_one_shot_logistic_regression_is_linear_discriminant_analysis() -> None:
    ours = LogisticRegression(**CLEAR, classes=[0, 1]).fit(X, LABELS, groups=GROUPS)
    theirs = discriminant_analysis.LinearDiscriminantAnalysis().fit(X, LABELS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.01)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=0.01)
    likeliest = linear_model.LogisticRegression(C=1e6).fit(X, LABELS)
    assert np.corrcoef(ours.decision_function(X), likeliest.decision_function(X))[0, 1] > 0.999
    assert ours.score(X, LABELS) == pytest.approx(likeliest.score(X, LABELS), abs=0.01)


def test_logistic_regression_by_rounds_is_that_of_scikit_learn() -> None:
    few, labels = X[:300], LABELS[:300]
    asked: dict[str, Any] = {"clip": 3.0, "learning_rate": 14.0, "momentum": 0.9, "rounds": 200, "parties": 4}
    ours = LogisticRegression(bounds=BOUNDS, **BUDGET, site=SILENT, classes=[0, 1], **asked).fit(few, labels)
    theirs = linear_model.LogisticRegression(C=1e8, tol=1e-8).fit(few, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=3e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=3e-3)
    np.testing.assert_allclose(ours.predict_proba(few), theirs.predict_proba(few), atol=1e-3)


def test_errors_after_newtons_rounds_are_those_of_statsmodels() -> None:
    """With the noise that is stated beside them although none was drawn; robust ones as far as that noise would let them be
    seen, else the model's."""
    limits = [(-3.5, 3.5), (-2.5, 2.5), (-1.5, 1.5)]
    asked: dict[str, Any] = {"bounds": limits, **BUDGET, "epsilon": 30.0, "classes": [0, 1], "solver": "newton", "rounds": 6}
    ours = LogisticRegression(**asked, site=SILENT).fit(X, LABELS, groups=GROUPS)
    logit = sm.Logit(LABELS, sm.add_constant(np.clip(X, *np.transpose(limits))))
    theirs, robust = logit.fit(disp=0), logit.fit(disp=0, cov_type="HC0").bse
    np.testing.assert_allclose([*ours.intercept_, *ours.coef_[0]], theirs.params, atol=1e-3)
    intervals = np.concatenate([ours.intercept_interval_, ours.coef_interval_[0]])
    noise = np.array([*ours.intercept_standard_error_, *ours.coef_standard_error_[0]])
    assert (noise > 0.01).all()
    both = np.diff(intervals)[:, 0] / 2 / stats.t.ppf(0.975, 1000)
    sampling = np.sqrt(both**2 - noise**2)
    assert (0.95 * np.minimum(theirs.bse, robust) <= sampling).all()
    assert (sampling <= 1.05 * np.maximum(theirs.bse, robust)).all()
    np.testing.assert_allclose(intervals.mean(axis=1), theirs.params, atol=1e-3)
    assert ours.predict_proba(X).shape == (1200, 2)
    assert ours.certificate_.epsilon <= 30
    assert len(ours.certificate_.executions) == ours.n_iter_ == 6
    # A row without a value, or with another label, counts as nothing.
    holed, labels = np.vstack([X, X[:2]]), np.append(LABELS, [0, 7])
    holed[1200, 1] = np.nan
    again = LogisticRegression(**asked, site=SILENT).fit(holed, labels, groups=np.append(GROUPS, ["a", "b"]))
    np.testing.assert_allclose(again.coef_, ours.coef_, atol=1e-4)
    counted = again.estimates_[0].completeness
    assert counted is not None
    assert counted.present == pytest.approx(1200, abs=0.1)


@pytest.mark.slow
def test_intervals_after_newtons_rounds_hold() -> None:
    """Of 60 fits with real noise and other records each, four coefficients: 224 to 236 of 240 are 93 to 98 %."""
    rng, held = np.random.default_rng(9), 0
    for _ in range(60):
        rows = np.clip(rng.normal(size=(2500, 3)), -2.5, 2.5)
        labels = (rng.logistic(size=2500) < rows @ [0.5, 0.3, -0.6] + 0.2).astype(int)
        asked: dict[str, Any] = {"bounds": (-2.5, 2.5), **BUDGET, "parties": 4, "classes": [0, 1]}
        found = LogisticRegression(**asked, solver="newton", rounds=6).fit(rows, labels)
        ends = np.concatenate([found.intercept_interval_, found.coef_interval_[0]])
        truth = np.array([0.2, 0.5, 0.3, -0.6])
        held += int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())
    print(f"{held} of 240")
    assert 220 <= held <= 237


@pytest.mark.slow
def test_a_penalty_is_that_of_scikit_learn() -> None:
    """On columns that are scaled by their bounds already."""
    few, labels = np.clip(X[:300], -1, 1), LABELS[:300]
    asked: dict[str, Any] = {"clip": 3.0, "learning_rate": 3.0, "momentum": 0.9, "rounds": 200, "parties": 4, "bounds": (-1, 1)}
    ours = LogisticRegression(**BUDGET, site=SILENT, classes=[0, 1], penalty=0.05, **asked).fit(few, labels)
    theirs = linear_model.LogisticRegression(C=1 / (0.05 * 300), tol=1e-8).fit(few, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=3e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=3e-3)
    without = LogisticRegression(**BUDGET, site=SILENT, classes=[0, 1], **asked).fit(few, labels)
    assert np.abs(without.coef_ - theirs.coef_).max() > 0.1
    with pytest.raises(InputError, match="penalty is for rounds"):
        LogisticRegression(**CLEAR, classes=[0, 1], penalty=0.05).fit(few, labels, groups=GROUPS[:300])


@pytest.mark.slow
def test_more_than_two_classes_are_those_of_scikit_learn() -> None:
    few, names = X[:300], ["low", "middle", "high"]
    labels = np.array(names)[np.digitize(Y[:300] + RNG.logistic(size=300), [-1.0, 1.0])]
    asked: dict[str, Any] = {"classes": names, "rounds": 200, "clip": 4.0, "learning_rate": 7.0, "momentum": 0.9, "parties": 4}
    ours = LogisticRegression(bounds=BOUNDS, **BUDGET, site=SILENT, **asked).fit(few, labels)
    theirs = linear_model.LogisticRegression(C=1e8, tol=1e-8).fit(few, labels)
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    np.testing.assert_allclose(ours.predict_proba(few), theirs.predict_proba(few), atol=5e-3)
    assert (ours.predict(few) == theirs.predict(few)).mean() > 0.99


def test_components_and_scales_are_those_of_scikit_learn() -> None:
    ours, theirs = PCA(**CLEAR).fit(X, groups=GROUPS), decomposition.PCA().fit(X)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, atol=2e-3)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, atol=2e-3)
    signs = np.sign((ours.components_ * theirs.components_).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(ours.components_ * signs, theirs.components_, atol=5e-3)
    np.testing.assert_allclose(ours.transform(X) * signs.T, theirs.transform(X), atol=0.03)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X, atol=1e-6)
    scaler, reference = StandardScaler(**CLEAR).fit(X, groups=GROUPS), preprocessing.StandardScaler().fit(X)
    np.testing.assert_allclose(scaler.mean_, reference.mean_, atol=1e-3)
    np.testing.assert_allclose(scaler.var_, reference.var_ * len(X) / (len(X) - 1), atol=2e-3)
    np.testing.assert_allclose(scaler.transform(X), reference.transform(X), atol=5e-3)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, atol=1e-9)


@pytest.mark.parametrize("unit", ["record", "party"])
def test_clusters_are_those_of_scikit_learn(unit: str) -> None:
    places = np.array([[-4.0, 1.0], [3.0, 3.0], [1.0, -4.0]])
    rows = places[np.arange(900) % 3] + RNG.normal(size=(900, 2)) * 0.4
    asked: dict[str, Any] = {**BUDGET, "epsilon": 30.0, "parties": 60, "unit": unit, "site": SILENT}
    ours = KMeans(n_clusters=3, init=places + 0.5, bounds=BOUNDS, **asked).fit(rows)
    theirs = cluster.KMeans(3, init=places + 0.5, n_init=1).fit(rows)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=1e-3)
    assert ours.predict(rows).tolist() == theirs.labels_.tolist() == ours.fit_predict(rows).tolist()
    np.testing.assert_allclose(ours.counts_, np.full(3, 1 / 3), atol=1e-3)
    # A centre is the ratio of a sum and a count, both with noise: of most, that of the sum.
    least = ours.sum_standard_error_ / ours.counts_[:, None]
    assert (ours.cluster_centers_standard_error_ >= least * (1 - 1e-9)).all()
    moved = ours.counts_standard_error_ * np.abs(ours.cluster_centers_) / ours.counts_[:, None]
    np.testing.assert_allclose(ours.cluster_centers_standard_error_, np.sqrt(least**2 + moved**2), rtol=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_rounds_of_whole_parties_average_what_each_makes_by_itself(penalty: float) -> None:
    asked: dict[str, Any] = {
        "classes": [0, 1],
        "penalty": penalty,
        "rounds": 2,
        "clip": 100.0,
        "local_steps": 3,
        "local_rate": 2.0,
        "bounds": (-1.0, 1.0),
    }
    inside = np.clip(X, -1, 1)
    found = LogisticRegression(**asked, **BUDGET, unit="party", site=SILENT).fit(inside, LABELS, groups=GROUPS)
    model = np.zeros(4)
    for _ in range(2):
        trained = []
        for rows, labels in by_party(np.column_stack([inside, np.ones(len(X))]), LABELS):
            own = model.copy()
            for _ in range(3):
                shrunk = penalty * np.array([*own[:3], 0.0])
                own -= 2.0 * (rows.T @ (1 / (1 + np.exp(-rows @ own)) - labels) / len(rows) + shrunk)
            trained.append(own)
        model = np.mean(trained, axis=0)
    np.testing.assert_allclose([*found.coef_[0], *found.intercept_], model, atol=1e-3)


def test_a_list_of_parties_and_labels_of_rows_are_the_same() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (LinearRegression(**CLEAR, y_bounds=Y_BOUNDS), by_party(X, Y), Y),
        (LogisticRegression(**CLEAR, classes=[0, 1]), by_party(X, LABELS), LABELS),
        (PCA(**CLEAR), by_party(X), None),
        (StandardScaler(**CLEAR), by_party(X), None),
    ]
    for estimator, listed, outcome in cases:
        one, other = clone(estimator).fit(listed), clone(estimator).fit(X, outcome, groups=GROUPS)
        name = next(name for name in ("coef_", "components_", "mean_") if hasattr(one, name))
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-6)
        assert len(one.certificate_.executions[0].weights) == 4


# -- what it costs, and the noise that is stated ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_noise_is_as_stated_and_half_of_it_is_found_out() -> None:
    """A mean of a scaler over many fits: its error against what it states. Half the noise is rejected."""
    quarter = X[:200]
    truth = StandardScaler(**CLEAR, parties=4).fit(quarter).mean_

    def ratios(engine: MemoryEngine) -> Array:
        fitted = [StandardScaler(bounds=BOUNDS, parties=4, site=InOneProcess(engine), **BUDGET).fit(quarter) for _ in range(40)]
        return np.concatenate([(one.mean_ - truth) / one.mean_standard_error_ for one in fitted])

    def is_as_stated(found: Array) -> bool:
        # 120 normal numbers of variance 1: the sum of squares, four standard deviations.
        return bool(abs(float((found**2).mean()) - 1) < 4 * math.sqrt(2 / len(found)))

    assert is_as_stated(ratios(MemoryEngine()))
    assert not is_as_stated(ratios(MemoryEngine(halved)))


@pytest.mark.slow
def test_the_noise_of_a_round_is_as_stated_and_half_of_it_is_found_out() -> None:
    """Clusters of which nothing moves the sums but noise: their counts over many rounds."""
    centres = np.array([[-5.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    rows = np.tile(centres, (50, 1))

    def variance(engine: MemoryEngine) -> float:
        asked: dict[str, Any] = {
            "n_clusters": 2,
            "init": centres,
            "rounds": 1,
            "bounds": BOUNDS,
            "parties": 4,
            "site": InOneProcess(engine),
        }
        fitted = [KMeans(**asked, **BUDGET).fit(rows) for _ in range(90)]
        return float(np.mean([((one.counts_ - 0.5) / one.counts_standard_error_) ** 2 for one in fitted]))

    allowed = 4 * math.sqrt(2 / 180)
    assert abs(variance(MemoryEngine()) - 1) < allowed
    assert not abs(variance(MemoryEngine(halved)) - 1) < allowed


def test_a_fit_costs_its_budget_at_most_and_says_for_whom() -> None:
    fitted: list[Any] = [
        LinearRegression(bounds=BOUNDS, **BUDGET, y_bounds=Y_BOUNDS).fit(X, Y, groups=GROUPS),
        LogisticRegression(bounds=BOUNDS, **BUDGET, classes=[0, 1], rounds=5).fit(X, LABELS, groups=GROUPS),
        KMeans(bounds=BOUNDS, **BUDGET, unit="party").fit(X, groups=GROUPS),
    ]
    for one, releases in zip(fitted, (1, 5, 5), strict=True):
        certificate = one.certificate_
        assert one.epsilon_ == certificate.epsilon <= 8.0 < one.epsilon_ * 1.05
        assert one.delta_ == certificate.delta == 1e-6
        assert (str(certificate.unit), certificate.neighbouring) == (one.unit, "replacement")
        assert len(certificate.executions) == releases == certificate.to_json()["releases"]
        by_itself = certificate.of_release(0)
        assert by_itself.max_epsilon <= 8.0
        if releases == 1:
            assert by_itself.max_epsilon == pytest.approx(one.epsilon_, rel=1e-6)


def test_a_session_is_over_after_its_rounds_and_may_begin_where_one_shot_ended() -> None:
    estimator = LogisticRegression(bounds=BOUNDS, **BUDGET, classes=[0, 1], rounds=3)
    costs = [estimator.partial_fit(X, LABELS, groups=GROUPS).epsilon_ for _ in range(3)]
    assert costs == sorted(costs)
    assert costs[-1] <= 8.0 < costs[-1] * 1.05
    with pytest.raises(InputError, match="3 rounds are over"):
        estimator.partial_fit(X, LABELS, groups=GROUPS)
    assert estimator.n_iter_ == 3
    moving = KMeans(bounds=BOUNDS, **BUDGET, rounds=2, parties=3)
    assert [moving.partial_fit(X).n_iter_ for _ in range(2)] == [1, 2]

    first = LogisticRegression(**CLEAR | {"epsilon": 3.0}, classes=[0, 1], warm_start=True).fit(X, LABELS, groups=GROUPS)
    one_shot, spent = first.coef_.copy(), first.certificate_.charge.mu
    first.set_params(rounds=1, learning_rate=1e-9).fit(X, LABELS, groups=GROUPS)
    np.testing.assert_allclose(first.coef_, one_shot, rtol=1e-6)
    again = LogisticRegression(**CLEAR | {"epsilon": 3.0}, classes=[0, 1], rounds=1).fit(X, LABELS, groups=GROUPS)
    assert first.certificate_.charge.mu == pytest.approx(math.hypot(spent, again.certificate_.charge.mu))
    assert len(first.certificate_.executions) == 2


def test_standard_errors_are_those_of_the_statistic() -> None:
    found = LinearRegression(bounds=BOUNDS, **BUDGET, y_bounds=Y_BOUNDS).fit(X, Y, groups=GROUPS)
    (estimates,) = found.estimates_
    assert [found.intercept_standard_error_, *found.coef_standard_error_] == estimates.standard_error.tolist()
    assert estimates.of_population is not None


def test_how_many_records_a_party_has_is_told_only_where_records_are_the_unit() -> None:
    seen = [StandardScaler(**CLEAR, unit=unit).fit(X, groups=GROUPS).n_samples_seen_ for unit in ("record", "party")]
    assert seen == [1200, 4]


# -- with scikit-learn's tools ---------------------------------------------------------------------------------------------------


def test_pipelines_copies_and_model_selection() -> None:
    estimator = LinearRegression(**CLEAR, y_bounds=Y_BOUNDS, parties=4)
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()
    assert cross_val_score(estimator, X, Y, cv=3).min() > 0.9
    grouped = clone(estimator).set_params(parties=None)
    assert cross_val_score(grouped, X, Y, cv=3, params={"groups": GROUPS}).min() > 0.9
    piped = make_pipeline(StandardScaler(**CLEAR), grouped.set_params(bounds=(-8.0, 8.0)))
    piped.fit(X, Y, standardscaler__groups=GROUPS, linearregression__groups=GROUPS)
    assert piped.score(X, Y) > 0.9


@pytest.mark.slow
def test_labels_of_parties_are_routed() -> None:
    """In another process: the setting is one of the whole process."""
    script = """
import numpy as np, warnings, sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold
from quietmean.learning import LogisticRegression
sklearn.set_config(enable_metadata_routing=True)
warnings.simplefilter("ignore")
rng = np.random.default_rng(1)
X = rng.normal(size=(300, 2)); y = (X[:, 0] > 0).astype(int); groups = np.arange(300) % 3
asked = dict(bounds=(-5, 5), epsilon=8.0, delta=1e-5, classes=[0, 1], protocol="cordp-dme", rounds=2)
estimator = LogisticRegression(**asked).set_fit_request(groups=True)
found = GridSearchCV(estimator, {"learning_rate": [1.0, 4.0]}, cv=2).fit(X, y, groups=groups)
print(found.best_estimator_.certificate_.executions[0].weights.tolist())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "[100.0, 100.0, 100.0]"


# -- what is refused -------------------------------------------------------------------------------------------------------------

ALL: dict[type, dict[str, Any]] = {
    LinearRegression: {"y_bounds": Y_BOUNDS},
    LogisticRegression: {"classes": [0, 1]},
    PCA: {},
    StandardScaler: {},
    KMeans: {},
}


def fit(estimator: Any, **more: Any) -> Any:
    if isinstance(estimator, LinearRegression):
        return estimator.fit(X, Y, **more)
    return estimator.fit(X, LABELS, **more) if isinstance(estimator, LogisticRegression) else estimator.fit(X, **more)


WRONG: dict[str, dict[str, Any]] = {
    "bounds is not given": {"bounds": None},
    "Give one": {"bounds": [(0, 1), (0, 1)]},
    "low < high": {"bounds": (1, 1)},
    "finite numbers": {"bounds": (0, math.inf)},
    "epsilon is not given": {"epsilon": None},
    "delta is not given": {"delta": None},
    "epsilon is -1": {"epsilon": -1.0},
    "delta is 2": {"delta": 2.0},
    "unit": {"unit": "recrod"},
    "Give at least 2 parties": {"parties": 1},
    "who holds which rows": {"parties": None},
    "cannot be dealt out": {"parties": 5000},
    "parties is 2.5": {"parties": 2.5},
    "protocol": {"protocol": "packed-shering"},
    "epsilon is nan": {"epsilon": math.nan},
    "colluding is 0.5": {"colluding": 0.5},
    "dropouts is 'few'": {"dropouts": "few"},
    "options is 5": {"options": 5},
    "site is 'mine'": {"site": "mine"},
}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_what_cannot_be_asked_is_refused_in_one_sentence_before_anything_is_spent(kind: type) -> None:
    asked: dict[str, Any] = {"bounds": BOUNDS, "epsilon": 8.0, "delta": 1e-6, "parties": 4, "protocol": "cordp-dme"}
    for text, wrong in WRONG.items():
        changed: dict[str, Any] = asked | ALL[kind] | wrong
        estimator = kind(**changed)
        with pytest.raises(InputError, match=text) as caught:
            fit(estimator)
        assert isinstance(caught.value, ValueError), text
        assert "\n" not in str(caught.value), text
        assert not hasattr(estimator, "certificate_")
    with pytest.raises(InputError, match="3 groups for 1,200 rows"):
        fit(kind(**asked, **ALL[kind]), groups=[0, 1, 2])
    with pytest.raises(InputError, match="has no party"):
        fit(kind(**asked, **ALL[kind]), groups=[None, *GROUPS[1:]])


def test_labels_bounds_of_outcomes_and_numbers_are_public() -> None:
    clear = {**CLEAR, "parties": 4}
    rounds: dict[str, Any] = {"classes": [0, 1], "rounds": 2}
    mixed: Any = [0, "1"]
    refused: list[tuple[Any, str]] = [
        (LinearRegression(**clear), "y_bounds is not given"),
        (LogisticRegression(**clear), "classes is not given"),
        (LogisticRegression(**clear, classes=[1, 1]), "different labels"),
        (LogisticRegression(**clear, classes=[0, 1, 2]), "Choose rounds"),
        (LogisticRegression(**clear, classes=mixed), "texts and numbers"),
        (LogisticRegression(**clear, **rounds | {"clip": "1"}), "clip is '1'"),
        (LogisticRegression(**clear, **rounds | {"momentum": None}), "momentum is None"),
        (LogisticRegression(**clear, classes=[0, 1], rounds=2, unit="party", local_rate=0), "local_rate is 0"),
        (LogisticRegression(**clear, classes=[0, 1], rounds=-1), "rounds is -1"),
        (LogisticRegression(**BUDGET, bounds=BOUNDS, parties=4, classes=[0, 1], rounds=2, clip=0), "clip"),
        (LogisticRegression(**clear, **rounds, solver="newtn"), "did you mean 'newton'"),
        (LogisticRegression(**clear, classes=[0, 1], solver="newton"), "Choose rounds=6"),
        (LogisticRegression(**clear, **rounds, solver="newton", unit="party"), "leave unit out"),
        (LogisticRegression(**clear, **rounds, solver="newton", penalty=0.1), "penalty is for rounds of gradients"),
        (LogisticRegression(**clear, classes=[0, 1, 2], rounds=2, solver="newton"), "are for two classes"),
        (PCA(**clear, n_components=4), "n_components is 4"),
        (KMeans(**clear, n_clusters=0), "n_clusters is 0"),
        (KMeans(**clear, init="kmeans"), "init is 'kmeans'"),
        (KMeans(**clear, n_clusters=2, init=[[0, 0, 0]]), "2 centres of 3"),
        (KMeans(**clear, n_clusters=1, init=[["a", "b", "c"]]), "1 centres of 3"),
    ]
    for estimator, text in refused:
        with pytest.raises(InputError, match=text):
            fit(estimator)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_keyword_is_known_or_refused_with_the_nearest(kind: Any) -> None:
    names = list(kind().get_params())
    for name in names:
        for wrong in (name[:-1] + "zz", name + "s_", "x" + name, name.upper()):
            if wrong in names:
                continue
            with pytest.raises(InputError, match="has no keyword"):
                kind(**{wrong: 1})
            with pytest.raises(InputError, match="has no parameter"):
                kind().set_params(**{wrong: 1})
    with pytest.raises(InputError, match="did you mean 'epsilon'"):
        kind(epsilom=1.0)
    with pytest.raises(InputError, match="did you mean 'groups'"):
        fit(kind(), group=GROUPS)


def test_texts_are_refused_and_not_quoted() -> None:
    secret = X.astype(object)
    secret[3, 1] = "Miller"
    with pytest.raises(InputError, match="holds texts") as caught:
        StandardScaler(**CLEAR, parties=3).fit(secret)
    assert "Miller" not in str(caught.value)


def test_what_lies_beyond_its_bounds_or_is_missing_stops_nothing_and_is_told_to_its_owner() -> None:
    rows = X[:400].copy()
    rows[5], rows[7, 0], rows[8, 0], rows[9, 0] = math.nan, 1e300, math.inf, -math.inf
    clamped = np.clip(np.nan_to_num(rows, nan=0.0, posinf=6.0, neginf=-6.0), -6, 6)
    labels = LABELS[:400].copy()
    labels[0] = 9
    asked: dict[str, Any] = {"classes": [0, 1], "rounds": 3, "parties": 2, "site": SILENT}
    with pytest.warns(UserWarning, match="for you only") as told:
        found = LogisticRegression(bounds=BOUNDS, **BUDGET, **asked).fit(rows, labels)
    assert {"1 row " in str(warning.message) for warning in told} == {True, False}
    # A row with a missing value counts as nothing, as one with another label does.
    labels[5] = 9
    with pytest.warns(UserWarning, match="for you only"):
        same = LogisticRegression(bounds=BOUNDS, **BUDGET, **asked).fit(clamped, labels)
    np.testing.assert_allclose(found.coef_, same.coef_, atol=1e-9)
    with pytest.warns(UserWarning, match="values lie outside their bounds"):
        scaler = StandardScaler(**CLEAR, parties=2).fit(rows)
    np.testing.assert_allclose(scaler.mean_, clamped.mean(axis=0), atol=0.01)


@pytest.mark.slow
def test_where_noise_hides_everything_nothing_is_used() -> None:
    scarce: dict[str, Any] = {"bounds": (-1e4, 1e4), "epsilon": 0.1, "delta": 1e-6, "protocol": "cordp-dme", "parties": 2}
    with pytest.raises(InputError, match="accept_wide=True"):
        PCA(**scarce).fit(X)
    found = PCA(**scarce, accept_wide=True)
    with pytest.warns(UserWarning, match="noise"):
        found.fit(X)
    assert found.epsilon_ <= 0.1
    with pytest.raises(InputError, match="noise hides"):
        found.transform(X)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    script = """
import sys
import quietmean as qm
assert "PCA" in dir(qm.learning) and "sklearn" not in sys.modules
qm.learning.ModelAveraging
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None
try:
    qm.learning.PCA
except qm.InputError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == (
        "the estimator PCA needs the extra 'sklearn', which is not installed. Run pip install \"scikit-learn>=1.6\"."
    )
    assert qm.learning.LinearRegression is LinearRegression


def test_what_has_no_errors_says_so() -> None:
    """A softmax, whole parties and rounds of gradients: NaN with a reason, and nothing that an earlier fit left."""
    ours = LogisticRegression(bounds=BOUNDS, classes=[0, 1], epsilon=30, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours.fit(X, LABELS, GROUPS)
        assert np.isfinite(ours.coef_standard_error_).all()
        assert ours.no_errors_ == ""
        assert "one-shot approximation" in ours.no_intervals_
        for more in ({"solver": "newton"}, {}, {"unit": "party"}, {"unit": "record", "classes": [0, 1, 2]}):
            ours.set_params(**{"epsilon": 8, "rounds": 3, "solver": "gradient", **more}).fit(X, LABELS, GROUPS)
            errors, intervals = ours.coef_standard_error_, ours.coef_interval_
            assert (errors.shape, intervals.shape) == (ours.coef_.shape, (*ours.coef_.shape, 2))
            if more == {"solver": "newton"}:
                assert (ours.no_errors_, ours.no_intervals_) == ("", "")
                continue
            assert np.isnan(np.concatenate([errors.ravel(), intervals.ravel(), ours.intercept_interval_.ravel()])).all()
            assert "newton" in ours.no_errors_
            assert ours.no_errors_ == ours.no_intervals_
        linear = LinearRegression(bounds=BOUNDS, y_bounds=Y_BOUNDS, epsilon=30, delta=1e-5).fit(X, Y, GROUPS)
        assert np.isfinite(linear.coef_interval_).all()
        linear.set_params(epsilon=8, unit="party", accept_wide=True).fit(X, Y, GROUPS)
    assert np.isnan(linear.coef_interval_).all()
    assert np.isnan(linear.intercept_interval_).all()
    assert linear.no_intervals_
