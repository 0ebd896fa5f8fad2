"""Verdicts of figures that take long, on rows that are made up: each is that of its interval."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from quietmean_reproduction.inca import accounts, costs, dropouts, preconditions, rounds


def sizes(noise: float) -> pl.DataFrame:
    """Times and bytes that cross where the paper says, with ten repeats that differ by ``noise`` in the logarithm."""
    draws, rows = np.random.default_rng(1), []
    places = [(200, 10**power) for power in range(7)] + [(parties, 1000) for parties in (300, 400, 500)]
    for parties, dimension in places:
        for _ in range(10):
            factor = float(np.exp(noise * draws.standard_normal()))
            known = {"parties": parties, "dimension": dimension, "rounds": 40}
            rows.append(
                {"method": "inca", **known, "seconds": 1e-6 * dimension * factor, "seconds_waiting": 0.0}
                | {"megabytes_sent": 2e-4 * dimension * factor}
            )
            rows.append(
                {"method": "secagg", **known, "rounds": 4, "seconds": 0.05, "seconds_waiting": 0.05 * parties / 200 * factor}
                | {"megabytes_sent": 0.02}
            )
    return pl.DataFrame(rows)


def test_costs_agree_where_repeats_do() -> None:
    assert [claim.agrees for claim in costs.claims_sizes(sizes(0.01))] == [True] * 4
    unsure = costs.claims_sizes(sizes(8.0))
    assert all(claim.agrees is not True for claim in unsure)
    assert all(claim.interval is None or claim.interval[0] <= claim.interval[1] for claim in unsure)


def test_an_interval_over_repeats_holds_the_truth() -> None:
    """A ratio of 1 from ten normal logarithms, 120 draws: 95 % hold it, within 5 standard errors (error rate 6e-7)."""
    held = 0
    for seed in range(120):
        noise = np.exp(0.3 * np.random.default_rng(seed).standard_normal(10))
        rows = pl.DataFrame({"method": ["inca"] * 10, "parties": 1, "dimension": 1, "rounds": 1, "x": noise})
        interval = costs.over_repeats(rows, lambda part: float(part["x"].item()))
        assert interval is not None
        held += interval[0] <= 1.0 <= interval[1]
    assert abs(held / 120 - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 120)
    assert costs.over_repeats(rows, lambda part: None) is None


def parameters(gain: float, middle: float) -> pl.DataFrame:
    """Figure 3a: T = 20 has ``gain`` times the error of T = 10, k = 3 ``middle`` times that of k = 1."""
    return pl.DataFrame(
        [
            {"method": "inca", "dropouts": gamma, "rounds": T, "out_degree": k, "calibration": calibration, "runs": 1000}
            | {"mse": (gain if T == 20 else 1.0) * (middle if k == 3 else 1.0)}
            for gamma in dropouts.DROPOUTS
            for T in (10, 20)
            for k in (1, 3, 5)
            for calibration in ("paper", "exact")
        ]
    )


@pytest.mark.parametrize(
    ("gain", "middle", "verdicts"),
    [
        (0.3, 2.0, [True, True, True]),
        (0.8, 0.9, [None, True, None]),
        (2.0, 0.4, [False, True, False]),
        (0.3, 5.0, [True, False, True]),
    ],
)
def test_a_ratio_that_luck_may_have_made_is_no_verdict(gain: float, middle: float, verdicts: list[bool | None]) -> None:
    assert [claim.agrees for claim in dropouts.claims_parameters(parameters(gain, middle))[:3]] == verdicts
    low, high = accounts.with_luck(1.0)
    assert low * high == pytest.approx(1.0)


def successes(shares: list[float]) -> pl.DataFrame:
    """Figure 5: the share of 1000 runs that succeed with k = 1..5, the same for all rounds but the least."""
    rows = [
        {"adversary": adversary, "out_degree": k, "rounds": T, "runs": 1000, "succeeded": round(1000 * share) if T == 2 else 1000}
        for adversary, its in (("eavesdrop", shares), ("collusion", shares[::-1]))
        for k, share in enumerate(its, 1)
        for T in preconditions.ROUNDS
    ]
    rows += [
        {"adversary": f"two-{kind}", "out_degree": 2, "rounds": 20, "runs": 1000, "succeeded": count}
        for kind, count in (("random-static", 0), ("uniform", 1000))
    ]
    return preconditions.shares(pl.DataFrame(rows))


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [([0.1, 0.3, 0.5, 0.7, 0.9], True), ([0.5, 0.5, 0.51, 0.5, 0.52], None), ([0.1, 0.5, 0.3, 0.7, 0.9], False)],
)
def test_shares_that_rise_do_so_by_their_intervals(shares: list[float], verdict: bool | None) -> None:
    rising, _, falling, static = preconditions.claims(successes(shares))
    assert rising.agrees is verdict
    assert falling.agrees is verdict
    assert static.agrees is True


def test_blocks_of_runs_are_counted_together() -> None:
    blocks = [{"parties": 100, "corrupt": 0.5, "rounds": T, "runs": count} for T, count in ((3, 40), (4, 60), (3, 70), (5, 30))]
    found = rounds.counted(pl.DataFrame(blocks))
    assert found.select("rounds", "needing", "runs", "share").rows() == [
        (3, 110, 200, 0.55),
        (4, 60, 200, 0.3),
        (5, 30, 200, 0.15),
    ]
    assert ((found["share_low"] < found["share"]) & (found["share"] < found["share_high"])).all()
