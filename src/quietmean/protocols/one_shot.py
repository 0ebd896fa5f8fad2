"""Noise mechanisms without machines: execution files that describe one round of public noisy messages.

Two kinds: ``correlated`` (any zero-mean Gaussian noise, of which no party knows another's) and ``pairwise`` (own noise, and terms
that two parties share with opposite signs). They can be certified like executions, but not run or attacked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from quietmean.core.arrays import Mask, Matrix
from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.party import NoiseGroup, PartyId
from quietmean.protocols.fields import check_entries, optional_field, required_field
from quietmean.transcript import Transcript, TranscriptBuilder

if TYPE_CHECKING:
    from quietmean.privacy import PrivacyAnalysis


# Rounding of a zero eigenvalue and of a symmetric matrix, relative to the largest entry.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class CorrelatedNoise:
    """Every party publishes x_i + Z_i with (Z_1 .. Z_n) ~ N(0, covariance), the same on every coordinate; shape (n, n).

    No party knows another's noise. A corrupt party knows its own, since it knows its value. ``covariance`` may be singular:
    combinations without noise are disclosed. ``sensitivity``: L2 distance by which one unit can change its party's value.
    Raises :class:`InputError` for a matrix that is not a covariance, and for a sensitivity that is not positive.
    """

    covariance: Matrix
    sensitivity: float

    def __post_init__(self) -> None:
        _check_sensitivity(self.sensitivity)
        self.factor()

    @property
    def parties(self) -> int:
        return len(self.covariance)

    def factor(self) -> Matrix:
        """F with F F' = covariance, shape (n, rank). Raises :class:`InputError` if there is none."""
        largest = float(np.abs(self.covariance).max(initial=0.0))
        if float(np.abs(self.covariance - self.covariance.T).max(initial=0.0)) > _ROUNDING * largest:
            raise InputError("covariance is not symmetric: entry [i, j] must equal entry [j, i]")
        eigenvalues, vectors = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
        slack = _ROUNDING * self.parties * largest
        if eigenvalues.min(initial=0.0) < -slack:
            raise InputError(
                f"covariance has eigenvalue {eigenvalues.min():.6g}: no noise has it, a covariance has none below 0; correct it"
            )
        present = eigenvalues > slack
        factor: Matrix = vectors[:, present] * np.sqrt(eigenvalues[present])
        return factor

    def privacy(self, delta: float) -> PrivacyAnalysis:
        """What the noise hides, with epsilons at ``delta``. Raises :class:`InputError` for an impossible delta."""
        return _analysis(self, delta)

    def transcript(self) -> Transcript:
        """One public message a party; the noise terms in them are known to no party."""
        builder = TranscriptBuilder(self.parties)
        factor = self.factor()
        terms = [builder.add_noise([], 1.0, NoiseGroup.INDEPENDENT) for _ in range(factor.shape[1])]
        for party in range(self.parties):
            noise = dict(zip(terms, factor[party].tolist(), strict=True))
            builder.add_message(party, 1, values={party: 1.0}, noise=noise, released=True)
        return builder.build()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> CorrelatedNoise:
        """Read the mechanism from the file's JSON object. Raises :class:`InputError` for a missing or wrong field."""
        check_entries(raw, ("protocol", "parties", "covariance", "sensitivity"))
        parties = _parties(raw)
        rows = _converted(raw, "covariance", list[list[float]])
        if len(rows) != parties or any(len(row) != parties for row in rows):
            raise InputError(f"covariance must have {parties} rows of {parties} numbers: one for each pair of parties")
        covariance = np.array(rows, dtype=np.float64).reshape(parties, parties)
        if not np.isfinite(covariance).all():
            raise InputError("covariance has an entry that is not finite: give numbers only")
        return cls(covariance, optional_field(raw, "sensitivity", float, 1.0))


