"""Numbers that go into plans, on which machines must agree to the last digit."""

from __future__ import annotations

import math

_DIGITS = 6


def round_up(number: float) -> float:
    """A number >= 0 to 6 significant digits, up.

    More noise only hides more, and machines whose libraries differ in the last bits get the same plan.
    """
    if number == 0.0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(number)) - _DIGITS + 1)
    return float(f"{math.ceil(number / digit - 1e-5) * digit:.{_DIGITS}g}")
