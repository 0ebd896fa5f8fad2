"""CorDP-DME: its formulas against the paper, an optimiser and the exact accountant; messages, decoders, sparse graphs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import NonlinearConstraint, minimize
from scipy.stats import norm

from quietmean.core.bounds import round_up
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Release
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary, information_matrix
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols.cordp_dme import (
    CorDPDME,
    LateDecoder,
    SensitivityConvention,
    ball_sensitivity,
    gaussian_variance,
    least_error,
    optimal_design,
    responder_curve,
    sparse_design,
)
from quietmean.protocols.cordp_dme.design import leakage, sparse_leakage
from quietmean.protocols.cordp_dme.party import MeanDecoder, place_pairs, sparse_pairs
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.studies.agreement.study import StudyTerms
from quietmean.testing.examples import certificate_of
from support.effort import examples
from support.refusals import raised, refused, refused_rows

TABLE_II_UNIT = gaussian_variance(2.0, 1e-5, ball_sensitivity(1.0, SensitivityConvention.TABLE_II))


def make_execution(
    parties: int, sigma_own: float, sigma_pair: float, absent: tuple[int, ...] = (), sensitivity: float = 1.0, **options: Any
) -> Execution:
    raw = {"sigma_own": sigma_own, "sigma_pair": sigma_pair, **options}
    parameters = CorDPDME.read(raw).resolved(parties)
    trace = ExecutionTrace.everyone(1, parties)
    trace.online[1, list(absent)] = False
    schedule = parameters.draw_schedule(parties, Seed.public("test"))
    return Execution(parameters, schedule, trace, sensitivity, np.ones(parties))


# Formulas ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("responding", "colluding", "variance", "correlation", "biased", "unbiased"),
    [(8, 0, 5.466, -0.091, 0.554, 1.242), (8, 2, 6.318, -0.089, 0.598, 1.488)],
)
def test_table_ii(responding: int, colluding: int, variance: float, correlation: float, biased: float, unbiased: float) -> None:
    """n = 10, d = 5, epsilon = 2, delta = 1e-5, at the sensitivity that the table was computed with."""
    design = optimal_design(10, responding, colluding, TABLE_II_UNIT)
    assert design.variance == pytest.approx(variance, abs=5e-4)
    assert design.correlation == pytest.approx(correlation, abs=5e-4)
    assert design.mse_biased(5, 1.0) == pytest.approx(biased, abs=6e-4)
    assert design.mse(5) == pytest.approx(unbiased, abs=6e-4)
    assert design.excess == 0.0


@pytest.mark.parametrize(("colluding", "biased", "unbiased"), [(0, 0.166, 0.199), (2, 0.199, 0.248)])
def test_table_ii_all_respond(colluding: int, biased: float, unbiased: float) -> None:
    """The table prints the infimum; what is shipped is finite and says how far above it is."""
    least = 5 * least_error(10, 10, colluding, TABLE_II_UNIT) / 10
    assert least == pytest.approx(unbiased, abs=6e-4)
    assert least == pytest.approx(5 * TABLE_II_UNIT / (10 * (10 - colluding)))
    assert least / (1 + least) == pytest.approx(biased, abs=6e-4)
    design = optimal_design(10, 10, colluding, TABLE_II_UNIT)
    assert design.mse(5) == pytest.approx(least * (1 + design.excess))
    assert 0 < design.excess < 0.01
    assert 90 < design.variance / TABLE_II_UNIT < 130


def test_local_dp_column_of_table_ii() -> None:
    design = optimal_design(10, 10, 9, TABLE_II_UNIT)
    assert design.variance == pytest.approx(3.975, abs=5e-4)
    assert design.correlation == 0.0
    assert design.mse(5) == pytest.approx(1.988, abs=6e-4)
    assert design.mse_biased(5, 1.0) == pytest.approx(0.665, abs=6e-4)


def test_noise_of_table_ii_on_the_unit_ball() -> None:
    """Replacement in the unit ball has sensitivity 2: the table's noise then gives epsilon 4.39, not 2."""
    assert ball_sensitivity(1.0) == 2.0
    design = optimal_design(10, 8, 2, TABLE_II_UNIT)
    mu = 2.0 * math.sqrt(leakage(design.own, design.pair, 10, 2))
    assert epsilon_of_mu(mu, 1e-5) == pytest.approx(4.39, abs=5e-3)
    assert gaussian_variance(2.0, 1e-5, 2.0) == pytest.approx(4 * TABLE_II_UNIT)


