"""What comes out of an execution, and what is told of it."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.target import Target


class GivesResults:
    """By default the sum of the releases over that of the weights, of all parties that finished.

    ``gaussian_noise``: the noise in a result is Gaussian, or sums of discrete Gaussians.
    ``releases_are_public``: what a party releases is known to all parties. If false, every party computes a result for itself.
    """

    releases_are_public: ClassVar[bool] = True
    gaussian_noise: ClassVar[bool] = True

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        """The parties whose values are in the result, shape (n,), if only in part. By default, those that finished."""
        return trace.finished

    def parts(self, schedule: Schedule, trace: ExecutionTrace) -> Array:
        """How much of each party's value is in the result, shape (n,), up to a common factor. By default all or nothing."""
        return self.contributors(schedule, trace).astype(np.float64)

    def decode(self, parties: int, vector: Vector, weight: float, counted: int | None = None) -> Vector:
        """The estimate, shape (d,), from the sums of all releases, ``vector`` (d,) and ``weight``: public post-processing.

        ``counted``: how many parties are in the sums; by default each weighs 1.
        """
        return vector / weight

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float | None:
        """Variance per coordinate of the noise in the result, where it does not follow from the transcript; None elsewhere.

        Where each party ends with a result of its own: the largest over the parties that finished. Infinite without a result.
        In squared units of the values; ``weights`` have shape (n,).
        """
        return None

    def released_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float | None:
        """The same of the sum over its weight, before :meth:`decode`; by default that of the result."""
        return self.error_variance(schedule, trace, weights)

    def report_fields(self, target: Target) -> dict[str, Any]:
        """Further figures of a plan, in the terms of the protocol's own paper: plain JSON data."""
        return {}

    def warnings(self, state: Any) -> tuple[str, ...]:
        """Warnings for a party's user that follow from its last state. They are public."""
        return ()

    def nothing_published(self, state: Any) -> bool:
        """Whether a party's last state, without a release, proves that nobody can have published anything."""
        return False

    def as_carried_out(self, state: Any) -> Self:
        """For receipts: the same with what a party's last state says of the execution beyond its history."""
        return self
