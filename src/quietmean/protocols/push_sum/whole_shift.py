"""Whole changes of a party's noise: those that change its injections as wanted, and those that change none.

In steps of the grid, with q = x~ / P for values on P steps (P = T + 1 for ``incremental``, else 1) and the guard H likewise, a
party injects u_r = c_r (q + H) + sum_k Z_rk Delta_k, c whole, where it is online for the (r + 1)-th time. Z without its last row
has a whole inverse Y (determinant +-1).

* A party that leaves after m <= T rounds: Delta = Y_m u changes its injections by u, with the first m columns Y_m of Y. No
  injection is changed by (q, Delta) = (1, -Y_m c), and by the other columns of Y: for ``early`` these are T - m, and with
  (1, -Y_m c) they span what (1 on q, -1 on Delta_j), j = m..T, span. For ``incremental`` Delta_j, j > m, is in no injection and
  stays as it is; what is left is (1 on q, -t on Delta_t), t <= m, alone.
* A party that finishes, online m times: its injections add up to p q, p the sum of the c_r it used. So q = sum(u) / p, and
  Delta = Y_(m-1) (u - c q) in the rounds before the last. That is whole if all u are multiples of p. No injection is changed by
  the other columns of Y, which are none where m = T + 1.
* The guard: one more change of it by 1, made up for as above, changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.protocols.push_sum.parameters import PushSumParameters


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