def paper_variance_and_correlation(n: int, t: int, c: int, s: float) -> tuple[float, float]:
    """CorDP-DME, equations (20) and (21), as printed."""
    variance = s * (n * n - 2 * n - c * n + 2) / (n - c) ** 2
    variance += (
        s * (n - c - 1) * (n + c - 2 * n * c + t * (n + c - 2)) / ((n - c) ** 2 * math.sqrt((t - c) * (n - t) * (n - c - 1)))
    )
    if c == 1:
        return variance, -(variance - s) / (variance * (n - 1) - s * (n - 2))
    part = 1 - s / variance
    root = math.sqrt(((n - 2) * part - c) ** 2 + 4 * (n - c - 1) * part)
    return variance, (-(n - 2) * part - c + root) / (2 * (n - 1) * (c - 1))


@settings(max_examples=examples(300))
@given(st.data(), st.floats(0.01, 100.0))
def test_agrees_with_the_closed_forms(data: st.DataObject, unit: float) -> None:
    parties = data.draw(st.integers(3, 60))
    responding = data.draw(st.integers(2, parties - 1))
    colluding = data.draw(st.integers(0, responding - 1))
    design = optimal_design(parties, responding, colluding, unit)
    variance, correlation = paper_variance_and_correlation(parties, responding, colluding, unit)
    assert design.variance == pytest.approx(variance, rel=1e-9)
    # (21) subtracts nearly equal numbers: of its root little more than half the digits are left.
    assert design.correlation == pytest.approx(correlation, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("parties", "responding", "colluding"), [(3, 2, 0), (5, 3, 1), (10, 8, 2), (10, 9, 0), (7, 4, 2), (6, 3, 2)]
)
def test_agrees_with_a_numerical_optimiser(parties: int, responding: int, colluding: int) -> None:
    """Minimise over (log v, log(1 + b)) under the exact accountant's leakage, found from the covariance alone."""
    honest = parties - colluding

    def worst(own: float, pair: float) -> float:
        covariance = own * np.eye(honest) + pair * (honest * np.eye(honest) - np.ones((honest, honest)))
        return float(np.linalg.inv(covariance).diagonal().max())

    def error(logs: NDArray[np.float64]) -> float:
        return math.exp(logs[0]) + (parties - responding) * math.expm1(logs[1])

    def slack(logs: NDArray[np.float64]) -> list[float]:
        return [1.0 - worst(math.exp(logs[0]), math.expm1(logs[1]))]

    found = minimize(
        error,
        np.array([0.5, 0.5]),
        method="SLSQP",
        bounds=[(-5.0, 5.0), (0.0, 8.0)],
        constraints=NonlinearConstraint(slack, 0.0, np.inf),
        tol=1e-14,
    )
    design = optimal_design(parties, responding, colluding, 1.0)
    assert found.fun == pytest.approx(design.own + (parties - responding) * design.pair, rel=1e-6)
    assert found.fun == pytest.approx(least_error(parties, responding, colluding, 1.0), rel=1e-6)


@settings(max_examples=examples(60))
@given(st.data(), st.floats(0.05, 8.0), st.floats(-10.0, -2.0))
def test_the_exact_accountant_confirms_the_target(data: st.DataObject, epsilon: float, log_delta: float) -> None:
    """On the declared transcript, against c colluders, epsilon is the target: neither more nor less."""
    parties = data.draw(st.integers(1, 25))
    responding = data.draw(st.integers(1, parties))
    colluding = data.draw(st.integers(0, parties - 1))
    delta, sensitivity = 10.0**log_delta, 2.0
    design = optimal_design(parties, responding, colluding, gaussian_variance(epsilon, delta, sensitivity))
    execution = make_execution(parties, math.sqrt(design.own), math.sqrt(design.pair), sensitivity=sensitivity)
    corrupt = data.draw(st.permutations(range(parties)))[:colluding]
    certificate = certificate_of(execution.transcript(), Adversary.collusion(corrupt), sensitivity)
    assert certificate.mu.max() == pytest.approx(certificate.mu.min(), rel=1e-7)
    assert epsilon_of_mu(float(certificate.mu.max()), delta) == pytest.approx(epsilon, rel=1e-6)
    np.testing.assert_allclose(
        (certificate.mu / sensitivity) ** 2, leakage(design.own, design.pair, parties, colluding), rtol=1e-7
    )


