"""The declared transcript of GOPA."""

from __future__ import annotations

import numpy as np

from quietmean.graphs import History, Schedule
from quietmean.protocols.gopa.rounds import Happened
from quietmean.protocols.gopa.spec import PUBLISH, ROLL_BACK, ROUNDS, GopaParameters, sign
from quietmean.transcript import Transcript, TranscriptBuilder


def declared_transcript(parameters: GopaParameters, schedule: Schedule, history: History) -> Transcript:
    """Variables: x~_i = x_i + own noise, known to i; then what arrived at the collector; then the total that it releases.

    Who was told to roll back follows from who was online, which every adversary knows: the collector's list says nothing new.
    """
    collector, happened = parameters.aggregator, Happened.of(parameters.aggregator, schedule, history)
    builder = TranscriptBuilder(schedule.parties)
    noisy = [_noisy_value(builder, parameters, party) for party in range(schedule.parties)]
    shared = {
        (one, other): builder.add_noise((one, other), parameters.sigma_delta, "delta") for one, other in schedule.pairs.tolist()
    }

    def term(party: int, other: int) -> tuple[int, float]:
        return shared[min(party, other), max(party, other)], sign(party, other)

    total = {noisy[collector]: 1.0}
    for party in np.nonzero(happened.arrived)[0].tolist():
        if party != collector:
            masks = dict(term(party, other) for other in schedule.partners(party))
            total[builder.add_message(party, PUBLISH, [collector], messages={noisy[party]: 1.0}, noise=masks)] = 1.0
    for party in np.nonzero(happened.rolled_back)[0].tolist():
        absent = [other for other in schedule.partners(party) if not happened.arrived[other]]
        if party != collector and absent:
            taken_out = {index: -factor for index, factor in (term(party, other) for other in absent)}
            total[builder.add_message(party, ROLL_BACK, [collector], noise=taken_out)] = 1.0
    if happened.released:
        present = [other for other in schedule.partners(collector) if happened.arrived[other]]
        own = dict(term(collector, other) for other in present)
        builder.add_message(collector, ROUNDS + 1, messages=total, noise=own, released=True)
    return builder.build()


def _noisy_value(builder: TranscriptBuilder, parameters: GopaParameters, party: int) -> int:
    star = builder.add_noise([party], parameters.sigma_star, "star")
    return builder.add_message(party, 0, values={party: 1.0}, noise={star: 1.0})
