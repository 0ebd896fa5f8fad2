"""What receivers can hold releases and results against."""

from __future__ import annotations

import math
from collections.abc import Mapping

from quietmean.core.arrays import Array
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.mechanism.results import GivesResults

# Of sums that are taken modulo a number: a value beyond the bounds is the same number as one within them.
WRAPS = "sums are modulo a number: a value beyond the bounds may count as another one within them, and nobody notices"


class CanBeChecked(GivesResults):
    """By default only the result, which is a mean of values and its noise; see :mod:`quietmean.planning.release_bounds`."""

    @property
    def weight_is_known(self) -> bool:
        """Is the weight in a result that of those who count, as each stated it? By default where releases are public."""
        return self.releases_are_public

    @property
    def checks_contributions(self) -> bool:
        """Is what a party hands in held against the bounds, though nobody learns it?"""
        return False

    @property
    def checked_by(self) -> Mapping[str, int] | None:
        """Of a result that sums of several parties determine: how many ``sums`` came, how many are ``needed``, and how many wrong
        ones would have been noticed for certain, ``lies_excluded``. None elsewhere, and where that is not known."""
        return None

    def unnoticed(self, parties: int) -> tuple[str, ...]:
        """What nobody notices of a member that lies, whatever receivers look at, in sentences; by default nothing more."""
        return ()

    def reach(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        """How far from its middle a result without noise may be, in half widths of the domain: 1 for means of values.

        Parts of values that are negative take it beyond.
        """
        return 1.0

    def tails(self, dimension: int) -> float:
        """How many stated deviations of a result's noise (d,) a Gaussian has whose tails are no lighter in any coordinate.

        Infinite where nothing is known of them; by default 1 where the noise is Gaussian.
        """
        return 1.0 if self.gaussian_noise else math.inf

    def own_release_variance(self, schedule: Schedule) -> Array | None:
        """Variance per coordinate of all noise on what each party releases of its own value alone, shape (n,), at most.

        With what it shares with others, as a release is seen by itself. None where no release is of one party's value.
        """
        return None

    def report_reach(self, dimension: int, chance: float) -> float:
        """How far from the domain's middle a release (d,) without that noise is in any coordinate, in half widths, but for a
        ``chance``: 1 where it is the value."""
        return 1.0