def test_fewer_messages_and_fewer_colluders_leak_less() -> None:
    design = optimal_design(8, 6, 2, 1.0)
    levels = (math.sqrt(design.own), math.sqrt(design.pair))
    full = certificate_of(make_execution(8, *levels).transcript(), Adversary.collusion({0, 1}), 1.0).max_mu
    fewer_seen = certificate_of(make_execution(8, *levels, absent=(7,)).transcript(), Adversary.collusion({0, 1}), 1.0).max_mu
    fewer_colluding = certificate_of(make_execution(8, *levels).transcript(), Adversary.collusion({0}), 1.0).max_mu
    assert full == pytest.approx(1.0, rel=1e-8)
    assert fewer_seen < 0.99 * full
    assert fewer_colluding < 0.99 * full


def test_the_covariance_alone_would_under_report() -> None:
    """Colluders know their pairwise terms: who forgets that finds less leakage than there is."""
    execution = make_execution(6, 1.0, 2.0)
    with_terms = information_matrix(execution.transcript(), Adversary.collusion({0, 1})).diagonal
    covariance = np.eye(6) + 4.0 * (6 * np.eye(6) - np.ones((6, 6)))
    without_terms = np.linalg.inv(covariance).diagonal()[2:]
    assert (with_terms > 1.3 * without_terms).all()


@pytest.mark.parametrize(
    ("parties", "responding", "colluding"), [(1, 1, 0), (2, 2, 1), (2, 1, 0), (10, 3, 2), (10, 10, 9), (10, 2, 5)]
)
def test_local_dp_is_the_optimum(parties: int, responding: int, colluding: int) -> None:
    design = optimal_design(parties, responding, colluding, 3.0)
    assert (design.own, design.pair, design.excess) == (3.0, 0.0, 0.0)


def test_two_parties_share_their_noise() -> None:
    design = optimal_design(2, 2, 0, 1.0)
    assert design.own == pytest.approx(0.5 * (1 + design.excess))
    assert leakage(design.own, design.pair, 2, 0) == pytest.approx(1.0)


@pytest.mark.parametrize(("parties", "responding", "colluding"), [(0, 0, 0), (5, 6, 0), (5, 0, 0), (5, 3, 5), (5, 3, -1)])
def test_impossible_designs_are_refused(parties: int, responding: int, colluding: int) -> None:
    refused("parties", optimal_design, parties, responding, colluding, 1.0)
    refused("noise variance", optimal_design, 5, 4, 1, 0.0)


def test_tiny_own_noise_is_kept_to_the_last_digit() -> None:
    """At sigma^2 = 1e4 s, v from sigma^2 (1 + rho (n-1)) has lost digits that v itself has."""
    design = optimal_design(2000, 2000, 0, 1.0, excess=1e-8)
    assert leakage(design.own, design.pair, 2000, 0) == pytest.approx(1.0, rel=1e-12)
    recomputed = design.variance * (1 + design.correlation * (design.parties - 1))
    assert abs(recomputed / design.own - 1) > 1e-7


def test_curve_of_responders() -> None:
    """Re-optimised for each count it meets central DP where all respond and local DP where one does; a fixed one lies above."""
    unit = gaussian_variance(2.0, 1e-5, 2.0)
    curve = responder_curve(100, 0, 20, unit)
    assert [point.responding for point in curve] == list(range(1, 101))
    assert curve[0].reoptimised == pytest.approx(curve[0].local)
    assert curve[-1].reoptimised == pytest.approx(curve[-1].central, rel=0.01)
    assert curve[-1].fixed == curve[-1].reoptimised
    assert all(point.fixed >= point.reoptimised * (1 - 1e-12) for point in curve)
    assert all(point.central <= point.reoptimised * (1 + 1e-12) <= point.local * (1 + 1e-11) for point in curve)
    fixed = responder_curve(100, 10, 20, unit, optimal_design(100, 80, 10, unit))
    assert fixed[79].fixed == pytest.approx(fixed[79].reoptimised)


def test_figure_6_setting() -> None:
    """n = 100, d = 20, epsilon = 2: at sensitivity 2 the unbiased error is below PrivUnitG's 0.3232 from about 95 % on."""
    unit = gaussian_variance(2.0, 1e-5, 2.0)
    error = {t: optimal_design(100, t, 0, unit).mse(20) for t in (100, 97, 95, 90, 80)}
    assert error[100] < 0.033
    assert error[97] < 0.3232
    assert error[90] > 0.3232


@given(st.floats(1e-6, 1e6))
def test_rounding_only_adds_noise(deviation: float) -> None:
    rounded = round_up(deviation)
    assert deviation * (1 - 1e-10) <= rounded <= deviation * (1 + 1.1e-5)
    assert round_up(rounded) == rounded
    assert round_up(0.0) == 0.0


