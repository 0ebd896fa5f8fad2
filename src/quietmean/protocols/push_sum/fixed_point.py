"""Which public grid the numbers of a plan lie on.

With discrete noise it is 2^-20 of the smallest deviation, in steps of the grid of what is drawn, as for other protocols. With
``value_bits`` = 32 it is one on which shares take 32 bits.

The grid follows from public parameters alone. With C = sum |c_t|, X the largest coordinate of any value and s a bound on the
standard deviation of the noise in what a party holds, a share (one of k + 1 parts) has room for 8 (C X + 12 s) / (k + 1):

* where every party receives as many shares as it sends and none is lost, mixing is doubly stochastic and what a party holds is at
  most C X plus Gaussian noise of standard deviation s: cutting a share to 32 bits would take noise of 96 s, with a probability
  below 1e-1000;
* else a row of mixing coefficients can sum to more than 1, and what a party holds grows with that sum. Measured: at most 4.7 on
  cyclic schedules and 11.3 on uniform ones (20 % dropped out permanently, up to 20 % offline in a round), with noise of at most
  3 s. So with coordinates up to 0.7 X cutting would take more than 30 standard deviations.

With discrete noise a share that does not fit is sent in 64 bits. With float64 noise it is cut: that never changes a sum, but what
is cut is no longer covered by the certificate. Values beyond X are refused either way.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.grid import LARGEST_SHARE, within
from quietmean.core.input_domain import Box
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.discrete import LARGEST_VALUE, NoiseKind, check_steps, choose_step, cube, require_dimension
from quietmean.protocols.push_sum.parameters import PushSumParameters
from quietmean.protocols.push_sum.rounding import rounding_information
from quietmean.protocols.target import Target

_HEADROOM = 8.0
_DEVIATIONS = 12.0
# The step over the smallest standard deviation of any noise: as planned without largest_value, and at most.
FINE, COARSEST = 2.0**-20, 2.0**-12
# Without noise there is nothing to compare the step with: room for this many times the sensitivity.
_NOISELESS_ROOM = 1024.0


def choose_grid(parameters: PushSumParameters, target: Target) -> tuple[float, float]:
    """The grid, and the largest value that it has room for.

    Where ``largest_value`` was given, the finest grid with room for it; else one of 2^-20 of the smallest standard deviation of
    any noise, or coarser if the sensitivity has no room on it. Raises :class:`InputError` beyond 2^-12 of that deviation.
    """
    smallest = min((sigma for sigma in _deviations(parameters) if sigma > 0), default=0.0)
    if parameters.largest_value or not smallest:
        grid = _step_for(parameters, parameters.largest_value or _NOISELESS_ROOM * target.sensitivity)
    else:
        grid = max(2.0 ** math.floor(math.log2(FINE * smallest)), _step_for(parameters, target.sensitivity))
    if smallest and grid > COARSEST * smallest:
        largest_value = parameters.largest_value or target.sensitivity
        raise InputError(
            f"32 bits with room for values of {largest_value:g} make a grid of {grid:g}, too coarse beside noise of "
            f"{smallest:g}: give a smaller largest_value, or value_bits = 64"
        )
    # Three digits, down: machines whose libraries differ in the last bits get the same plan.
    return grid, max(parameters.largest_value, _digits_down(_room(parameters, grid)))


def whole_grid(parameters: PushSumParameters, target: Target) -> dict[str, Any]:
    """The fields of a grid for discrete noise. Raises :class:`InputError` where there is none with room for all of it."""
    parameters.require_whole()
    deviations = [sigma for sigma in _deviations(replace(parameters, noise=NoiseKind.DISCRETE)) if sigma]
    if parameters.value_bits == 32:
        grid, largest = choose_grid(replace(parameters, noise=NoiseKind.DISCRETE), target)
    else:
        grid, largest = choose_step(min(deviations), max(deviations), target.parties), 0.0
    return {"noise": NoiseKind.DISCRETE, "grid": grid, "largest_value": largest, "dimension": target.dimension}


def check_room(parameters: PushSumParameters, values: Vector) -> None:
    """Raises :class:`InputError` if a coordinate of ``values``, (d,) or (n, d), is too large for the grid.

    It also does if there are more coordinates than planned. The error does not contain the value.
    """
    if not parameters.grid or not isinstance(values, np.ndarray):
        return
    require_dimension(values, parameters.dimension)
    if parameters.value_bits == 64:
        check_steps(values, parameters.grid)
    elif not within(values, parameters.largest_value):
        raise InputError(
            f"a coordinate of a party's value is larger than {parameters.largest_value:g}, for which the plan's grid has room: "
            "plan with the option largest_value, the largest coordinate of any party's vector (a sum over its records where a "
            "record is protected), or with value_bits = 64"
        )


def region_of(parameters: PushSumParameters, dimension: int) -> Box | None:
    """The domain of vectors of this many coordinates that have room on the grid; None without a grid."""
    if not parameters.grid:
        return None
    return cube(dimension, parameters.largest_value if parameters.value_bits == 32 else LARGEST_VALUE * parameters.grid)


def share_bytes(parameters: PushSumParameters) -> float:
    """Bytes of one number: 4 on a grid on which hardly any share needs more, else 8."""
    room = LARGEST_SHARE * (parameters.out_degree + 1) * parameters.grid
    return 4.0 if parameters.grid and room >= _DEVIATIONS * held_deviation(parameters) else 8.0


def grid_figures(parameters: PushSumParameters, schedule: Schedule, target: Target) -> dict[str, Any]:
    """For plans without dropouts: the step over the smallest noise, and what rounding adds to mu squared at most."""
    if not parameters.grid:
        return {}
    smallest = min(sigma for sigma in _deviations(parameters) if sigma > 0)
    information = rounding_information(parameters, schedule, ExecutionTrace.everyone(parameters.rounds, target.parties))
    return {"grid_over_noise": parameters.grid / smallest, "rounding_mu_squared": target.dimension * information}


def _deviations(parameters: PushSumParameters) -> tuple[float, float, float]:
    """Standard deviations of the noise that stays, of the noise that cancels, and of the guard; 0 where there is none.

    With discrete noise those of one portion: so they compare to the step.
    """
    star, delta, guard = _levels(parameters)
    portions = parameters.injections.portions if parameters.noise == NoiseKind.DISCRETE else 1
    return star / portions, delta, guard / portions


def _levels(parameters: PushSumParameters) -> tuple[float, float, float]:
    return parameters.sigma_star, parameters.sigma_delta if parameters.injections.noise_terms else 0.0, parameters.sigma_guard


def _portions(parameters: PushSumParameters) -> float:
    return math.fsum(abs(portion) for portion in parameters.injections.portion)


def held_deviation(parameters: PushSumParameters) -> float:
    """A bound on the standard deviation of the noise in what a party holds, per coordinate, under doubly stochastic mixing.

    Let P_s be the row with which holdings of round s enter the number: its norm is at most 1, and P_(s-1) = P_s W_s. Noise term k
    enters with sum_s Z_sk P_s, of norm at most sum_s |Z_sk|. With incremental injection that is P_s - P_(s-1), and since W_s has
    1 / (k + 1) on its diagonal, |P_s - P_(s-1)|^2 <= k (|P_s|^2 - |P_(s-1)|^2): the sum over s is at most 1 + k. The guard enters
    with the portions, and in the last round with minus their sum: with a norm of at most twice their absolute sum.
    """
    injection = parameters.injections
    gain = 1.0 + parameters.out_degree
    if injection.name != "incremental":
        gain = math.fsum(math.fsum(abs(entry) for entry in column) ** 2 for column in injection.noise.T.tolist())
    star, delta, guard = _levels(parameters)
    return math.sqrt((_portions(parameters) * star) ** 2 + gain * delta**2 + (2.0 * _portions(parameters) * guard) ** 2)


def _step_for(parameters: PushSumParameters, largest: float) -> float:
    """The smallest power of two with which shares have room for values of ``largest``."""
    size = _HEADROOM * (_portions(parameters) * largest + _DEVIATIONS * held_deviation(parameters))
    # The same power on machines whose libraries differ in the last bits.
    return float(2.0 ** math.ceil(math.log2(size / (LARGEST_SHARE * (parameters.out_degree + 1))) - 1e-9))


def _room(parameters: PushSumParameters, grid: float) -> float:
    largest = LARGEST_SHARE * (parameters.out_degree + 1) * grid / _HEADROOM
    return (largest - _DEVIATIONS * held_deviation(parameters)) / _portions(parameters)


def _digits_down(number: float) -> float:
    digit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return float(f"{math.floor(number / digit + 1e-5) * digit:.3g}")
