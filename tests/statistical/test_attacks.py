"""Attacks: on receipts, by differences, and on consensus."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from quietmean.core.party import Vector
from quietmean.privacy import mu_of_budget
from quietmean.privacy.mutual_information import (
    gaussian_entropy,
    of_equal_intervals,
    of_interval_intersection,
    of_noisy_value,
    of_sum,
    revealed_variance,
)
from quietmean.protocols.consensus import PROTOCOL
from quietmean.protocols.consensus.error import cumulative_leakage, honest_components, mutual_information
from quietmean.protocols.local_dp import LocalDP
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, Columns
from quietmean.statistics.features.block import Summary
from quietmean.studies.agreement.study import StudyTerms
from support.programs import ROOT, module_of
from support.workloads import workload_of

# -- The differencing attack of examples/differencing.py: it finds a person in exact sums, and noise in quietmean's.
TAIL = 1e-6
differencing = module_of("examples", "differencing")


def test_exact_sums_and_covariances_give_the_record(differencing: ModuleType) -> None:
    attack = differencing.attack_exact(differencing.make_records())
    np.testing.assert_allclose(attack.found[0], attack.record, rtol=1e-8)


def ratios(differencing: ModuleType, study: StudyTerms) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Mean squared errors of the attack over what the plan says."""
    attack = differencing.attack_private(differencing.make_records(), study)
    # Far beyond the width of the bounds: nothing is learnt that a guess inside of them would not say.
    assert (attack.predicted > differencing.WIDTHS).all()
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = (attack.error / attack.predicted) ** 2
    return found


@pytest.mark.slow
def test_quietmean_gives_noise_of_the_size_that_the_plan_says(differencing: ModuleType) -> None:
    found = ratios(differencing, differencing.make_study())
    print(found)
    low, high = stats.chi2.ppf([TAIL, 1 - TAIL], differencing.STUDIES) / differencing.STUDIES
    assert ((low < found) & (found < high)).all()


@pytest.mark.slow
def test_less_noise_than_planned_is_found(differencing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with half the noise in the machines' batch, and all of it in the transcript."""
    batch = LocalDP.batch
    monkeypatch.setattr(LocalDP, "batch", lambda self, *rest: batch(replace(self, sigma=self.sigma / 2), *rest))
    low = stats.chi2.ppf(TAIL, differencing.STUDIES) / differencing.STUDIES
    assert (ratios(differencing, differencing.make_study()) < low).all()


@pytest.mark.slow
def test_the_page_shows_what_the_script_prints(differencing: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    differencing.main()
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "analyse" / "differencing.md").read_text()


# -- Quantised messages confine a value ever more closely: the law of their cumulative leakage against simulated posteriors.
DRAWS = 20_000


def simulated(widths: Vector) -> tuple[float, float]:
    """Mean logarithm of the intersection of the intervals that s + Uniform(w_k) leave for s, and its standard error."""
    units = BitStream(insecure_seed(2, "errors", len(widths))).uniform(DRAWS * len(widths)).reshape(DRAWS, -1) - 0.5
    errors = units * widths
    lengths = (errors + widths / 2).min(axis=1) - (errors - widths / 2).max(axis=1)
    logarithms = np.log(lengths)
    return float(logarithms.mean()), float(logarithms.std() / np.sqrt(DRAWS))


@pytest.mark.parametrize("messages", [1, 2, 8, 64])
def test_equal_cells(messages: int) -> None:
    mean, error = simulated(np.full(messages, 0.3))
    assert of_equal_intervals(0.0, 0.3, messages) == pytest.approx(-mean, abs=5 * error + 1e-12)


def test_any_cells() -> None:
    widths = np.maximum(0.9 ** np.arange(1, 81), 0.05)
    mean, error = simulated(widths)
    assert of_interval_intersection(0.0, widths) == pytest.approx(-mean, abs=5 * error + 0.02)


def test_twice_as_many_messages_reveal_ln_2_more() -> None:
    protocols = [
        PROTOCOL.read(
            {"graph": "complete", "sigma_z": 1.0, "theta": 0.2, "c": 0.5, "bits": 2, "delta_0": 0.01, "delta_min": 0.01}
            | {"iterations": iterations}
        ).resolved(5)
        for iterations in (400, 800)
    ]
    once, twice = (cumulative_leakage(each, 0, 1.0) for each in protocols)
    assert twice.nats - once.nats == pytest.approx(np.log(2), abs=1e-6)
    assert once.messages == 1600
    assert once.nats > once.largest_of_one + np.log(1000)
    width = (1 + 0.5 * 4) / (2 * 0.5 * 0.8) * 0.01
    assert once.nats == pytest.approx(of_equal_intervals(gaussian_entropy(1.0), width, 1600), abs=1e-3)


def test_nats_and_variance() -> None:
    np.testing.assert_allclose(revealed_variance([0.0, 0.5 * np.log(2), np.inf]), [0.0, 0.5, 1.0])
    assert of_sum(1) == np.inf
    assert of_sum(2) == pytest.approx(0.5 * np.log(2))
    assert of_noisy_value(2.0, 2.0) == pytest.approx(0.5 * np.log(2))


def test_a_thousand_parties_in_closed_form() -> None:
    protocol = PROTOCOL.read({"graph": "geometric", "sigma_z": 10.0, "c": 0.2, "iterations": 200}).resolved(1000)
    corrupt = range(0, 1000, 10)
    nats = mutual_information(protocol, corrupt, 1.0)
    assert nats.shape == (900,)
    assert len(honest_components(protocol, corrupt)) == 1
    assert of_sum(900) < nats.min() < nats.max() < 0.02


# -- The interval of a mean holds where noise hides half of the variance: near an end of the bounds, and narrow.
SEED, STUDIES, RECORDS, MIDDLE, DEVIATION = 20_761, 4000, 1000, -0.8, 0.05
LEAST = 0.95 - 3.1 * (0.05 * 0.95 / STUDIES) ** 0.5


def held() -> float:
    """In which part of the studies."""
    columns = Columns([Column(name="x", low=-1, high=1)])
    workload = workload_of(columns, "mean(x)")
    noise = workload.sensitivity / mu_of_budget(8.0, 1e-6) / RECORDS
    rng, found = np.random.default_rng(SEED), 0
    for _ in range(STUDIES):
        rows = MIDDLE + DEVIATION * rng.standard_normal((RECORDS, 1))
        mean = workload.of_records(rows).mean(axis=0)
        ends = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, RECORDS)[0].estimates.of_population
        assert ends is not None
        found += bool(ends[0, 0] <= MIDDLE <= ends[0, 1])
    print(f"seed {SEED}: {found} of {STUDIES}")
    return found / STUDIES


@pytest.mark.slow
def test_a_mean_whose_variance_is_uncertain() -> None:
    assert held() >= LEAST


@pytest.mark.slow
def test_degrees_by_the_records_alone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = property(lambda one: one.sampling_of_mean**2 / max(one.present - 1, 1.0))
    monkeypatch.setattr(Summary, "uncertainty_of_sampling", alone)
    assert held() < LEAST
