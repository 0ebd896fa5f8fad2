"""The groups of noise, by what becomes of them in the result."""

from __future__ import annotations

from enum import StrEnum


class NoiseGroup(StrEnum):
    """What becomes of a noise term. The values are names in files and labels of seed derivation, so they must not change.

    ``INDEPENDENT``: noise that stays in the result (eta_star, of standard deviation sigma_star).
    ``CANCELLING``: noise that cancels in the sum if every party finishes (of standard deviation sigma_delta).
    ``GUARD``: noise on a value until its party releases something; it cancels as well (of standard deviation sigma_guard).
    """

    INDEPENDENT = "star"
    CANCELLING = "delta"
    GUARD = "guard"
