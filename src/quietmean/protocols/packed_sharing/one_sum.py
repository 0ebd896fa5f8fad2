"""Protocols that open one sum of what the counted parties contribute, and nothing else: what they share."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.party import NoiseGroup, PartyId, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.mechanism import Releases
from quietmean.protocols.packed_sharing.spec import BALL
from quietmean.protocols.target import Target
from quietmean.protocols.traits import unit_cube
from quietmean.transcript import Transcript, TranscriptBuilder


def sum_transcript(
    schedule: Schedule, counted: Mask, sigma: float, *, by: PartyId | None = None, owned: bool = True
) -> Transcript:
    """The transcript of one sum over the parties ``counted``, (n,), published ``by`` a party: by default the first of them.

    Each has noise of standard deviation ``sigma``, known to it alone; if it is not ``owned``, all have one that nobody knows.
    """
    builder, parties = TranscriptBuilder(schedule.parties), np.nonzero(counted)[0].tolist()
    if parties:
        owners = [[party] for party in parties] if owned else [[]]
        noise = {builder.add_noise(own, sigma, NoiseGroup.INDEPENDENT): 1.0 for own in owners}
        sender = parties[0] if by is None else by
        builder.add_message(sender, schedule.rounds + 1, values=dict.fromkeys(parties, 1.0), noise=noise, released=True)
    return builder.build()


def sum_error(counted: Mask, weights: Array, variance: float) -> float:
    """Variance of the mean of the parties ``counted``, (n,), from that of their sum; infinite without any. Weights (n,)."""
    return float(variance / weights[counted].sum() ** 2) if counted.any() else np.inf


def sum_released(by: Mask, values: Vector, vector: Vector, weight: float) -> Releases:
    """The releases of a sum, ``vector`` (d,) of this weight, of all parties ``by``, (n,). Values (n, d)."""
    return Releases(np.where(by[:, None], vector, np.zeros_like(values)), np.where(by, weight, 0.0), by)


def value_region(protocol: Any, target: Target, weight: float) -> Box | Ball:
    """The box or the ball around the ``centre`` of a protocol, of half width or radius ``clip``, for a public weight."""
    middle, reach = weight * protocol.centre, weight * protocol.clip
    if protocol.region == BALL:
        return Ball(size=target.dimension, radius=reach, centre=middle)
    return Box(size=target.dimension, low=middle - reach, high=middle + reach)


def input_domain(protocol: Any, target: Target) -> InputDomain:
    """The ball or the box of the region, no wider than the sensitivity."""
    if protocol.region == BALL:
        return InputDomain.ball(target.dimension, min(protocol.clip, target.sensitivity / 2), protocol.centre)
    return unit_cube(protocol, target)
