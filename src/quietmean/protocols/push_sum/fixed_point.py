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
is cut is not covered any more by the certificate. Values beyond X are refused either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.grid import LARGEST_SHARE, within
from quietmean.core.input_domain import Box
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.discrete import LARGEST_VALUE, NoiseNumbers, check_steps, choose_step, cube, require_dimension
from quietmean.protocols.push_sum import next_online
from quietmean.protocols.push_sum.parameters import PushSumParameters
from quietmean.protocols.target import Target


@dataclass(frozen=True, eq=False)
class WholeShift:
    """``product`` (count, count): products of the standardised changes of noise for unit changes of injections r and s.

    They are whole for changes by multiples of ``factor``. ``kernel``: the sum of the squared norms of a whole basis of those that
    change no injection. All are infinite where no whole changes of noise serve.
    """

    product: Array
    factor: int
    kernel: float


def whole_shift(parameters: PushSumParameters, count: int, *, finishes: bool) -> WholeShift:
    """The shift of a party that was online ``count`` times, and in the last round if it ``finishes``.

    ``parameters.whole`` must hold. Norms are those of noise in the units of the values, of standard deviation 1 each.
    """
    injection, portions = parameters.injections, parameters.portions
    c = np.rint(injection.portion * portions)
    inverse = np.rint(np.linalg.inv(injection.noise[:-1]))
    before = count - 1 if finishes else count
    used, unused = inverse[:, :before], inverse[:, before:]
    if injection.name == "incremental" and not finishes:
        # What it had not added yet is in none of its injections.
        used[count:], unused = 0.0, unused[:, :0]
    total = int(c[:count].sum())
    if finishes and not total:
        # Nothing of the value is left in what the party injected: q would have to change by a fraction.
        return WholeShift(np.full((count, count), np.inf), 1, math.inf)
    # Columns: what (q, Delta, H) change by for each injection; then what changes none.
    if finishes:
        in_value = np.full((1, count), 1.0 / total)
        in_noise = np.column_stack([used, np.zeros(len(used))]) - (used @ c[:before])[:, None] * in_value
        kernel = np.vstack([np.zeros((1, unused.shape[1])), unused])
    else:
        in_value, in_noise = np.zeros((1, count)), used
        kernel = np.vstack([np.ones((1, 1)), -(used @ c[:count])[:, None]])
        kernel = np.hstack([kernel, np.vstack([np.zeros((1, unused.shape[1])), unused])])
    lift = np.vstack([in_value, in_noise])
    norms = np.array([parameters.sigma_star / portions, *[parameters.sigma_delta] * injection.noise_terms])
    with np.errstate(divide="ignore"):
        scales = 1.0 / norms
    standard = _scaled(lift, scales)
    free = float((_scaled(kernel, scales) ** 2).sum())
    if parameters.sigma_guard:
        guard = c[:count].copy()
        if finishes:
            guard[-1] = -c[:before].sum()
        made_up = _scaled(lift @ guard, scales)
        free += (portions / parameters.sigma_guard) ** 2 + float((made_up**2).sum())
    if not (np.isfinite(standard).all() and math.isfinite(free)):
        return WholeShift(np.full((count, count), np.inf), 1, math.inf)
    return WholeShift(standard.T @ standard, abs(total) if finishes else 1, free)


def _scaled(changes: Array, scales: Array) -> Array:
    """Standardised: changes of noise that is not there are infinite, and none of it is 0."""
    factors = scales if changes.ndim == 1 else scales[:, None]
    with np.errstate(invalid="ignore"):
        return np.where(changes != 0.0, changes * factors, 0.0)


_RANK_TOLERANCE = 1e-9


