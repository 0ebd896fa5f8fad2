"""Models by rounds without noise on real data, against their reference libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from quietmean.learning import GeneralizedLinearModel, ProportionalHazards
from quietmean.statistics import Column
from support.model_rounds import fitted

pytestmark = pytest.mark.slow

Array = NDArray[np.float64]
BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6}


def test_logistic_on_fair() -> None:
    """Extramarital affairs, 6366 women (statsmodels)."""
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    table = sm.datasets.fair.load_pandas().data
    table["affair"] = (table["affairs"] > 0).astype(float)
    columns = [
        Column(name="affair", boolean=True),
        Column(name="age", low=17, high=42),
        Column(name="children", low=0, high=5.5),
        Column(name="religious", low=1, high=4),
    ]
    formula = "affair ~ poly(age, 2) + children * religious"
    records = table[[column.name for column in columns]].to_numpy(dtype=float)
    model = GeneralizedLinearModel(formula, columns, rounds=15, **BUDGET)
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    # The same space of terms, whatever basis a polynomial has.
    exact = smf.logit("affair ~ age + I(age ** 2) + children * religious", table).fit(disp=0, cov_type="HC0", tol=1e-12)
    for name in ("children", "religious", "children:religious"):
        place = answer.terms.index(name)
        assert answer.value[place] == pytest.approx(exact.params[name], rel=1e-4)
        assert answer.population is not None
        assert answer.population[place] == pytest.approx(exact.bse[name], rel=1e-3)


def test_counts_on_randhie() -> None:
    """Visits to physicians, 20,190 of the RAND health insurance experiment (statsmodels), far from Poisson."""
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    table = sm.datasets.randhie.load_pandas().data
    columns = [
        Column(name="mdvis", low=0, high=80),
        Column(name="lncoins", low=0, high=5),
        Column(name="physlm", low=0, high=1),
        Column(name="disea", low=0, high=60),
    ]
    records = table[[column.name for column in columns]].to_numpy(dtype=float)
    model = GeneralizedLinearModel("mdvis ~ lncoins + physlm + disea", columns, family="poisson", rounds=20, **BUDGET)
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    exact = smf.poisson("mdvis ~ lncoins + physlm + disea", table).fit(disp=0, cov_type="HC0", tol=1e-12)
    np.testing.assert_allclose(answer.value, exact.params, rtol=1e-4)
    assert answer.population is not None
    np.testing.assert_allclose(answer.population, exact.bse, rtol=1e-3)


def real(name: str) -> tuple[Array, Array, dict[str, tuple[float, float]]]:
    """Two covariates with an intercept, (N, 3); a truth value, a count and a positive number, (N, 3); bounds of all but truth."""
    import statsmodels.api as sm
    from lifelines.datasets import load_rossi

    if name == "fair":
        table = sm.datasets.fair.load_pandas().data
        given, outcomes = table[["age", "religious"]], [table["affairs"] > 0, table["children"].round(), table["yrs_married"]]
    elif name == "randhie":
        table = sm.datasets.randhie.load_pandas().data
        given, outcomes = table[["lncoins", "physlm"]], [table["mdvis"] > 0, table["mdvis"], table["disea"] + 1]
    else:
        table = load_rossi()
        given, outcomes = table[["age", "fin"]], [table["arrest"], table["prio"], table["week"]]
    columns = {"a": given.iloc[:, 0], "b": given.iloc[:, 1], "count": outcomes[1], "positive": outcomes[2]}
    bounds = {one: (float(min(values.min(), 0)), float(values.max())) for one, values in columns.items()}
    return sm.add_constant(given.to_numpy(float)), np.column_stack(outcomes).astype(float), bounds


@pytest.mark.parametrize("family", ["binomial", "poisson", "negative-binomial", "gamma"])
@pytest.mark.parametrize("name", ["fair", "randhie", "rossi"])
def test_families_are_those_of_statsmodels(name: str, family: str) -> None:
    """Coefficients, and errors from the observed information and the squares of the scores."""
    import statsmodels.api as sm

    design, outcomes, bounds = real(name)
    place, outcome = {"binomial": (0, "truth"), "gamma": (2, "positive")}.get(family, (1, "count"))
    columns = [Column(name=one, low=bounds[one][0], high=bounds[one][1]) for one in "ab"]
    low, high = bounds.get(outcome, (0.0, 1.0))
    columns.append(Column(name=outcome, boolean=True) if outcome == "truth" else Column(name=outcome, low=low, high=high))
    model = GeneralizedLinearModel(f"{outcome} ~ a + b", columns, family=family, rounds=25, **BUDGET)
    records = np.column_stack([design[:, 1:], outcomes[:, place]])
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    kinds = {
        "binomial": sm.families.Binomial(),
        "poisson": sm.families.Poisson(),
        "negative-binomial": sm.families.NegativeBinomial(alpha=1.0),
        "gamma": sm.families.Gamma(sm.families.links.Log()),
    }
    theirs = sm.GLM(outcomes[:, place], design, family=kinds[family])
    exact = theirs.fit(tol=1e-12, maxiter=200).params
    np.testing.assert_allclose(answer.value, exact, rtol=1e-3, atol=1e-6)
    scores = theirs.score_obs(exact, scale=1.0)
    inverse = np.linalg.inv(theirs.hessian(exact, observed=True, scale=1.0))
    errors = np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse))
    assert answer.population is not None
    np.testing.assert_allclose(answer.population, errors, rtol=6e-3)
    assert not answer.flags


@pytest.mark.parametrize("name", ["GBSG2", "lung", "rossi"])
def test_grouped_hazards_are_near_those_of_cox(name: str) -> None:
    from lifelines import CoxPHFitter
    from lifelines.datasets import load_gbsg2, load_lung, load_rossi

    if name == "GBSG2":
        table = load_gbsg2()
        time, event, high = table["time"], table["cens"], 2700.0
        number, yes = table["pnodes"].clip(upper=20), table["horTh"] == "yes"
    elif name == "lung":
        table = load_lung()
        time, event, high = table["time"], table["status"] == table["status"].max(), 1080.0
        number, yes = table["age"], table["sex"] == table["sex"].max()
    else:
        table = load_rossi()
        time, event, high = table["week"], table["arrest"], 52.0
        number, yes = table["prio"], table["fin"]
    columns = (
        Column(name="time", low=0, high=high),
        Column(name="event", boolean=True),
        Column(name="number", low=0, high=float(number.max())),
        Column(name="yes", boolean=True),
    )
    records = np.column_stack([time, event, number, yes]).astype(float)
    edges = np.linspace(0, high, 19)
    model = ProportionalHazards("~ number + yes", columns, time="time", event="event", edges=edges.tolist(), rounds=20, **BUDGET)
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    cox = CoxPHFitter().fit(pd.DataFrame(records, columns=["time", "event", "number", "yes"]), "time", "event")
    for term in ("number", "yes"):
        place = answer.terms.index(term)
        assert answer.value[place] == pytest.approx(cox.params_[term], abs=0.1 * cox.standard_errors_[term])
