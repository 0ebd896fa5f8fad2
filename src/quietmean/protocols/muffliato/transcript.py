"""The declared transcript of Muffliato, assembled for all parties at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array

from quietmean.graphs import History, Schedule
from quietmean.protocols.muffliato.mixing import gossip_matrix
from quietmean.protocols.muffliato.spec import MuffliatoParameters
from quietmean.transcript import Transcript

Ints = NDArray[np.int64]


def declared_transcript(parameters: MuffliatoParameters, schedule: Schedule, history: History) -> Transcript:
    """Variable (t, i), t = 0..T: what party i holds after round t, sent in round t + 1 to its neighbours. Nothing is released."""
    parties, rounds = schedule.parties, schedule.rounds
    count = parties * (rounds + 1)
    delivered, acknowledged = history.delivered(schedule), history.acknowledged(schedule)
    parts: list[tuple[int, int, Ints, Ints, NDArray[np.float64]]] = []
    for round_ in range(1, rounds + 1):
        mixing = gossip_matrix(schedule, delivered, acknowledged, round_).tocoo()
        rows, columns = mixing.row.astype(np.int64), mixing.col.astype(np.int64)
        parts.append((round_, round_ - 1, rows, columns, parameters.gamma * mixing.data))
        if parameters.gamma != 1.0:
            everyone, back = np.arange(parties), max(round_ - 2, 0)
            parts.append((round_, back, everyone, everyone, np.full(parties, 1.0 - parameters.gamma)))
    below = np.concatenate([later * parties + row for later, _, row, _, _ in parts])
    above = np.concatenate([earlier * parties + column for _, earlier, _, column, _ in parts])
    dependence = coo_array((np.concatenate([data for *_, data in parts]), (below, above)), shape=(count, count)).tocsr()
    dependence.eliminate_zeros()
    start = eye_array(count, parties, format="csr")
    owner = np.tile(np.arange(parties), rounds + 1)
    return Transcript(
        dependence=dependence,
        values=start,
        noise=start.copy(),
        noise_scale=np.full(parties, parameters.sigma),
        noise_group=np.full(parties, "star"),
        sender=owner,
        message_round=np.repeat(np.arange(1, rounds + 2), parties),
        released=np.zeros(count, dtype=np.bool_),
        message_known=_known(schedule, delivered, owner),
        noise_known=eye_array(parties, format="csr").astype(np.bool_),
    )


def _known(schedule: Schedule, delivered: NDArray[np.bool_], owner: Ints) -> csr_array[np.bool_]:
    round_, sender, slot = np.nonzero(delivered)
    receiver = schedule.neighbours[round_, sender, slot]
    rows = np.concatenate([np.arange(owner.size), round_ * schedule.parties + sender])
    columns = np.concatenate([owner, receiver])
    return csr_array((np.ones(rows.size, dtype=np.bool_), (rows, columns)), shape=(owner.size, schedule.parties))
