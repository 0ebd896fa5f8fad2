"""Parameters of CorDP-DME."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quietmean.core.errors import InputError
from quietmean.protocols.fields import optional_field, required_field


class Decoder(StrEnum):
    """``unbiased``: the mean of what was published. ``biased``: shrunk to the least worst-case error over a ball of values."""

    UNBIASED = "unbiased"
    BIASED = "biased"


@dataclass(frozen=True)
class CordpDmeParameters:
    """``sigma_own`` and ``sigma_pair``: standard deviations per coordinate of N_i and of every S_ij.

    ``aggregator``: the party that collects all messages and publishes their sum; without one every party publishes its own.
    ``partners``: with how many others (an even number) each party shares noise; without it, with all. ``radius``: the largest
    L2 norm of a value, which the biased decoder needs.
    """

    sigma_own: float
    sigma_pair: float
    aggregator: int | None = None
    partners: int | None = None
    decoder: Decoder = Decoder.UNBIASED
    radius: float | None = None

    def __post_init__(self) -> None:
        for name, sigma in (("sigma_own", self.sigma_own), ("sigma_pair", self.sigma_pair)):
            if not (math.isfinite(sigma) and sigma >= 0):
                raise InputError(f"{name} is {sigma:g}: a standard deviation is a finite number >= 0")
        if self.radius is not None and not (math.isfinite(self.radius) and self.radius > 0):
            raise InputError(f"radius is {self.radius:g}: give the largest L2 norm of a value, a finite number > 0")
        if self.decoder == Decoder.BIASED and self.radius is None:
            raise InputError("decoder biased has no radius: give the largest L2 norm of a value, for example radius 1")

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


def parse_parameters(raw: Mapping[str, Any], parties: int) -> CordpDmeParameters:
    """From a JSON object, checked."""
    return CordpDmeParameters(
        sigma_own=required_field(raw, "sigma_own", float),
        sigma_pair=required_field(raw, "sigma_pair", float),
        aggregator=_aggregator(raw, parties),
        partners=_partners(raw, parties),
        decoder=_decoder(raw),
        radius=None if raw.get("radius") is None else required_field(raw, "radius", float),
    )


def _aggregator(raw: Mapping[str, Any], parties: int) -> int | None:
    if raw.get("aggregator") is None:
        return None
    aggregator = required_field(raw, "aggregator", int)
    if not 0 <= aggregator < parties:
        raise InputError(f"aggregator is {aggregator}: parties are numbered 0..{parties - 1}")
    return aggregator


def _partners(raw: Mapping[str, Any], parties: int) -> int | None:
    if raw.get("partners") is None:
        return None
    partners = required_field(raw, "partners", int)
    if partners < 2 or partners % 2 or partners >= parties:
        raise InputError(
            f"partners is {partners} with {parties} parties: choose an even number >= 2 and below the number of parties, "
            "or leave it out to share noise with everybody"
        )
    return partners


def _decoder(raw: Mapping[str, Any]) -> Decoder:
    name = optional_field(raw, "decoder", str, "unbiased")
    try:
        return Decoder(name)
    except ValueError:
        raise InputError(f"decoder {name!r} is unknown: choose unbiased or biased") from None