@dataclass(frozen=True, eq=False)
class PairwiseNoise:
    """Party i publishes x_i + own noise + its terms of ``edges`` (i, j, standard deviation): the larger number adds, the smaller
    subtracts. Both ends know a term.

    ``sigma_own``: standard deviations, shape (n,). A party that has not ``responded``, shape (n,), published nothing, but still
    knows its terms. ``sensitivity``: L2 distance by which one unit can change its party's value. Raises :class:`InputError` for
    numbers that are not in range.
    """

    edges: tuple[tuple[PartyId, PartyId, float], ...]
    sigma_own: Matrix
    responded: Mask
    sensitivity: float

    def __post_init__(self) -> None:
        _check_sensitivity(self.sensitivity)
        if not (np.isfinite(self.sigma_own).all() and (self.sigma_own >= 0).all()):
            raise InputError(f"sigma_own of {self.sigma_own.min():g} is not a standard deviation: give finite numbers >= 0")
        for first, second, sigma in self.edges:
            if not (0 <= first < self.parties and 0 <= second < self.parties and first != second):
                raise InputError(f"edge [{first}, {second}, {sigma:g}] does not join two of the parties 0..{self.parties - 1}")
            if not (math.isfinite(sigma) and sigma >= 0):
                raise InputError(f"edge [{first}, {second}, {sigma:g}] has no standard deviation: give a finite number >= 0")

    @property
    def parties(self) -> int:
        return len(self.sigma_own)

    def privacy(self, delta: float) -> PrivacyAnalysis:
        """What the noise hides, with epsilons at ``delta``. Raises :class:`InputError` for an impossible delta."""
        return _analysis(self, delta)

    def transcript(self) -> Transcript:
        """One public message a party that responded."""
        builder = TranscriptBuilder(self.parties)
        noise: list[dict[int, float]] = [{} for _ in range(self.parties)]
        for party, sigma in enumerate(self.sigma_own.tolist()):
            noise[party][builder.add_noise([party], sigma, NoiseGroup.INDEPENDENT)] = 1.0
        for first, second, sigma in self.edges:
            term = builder.add_noise([first, second], sigma, NoiseGroup.CANCELLING)
            noise[max(first, second)][term], noise[min(first, second)][term] = 1.0, -1.0
        for party in np.nonzero(self.responded)[0].tolist():
            builder.add_message(party, 1, values={party: 1.0}, noise=noise[party], released=True)
        return builder.build()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> PairwiseNoise:
        """Read the mechanism from the file's JSON object. Raises :class:`InputError` for a missing or wrong field."""
        check_entries(raw, ("protocol", "parties", "edges", "sigma_own", "responded", "sensitivity"))
        parties = _parties(raw)
        edges = _converted(raw, "edges", list[tuple[int, int, float]])
        own = _converted(raw, "sigma_own", list[float])
        responded = _converted(raw, "responded", list[bool]) if "responded" in raw else [True] * parties
        for name, given in (("sigma_own", own), ("responded", responded)):
            if len(given) != parties:
                raise InputError(f"{name} has {len(given)} entries with {parties} parties: give one for each party")
        sensitivity = optional_field(raw, "sensitivity", float, 1.0)
        return cls(tuple(edges), np.array(own, dtype=np.float64), np.array(responded, dtype=np.bool_), sensitivity)


OneShot: TypeAlias = CorrelatedNoise | PairwiseNoise

KINDS: dict[str, Callable[[Mapping[str, Any]], OneShot]] = {
    "correlated": CorrelatedNoise.parse,
    "pairwise": PairwiseNoise.parse,
}


def _analysis(mechanism: OneShot, delta: float) -> PrivacyAnalysis:
    from quietmean.privacy import PrivacyAnalysis

    return PrivacyAnalysis.of_gaussian(mechanism.transcript(), mechanism.sensitivity, delta)


def _parties(raw: Mapping[str, Any]) -> int:
    parties = required_field(raw, "parties", int)
    if parties < 1:
        raise InputError(f"parties is {parties}: at least 1 party is needed")
    return parties


def _check_sensitivity(sensitivity: float) -> None:
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise InputError(f"sensitivity is {sensitivity:g}: give the L2 diameter of one unit's domain, a number > 0")


def _converted(raw: Mapping[str, Any], name: str, kind: Any) -> Any:
    if name not in raw:
        raise InputError(f"field {name!r} is missing: add it")
    return convert(raw[name], kind, partial(unfit_field, name))
