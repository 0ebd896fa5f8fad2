"""Parameters of IncA: the injection (c, Z) and the noise levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.grid import check_step

# Conditions of a valid injection are checked in floating point; files carry 15 digits at best.
_TOLERANCE = 1e-9

Terms = tuple[tuple[int, float], ...]


@dataclass(frozen=True, eq=False)
class Injection:
    """A (c, Z)-Gaussian injection (IncA, Definitions 3.3 and 3.4): row r is what a party adds in its r-th online round.

    ``portion`` is c, shape (T + 1,); ``noise`` is Z with the relative scales of its columns, shape (T + 1, K).
    """

    name: str
    portion: NDArray[np.float64]
    noise: NDArray[np.float64]

    @property
    def rounds(self) -> int:
        return len(self.portion) - 1

    @property
    def noise_terms(self) -> int:
        return int(self.noise.shape[1])

    @cached_property
    def rows(self) -> tuple[Terms, ...]:
        """For each online round, the noise terms to add, as (index from 1, coefficient)."""
        return tuple(_terms(row) for row in self.noise)

    @cached_property
    def cancellations(self) -> tuple[Terms, ...]:
        """Entry r: what cancels all the noise added in the first r online rounds."""
        added = np.vstack([np.zeros(self.noise_terms), np.cumsum(self.noise, axis=0)])
        added[np.abs(added) < _TOLERANCE * max(1.0, float(np.abs(self.noise).max(initial=0.0)))] = 0.0
        return tuple(_terms(-row) for row in added)

    @classmethod
    def incremental(cls, rounds: int) -> Injection:
        """D_Inc: 1 / (T + 1) of the value a round, the noise renewed each time (IncA, Example 3.2, corrected)."""
        noise = np.eye(rounds + 1, rounds) - np.eye(rounds + 1, rounds, -1)
        return cls("incremental", np.full(rounds + 1, 1.0 / (rounds + 1)), noise)

    @classmethod
    def early(cls, rounds: int) -> Injection:
        """D_EI: the value and all noise at once, one noise term taken out per round (IncA, Example 3.1)."""
        noise = np.vstack([np.ones(rounds), -np.eye(rounds)])
        return cls("early", np.eye(rounds + 1)[0], noise)

    @classmethod
    def plain(cls, rounds: int) -> Injection:
        """The value at once and no noise: gossip averaging."""
        return cls("plain", np.eye(rounds + 1)[0], np.zeros((rounds + 1, 0)))

    @classmethod
    def general(cls, portion: NDArray[np.float64], noise: NDArray[np.float64]) -> Injection:
        """Any valid (c, Z); refused with the reason otherwise."""
        rounds = len(portion) - 1
        if noise.shape != (rounds + 1, rounds):
            raise InputError(f"Z has shape {noise.shape} but c has {rounds + 1} entries: Z needs shape ({rounds + 1}, {rounds})")
        if not (np.isfinite(portion).all() and np.isfinite(noise).all()):
            raise InputError("c or Z has an entry that is not finite: give numbers only")
        scale = max(1.0, float(np.abs(noise).max()))
        if abs(portion.sum() - 1) > _TOLERANCE:
            raise InputError(f"c sums to {portion.sum():.12g}: the portions of the value must sum to 1")
        worst = int(np.argmax(np.abs(noise.sum(axis=0))))
        if abs(noise[:, worst].sum()) > _TOLERANCE * scale:
            raise InputError(f"column {worst} of Z sums to {noise[:, worst].sum():.6g}: every column must sum to 0 to cancel")
        for matrix, name in ((np.column_stack([portion, noise]), "(c, Z)"), (noise[:-1], "Z without its last row")):
            if np.linalg.matrix_rank(matrix, tol=_TOLERANCE * scale) < len(matrix):
                raise InputError(f"{name} is singular: IncA, Definition 3.4 needs it invertible, or noise could be guessed")
        return cls("general", portion, noise)

    @classmethod
    def parse(cls, raw: object, rounds: int) -> Injection:
        """From JSON: "incremental", "early" or {"c": [...], "Z": [[...]], "sigma": [...] (relative scales, optional)}."""
        if raw == "incremental":
            return cls.incremental(rounds)
        if raw == "early":
            return cls.early(rounds)
        if isinstance(raw, Mapping) and {"c", "Z"} <= set(raw) <= {"c", "Z", "sigma"}:
            try:
                portion, noise = np.array(raw["c"], dtype=np.float64), np.array(raw["Z"], dtype=np.float64)
                noise = noise * np.array(raw.get("sigma", 1.0), dtype=np.float64)
            except ValueError as error:
                raise InputError(f"c, Z or sigma of the injection is not an array of numbers ({error}): mend it") from None
            if portion.shape != (rounds + 1,) or noise.ndim != 2:
                raise InputError(
                    f"c has shape {portion.shape} with {rounds} rounds: give {rounds + 1} portions, one per round 0..T"
                )
            return cls.general(portion, noise)
        raise InputError(f'injection {raw!r} is unknown: use "incremental", "early" or an object with "c" and "Z"')

    def describe(self) -> object:
        if self.name == "general":
            return {"c": self.portion.tolist(), "Z": self.noise.tolist()}
        return self.name


def check_fixed_point(value_bits: int, grid: float, largest_value: float) -> None:
    """Raises :class:`InputError` for fields of a grid that do not fit together."""
    if value_bits not in (32, 64):
        raise InputError(f"value_bits is {value_bits}: choose 32 (whole numbers on a public grid) or 64 (float64)")
    if not (np.isfinite(largest_value) and largest_value >= 0):
        raise InputError(f"largest_value is {largest_value:g}: give the largest absolute coordinate of any party's value")
    if value_bits == 64 and (grid or largest_value):
        name, number = ("grid", grid) if grid else ("largest_value", largest_value)
        raise InputError(f"{name} is {number:g} but value_bits is 64: a grid belongs to 32-bit values, set value_bits = 32 too")
    if grid:
        check_step(grid)


def _terms(row: NDArray[np.float64]) -> Terms:
    return tuple((int(index) + 1, float(row[index])) for index in np.nonzero(row)[0])


@dataclass(frozen=True, eq=False)
class IncaParameters:
    """``sigma_star`` is the standard deviation of the independent noise, ``sigma_delta`` of the cancelled noise terms.

    ``value_bits``: 64 for float64 values; with 32 every number that a party holds is a multiple of ``grid`` (a power of two, in
    the values' units) and shares take 32 bits; no coordinate of a party's value may then be larger than ``largest_value``. A grid
    of 0 is still to be chosen, when the noise is known; until then values are float64. Certificates of executions on a grid need
    the ``dimension`` of the values.
    """

    injection: Injection
    sigma_star: float
    sigma_delta: float
    schedule: str = "permutation"
    out_degree: int = 1
    value_bits: int = 64
    grid: float = 0.0
    largest_value: float = 0.0
    dimension: int | None = None

    def __post_init__(self) -> None:
        check_fixed_point(self.value_bits, self.grid, self.largest_value)
        if self.dimension is not None and self.dimension < 1:
            raise InputError(f"dimension is {self.dimension}: a value has at least 1 coordinate")
        if self.injection.rounds < 1:
            raise InputError(f"rounds is {self.injection.rounds}: IncA needs at least 1 mixing round")
        for name, sigma in (("sigma_star", self.sigma_star), ("sigma_delta", self.sigma_delta)):
            if not (np.isfinite(sigma) and sigma >= 0):
                raise InputError(f"{name} is {sigma:g}: a standard deviation is a finite number >= 0")

    @property
    def rounds(self) -> int:
        return self.injection.rounds
