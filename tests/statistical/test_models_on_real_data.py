"""Models by rounds without noise on real data, against their reference libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quietmean.learning import GeneralizedLinearModel, ProportionalHazards
from quietmean.statistics import Column
from support.model_rounds import fitted

pytestmark = pytest.mark.slow

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
    model = GeneralizedLinearModel(
        "mdvis ~ lncoins + physlm + disea", columns, family="poisson", residual=400, rounds=15, **BUDGET
    )
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    exact = smf.poisson("mdvis ~ lncoins + physlm + disea", table).fit(disp=0, cov_type="HC0", tol=1e-12)
    np.testing.assert_allclose(answer.value, exact.params, rtol=1e-4)
    assert answer.population is not None
    np.testing.assert_allclose(answer.population, exact.bse, rtol=1e-3)


def test_grouped_hazards_are_near_those_of_cox() -> None:
    from lifelines import CoxPHFitter
    from lifelines.datasets import load_gbsg2

    table = load_gbsg2()
    columns = (
        Column(name="time", low=0, high=2700),
        Column(name="cens", boolean=True),
        Column(name="pnodes", low=1, high=20),
        Column(name="horTh", boolean=True),
    )
    records = np.column_stack([table["time"], table["cens"], table["pnodes"].clip(upper=20), (table["horTh"] == "yes")]).astype(
        float
    )
    edges = np.linspace(0, 2700, 19)
    model = ProportionalHazards(
        "~ pnodes + horTh", columns, time="time", event="cens", edges=edges.tolist(), residual=6, rounds=20, **BUDGET
    )
    answer = fitted(model, [records[::2], records[1::2]]).coefficients
    cox = CoxPHFitter().fit(
        table.assign(pnodes=records[:, 2], horTh=records[:, 3])[["time", "cens", "pnodes", "horTh"]], "time", "cens"
    )
    for name in ("pnodes", "horTh"):
        place = answer.terms.index(name)
        assert answer.value[place] == pytest.approx(cox.params_[name], abs=0.1 * cox.standard_errors_[name])
