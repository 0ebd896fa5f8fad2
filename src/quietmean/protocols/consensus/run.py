"""A run of consensus in numbers, with the overloads of its quantisers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.consensus.edges_in_use import Deliveries
from quietmean.protocols.consensus.population import LinkVariables, noisy_values, perturbation
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.protocols.releases import Releases
from quietmean.transcript.numbers import NumericReading, NumericRows, NumericTerms, RealRows

# Called after each iteration t = 1, 2, ... with the estimates x^(t), shape (n, d).
Watch = Callable[[int, Vector], None]


def _nobody(iteration: int, x: Vector) -> None:
    """No observer."""


@dataclass(frozen=True, eq=False)
class ConsensusRun:
    """``releases`` of all parties; ``overloads`` (iterations,) how many entries overloaded a quantiser in each iteration.

    ``active`` (2m,): which links their senders used to the end. ``peaks`` (iterations,): the largest input of a quantiser, in
    cells.
    """

    releases: Releases
    overloads: Ints
    active: Mask
    peaks: Array


def run_consensus(
    parameters: ConsensusParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Vector,
    weights: Array,
    noise: PopulationNoise,
    watch: Watch = _nobody,
    initial: Vector | None = None,
) -> ConsensusRun:
    """Run on values (n, d), weights (n,). ``initial``: z^(0) of every link, shape (2m, d), instead of drawn noise."""
    arithmetic = RealRows(parameters.numbers())
    reading, terms = NumericReading(values, arithmetic), NumericTerms(noise, len(values), values.shape[1], arithmetic.numbers)
    noisy = reading.vectors(noisy_values(parameters, reading.values, terms))
    z = reading.vectors(perturbation(parameters, terms)) if initial is None else initial
    return follow(parameters, Deliveries.of(parameters, schedule, trace), trace.online, noisy, weights, z, watch)


def follow(
    parameters: ConsensusParameters,
    deliveries: Deliveries,
    online: Mask,
    values: Vector,
    weights: Array,
    z: Vector,
    watch: Watch = _nobody,
) -> ConsensusRun:
    """Run from noisy values (n, d), weights (n,) and z^(0) (2m, d), without drawing noise. ``online``: (T + 1, n)."""
    reading = NumericReading(values)
    exchange = LinkVariables(
        parameters,
        deliveries,
        online,
        reading.values,
        weights,
        NumericRows(z),
        reading,
        lambda iteration, x: watch(iteration, reading.vectors(x)),
    )
    results = exchange.run()
    releases = Releases(reading.vectors(results.rows), results.weight, results.by)
    quantisers, none = exchange.quantisers, np.zeros(parameters.iterations)
    overloads, peaks = (none.astype(np.int64), none) if quantisers is None else (quantisers.overloads, quantisers.peaks)
    return ConsensusRun(releases, overloads, exchange.active, peaks)
