"""Certificates of executions on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import REAL_ARITHMETIC, Adversary, GridLossConversion, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.push_sum.fixed_point import rounding_information, whole_shift, widened
from quietmean.protocols.push_sum.parameters import PushSumParameters


class IncaLossConversion(GridLossConversion):
    """Bounds for discrete noise: the best real shift, rounded along whole changes of noise; or the own noise of a party alone.

    The latter needs no rounding: in every history, everything is a function of x + eta_star, and a change of x is made up for by
    that of eta_star.
    """

    def __init__(self, parameters: PushSumParameters, parties: int, information: float) -> None:
        """``information``: b^2, see :func:`~quietmean.protocols.push_sum.fixed_point.rounding_information`.

        Raises :class:`InputError` if the parameters do not state the number of coordinates.
        """
        star, portions = parameters.sigma_star, parameters.portions
        noise = [star / portions, parameters.sigma_delta, parameters.sigma_guard / portions]
        terms = 1 + parameters.injections.noise_terms + bool(parameters.sigma_guard)
        super().__init__(
            step=parameters.grid,
            dimension=_dimension(parameters),
            deviations=noise,
            draws=parties * terms,
            rounding=lambda adversary, honest: information,
            most_rounding=information,
        )
        self._sigma = star
        self._local = own_noise_loss(parameters, parties).correction

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return np.minimum(super().mu(adversary, honest, view, sensitivity), self._own_noise(sensitivity))

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return np.minimum(super().mu_against_any(size, view, sensitivity), self._own_noise(sensitivity))

    def _own_noise(self, sensitivity: float) -> float:
        return sensitivity / self._sigma * math.sqrt(self._local) if self._sigma else math.inf


def whole_loss(parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> IncaLossConversion:
    """The loss of an execution with discrete noise."""
    return IncaLossConversion(parameters, schedule.parties, rounding_information(parameters, schedule, trace))


def planned_loss(parameters: PushSumParameters, schedule: Schedule, dropouts: float) -> IncaLossConversion:
    """The loss of an execution in which nobody leaves; with ``dropouts``, plus the rounding that leavers cost."""
    everyone = ExecutionTrace.everyone(parameters.rounds, schedule.parties)
    information = rounding_information(parameters, schedule, everyone)
    if dropouts:
        left = whole_shift(parameters, parameters.rounds, finishes=False).kernel
        information += schedule.parties * left * parameters.grid**2 / 4.0
    return IncaLossConversion(parameters, schedule.parties, information)


def own_noise_loss(parameters: PushSumParameters, parties: int) -> GridLossConversion:
    """The loss of executions that are charged for the parties' own noise alone, in every history: its shift is whole."""
    return GridLossConversion(
        step=parameters.grid,
        dimension=_dimension(parameters),
        deviations=[parameters.sigma_star / parameters.portions],
        draws=parties * (1 + parameters.injections.noise_terms + bool(parameters.sigma_guard)),
    )


def _dimension(parameters: PushSumParameters) -> int:
    if parameters.dimension is None:
        raise InputError("dimension is missing: what rounding to a grid costs depends on it, add the number of coordinates")
    return parameters.dimension


class RoundedLossConversion(LossConversion):
    """The loss of float64 noise on a grid: mu of the protocol in real numbers, widened by what rounding adds at most.

    See :mod:`quietmean.protocols.push_sum.fixed_point`.
    """

    kind = UPPER_BOUND

    def __init__(self, parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> None:
        """Raises :class:`InputError` if the parameters do not state the number of coordinates."""
        self._dimension = _dimension(parameters)
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
