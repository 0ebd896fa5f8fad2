"""Many sessions of a committee at once: what is opened, without any share. With insecure randomness, for simulation only."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Vector
from quietmean.core.schema import require_usual
from quietmean.protocols.committee.accounting import predicted_error
from quietmean.protocols.committee.encoding import decode, encode
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.randomness.layered_gaussian import layered_gaussian


@dataclass(frozen=True, eq=False)
class CommitteeSimulation:
    """``estimates`` and ``truth``, the mean of those that came, shape (runs, d); ``contributions``, (runs,): how many did."""

    parameters: CommitteeParameters
    estimates: Vector = field(repr=False)
    truth: Vector = field(repr=False)
    contributions: tuple[int, ...] = field(repr=False)

    @cached_property
    def scaled_errors(self) -> Vector:
        """Estimate minus truth over the standard error that is predicted for so many contributions, shape (runs, d)."""
        predicted = np.array([predicted_error(self.parameters, count) for count in self.contributions])
        scaled: Vector = (self.estimates - self.truth) / np.sqrt(predicted)[:, None]
        return scaled

    @property
    def ratio(self) -> float:
        """Mean squared error over the predicted one."""
        return float((self.scaled_errors**2).mean())

    @property
    def ratio_standard_error(self) -> float:
        """Of :attr:`ratio`."""
        return float((self.scaled_errors**2).std(ddof=1) / np.sqrt(self.scaled_errors.size))


def simulate_committee(
    parameters: CommitteeParameters, runs: int, *, dropouts: float = 0.0, values: Vector | None = None, seed: int = 0
) -> CommitteeSimulation:
    """``runs`` sessions to which each contributor comes with chance 1 - ``dropouts``, with weight 1.

    ``values``: of all contributors, shape (n, d), by default uniform in the box of the parameters. Raises :class:`InputError` for
    less than one run and values of another shape, :class:`ProtocolFailure` if fewer than the minimum come.
    """
    if runs < 1:
        raise InputError(f"{runs} runs simulate nothing: choose at least 1")
    require_usual("runs", runs)
    shape = parameters.contributors, parameters.dimension
    root = insecure_seed(seed, "simulate committee", str(parameters.to_json()))
    if values is None:
        drawn = BitStream(root.derive("values")).uniform(shape[0] * shape[1]).reshape(shape)
        values = parameters.centre + parameters.clip * (2 * drawn - 1)
    if values.shape != shape:
        raise InputError(f"values have shape {values.shape}, the plan needs {shape}")
    estimates, truth, counts = [], [], []
    for run in range(runs):
        own = root.derive(run)
        came = np.nonzero(BitStream(own.derive("dropouts")).uniform(shape[0]) >= dropouts)[0].tolist()
        if len(came) < parameters.minimum:
            raise ProtocolFailure(
                f"{len(came)} contributions came, and a result needs {parameters.minimum}: choose fewer dropouts"
            )
        total = np.zeros(parameters.dimension, dtype=np.int64)
        for number in came:
            total += encode(parameters, values[number], 1.0, own.derive("rounding", number))
        for dealer in range(parameters.dealings):
            total += layered_gaussian(own.derive("noise", dealer), parameters.scale, parameters.dimension)
        estimates.append(decode(parameters, total, [1.0] * len(came)) / len(came))
        truth.append(values[came].mean(axis=0))
        counts.append(len(came))
    return CommitteeSimulation(parameters, np.array(estimates), np.array(truth), tuple(counts))
