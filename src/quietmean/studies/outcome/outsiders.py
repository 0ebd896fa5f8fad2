"""What a promise against outsiders leaves open: what the parties themselves learn of each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quietmean.core.assumptions import OUTSIDERS
from quietmean.core.readable import Phrase, epsilon_shown, phrase
from quietmean.statistics.estimate import number_of


def only_outsiders(certificate: Mapping[str, Any], promised: float) -> bool:
    """Whether epsilon ``promised`` is against no party, and all others together learn more of one than that."""
    outside = math.isfinite(promised) and certificate.get("against") == OUTSIDERS
    return outside and _all_others(certificate) > promised * (1 + 1e-9)


def against_parties(certificate: Mapping[str, Any]) -> Phrase:
    """Say that, and what they learn together."""
    others = _all_others(certificate)
    if math.isinf(others):
        return phrase("The promise holds against outsiders only. Nothing bounds what the other parties learn.")
    return phrase(
        "The promise holds against outsiders only. Against all other parties together it is epsilon {others}.",
        others=epsilon_shown(others),
    )


def _all_others(certificate: Mapping[str, Any]) -> float:
    return number_of(certificate.get("everyone_else_epsilon", math.inf))
