"""What an epsilon means for who knows no epsilon: how often a guess about one person is right at most."""

from __future__ import annotations

import math

from quietmean.core.readable import Phrase, phrase

# From so many guesses in 100 on the protection is called weak; and of how many times a guess may be right, at most.
_WEAK, _MOST_TIMES = 95, 1_000_000
# From this epsilon on a guess may be right 999 times in 1,000.
_HIDES_NOTHING = math.log(999)


def times_right(epsilon: float, delta: float, times: int = 100) -> int:
    """How often of so many ``times`` is right at most who sees a result and guesses which of two answers one person gave.

    Beforehand both answers are as likely; whatever else that somebody knows. For a result that is (``epsilon``, ``delta``)
    differentially private where one person's answer is replaced, both answers' chances of any set of results differ in total
    variation by at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1); half of that above 1/2 is the bound, rounded up (Kairouz,
    Oh and Viswanath 2015, The composition theorem for differential privacy).
    """
    small = math.exp(-epsilon)
    return min(times, math.ceil(times * (1 + delta * small) / (1 + small) + 1e-9))


def guess_text(epsilon: float, delta: float, unit: str) -> Phrase:
    """What a finite ``epsilon`` at ``delta`` means for one ``unit``, in a sentence."""
    right, times = odds(epsilon, delta)
    if not is_weak(right, times):
        return phrase("A 50:50 guess at a {unit}'s data is right at most {right} times in 100.", unit=unit, right=f"{right}")
    if right == times:
        return phrase("Weak: a 50:50 guess at a {unit} may be right every time.", unit=unit)
    return phrase(
        "Weak: a 50:50 guess at a {unit} may be right {right} times in {all}.",
        unit=unit, right=f"{right:,}", all=f"{times:,}",
    )  # fmt: skip


def odds(epsilon: float, delta: float) -> tuple[int, int]:
    """How often a guess is right at most, and of how many times: of 100, or of so many that it is not always right."""
    times = 100
    while (right := times_right(epsilon, delta, times)) == times < _MOST_TIMES:
        times *= 10
    return right, times


def says_nothing(epsilon: float) -> bool:
    """Is a guess between two values right 999 times in 1,000, or more?"""
    return epsilon >= _HIDES_NOTHING


def is_weak(right: int, times: int) -> bool:
    """Is a guess right so often that the protection is weak: 19 times in 20, or more?"""
    return 100 * right >= _WEAK * times
