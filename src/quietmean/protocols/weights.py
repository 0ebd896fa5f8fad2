"""Public weights for which a plan has room."""

from __future__ import annotations

import math

from quietmean.core.errors import InputError


def check_weight(weight: float, largest: float) -> None:
    """Raises :class:`InputError` for a weight beyond the plan's."""
    if weight > largest:
        raise InputError(
            f"the party's weight is {weight:g} but the plan leaves room for {largest:g}: "
            f"plan with the option largest_weight={math.ceil(weight)} or more"
        )
