"""Transcripts whose messages are nearly redundant, against exact arithmetic: certificates exist, and their bounds hold."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.errors import NumericalError
from quietmean.privacy import Adversary, PrivacyAnalysis, information_matrix
from quietmean.privacy.information import solver
from quietmean.privacy.information.direct import direct_information
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution
from quietmean.transcript import Transcript

# Ranks modulo a prime this large are those over the rationals but with a probability below 1e-14.
PRIME = (1 << 61) - 1
CORRUPT = frozenset({0, 5, 7})


def muffliato(parties: int, number: int) -> Execution:
    """The protocol's own defaults, 15 % dropped out permanently and 10 % of rounds missed."""
    return example_execution("muffliato", parties, number, permanent=0.15, temporary=0.1, rounds=10, sigma=1.0)


def residue(weight: float) -> int:
    """The shares of gossip are short fractions, which the transcript rounds."""
    fraction = Fraction(weight).limit_denominator(1000)
    assert abs(float(fraction) - weight) < 1e-15
    return fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


def observed_rows(transcript: Transcript, adversary: Adversary) -> list[list[int]]:
    """What each observed message holds of the honest values, exactly, modulo the prime."""
    honest, dependence, values = adversary.honest(transcript.parties), transcript.dependence, transcript.values
    rows: list[list[int]] = []
    for message in range(transcript.messages):
        row = [0] * transcript.parties
        for place in range(values.indptr[message], values.indptr[message + 1]):
            row[values.indices[place]] = residue(values.data[place])
        for place in range(dependence.indptr[message], dependence.indptr[message + 1]):
            share, used = residue(dependence.data[place]), rows[dependence.indices[place]]
            row = [(mine + share * other) % PRIME for mine, other in zip(row, used, strict=True)]
        rows.append(row)
    return [[rows[message][party] for party in honest] for message in np.nonzero(adversary.view(transcript).messages)[0]]


def exact_rank(rows: list[list[int]]) -> int:
    """By elimination modulo the prime."""
    pivots: list[tuple[int, list[int]]] = []
    for row in rows:
        for column, reduced in pivots:
            if row[column]:
                factor = row[column]
                row = [(mine - factor * other) % PRIME for mine, other in zip(row, reduced, strict=True)]
        column = next((place for place, entry in enumerate(row) if entry), -1)
        if column >= 0:
            inverse = pow(row[column], -1, PRIME)
            pivots.append((column, [entry * inverse % PRIME for entry in row]))
    return len(pivots)


def expected_mu(transcript: Transcript, adversary: Adversary, sigma: float) -> NDArray[np.float64]:
    """All noise is the parties' own: mu_i is the length of the part of x_i that lies in the observed space, over sigma."""
    honest, view = adversary.honest(transcript.parties), adversary.view(transcript)
    observed = transcript.eliminated()[0][np.ix_(view.messages, np.array(honest))]
    _, scales, right = np.linalg.svd(observed)
    rank = exact_rank(observed_rows(transcript, adversary))
    assert scales[rank - 1] > 1e8 * scales[rank], "the rank is plain to see"
    length: NDArray[np.float64] = np.sqrt((right[:rank] ** 2).sum(axis=0)) / sigma
    return length


@pytest.mark.slow
def test_two_hundred_parties_with_dropouts_have_an_exact_certificate() -> None:
    execution = muffliato(200, 0)
    expected = expected_mu(execution.transcript(), Adversary(CORRUPT), 1.0)
    certificate = execution.privacy(1e-6).against(CORRUPT)
    assert certificate.numbers == "exact"
    np.testing.assert_allclose(certificate.mu**2, expected**2, atol=1e-8)
    assert (certificate.mu_upper**2 >= expected**2 - 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_the_solver_for_many_coalitions_does_not_understate(number: int) -> None:
    """Its ridge hides observations whose weight is below the square root of rounding: there it has to give way."""
    execution = muffliato(100, number)
    expected = expected_mu(execution.transcript(), Adversary(CORRUPT), 1.0)
    certificate = next(execution.privacy(1e-6).each([CORRUPT]))
    np.testing.assert_allclose(certificate.mu**2, expected**2, atol=2e-7)
    assert (certificate.mu_upper**2 >= expected**2 - 1e-12).all()


@pytest.mark.parametrize("corrupt", [frozenset(), frozenset({0}), frozenset({1, 4, 5})])
@pytest.mark.parametrize("name", ["inca", "gopa"])
def test_singular_values_agree_with_the_other_solvers(name: str, corrupt: frozenset[int]) -> None:
    fields: dict[str, Any] = {"sigma_star": 0.5, "sigma_delta": 3.0} | ({"rounds": 5} if name == "inca" else {})
    transcript = example_execution(name, 9, permanent=0.1, temporary=0.1, **fields).transcript()
    adversary = Adversary(corrupt)
    noisy, error = direct_information(transcript, adversary, tuple(adversary.honest(9)), 0.25)
    assert error < 1e-10
    whole = information_matrix(transcript, adversary, "dense").with_independent_noise(0.25)
    np.testing.assert_allclose(noisy, whole.finite, rtol=1e-8, atol=1e-9)


def test_what_no_solver_vouches_for_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NumericalError("not today")

    for name in ("_quick", "direct_information", "_stable"):
        monkeypatch.setattr(solver, name, refuse)
    execution = muffliato(8, 0)
    exact = PrivacyAnalysis.of_gaussian(execution.transcript(), 1.0, 1e-6, method="dense").against({0})
    bounded = execution.privacy(1e-6).against({0})
    assert bounded.numbers == "upper bound"
    assert bounded.to_json()["disclosures"] == []
    assert (bounded.mu_upper >= exact.mu).all()
    np.testing.assert_allclose(bounded.mu_upper, 1.0, rtol=1e-9)
    # Without noise on the values themselves nothing bounds what a view tells.
    with pytest.raises(NumericalError, match="ill-conditioned"):
        example_execution("cordp-dme", 6, sigma_own=0.0, sigma_pair=2.0).privacy(1e-6).against({0})
