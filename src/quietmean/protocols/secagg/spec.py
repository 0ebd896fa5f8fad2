"""The parameters of secure aggregation with distributed discrete Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.entropy.discrete_gaussian import LARGEST_SCALE
from quietmean.protocols.fields import optional_field, required_field

DISCRETE_GAUSSIAN, NO_NOISE = "discrete-gaussian", "none"
CONDITIONAL, INDEPENDENT = "conditional", "independent"
# Integers on the way to the ring are 64-bit.
_LARGEST_INTEGER = 2.0**60


@dataclass(frozen=True)
class SecAggParameters:
    """``threshold`` shares open a secret; with fewer than ``minimum`` arrived inputs there is no result.

    ``bits``: inputs are added modulo 2**bits; ``granularity``: the value of one step; ``sigma``: scale of each party's noise, in
    the value's units. A party of public weight w <= ``largest_weight`` has its value moved by -w * ``centre`` in every
    coordinate and clipped to the L2 ball of radius w * ``clip``. ``rotation``: number of the public random rotation.
    ``neighbours``: how many other parties each one shares with, None for all (SecAgg); ``aggregator``: the party that plays the
    server, too. ``dimension`` of the values: without it nothing can be certified.
    """

    threshold: int
    minimum: int
    granularity: float
    sigma: float
    clip: float
    bits: int = 32
    centre: float = 0.0
    largest_weight: float = 1.0
    noise: str = DISCRETE_GAUSSIAN
    rounding: str = INDEPENDENT
    rotation: int = 0
    aggregator: PartyId = 0
    neighbours: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        if self.dimension is not None and self.dimension < 1:
            raise InputError(f"dimension is {self.dimension}: a value has at least 1 coordinate")
        if not 2 <= self.bits <= 32:
            raise InputError(f"bits is {self.bits}: choose 2..32")
        for name in ("granularity", "clip", "largest_weight"):
            number = getattr(self, name)
            if not (np.isfinite(number) and number > 0):
                raise InputError(f"{name} is {number:g}: choose a finite number > 0")
        for name in ("sigma", "centre"):
            if not np.isfinite(getattr(self, name)):
                raise InputError(f"{name} is {getattr(self, name):g}: choose a finite number")
        if self.noise not in (DISCRETE_GAUSSIAN, NO_NOISE):
            raise InputError(f"noise {self.noise!r} is unknown: choose {DISCRETE_GAUSSIAN} or {NO_NOISE}")
        if self.rounding not in (CONDITIONAL, INDEPENDENT):
            raise InputError(f"rounding {self.rounding!r} is unknown: choose {CONDITIONAL} or {INDEPENDENT}")
        self._check_noise()
        if self.largest_weight * self.clip / self.granularity > _LARGEST_INTEGER:
            raise InputError(f"a granularity of {self.granularity:g} is too fine for a clip of {self.clip:g}: raise it")

    def _check_noise(self) -> None:
        if (self.noise == NO_NOISE) != (self.sigma == 0.0):
            raise InputError(f"sigma is {self.sigma:g} with noise {self.noise}: sigma is 0 without noise and > 0 with it")
        if not 0 <= self.sigma / self.granularity <= LARGEST_SCALE:
            raise InputError(
                f"sigma is {self.sigma / self.granularity:g} steps of the granularity: choose 0..{LARGEST_SCALE:g} steps"
            )

    @property
    def private(self) -> bool:
        """Does the released sum have noise at all?"""
        return self.noise != NO_NOISE

    @property
    def scale(self) -> float:
        """The noise of one party in steps of the granularity."""
        return self.sigma / self.granularity

    @property
    def party_variance(self) -> float:
        """Variance per coordinate of what one party's noise and rounding put into the sum; of rounding its mean over values."""
        return self.sigma**2 + self.granularity**2 / 6 if self.private else 0.0

    def words(self, dimension: int) -> int:
        """The numbers in a masked input: the dimension, padded to a power of two where values are rotated."""
        return dimension if self.noise == NO_NOISE else 1 << (dimension - 1).bit_length()


def check_parties(parameters: SecAggParameters, parties: int) -> SecAggParameters:
    """Raises :class:`InputError` for what does not fit the number of parties."""
    if parties < 2:
        raise InputError(f"{parties} party has nobody to add up with: at least 2 parties are needed")
    if not 0 <= parameters.aggregator < parties:
        raise InputError(f"aggregator is {parameters.aggregator}: parties are numbered 0..{parties - 1}")
    holders = parties if parameters.neighbours is None else parameters.neighbours + 1
    if parameters.neighbours is not None:
        _check_neighbours(parameters.neighbours, parties)
    if not holders < 2 * parameters.threshold <= 2 * holders:
        raise InputError(
            f"threshold is {parameters.threshold} of {holders} shares: choose more than half, {holders // 2 + 1}..{holders}, "
            "or two disjoint groups of parties could be asked for both secrets of one"
        )
    if not 2 <= parameters.minimum <= parties:
        raise InputError(f"minimum is {parameters.minimum} arrived inputs: choose 2..{parties}")
    if parameters.neighbours is None and parameters.minimum < parameters.threshold:
        raise InputError(
            f"minimum is {parameters.minimum}, below the threshold {parameters.threshold}: raise it to that at least"
        )
    return parameters


def _check_neighbours(neighbours: int, parties: int) -> None:
    if not 1 <= neighbours < parties:
        raise InputError(f"neighbours is {neighbours} with {parties} parties: choose 1..{parties - 1}")
    if neighbours % 2 and neighbours != parties - 1:
        raise InputError(f"neighbours is {neighbours}: take an even number, or all {parties - 1} others")


def parse(raw: Mapping[str, Any], parties: int, with_neighbours: bool) -> SecAggParameters:
    parameters = SecAggParameters(
        threshold=required_field(raw, "threshold", int),
        minimum=required_field(raw, "minimum", int),
        granularity=required_field(raw, "granularity", float),
        sigma=required_field(raw, "sigma", float),
        clip=required_field(raw, "clip", float),
        bits=optional_field(raw, "bits", int, 32),
        centre=optional_field(raw, "centre", float, 0.0),
        largest_weight=optional_field(raw, "largest_weight", float, 1.0),
        noise=optional_field(raw, "noise", str, DISCRETE_GAUSSIAN),
        rounding=optional_field(raw, "rounding", str, INDEPENDENT),
        rotation=optional_field(raw, "rotation", int, 0),
        aggregator=optional_field(raw, "aggregator", int, 0),
        # A schedule is its own list of neighbours in an execution file: there the number has another name.
        neighbours=required_field(raw, "degree", int) if with_neighbours else None,
        dimension=required_field(raw, "dimension", int) if raw.get("dimension") is not None else None,
    )
    return check_parties(parameters, parties)


def describe(parameters: SecAggParameters) -> dict[str, Any]:
    document: dict[str, Any] = {name: getattr(parameters, name) for name in parameters.__dataclass_fields__}
    degree = document.pop("neighbours")
    if parameters.dimension is None:
        del document["dimension"]
    return document if degree is None else document | {"degree": degree}
