"""The figures of CorDP-DME: their numbers against the paper's and against by-hand ones, with tiny sizes.

Simulated errors are compared with formulae within 5 standard errors (fixed seeds; less than one false alarm in a million each).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from quietmean.privacy import mu_of_budget
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean_reproduction.cordp_dme import FIGURES, geometry, responders, table, tradeoff
from quietmean_reproduction.cordp_dme.priv_unit import measured_priv_unit
from quietmean_reproduction.cordp_dme.setting import REPLACEMENT, TABLE_II, design_for, local_design, measure
from quietmean_reproduction.figure import Effort
from quietmean_reproduction.sweeps.task import Task
from support.paper_figures import by_text, drawn_size, frame, require_registered


def table_rows(runs: int) -> pl.DataFrame:
    points = [
        table.measured(seed=3, column=column, responding=responding, colluding=colluding, convention=convention, runs=runs)
        for convention in table.CONVENTIONS
        for column, responding, colluding in table.COLUMNS
    ]
    return frame(table.formulae(seed=0), *points)


def test_they_are_registered() -> None:
    require_registered(tuple(FIGURES), ["cordp-dme-table-2", "cordp-dme-1", "cordp-dme-3", "cordp-dme-4", "cordp-dme-6"])
    for figure in FIGURES:
        quick = figure.tasks(Effort.QUICK)
        assert len({task.label + task.name for task in quick}) == len(quick)


def test_table_2() -> None:
    rows = table_rows(runs=300)
    claims = table.claims(rows)
    stated = [claim for claim in claims if claim.text.startswith("Table II")]
    assert len(stated) == 4 * 5
    assert all(claim.agrees for claim in stated)
    true = by_text(claims)["the noise of Table II gives epsilon = 2 under replacement in the unit ball"]
    assert true.agrees is False
    assert true.ours == pytest.approx(4.39, abs=5e-3)
    assert true.ours == pytest.approx(epsilon_of_mu(2 * mu_of_budget(2.0, 1e-5), 1e-5))
    assert claims[-1].agrees
    assert drawn_size(table.FIGURE, rows) == 2


def test_table_2_at_its_own_sensitivity_and_at_2() -> None:
    rows = table_rows(runs=20).filter(kind="formula")
    one, two = (rows.filter(convention=convention) for convention in ("table-ii", "replacement"))
    np.testing.assert_allclose(two["unbiased"].to_numpy(), 4 * one["unbiased"].to_numpy())
    np.testing.assert_allclose(one["unbiased_shipped"].to_numpy()[:2], 1.008 * one["unbiased"].to_numpy()[:2])
    np.testing.assert_allclose(two["epsilon_on_ball"].to_numpy(), 2.0, atol=1e-6)


def test_a_wrong_table_is_noticed() -> None:
    rows = table_rows(runs=300).with_columns(unbiased=pl.col("unbiased") * 1.5)
    claims = by_text(table.claims(rows))
    assert claims["Table II, t=8 c=2: unbiased MSE"].agrees is False
    assert claims["runs of the protocol have the error of the formula"].agrees is False


@pytest.mark.parametrize("sensitivity", [REPLACEMENT, TABLE_II])
def test_measured_errors(sensitivity: float) -> None:
    design = design_for(20, 15, 3, 2.0, sensitivity)
    errors = measure(design, 15, 4, 2000, seed=7).row()
    assert errors["unbiased"] == pytest.approx(design.mse(4), abs=5 * errors["unbiased_standard_error"])
    assert errors["biased"] == pytest.approx(design.mse_biased(4, 1.0), abs=5 * errors["biased_standard_error"])
    # Noise that does not cancel as planned is noticed.
    wrong = replace(design, pair=design.pair * 1.3)
    assert abs(errors["unbiased"] - wrong.mse(4)) > 5 * errors["unbiased_standard_error"]
    # The same seed, the same numbers.
    assert measure(design, 15, 4, 2000, seed=7).row() == errors
    assert measure(design, 15, 4, 2000, seed=8).row() != errors


def test_local_design() -> None:
    design = local_design(10, 8, 3.0)
    assert (design.mse(5), design.pair) == (5 * 3.0 / 8, 0.0)


def test_figure_1() -> None:
    points = [(responders.REOPTIMISED, 60), ("planned for 90", 80), (responders.LOCAL, 10)]
    rows = frame(
        *(responders.formulae(seed=0, sensitivity=sensitivity) for sensitivity in (REPLACEMENT, TABLE_II)),
        *(responders.measured(seed=5, series=series, responding=responding, runs=40) for series, responding in points),
    )
    claims = responders.claims(rows)
    assert [claim.agrees for claim in claims] == [True, True, True, None, None, True]
    # v + b against s: with one missing user the design for everybody is worse than local DP.
    assert "1.26 times the error of local DP" in claims[3].why
    assert "for 100 with 100 or more" in claims[3].why
    assert drawn_size(responders.FIGURE, rows) == 2


@pytest.mark.slow
def test_figure_6() -> None:
    cases = [(responding, colluding) for responding in tradeoff.RESPONDING for colluding in tradeoff.COLLUDING]
    rows = frame(
        tradeoff.formulae(seed=0, points=3),
        tradeoff.crossings(seed=0, epsilons=[2.0]),
        *(tradeoff.measured(seed=1, responding=t, colluding=c, epsilons=[2.0], runs=20) for t, c in cases),
        *(measured_priv_unit(seed=2, responding=t, epsilon=2.0, runs=20, dimension=20) for t in tradeoff.RESPONDING),
    )
    claims = by_text(tradeoff.claims(rows))
    assert claims["PrivUnitG at n = 100, d = 20, epsilon = 2"].ours == pytest.approx(0.3232, abs=5e-5)
    assert claims["CorDP-DME (unbiased) outperforms PrivUnitG in all cases: at sensitivity 1"].agrees
    assert claims["CorDP-DME (unbiased) outperforms PrivUnitG in all cases: at sensitivity 2"].agrees is False
    text = "how many must respond for unbiased CorDP-DME at sensitivity 2 to beat PrivUnitG (epsilon = 2, c = 0)"
    assert claims[text].ours == 96
    assert "c = 20: from t = 97" in claims[text].why
    assert claims["with dropouts its error lies between those of central and local DP"].agrees
    assert claims["runs have the error of the formulae"].agrees
    assert drawn_size(tradeoff.FIGURE, rows) == 9


def geometry_rows(tasks: list[Task], runs: int) -> pl.DataFrame:
    """The rows of a figure of vectors, of so many coordinates."""
    formula, *points = tasks
    return frame(
        geometry.formulae(seed=0, **formula.parameters),
        *(geometry.measured(seed=place, **{**one.parameters, "runs": runs}) for place, one in enumerate(points)),
    )


def test_figures_3_and_4() -> None:
    """By hand: at correlation rho the squared sum is 2 / (1 - rho), the variance 1 / (1 - rho^2)."""
    for figure in (geometry.FIGURE_3, geometry.FIGURE_4):
        rows = geometry_rows(list(figure.tasks(Effort.QUICK)), 20_000)
        claims = list(figure.claims(rows))
        assert all(claim.agrees for claim in claims), [claim for claim in claims if not claim.agrees]
        assert drawn_size(figure, rows) >= 3
    expected = {90: 2.0, 120: 1.333, 150: 1.072, 170: 1.008, 179: 1.0001}
    formula = rows.filter(kind="formula")
    found = dict(zip(geometry.ANGLES, formula["sum"], strict=True))
    assert {angle: found[angle] for angle in expected} == pytest.approx(expected, rel=1e-3)


def test_vectors_of_another_length_are_noticed() -> None:
    """A variance that is 10 % too small: neither privacy nor lengths are those of the figure."""
    rows = geometry_rows(list(geometry.signs(Effort.QUICK)), 20_000)
    less = rows.with_columns(
        *(
            pl.when(pl.col("kind") == "measured").then(pl.col(name) * 0.9).otherwise(pl.col(name)).alias(name)
            for name in ("variance", "sum")
        ),
        (pl.col("mu_ratio") / 0.9**0.5).alias("mu_ratio"),
    )
    verdicts = {text: claim.agrees for text, claim in by_text(list(geometry.FIGURE_3.claims(less))).items()}
    assert verdicts["messages of the protocol have these lengths"] is False
    assert verdicts["the orthogonal component decides the privacy: it is the same in all"] is False