# Messages ------------------------------------------------------------------------------------------------------------------


def test_the_larger_number_adds_and_the_smaller_subtracts() -> None:
    transcript = make_execution(3, 1.0, 2.0).transcript()
    _, noise = transcript.eliminated()
    shared = noise[:, transcript.noise_group == "delta"]
    np.testing.assert_array_equal(shared, [[-2.0, -2.0, 0.0], [2.0, 0.0, -2.0], [0.0, 2.0, 2.0]])
    assert transcript.released.all()


def test_with_all_messages_only_own_noise_is_left() -> None:
    execution = make_execution(7, 0.5, 30.0)
    values = np.arange(21.0).reshape(7, 3)
    noise = InsecurePopulationNoise(3, 7)
    total, weight = execution.run_batch(values, noise).total()
    np.testing.assert_allclose(total, (values + 0.5 * noise.normal("star", 0, 3)).sum(axis=0), atol=1e-11)
    assert weight == 7.0


def test_who_misses_the_round_published_nothing() -> None:
    execution = make_execution(5, 1.0, 2.0, absent=(1, 3))
    result = execution.run(np.ones((5, 2)), InsecurePopulationNoise(0, 5))
    assert sorted(result.releases) == [0, 2, 4]
    assert execution.contributors().tolist() == [True, False, True, False, True]
    assert sorted(execution.transcript().sender.tolist()) == [0, 2, 4]


def test_an_aggregator_that_colludes_sees_what_everybody_sees_without_one() -> None:
    design = optimal_design(9, 7, 2, 1.0)
    levels = (math.sqrt(design.own), math.sqrt(design.pair))
    with_aggregator = make_execution(9, *levels, aggregator=4)
    assert with_aggregator.protocol.traits.releasers(9) == {4}
    assert with_aggregator.protocol.traits.trusted == frozenset()
    assert with_aggregator.protocol.traits.indispensable == {4}
    collusion = Adversary.collusion({4, 0})
    aggregated = certificate_of(with_aggregator.transcript(), collusion, 1.0)
    published = certificate_of(make_execution(9, *levels).transcript(), collusion, 1.0)
    np.testing.assert_allclose(aggregated.mu, published.mu, rtol=1e-8)
    # Without the aggregator a coalition sees the sum only.
    others = certificate_of(with_aggregator.transcript(), Adversary.collusion({0, 1}), 1.0)
    assert others.max_mu < aggregated.max_mu
    lone = make_execution(9, *levels, aggregator=4, absent=(4,))
    raised(ProtocolFailure, "nobody released", lone.run_batch(np.ones((9, 1)), InsecurePopulationNoise(0, 9)).total)
    assert not lone.contributors().any()


@refused_rows("wrong_parameters_are_refused")
def test_wrong_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    refused(message, lambda: CorDPDME.read({"sigma_own": 1.0, "sigma_pair": 1.0} | change).resolved(5))


# Decoders ------------------------------------------------------------------------------------------------------------------


def test_the_biased_decoder_shrinks() -> None:
    parameters = CorDPDME(sigma_own=1.0, sigma_pair=2.0, decoder=MeanDecoder.BIASED, radius=2.0)
    vector = np.array([3.0, 6.0, 9.0])
    # u = 3 of 4: noise 3 (1 + 1 * 4) / 3 = 5 in total; over radius^2 that is 1.25.
    np.testing.assert_allclose(decoded(parameters, 4, vector, 3.0), vector / 3 / 2.25)


def test_the_biased_decoder_counts_parties() -> None:
    parameters = CorDPDME.read({"sigma_own": 1.0, "sigma_pair": 2.0, "decoder": "biased", "radius": 1.0}).resolved(4)
    refused(r"weights sum to 2\.5", decoded, parameters, 4, np.ones(1), 2.5)
    # u = 2 of 4: noise 2 (1 + 2 * 4) = 18 in the sum, over 2.5^2 of weight and a radius of 1.
    np.testing.assert_allclose(decoded(parameters, 4, np.ones(1), 2.5, counted=2), 1 / 2.5 / (1 + 18 / 6.25))


def test_private_counts_are_refused_where_a_ball_of_means_needs_them() -> None:
    columns = [{"name": "age", "low": 0, "high": 100}]
    raw = {"protocol": "cordp-dme", "epsilon": 1.0, "unit": "record", "column": columns, "count": "private"}
    with pytest.raises(InputError, match="cordp-dme bounds a value by the public number of its records, but counts are private"):
        StudyTerms.parse({**raw, "options": {"decoder": "biased", "radius": 2.0}}).plan(4)
    assert StudyTerms.parse(raw).plan(4).protocol.traits.hides_counts


