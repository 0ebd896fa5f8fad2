"""Where a function is 0, by Brent's method: the same steps, and so the same number, as ``scipy.optimize.brentq``.

``scipy.optimize`` takes longer to import, and more room, than a party's plan is worth, which needs no more of it.
"""

from __future__ import annotations

from collections.abc import Callable

# As scipy has them: the absolute and the relative error, and the most steps.
_ABSOLUTE, _RELATIVE, _STEPS = 2e-12, 8.881784197001252e-16, 100


def root_between(
    function: Callable[[float], float], low: float, high: float, absolute: float = _ABSOLUTE, relative: float = _RELATIVE
) -> float:
    """Return a root between two numbers where the function has different signs, to the ``absolute`` and ``relative`` error.

    Raises :class:`ArithmeticError` for equal signs, and where 100 steps find none.
    """
    before, now = float(low), float(high)
    at_before, at_now = float(function(before)), float(function(now))
    if at_before == 0 or at_now == 0:
        return before if at_before == 0 else now
    if (at_before < 0) == (at_now < 0):
        raise ArithmeticError(f"the function has one sign at {low:g} and {high:g}")
    other = at_other = previous = step = 0.0
    for _ in range(_STEPS):
        if at_before != 0 and (at_before < 0) != (at_now < 0):
            other, at_other, previous, step = before, at_before, now - before, now - before
        if abs(at_other) < abs(at_now):
            before, now, other = now, other, now
            at_before, at_now, at_other = at_now, at_other, at_now
        least, half = (absolute + relative * abs(now)) / 2, (other - now) / 2
        if at_now == 0 or abs(half) < least:
            return now
        guess = None
        if abs(previous) > least and abs(at_now) < abs(at_before):
            guess = _interpolated((before, at_before), (now, at_now), (other, at_other))
        if guess is not None and 2 * abs(guess) < min(abs(previous), 3 * abs(half) - least):
            previous, step = step, guess
        else:
            previous = step = half
        before, at_before = now, at_now
        now += step if abs(step) > least else (least if half > 0 else -least)
        at_now = float(function(now))
    raise ArithmeticError(f"no root is found between {low:g} and {high:g} in {_STEPS} steps")


def _interpolated(before: tuple[float, float], now: tuple[float, float], other: tuple[float, float]) -> float | None:
    """The step to the root of the line, or the inverse parabola, through these points; None where there is none."""
    x, y = now
    if before[0] == other[0]:
        return -y * (x - before[0]) / (y - before[1])
    first, second = (before[1] - y) / (before[0] - x), (other[1] - y) / (other[0] - x)
    divisor = second * first * (other[1] - before[1])
    return -y * (other[1] * second - before[1] * first) / divisor if divisor else None
