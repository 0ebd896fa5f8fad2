"""Which values a mechanism accepts."""

from __future__ import annotations

import math
from typing import ClassVar

from quietmean.core.arrays import Array
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.party import Vector
from quietmean.protocols.target import Target

ANY_DOMAIN = "any bounded set"


class TakesValues:
    """By default any bounded set of vectors, of any public weight.

    ``domain``: the values that it accepts. If these are not any bounded set, it is planned only if it is named.
    ``hides_counts``: it takes sums over private numbers of records; not where the weight says how long a value may be.
    """

    domain: ClassVar[str] = ANY_DOMAIN
    hides_counts: ClassVar[bool] = True

    @property
    def takes_private_counts(self) -> bool:
        """:attr:`hides_counts`, where it depends on the parameters."""
        return self.hides_counts

    def input_domain(self, target: Target) -> InputDomain:
        """Where the vector of one unit lies for a plan that states no domain; its diameter is the sensitivity at most.

        By default the cube from 0 up, whose diagonal is the sensitivity.
        """
        return InputDomain.box(target.dimension, 0.0, target.sensitivity / math.sqrt(target.dimension))

    def value_region(self, target: Target, weight: float = 1.0) -> Box | Ball | None:
        """Where a vector of that public weight is held as it is, for whoever clips or limits; a plan refuses any other domain."""
        return None

    def project_to_domain(self, values: Vector, weights: Array) -> Vector:
        """Values (n, d) made to fit ``domain``, for simulations and tests: unchanged if that is any bounded set. Weights (n,)."""
        return values

    @property
    def needs_records(self) -> bool:
        """Can no party have weight 0, as one without records has?"""
        return False

    def check_weight(self, weight: float) -> None:
        """Raises :class:`InputError` if the plan has no room for a party of that public weight."""
        return

    def check_values(self, values: Vector) -> None:
        """Raises :class:`InputError` if values, (d,) or (n, d), do not fit the plan. The error does not contain them."""
        return
