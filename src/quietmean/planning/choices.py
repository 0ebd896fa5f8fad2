"""What a user chooses from. Imports nothing heavy."""

from enum import StrEnum


class CalibrationMethod(StrEnum):
    """``exact``: information matrix and analytic Gaussian, both levels optimised. The others are for comparison with the paper.

    ``exact-view``: information matrix, classical constant, sigma_star^2 = 1.3 * 2 ln(1.25 / delta) / (n_O epsilon^2).
    ``paper``: the same sigma_star; sigma_delta from IncA, Theorem 4.7 with xi as in its proof.
    """

    EXACT = "exact"
    EXACT_VIEW = "exact-view"
    PAPER = "paper"
