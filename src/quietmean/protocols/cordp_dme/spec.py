"""Parameters of CorDP-DME."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.schema import OPEN, parameter
from quietmean.protocols.discrete import DiscreteNoise

_DEVIATION = "a standard deviation is a finite number >= 0"


class MeanDecoder(StrEnum):
    """``unbiased``: the mean of what was published. ``biased``: shrunk to the least worst-case error over a ball of values."""

    UNBIASED = "unbiased"
    BIASED = "biased"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CordpDmeParameters(DiscreteNoise):
    """``sigma_own`` and ``sigma_pair``: standard deviations per coordinate of N_i and of every S_ij.

    ``aggregator``: the party that collects all messages and publishes their sum; without one every party publishes its own.
    ``partners``: with how many others (an even number) each party shares noise; without it, with all. ``radius``: the largest
    L2 norm of a value, which the biased decoder needs; a plan takes that of its domain by default.
    """

    sigma_own: float = parameter(help="standard deviation of every party's own noise", at_least=0, remedy=_DEVIATION)
    sigma_pair: float = parameter(help="standard deviation of every pair's noise", at_least=0, remedy=_DEVIATION)
    decoder: MeanDecoder = parameter(
        MeanDecoder.UNBIASED, help="unbiased, or biased for the least worst-case error over a ball", option=True
    )
    aggregator: PartyId | None = parameter(
        None, help="the party that collects all messages and publishes their sum; by default all publish", option=True
    )
    partners: int | None = parameter(None, help="with how many others each party shares noise; by default with all", option=True)
    radius: float | None = parameter(
        None,
        help="the largest L2 norm of a value, for the biased decoder; by default that of the domain",
        option=True,
        above=0,
        remedy="give the largest L2 norm of a value, a finite number > 0",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder == MeanDecoder.BIASED and self.radius is None and self.sigma_own is not OPEN:
            raise InputError("decoder biased has no radius: give the largest L2 norm of a value, for example radius 1")

    @property
    def own_deviation(self) -> float:
        return self.sigma_own

    def degree(self, parties: int) -> int:
        """How many others each party shares noise with."""
        return parties - 1 if self.partners is None else self.partners

    def noise_in_sum(self, parties: int, responding: int) -> float:
        """Variance of the noise in the sum of ``responding`` messages, per coordinate.

        Exact on the complete graph; otherwise the mean over random responders, each of whose partners is absent with
        probability (n-u)/(n-1).
        """
        cut = self.degree(parties) * (parties - responding) / max(parties - 1, 1)
        return responding * (self.sigma_own**2 + cut * self.sigma_pair**2)