def rounding_information(parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> float:
    """b^2 of an execution, at most: its mu on a grid is sqrt(mu^2 + d b^2) for values of d coordinates. Replacement; no unit.

    mu is that of the same execution in real numbers, at its sensitivity; infinite if some injection has too little noise.
    """
    if not parameters.grid:
        return 0.0
    costs = _Costs(parameters, trace)
    return (costs.factor**2 * _of_shares(costs, schedule, trace) + costs.kernels) * parameters.grid**2 / 4.0


def _of_shares(costs: _Costs, schedule: Schedule, trace: ExecutionTrace) -> float:
    """The squared norms of the changes of noise that move one share by one step, over all shares."""
    if not costs.finite:
        return math.inf
    upcoming = next_online(trace)
    delivered, acknowledged = trace.deliveries(schedule)
    settled: dict[tuple[int, int], list[int]] = {}
    for sent, sender, _, later in trace.settled_slots(schedule):
        settled.setdefault((sent, sender), []).extend([later] if later else [])
    total = 0.0
    for round_ in range(schedule.rounds):
        holders = np.nonzero(trace.online[round_])[0]
        later = upcoming[round_, holders]
        has_left = later > schedule.rounds
        total += float(costs.of(holders[has_left], round_, round_).sum())
        holders, later = holders[~has_left], later[~has_left]
        parts = schedule.out_degree[later - 1, holders] + 1
        kept = 1.0 - acknowledged[later - 1, holders].sum(axis=1) / parts
        own = costs.of(holders, round_, round_) + kept**2 * costs.of(holders, later, later)
        own -= 2.0 * kept * costs.of(holders, round_, later)
        for index, (holder, sent) in enumerate(zip(holders.tolist(), later.tolist(), strict=True)):
            if (sent, holder) in settled:
                taken_out = [(back, 1.0 / parts[index]) for back in settled[sent, holder]]
                own[index] = costs.of_changes(holder, [(round_, 1.0), (sent, -kept[index]), *taken_out])
        total += float((parts**2 * own).sum())
        rows, slots = np.nonzero(delivered[later - 1, holders])
        receivers = schedule.neighbours[later[rows] - 1, holders[rows], slots].astype(np.int64)
        total += float(costs.of(receivers, later[rows], later[rows]).sum())
    return total


def widened(mu: Array, information: float, dimension: int) -> Array:
    """An upper bound for mu on the grid, elementwise in any shape, from mu in real numbers and :func:`rounding_information`."""
    return np.hypot(mu, math.sqrt(dimension * information))


class _Costs:
    """Squared standardised norms of the changes of a party's noise that make given changes of its injections.

    They are the least ones, or with discrete noise whole ones for changes by multiples of ``factor``; ``kernels`` is the sum over
    all parties of the squared norms of whole changes that change no injection.
    """

    def __init__(self, parameters: PushSumParameters, trace: ExecutionTrace) -> None:
        self._turns = np.cumsum(trace.online, axis=0) - 1
        # Parties online equally often, and alike in whether they finish, injected by the same rows.
        kinds, self._kind = np.unique(2 * trace.online.sum(axis=0) + trace.finished, return_inverse=True)
        size = parameters.rounds + 1
        self._products = np.zeros((kinds.size, size, size))
        self.factor, self.kernels = 1, 0.0
        for number, kind in enumerate(kinds.tolist()):
            count, finishes = kind // 2, bool(kind % 2)
            if parameters.whole:
                shift = whole_shift(parameters, count, finishes=finishes)
                self.factor = math.lcm(self.factor, shift.factor)
                self.kernels += shift.kernel * int((self._kind == number).sum())
                product = shift.product
            else:
                product = inverse_product(parameters, count, finishes=finishes)
            self._products[number, :count, :count] = product

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self._products).all())

    def of(self, parties: Ints, first: int | Ints, second: int | Ints) -> Array:
        """For each party, the product of the noise changes for unit changes of the injections of two rounds."""
        product: Array = self._products[self._kind[parties], self._turns[first, parties], self._turns[second, parties]]
        return product

    def of_changes(self, party: int, changes: Sequence[tuple[int, float]]) -> float:
        """The squared norm for changes (round, by how much) of one party's injections."""
        change = np.zeros(len(self._turns))
        for round_, by in changes:
            change[self._turns[round_, party]] += by
        return float(change @ self._products[self._kind[party]] @ change)


def inverse_product(parameters: PushSumParameters, count: int, finishes: bool) -> Array:
    """Entry (r, s): product of the least noise changes that change injections r and s by one; infinite if there are none."""
    injection = parameters.injections
    noise = injection.noise[:count].copy()
    if finishes:
        noise[-1] = -noise[:-1].sum(axis=0)
    guard = injection.portion[:count].copy()
    if finishes:
        guard[-1] = -guard[:-1].sum()
    deviations = [parameters.sigma_star, parameters.sigma_delta, parameters.sigma_guard]
    gains = np.column_stack([injection.portion[:count], noise, guard]) * np.repeat(deviations, [1, injection.noise_terms, 1])
    size = np.linalg.norm(gains, axis=1, keepdims=True)
    if (size == 0).any() or np.linalg.matrix_rank(gains / size, tol=_RANK_TOLERANCE) < count:
        return np.full((count, count), np.inf)
    inverse = np.linalg.pinv(gains)
    product: Array = inverse.T @ inverse
    return product


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
            f"{smallest:g}. Give a smaller largest_value, or value_bits = 64."
        )
    # Three digits, down: machines whose libraries differ in the last bits get the same plan.
    return grid, max(parameters.largest_value, _digits_down(_room(parameters, grid)))


def whole_grid(parameters: PushSumParameters, target: Target) -> dict[str, Any]:
    """The fields of a grid for discrete noise. Raises :class:`InputError` where there is none with room for all of it."""
    parameters.require_whole()
    deviations = [sigma for sigma in _deviations(replace(parameters, noise=NoiseNumbers.DISCRETE)) if sigma]
    if parameters.value_bits == 32:
        grid, largest = choose_grid(replace(parameters, noise=NoiseNumbers.DISCRETE), target)
    else:
        grid, largest = choose_step(min(deviations), max(deviations), target.parties), 0.0
    return {"noise": NoiseNumbers.DISCRETE, "grid": grid, "largest_value": largest, "dimension": target.dimension}


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
            f"a coordinate of a party's value is larger than {parameters.largest_value:g}, for which the plan's grid has room. "
            "Give largest_value in the plan, the largest coordinate of any party's vector, or value_bits = 64. Where a record is "
            "protected, the vector is the sum over a party's records."
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
    portions = parameters.injections.portions if parameters.noise == NoiseNumbers.DISCRETE else 1
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
