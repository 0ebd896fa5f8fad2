"""What messages of secret-sharing consensus disclose: masked values, and nothing else."""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.noise import NoiseGroup
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.graphs.undirected import Edges
from quietmean.transcript import Transcript, TranscriptBuilder


def masked_values(edges: Edges, reach: float, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
    """Each party's value with the shares on it, where it averages them in public; all else is a function of these.

    An edge's mask is the difference of the two shares that went over it, which both ends know. It is uniform over all residues,
    and those are ``reach`` wide in the units of the values; here it is Gaussian of the variance of such a difference. What is
    disclosed is the same: only sums in which every mask occurs at both of its ends.
    """
    builder = TranscriptBuilder(schedule.parties)
    complete = _whole(schedule, trace)
    masks: list[dict[int, float]] = [{} for _ in range(schedule.parties)]
    for low, high in edges.tolist():
        mask = builder.add_noise([low, high], reach * math.sqrt(2.0 / 12.0), NoiseGroup.CANCELLING)
        masks[low][mask], masks[high][mask] = 1.0, -1.0
    for party in np.nonzero(complete)[0].tolist():
        builder.add_message(party, 2, values={party: 1.0}, noise=masks[party], released=True)
    return builder.build()


def _whole(schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The parties that got a share from every neighbour and whose own all arrived, shape (n,): others send no values."""
    sent = schedule.neighbours[0] >= 0
    lost = sent & ~trace.delivered(schedule)[0]
    complete: Mask = trace.online[1] & ~lost.any(axis=1)
    complete[schedule.neighbours[0][lost]] = False
    return complete