def test_late_messages_are_added() -> None:
    execution = make_execution(6, 1.0, 3.0)
    releases = execution.run(np.ones((6, 2)), InsecurePopulationNoise(5, 6)).releases
    assert isinstance(execution.protocol, CorDPDME)
    decoder = LateDecoder(execution.protocol, 6)
    raised(ProtocolFailure, "no message", decoder.estimate)
    predicted = []
    for party in (4, 0, 2, 5, 1, 3):
        decoder.add(party, releases[party])
        decoder.add(party, releases[party])
        predicted.append(decoder.predicted_mse())
    assert predicted == sorted(predicted, reverse=True)
    assert predicted[-1] == pytest.approx(1.0 / 6)
    assert predicted[3] == pytest.approx((1.0 + 2 * 9.0) / 4)
    everything = execution.run_batch(np.ones((6, 2)), InsecurePopulationNoise(5, 6))
    np.testing.assert_allclose(decoder.estimate(), execution.estimate(everything), rtol=1e-12)
    refused("party 4 sent two different messages", decoder.add, 4, Release(releases[4].vector + 1.0, 1.0))
    refused("party 6 does not exist", decoder.add, 6, releases[4])


# Sparse graphs -------------------------------------------------------------------------------------------------------------


@given(st.integers(3, 60), st.data())
def test_places_form_a_regular_connected_graph(parties: int, data: st.DataObject) -> None:
    partners = 2 * data.draw(st.integers(1, (parties - 1) // 2))
    pairs = place_pairs(parties, partners)
    assert (np.bincount(pairs.ravel(), minlength=parties) == partners).all()
    drawn = sparse_pairs(parties, partners, Seed.public("one"))
    assert drawn.shape == pairs.shape
    again, other = (sparse_pairs(parties, partners, Seed.public(name)) for name in ("one", "other"))
    np.testing.assert_array_equal(drawn, again)
    if 4 < partners + 1 < parties:
        assert drawn.tolist() != other.tolist()


def test_sparse_graphs_are_expanders() -> None:
    for parties, partners in ((50, 12), (200, 16), (1000, 20)):
        pairs = place_pairs(parties, partners)
        laplacian = np.zeros((parties, parties))
        laplacian[pairs[:, 0], pairs[:, 1]] = laplacian[pairs[:, 1], pairs[:, 0]] = -1.0
        laplacian += np.diag(-laplacian.sum(axis=0))
        assert np.linalg.eigvalsh(laplacian)[1] > 0.25 * partners


@settings(max_examples=30)
@given(st.data())
def test_the_exact_accountant_agrees_on_sparse_graphs(data: st.DataObject) -> None:
    parties = data.draw(st.integers(4, 16))
    partners = 2 * data.draw(st.integers(1, (parties - 1) // 2))
    coalition = frozenset(data.draw(st.permutations(range(parties)))[: data.draw(st.integers(0, parties - 2))])
    execution = make_execution(parties, 0.7, 1.9, partners=partners)
    certificate = certificate_of(execution.transcript(), Adversary(coalition), 1.0)
    expected = sparse_leakage(0.7**2, 1.9**2, parties, execution.schedule.pairs, coalition)
    assert certificate.mu.max() ** 2 == pytest.approx(expected, rel=1e-7)


def test_a_party_cut_off_is_hidden_by_its_own_noise_only() -> None:
    execution = make_execution(8, 0.5, 5.0, partners=2)
    left, right = execution.schedule.partners(3)
    certificate = certificate_of(execution.transcript(), Adversary.collusion({left, right}), 1.0)
    assert certificate.max_mu == pytest.approx(2.0, rel=1e-6)


def test_sharing_with_nearly_all_costs_nearly_nothing() -> None:
    design = sparse_design(21, 19, 0, 1.0, 20)
    assert design.cost == pytest.approx(1.02**2, rel=0.02)


# Plans and the command line ------------------------------------------------------------------------------------------------


def test_gaussian_mechanism_that_the_formulas_rest_on() -> None:
    """s satisfies the analytic Gaussian mechanism's equation."""
    sigma = math.sqrt(TABLE_II_UNIT)
    delta = norm.cdf(0.5 / sigma - 2 * sigma) - math.exp(2.0) * norm.cdf(-0.5 / sigma - 2 * sigma)
    assert delta == pytest.approx(1e-5, rel=1e-9)
    assert sigma == pytest.approx(1.993812, abs=1e-6)
