"""The figures of ADQSP: their numbers against closed forms and against other ways to compute them, with tiny sizes.

Monte Carlo means are compared within 5 standard errors or, for estimates without error bounds, within margins that wrong
formulae miss; seeds are fixed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, harary
from quietmean.protocols.consensus.analysis import Dynamics
from quietmean.protocols.consensus.population import run_consensus
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.adqsp import FIGURES, accuracy, cells, convergence, leakage, messages
from quietmean_reproduction.adqsp.batch import run_batch
from quietmean_reproduction.adqsp.estimator import knn_information, knn_of_itself
from quietmean_reproduction.adqsp.intervals import of_uniform_noise, posterior_entropy
from quietmean_reproduction.adqsp.setting import PARTIES, draw_values, last_error_mse, network, quantised, unquantised, watch
from quietmean_reproduction.adqsp.view import view_of_pair
from support.paper_figures import by_text, drawn_size, frame, require_registered


def normal(shape: tuple[int, int], label: str) -> Vector:
    drawn: Vector = BitStream(insecure_seed(1, label)).standard_normal(shape)
    return drawn


def test_they_are_registered() -> None:
    require_registered(tuple(FIGURES), ["adqsp-1", "adqsp-2", "adqsp-3", "adqsp-4", "adqsp-5"])


@pytest.mark.parametrize(("correlation", "expected"), [(0.0, 0.0), (0.9, -0.5 * math.log(1 - 0.81))])
def test_nearest_neighbours_on_gaussians(correlation: float, expected: float) -> None:
    numbers = normal((3000, 2), "gaussians")
    first, second = numbers[:, :1], correlation * numbers[:, :1] + math.sqrt(1 - correlation**2) * numbers[:, 1:]
    assert knn_information(first, second) == pytest.approx(expected, abs=0.06)


def test_nearest_neighbours_of_an_infinite_quantity_count_the_samples() -> None:
    values, ties = normal((4000, 1), "values"), normal((4000, 2), "ties")
    more, fewer = (knn_of_itself(values[:count], ties[:count]) for count in (4000, 500))
    assert more - fewer == pytest.approx(math.log(8), abs=0.1)


@pytest.mark.parametrize("width", [0.01, 0.7, 5.0, 30.0])
def test_one_message(width: float) -> None:
    from scipy.special import ndtr

    grid = np.linspace(-width / 2 - 10, width / 2 + 10, 400_001)
    density = (ndtr(-np.abs(grid) + width / 2) - ndtr(-np.abs(grid) - width / 2)) / width
    terms = np.where(density > 0, -density * np.log(np.where(density > 0, density, 1.0)), 0.0)
    assert of_uniform_noise(width) == pytest.approx(float(np.trapezoid(terms, grid)) - math.log(width), abs=2e-6)


def test_one_message_of_a_narrow_cell() -> None:
    entropy = 0.5 * math.log(2 * math.pi * math.e)
    assert of_uniform_noise(1e-3) == pytest.approx(entropy - math.log(1e-3), abs=1e-6)
    assert 0 < of_uniform_noise(1000.0) < 0.01


def test_entropy_of_a_cut_normal_distribution() -> None:
    from scipy.stats import truncnorm

    low, high = np.array([-1.0, 0.3, -8.0, 2.0]), np.array([0.5, 2.5, 8.0, 2.0005])
    expected = [float(truncnorm(a, b).entropy()) for a, b in zip(low[:3], high[:3], strict=True)]
    np.testing.assert_allclose(posterior_entropy(low, high), [*expected, math.log(5e-4)], atol=1e-6)
    np.testing.assert_allclose(posterior_entropy(-high, -low), posterior_entropy(low, high))


def test_the_view_of_a_pair() -> None:
    edges = network(3)
    first, second = (int(end) for end in edges[0])
    values = draw_values(500, 4)
    view = view_of_pair(unquantised(edges, 0.2, 5.0, 1), values, (first, second), 4)
    # The sum is exact, single values are hidden.
    np.testing.assert_allclose(view.sum(axis=1), values[first] + values[second], atol=1e-9)
    assert float((view[:, 0] - values[first]).std()) == pytest.approx(5.0, rel=0.15)
    assert float(view[:, 2].std()) == pytest.approx(5.0 * math.sqrt(2), rel=0.15)


def test_what_the_paper_keeps_of_the_error() -> None:
    six = Dynamics(harary(6, 5), 6, 0.2, 1.0)
    assert last_error_mse(six) == pytest.approx(5 / 36 / 12)
    assert six.steady_state_mse(1.0) == pytest.approx(0.0231, abs=5e-5)


class Watcher:
    """Keeps the estimates of all iterations."""

    def __init__(self) -> None:
        self.seen: list[Vector] = []

    def __call__(self, iteration: int, x: Vector) -> None:
        self.seen.append(x.copy())
        assert len(self.seen) == iteration


@pytest.mark.parametrize("runs", [1, 33, 700])
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.5])
def test_a_batch_of_runs_is_what_the_protocol_computes_bit_for_bit(theta: float, runs: int) -> None:
    """Quantised over one step and over two, with overloads clipped and sent, unquantised, and with noise on the values."""
    plain = unquantised(network(3), theta, 100.0, 12)
    fitting = quantised(plain, 0.93, 1e-2, 1)
    assert fitting.quantisation is not None
    clipped = fitting.quantised(replace(fitting.quantisation, delta_0=0.2 * fitting.quantisation.delta_0))
    assert clipped.quantisation is not None
    sent = clipped.quantised(replace(clipped.quantisation, send_overloads=True, two_step=not clipped.quantisation.two_step))
    noisy = replace(plain, local_noise="uniform", sigma_local=0.3)
    overloaded = 0
    for protocol in (plain, fitting, clipped, sent, noisy):
        values, noise = draw_values(runs, 5), InsecurePopulationNoise(5, PARTIES)
        one_by_one, together = Watcher(), Watcher()
        run = run_consensus(
            protocol,
            fixed_schedule(protocol, PARTIES),
            ExecutionTrace.everyone(protocol.rounds, PARTIES),
            values,
            np.ones(PARTIES),
            noise,
            one_by_one,
        )
        assert run_batch(protocol, values, noise, together) == run.overloads.sum()
        np.testing.assert_array_equal(one_by_one.seen, together.seen)
        assert len(together.seen) == protocol.iterations + 1
        overloaded += int(run.overloads.sum())
    assert overloaded > 0


def test_watching_changes_nothing_and_seeds_decide() -> None:
    protocol = quantised(unquantised(network(3), 0.5, 10.0, 20), 0.96, 0.0, 1)
    once, again, other = (watch(protocol, 3, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(once.mse, again.mse)
    assert not np.array_equal(once.mse, other.mse)
    assert len(once.mse) == 21
    assert once.curve(10)[-1]["iteration"] == 21


@pytest.mark.slow
def test_figure_1() -> None:
    rows = frame(
        *(
            convergence.shrinking(seed=2, theta=theta, sigma_z=sigma_z, graph=0, samples=100)
            for theta in (0.0, 0.2, 0.5)
            for sigma_z in convergence.SIGMAS
        ),
        convergence.one_step(seed=2, samples=100),
    )
    claims = convergence.claims(rows)
    assert [claim.agrees for claim in claims] == [True, True, True, None, None, True]
    assert drawn_size(convergence.FIGURE, rows) == 3
    slower = rows.with_columns(slope=pl.col("slope") * 0.9)
    assert by_text(convergence.claims(slower))["the slope of the logarithm of the error is 2 log10 gamma"].agrees is False


@pytest.mark.slow
def test_figure_2() -> None:
    rows = frame(
        *(
            cells.smallest_cell(seed=2, theta=theta, bits=bits, delta_min=cell, graph=0, samples=200)
            for theta, bits in cells.CASES
            for cell in cells.CELLS
        )
    )
    claims = by_text(cells.claims(rows))
    for theta, bits in ((0.2, 2), (0.5, 2), (0.0, 3)):
        assert claims[f"(Delta_min^2 / 12)(1/n) tr(H X H') at theta = {theta:g} with {bits} bits"].agrees
        # Only the last iteration's errors: the paper's formula.
        ratio = claims[f"MSE / Delta_min^2 at theta = {theta:g}"].ratio
        assert ratio is not None
        assert ratio * 1.05 > 1 / (1 - 0.54)
        assert ratio < 1.05 / (1 - 0.85)
    assert drawn_size(cells.FIGURE, rows) == 3


def test_figure_3() -> None:
    sigmas = (0.1, 1.0, 10.0, 1000.0)
    rows = frame(
        leakage.closed_form(seed=2, points=5),
        *(leakage.engine(seed=2, sigma_z=sigma_z) for sigma_z in sigmas),
        *(leakage.estimated(seed=2, sigma_z=sigma_z, samples=800, repetitions=3) for sigma_z in sigmas),
    )
    claims = leakage.claims(rows)
    assert [claim.agrees for claim in claims] == [True, True, True, True, None, None]
    estimates = rows.filter(sigma_z=10.0)
    exact = estimates.filter(kind="engine")["nats"].item()
    assert estimates.filter(kind="mapped")["nats"].item() == pytest.approx(exact, abs=0.08)
    # As it comes, the view's exact sum is drowned by the noise: below the proven bound.
    assert estimates.filter(kind="raw")["nats"].item() < 0.5 * math.log(2)
    assert drawn_size(leakage.FIGURE, rows) == 2


@pytest.mark.slow
def test_figure_4() -> None:
    rows = frame(
        accuracy.ratios(seed=2),
        *(
            accuracy.simulated(seed=2, cell=cell, step=step, method=method, samples=40)
            for cell in accuracy.CELLS
            for step in ("1", accuracy.TUNED)
            for method in ("adqsp", "local")
        ),
    )
    claims = by_text(accuracy.claims(rows))
    assert claims["simulated errors are those of our formulae"].agrees
    assert claims["the error of local noise is (1/n) sum r_i^2 (34), in units of its expectation u_r^2/12"].agrees is False
    assert drawn_size(accuracy.FIGURE, rows) == 2


def test_figure_5() -> None:
    iterations = 256
    rows = frame(
        *(messages.formulae(seed=0, cell=cell, iterations=iterations) for cell in messages.CELLS),
        *(messages.simulated(seed=2, cell=cell, iterations=iterations, samples=400, estimated=400) for cell in messages.CELLS),
    )
    claims = messages.claims(rows)
    assert [claim.agrees for claim in claims] == [True, False, True, False, True, True]
    assert drawn_size(messages.FIGURE, rows) == 2
    # The paper's reading, one message at a time, is not what the messages reveal together.
    wrong = rows.with_columns(nats=pl.when(pl.col("kind") == "cumulative").then(5.0).otherwise(pl.col("nats")))
    assert messages.claims(wrong)[-1].agrees is False
