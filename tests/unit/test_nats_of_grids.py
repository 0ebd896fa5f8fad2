"""Mutual information of consensus with discrete Gaussians on a grid: the bound against enumeration of whole distributions.

No test draws anything: probabilities are those of all whole numbers within eight standard deviations.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.cli.main import main
from quietmean.privacy.loss import nats_of_whole_numbers
from quietmean.protocols.consensus.error import nats_of_hidden
from quietmean.protocols.execution import Execution

Array = NDArray[np.float64]


def gaussian(size: int, variance: float, centre: float = 0.0) -> Array:
    """Probabilities of a discrete Gaussian around ``centre`` on a circle of ``size`` whole numbers."""
    place = np.arange(size)
    weight = np.exp(-((np.where(place > size // 2, place - size, place) - centre) ** 2) / (2 * variance))
    found: Array = weight / weight.sum()
    return found


def entropy(probabilities: Array) -> float:
    kept = probabilities[probabilities > 1e-18]
    return float(-(kept * np.log(kept)).sum())


def enumerated(edges: list[tuple[int, int]], parties: int, v_z: float, v_s: float, target: int, size: int) -> float:
    """I(S_target; u, w) of honest parties, all their values and z^(0) discrete Gaussians of these variances in steps.

    Given w, z_{i|j} is a discrete Gaussian of variance v_z / 2 around w / 2: on whole numbers, or half a step beside them. So
    u is values plus those terms along the edges, and only the parity of each w matters.
    """
    # P(w is even): z_{i|j} and z_{j|i} are both even or both odd.
    even = float(gaussian(size, v_z)[::2].sum())
    parity = (even**2 + (1 - even) ** 2, 2 * even * (1 - even))
    value = np.fft.fft(gaussian(size, v_s))
    terms = [np.fft.fft(gaussian(size, v_z / 2, centre)) for centre in (0.0, 0.5)]
    frequency = np.arange(size)
    total = 0.0
    for odd in itertools.product((0, 1), repeat=len(edges)):
        spectrum = np.ones((size,) * parties, dtype=np.complex128)
        for (i, j), which in zip(edges, odd, strict=True):
            apart = (along(frequency, j, parties) - along(frequency, i, parties)) % size
            spectrum = spectrum * terms[which][apart]
        for other in set(range(parties)) - {target}:
            spectrum = spectrum * along(value, other, parties)
        noise = np.fft.ifftn(spectrum).real
        seen = np.fft.ifftn(spectrum * along(value, target, parties)).real
        total += math.prod(parity[which] for which in odd) * (entropy(seen) - entropy(noise))
    return total


def along(values: NDArray[Any], axis: int, axes: int) -> NDArray[Any]:
    return values.reshape([-1 if axis == one else 1 for one in range(axes)])


def execution(edges: list[tuple[int, int]], parties: int, v_z: float) -> Execution:
    """On a grid of step 1, with one corrupt party, the last, that is everybody's neighbour."""
    corrupt = [(party, parties) for party in range(parties)]
    return Execution.from_json(
        {
            "protocol": "consensus",
            "parties": parties + 1,
            "edges": sorted([*edges, *corrupt]),
            "theta": 0.2,
            "c": 0.3,
            "sigma_z": float(np.sqrt(v_z)),
            "iterations": 5,
            "grid": 1.0,
            "dimension": 1,
        }
    )


CASES = [
    pytest.param([(0, 1)], 2, 40.0, 20.0, 0, 128, id="two"),
    pytest.param([(0, 1)], 2, 400.0, 100.0, 1, 256, id="two, fine"),
    pytest.param([(0, 1), (1, 2)], 3, 44.0, 24.0, 1, 96, id="the middle of a path"),
    pytest.param([(0, 1), (1, 2)], 3, 44.0, 24.0, 0, 96, id="the end of a path"),
    pytest.param([(0, 1), (0, 2), (1, 2)], 3, 44.0, 24.0, 2, 96, id="a triangle"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("edges", "parties", "v_z", "v_s", "target", "size"), CASES)
def test_the_bound_is_above_what_enumeration_finds_and_near_it(
    edges: list[tuple[int, int]], parties: int, v_z: float, v_s: float, target: int, size: int
) -> None:
    exact = enumerated(edges, parties, v_z, v_s, target, size)
    real = nats_of_hidden(laplacian(edges, parties) * v_z / 2, float(np.sqrt(v_s)))[target]
    bound = float(nats_of_whole_numbers(real, min(v_z / 2, v_s)))
    least = min(v_z / 2, v_s)
    assert exact <= bound
    assert bound - exact <= 0.5 * np.log(least / (least - 8)) + 1e-6
    # Whole numbers tell as much as real ones at these sizes: nothing below that is a bound.
    assert exact == pytest.approx(real, abs=1e-5)
    # As if both ends of an edge hid a value, each with all of its noise.
    wrong = nats_of_hidden(laplacian(edges, parties) * v_z, float(np.sqrt(v_s)))[target]
    assert wrong < exact - 1e-3


def laplacian(edges: list[tuple[int, int]], parties: int) -> Array:
    matrix = np.zeros((parties, parties))
    for i, j in edges:
        matrix[[i, j], [i, j]] += 1
        matrix[[i, j], [j, i]] -= 1
    return matrix


def test_certificates_state_the_bound() -> None:
    v_z, v_s, edges = 2.0**26, 2.0**25, [(0, 1), (1, 2)]
    certificate = execution(edges, 3, v_z).privacy(1e-6).against({3})
    assert certificate.numbers == "upper bound"
    real = nats_of_hidden(laplacian(edges, 3) * v_z / 2, float(np.sqrt(v_s)))
    np.testing.assert_allclose(certificate.nats(float(np.sqrt(v_s))), real, rtol=1e-6)
    assert (certificate.nats(float(np.sqrt(v_s))) >= real).all()
    # A grid that is no finer than the values is no account of them.
    assert np.isinf(certificate.nats(2.0)).all()
    # A party whose neighbours all collude has no protection.
    assert np.isinf(execution(edges, 3, v_z).privacy(1e-6).against({1, 3}).nats(2.0**12)).all()


def test_two_honest_parties_have_the_figure_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """sigma_z = 10 for values of deviation 1, a grid of 2^-17."""
    document = execution([(0, 1)], 2, 100.0).to_json() | {"grid": 2.0**-17}
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(document))
    main(["verify", "receipt", str(path), "--corrupt", "2", "--prior-sd", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["mutual_information_nats"] == pytest.approx([0.3515] * 2, abs=5e-5)
    assert found["revealed_variance"] == pytest.approx([0.5049] * 2, abs=5e-4)
    main(["verify", "receipt", str(path), "--corrupt", "2", "--prior-sd", "1", "--details"])
    told = " ".join(capsys.readouterr().out.split())
    assert "OK This receipt holds. At most 0.36 nats a coordinate for every party" in told
    assert "at most 0.3516 nats a coordinate (a party's value has 1), which explain at most 0.50" in told
