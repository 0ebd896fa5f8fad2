"""The gate before the release."""

from __future__ import annotations

import math
from typing import ClassVar, Self


class CanBeGated:
    """By default there is none, and a ledger gets back what an execution cost less than was charged.

    ``gated``: a gate before the release can be held: plans see to it that nearly all histories pass it.
    """

    gated: ClassVar[bool] = False

    @property
    def needs_gate(self) -> bool:
        """:attr:`gated`, where it depends on the parameters: does a plan promise its target by a gate only?"""
        return self.gated

    def variance_before_release(self) -> float:
        """The variance of the noise on a value in all that every other party together can know of it before its owner's release.

        Per coordinate, for every history; infinite where nothing can be known, or where no figure is given.
        """
        return math.inf

    def guarded(self, variance: float) -> Self:
        """The same with so much more noise, cancelled by the release, that :meth:`variance_before_release` is at least that."""
        return self

    @property
    def refunds(self) -> bool:
        """Whether a ledger gets back what an execution cost less than was charged: where that follows from the past by rounds."""
        return True
