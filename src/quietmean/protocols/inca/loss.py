"""Certificates of executions on a grid."""

from __future__ import annotations

from collections.abc import Sequence

from quietmean.core.assumptions import Assumption, Key
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import REAL_ARITHMETIC, Adversary, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.inca.rounding import Array, rounding_information, widened
from quietmean.protocols.inca.spec import IncaParameters


class RoundedLossConversion(LossConversion):
    """mu of the protocol in real numbers, widened by what rounding adds at most: see :mod:`quietmean.protocols.inca.rounding`."""

    kind = UPPER_BOUND

    def __init__(self, parameters: IncaParameters, schedule: Schedule, trace: ExecutionTrace) -> None:
        """Raises :class:`InputError` if the parameters do not state the number of coordinates."""
        if parameters.dimension is None:
            raise InputError("dimension is missing: what rounding to a grid costs depends on it, add the number of coordinates")
        self._dimension = parameters.dimension
        self._information = rounding_information(parameters, schedule, trace)
        self.notes = (
            *REAL_ARITHMETIC.notes,
            Assumption(
                Key.ROUNDING,
                f"Shares are rounded to a grid of {parameters.grid:g}, which is counted, and none is cut to 32 bits.",
            ),
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return widened(view, self._information, self._dimension)
