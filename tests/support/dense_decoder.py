"""What quantities are read by, as least squares states it: dense matrices over all features."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics import Workload
from quietmean.statistics.statistic import TOTAL


def dense(workload: Workload, step: float) -> tuple[Array, Array, Array]:
    """The matrix (q, d), offset (q,) and covariance (q, q), of all features at once, as least squares states them."""
    ends = np.cumsum([0, *(feature.size for feature in workload.scales)])
    free, spread = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], ends[-1]))
    known: dict[Hashable, list[Array]] = {}
    for (feature, scale), begin, end in zip(workload.scales.items(), ends, ends[1:], strict=False):
        own_step = step if feature.of_single_record or not workload.products else 0.0
        own = np.linalg.inv(feature.response(scale, own_step)) / scale
        free[begin:end, begin:end], spread[begin:end, begin:end] = own, own @ own.T
        for event, weights in feature.events().items():
            known.setdefault(event, []).append(np.pad(weights, (begin, ends[-1] - end)))
    every = [] if workload.hides_count else known.pop(TOTAL, [])
    rows = [*every, *(other - first for first, *others in known.values() for other in others)]
    equal, right = np.array(rows).reshape(-1, ends[-1]), np.array([1.0] * len(every) + [0.0] * (len(rows) - len(every)))
    known_of = equal @ free
    size = np.linalg.norm(known_of, axis=1, keepdims=True)
    # By singular values, as squares of nearly dependent rows would be all rounding; 1e-5 is the root of what is redundant.
    inverse = free @ (np.linalg.pinv(known_of / size, 1e-5) / size.T) if len(rows) else np.zeros((ends[-1], 0))
    taken = inverse @ known_of
    return free - taken, inverse @ right, spread - taken @ free.T
