"""SecAgg+ behind the common interface: SecAgg whose masks and shares run along a random graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.entropy import BitStream, Seed
from quietmean.protocols.fields import optional_field
from quietmean.protocols.protocol import Demand, Design
from quietmean.protocols.secagg import spec
from quietmean.protocols.secagg.design import Shape, design
from quietmean.protocols.secagg.neighbourhood import assess, choose_neighbourhood
from quietmean.protocols.secagg.protocol import SecAgg
from quietmean.protocols.secagg.spec import SecAggParameters


class SecAggPlus(SecAgg):
    """Each party masks and shares with ``degree`` others: the degree / 2 next ones on either side of a random public ring."""

    name = "secagg-plus"
    summary = "SecAgg along a random graph with few neighbours each: work per party grows with log n instead of n"
    options = SecAgg.options | {"degree", "security_bits", "correctness_bits"}

    def parse(self, raw: Mapping[str, Any], parties: int) -> SecAggParameters:
        return spec.parse(raw, parties, with_neighbours=True)

    def draft(self, parties: int, options: Mapping[str, Any]) -> SecAggParameters:
        given = {name: option for name, option in options.items() if name not in ("security_bits", "correctness_bits")}
        degree = optional_field(options, "degree", int, parties - 1)
        return super().draft(parties, {"degree": degree, "threshold": (degree + 1) // 2 + 1, **given})

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[SecAggParameters] | None:
        return design(demand, options, _shape(demand, options))

    def _pairs(self, parameters: SecAggParameters, parties: int, seed: Seed) -> NDArray[np.int64]:
        """Who masks with whom, shape (M, 2): parties at most degree / 2 places apart on a random ring."""
        degree = parties - 1 if parameters.neighbours is None else parameters.neighbours
        if degree == parties - 1:
            return super()._pairs(parameters, parties, seed)
        ring = BitStream(seed.derive("secagg ring", parties)).permutation(parties)
        around = [np.stack([ring, np.roll(ring, -distance)], axis=1) for distance in range(1, degree // 2 + 1)]
        return np.unique(np.sort(np.concatenate(around), axis=1), axis=0).astype(np.int64)


def _shape(demand: Demand, options: Mapping[str, Any]) -> Shape:
    staying, parties = demand.responding, demand.parties
    if "degree" in options or "threshold" in options:
        degree = optional_field(options, "degree", int, parties - 1)
        threshold = optional_field(options, "threshold", int, (2 * (degree + 1) + 2) // 3)
        found = assess(parties, demand.colluding, parties - staying, degree, threshold)
    else:
        bits = (optional_field(options, name, float, 40.0) for name in ("security_bits", "correctness_bits"))
        found = choose_neighbourhood(parties, demand.colluding, demand.dropouts, *bits)
    minimum = optional_field(options, "minimum", int, max(2, staying))
    if minimum > staying:
        raise InputError(f"minimum is {minimum} but with dropouts of {demand.dropouts:g} only {staying} parties stay: lower it")
    claim = (
        f"threshold {found.threshold} of {found.neighbours + 1} shares; over the random graph secrecy fails with probability "
        f"{_chance(found.security_bits)} and the run with {_chance(found.correctness_bits)} at most"
    )
    return Shape(found.threshold, minimum, found.neighbours, claim)


def _chance(bits: float) -> str:
    return "0" if math.isinf(bits) else f"2^-{math.floor(bits)}"
