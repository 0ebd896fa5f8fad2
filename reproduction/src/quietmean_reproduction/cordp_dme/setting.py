"""What the experiments of the paper have in common, and real runs of the protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.protocols.cordp_dme.design import NoiseDesign, gaussian_variance, optimal_design, shrinkage
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed

PAPER = "CorDP-DME (Vithana, Cadambe, Calmon, Jeong)"
DELTA = 1e-5
# The largest norm of a value, and what Theorem 1 and what Table II take for the sensitivity of such values.
RADIUS = 1.0
REPLACEMENT, TABLE_II = 2.0 * RADIUS, RADIUS


def local_design(parties: int, responding: int, unit: float) -> NoiseDesign:
    """Local DP as a design: noise of one's own only."""
    return NoiseDesign(parties, responding, 0, unit, 0.0, 0.0)


def design_for(parties: int, responding: int, colluding: int, epsilon: float, sensitivity: float) -> NoiseDesign:
    return optimal_design(parties, responding, colluding, gaussian_variance(epsilon, DELTA, sensitivity))


@dataclass(frozen=True, eq=False)
class MeasuredErrors:
    """Squared L2 errors of ``runs`` runs, shape (runs,), of both decoders."""

    unbiased: NDArray[np.float64]
    biased: NDArray[np.float64]

    def row(self) -> dict[str, float | int]:
        """Means and their standard errors."""
        return {
            "unbiased": float(self.unbiased.mean()),
            "unbiased_standard_error": standard_error(self.unbiased),
            "biased": float(self.biased.mean()),
            "biased_standard_error": standard_error(self.biased),
            "runs": len(self.unbiased),
        }


def standard_error(sample: NDArray[np.float64]) -> float:
    return float(sample.std(ddof=1) / math.sqrt(len(sample)))


def measure(design: NoiseDesign, responding: int, dimension: int, runs: int, seed: int) -> MeasuredErrors:
    """The protocol's batch kernel, ``responding`` random parties publish: the error of the mean of their values.

    All values are one and the same vector on the sphere, the worst case of the biased decoder. Coordinates are independent:
    one execution of ``runs`` times ``dimension`` coordinates is as many runs. Schedule, dropouts and noise follow from ``seed``.
    """
    parties = design.parties
    execution = _execution(design, responding, seed)
    value = np.tile(np.full(dimension, RADIUS / math.sqrt(dimension)), runs)
    values: Vector = np.broadcast_to(value, (parties, value.size)).copy()
    releases = execution.run_batch(values, InsecurePopulationNoise(seed, parties))
    mean = execution.estimate(releases).reshape(runs, dimension)
    truth = value.reshape(runs, dimension)
    shrunk = mean * shrinkage(design.mse(dimension, responding), RADIUS)
    return MeasuredErrors(((mean - truth) ** 2).sum(axis=1), ((shrunk - truth) ** 2).sum(axis=1))


def _execution(design: NoiseDesign, responding: int, seed: int) -> Execution:
    parties = design.parties
    protocol = CorDPDME(sigma_own=math.sqrt(design.own), sigma_pair=math.sqrt(design.pair))
    schedule = protocol.draw_schedule(parties, insecure_seed(seed, "schedule"))
    online = np.ones((protocol.rounds + 1, parties), dtype=np.bool_)
    online[1:, _absent(parties, responding, seed)] = False
    return Execution(protocol, schedule, ExecutionTrace(online), REPLACEMENT, np.ones(parties))


def _absent(parties: int, responding: int, seed: int) -> NDArray[np.int64]:
    from quietmean.randomness import BitStream

    return BitStream(insecure_seed(seed, "absent")).permutation(parties)[responding:]
