"""Certificates of executions with whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.privacy import Adversary, GridLossConversion, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.cordp_dme.design import leakage
from quietmean.protocols.cordp_dme.party import CordpDmeParameters
from quietmean.protocols.masking import MaskedMessages


def grid_bound(parameters: CordpDmeParameters, pairs: Ints, arrived: Mask) -> LossConversion:
    """The bound for whole numbers along the shift that rounds every edge; without a grid that in real arithmetic."""
    own, pair = parameters.sigma_own, parameters.sigma_pair
    messages = MaskedMessages(own, pair, parameters.step, pairs, arrived, parameters.aggregator, parameters.partners is None)
    draws = arrived.size + (len(pairs) if pair else 0)
    return parameters.grid_loss([own, pair], draws, messages.rounding, messages.most_rounding())


def masked_loss(parameters: CordpDmeParameters, schedule: Schedule, arrived: Mask) -> LossConversion:
    """The bound for whole numbers; without a grid that in real arithmetic.

    ``arrived`` (n,): the parties whose message reached the aggregator or was published.
    """
    conversion = grid_bound(parameters, schedule.pairs, arrived)
    if parameters.partners is not None or not isinstance(conversion, GridLossConversion):
        return conversion
    own, pair, everyone = parameters.sigma_own, parameters.sigma_pair, np.ones(schedule.parties, dtype=np.bool_)
    everybody = MaskedMessages(own, pair, parameters.step, schedule.pairs, everyone, None, symmetric=True)
    return _CompleteLossConversion(conversion, everybody)


class _CompleteLossConversion(LossConversion):
    """With noise shared in all pairs: never more than if every message had arrived and was public, of which all views are part.

    Where many are missing, rounding the shift along every edge to them would cost more.
    """

    kind = UPPER_BOUND

    def __init__(self, conversion: GridLossConversion, everybody: MaskedMessages) -> None:
        self._conversion, self._everybody = conversion, everybody
        self.notes, self.tv = conversion.notes, conversion.tv

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        limit = self._limit(self._everybody.arrived.size - len(honest), self._everybody.rounding(adversary, honest), sensitivity)
        return np.minimum(self._conversion.mu(adversary, honest, view, sensitivity), limit)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        limit = self._limit(size, self._everybody.most_rounding(), sensitivity)
        return np.minimum(self._conversion.mu_against_any(size, view, sensitivity), limit)

    def _limit(self, colluding: int, rounded: float, sensitivity: float) -> float:
        own, pair, parties = self._everybody.own, self._everybody.pair, self._everybody.arrived.size
        square = sensitivity**2 * leakage(own**2, pair**2, parties, colluding) + self._conversion.dimension * rounded
        return math.sqrt(square * self._conversion.correction)
