"""SecAgg+: secure aggregation along a random graph with few neighbours each (Bell et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.core.schema import OPEN, given_value, parameter
from quietmean.protocols import literature
from quietmean.protocols.fields import never_written
from quietmean.protocols.mechanism import Design
from quietmean.protocols.publishing import check_collector
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg.batch import LEAST_BITS
from quietmean.protocols.secagg.design import Shape, assess, choose_neighbourhood, counted_parties, designed
from quietmean.protocols.secagg.spec import check_neighbours
from quietmean.protocols.target import Target
from quietmean.randomness import BitStream, Seed

_SECURITY_BITS, _CORRECTNESS_BITS = 40.0, 40.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecAggPlus(SecAgg):
    """Each party masks and shares with ``neighbours`` others: half of them next to it on either side of a random public ring.

    Plans choose them so that secrecy and the run fail with probability 2^-``security_bits`` and 2^-``correctness_bits`` at most.
    """

    name = "secagg-plus"
    TRAITS = replace(
        SecAgg.TRAITS,
        summary="SecAgg along a random graph with few neighbours each: work per party grows with log n instead of n",
        sources=(literature.SECAGG_PLUS, literature.DISTRIBUTED_DISCRETE_GAUSSIAN),
    )

    # A schedule is its own list of neighbours in an execution file: there the number has another name.
    neighbours: int = parameter(help="with how many others each party shares", option=True, key="degree", flag="degree")
    security_bits: float = parameter(
        _SECURITY_BITS,
        help="secrecy over the random graph fails with 2 to the power of minus this",
        option=True,
        above=0,
        remedy="choose a number of bits > 0",
        written=never_written,
    )
    correctness_bits: float = parameter(
        _CORRECTNESS_BITS,
        help="the run fails for its random graph with 2 to the power of minus this",
        option=True,
        above=0,
        remedy="choose a number of bits > 0",
        written=never_written,
    )

    def design(self, target: Target) -> Design:
        check_collector(self.aggregator, target.parties)
        parameters, mse_noise, certificate = designed(self, target, _shape(self, target))
        # The number of neighbours is chosen now, and the certificate states its bits: the options go back to their defaults.
        parameters = replace(parameters, security_bits=_SECURITY_BITS, correctness_bits=_CORRECTNESS_BITS)
        return Design(parameters, mse_noise, target.dropout_bias(counted_parties(target)), certificate)

    def graph_failure(self, parties: int) -> float:
        # A graph that fails with a larger probability is not relied on.
        return _graph_failure(self.neighbours, parties)

    def _pairs(self, parties: int, seed: Seed) -> Ints:
        """The pairs that share a mask, shape (M, 2): parties at most degree / 2 places apart on a random ring."""
        degree = self.neighbours
        if degree == parties - 1:
            return super()._pairs(parties, seed)
        ring = BitStream(seed.derive("secagg ring", parties)).permutation(parties)
        around = [np.stack([ring, np.roll(ring, -distance)], axis=1) for distance in range(1, degree // 2 + 1)]
        return np.unique(np.sort(np.concatenate(around), axis=1), axis=0).astype(np.int64)


def _shape(requested: SecAggPlus, target: Target) -> Shape:
    staying, parties = target.responding, target.parties
    if requested.neighbours is not OPEN or requested.threshold is not OPEN:
        degree = given_value(requested.neighbours, parties - 1)
        check_neighbours(degree, parties)
        threshold = given_value(requested.threshold, (2 * (degree + 1) + 2) // 3)
        neighbourhood = assess(parties, target.colluding, parties - staying, degree, threshold)
    else:
        neighbourhood = choose_neighbourhood(
            parties, target.colluding, target.dropouts, requested.security_bits, requested.correctness_bits
        )
    minimum = given_value(requested.minimum, max(2, staying))
    if minimum > staying:
        raise InputError(f"minimum is {minimum} but with dropouts of {target.dropouts:g} only {staying} parties stay. Lower it.")
    claim = (
        f"The threshold is {neighbourhood.threshold} of {neighbourhood.neighbours + 1} shares. "
        f"Over the random graph secrecy fails with probability {_chance(neighbourhood.security_bits)} "
        f"and the run with {_chance(neighbourhood.correctness_bits)} at most"
    )
    return Shape(
        neighbourhood.threshold, minimum, neighbourhood.neighbours, claim, _graph_failure(neighbourhood.neighbours, parties)
    )


def _graph_failure(neighbours: int, parties: int) -> float:
    return 0.0 if neighbours == parties - 1 else 2.0**-LEAST_BITS


def _chance(bits: float) -> str:
    return "0" if math.isinf(bits) else f"2^-{math.floor(bits)}"


__all__ = ["PROTOCOL", "SecAggPlus"]

# The machines are SecAgg's (ClientParty, AggregatorParty); who shares with whom is all that differs.
PROTOCOL = SecAggPlus
