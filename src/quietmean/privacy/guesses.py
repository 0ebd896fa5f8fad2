"""What an epsilon means for who knows no epsilon: how often a guess about one person is right at most."""

from __future__ import annotations

import math

from quietmean.core.readable import Phrase, phrase


def times_right(epsilon: float, delta: float) -> int:
    """How often of 100 times somebody is right at most who sees a result and guesses which of two answers one person gave.

    Beforehand both answers are as likely; whatever else that somebody knows. For a result that is (``epsilon``, ``delta``)
    differentially private where one person's answer is replaced, both answers' chances of any set of results differ in total
    variation by at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1); half of that above 1/2 is the bound, rounded up (Kairouz,
    Oh and Viswanath 2015, The composition theorem for differential privacy).
    """
    small = math.exp(-epsilon)
    return min(100, math.ceil(100 * (1 + delta * small) / (1 + small) + 1e-9))


def guess_text(epsilon: float, delta: float, unit: str) -> Phrase:
    """What a finite ``epsilon`` at ``delta`` means for one ``unit``, in a sentence."""
    right = times_right(epsilon, delta)
    if right >= 100:
        return phrase("A 50:50 guess about one {unit} may be right nearly always.", unit=unit)
    return phrase("A 50:50 guess about one {unit} is right at most {right} times in 100.", unit=unit, right=f"{right}")
