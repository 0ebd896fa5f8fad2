"""What an execution made public."""

from __future__ import annotations

from dataclasses import dataclass

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Vector


@dataclass(frozen=True, eq=False)
class Releases:
    """What all parties made public: vectors (n, d), weights (n,), and the parties ``by`` (n,) that released at all."""

    vector: Vector
    weight: Array
    by: Mask

    def total(self) -> tuple[Vector, float]:
        """The sums of vectors, (d,), and of weights over all that released. Raises :class:`ProtocolFailure` if there is none."""
        weight = float(self.weight[self.by].sum())
        if not self.by.any() or weight <= 0:
            raise ProtocolFailure("nobody released a result: all parties dropped out before the last round")
        return self.vector[self.by].sum(axis=0), weight

    def estimate(self) -> Vector:
        """The plain mean, shape (d,): total vector over total weight."""
        vector, weight = self.total()
        mean: Vector = vector / weight
        return mean
