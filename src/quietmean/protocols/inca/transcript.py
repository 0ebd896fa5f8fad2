"""The declared transcript of IncA (Algorithm 2), assembled for all parties at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array

from quietmean.graphs import History, Schedule
from quietmean.protocols.inca.rounds import injection_groups, next_online
from quietmean.protocols.inca.spec import IncaParameters
from quietmean.transcript import Transcript

Ints = NDArray[np.int64]


class _Triplets:
    """Entries of one sparse matrix, collected in arrays."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, NDArray[np.float64]]] = []

    def add(self, rows: Ints, columns: Ints, weights: NDArray[np.float64] | float) -> None:
        self._parts.append((rows, columns, np.broadcast_to(np.asarray(weights, dtype=np.float64), rows.shape)))

    def matrix(self, shape: tuple[int, int]) -> csr_array[np.float64]:
        rows, columns, weights = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        matrix = coo_array((weights, (rows, columns)), shape=shape).tocsr()
        matrix.eliminate_zeros()
        return matrix


def declared_transcript(parameters: IncaParameters, schedule: Schedule, history: History) -> Transcript:
    """Variables: x~_i = x_i + star noise, then for every round what each online party holds after it, as the share it sends."""
    parties, rounds = schedule.parties, schedule.rounds
    everyone = np.arange(parties)
    next_round = next_online(history)
    scale_of = _shares(schedule, next_round)
    delivered, acknowledged = history.delivered(schedule), history.acknowledged(schedule)
    settled = history.settled_slots(schedule)
    sent_row = np.full((rounds + 1, parties), -1)
    dependence, noise, known = _Triplets(), _Triplets(), _Triplets()

    count = parties
    current = np.full(parties, -1)
    senders, sent_in = [everyone], [np.full(parties, 0)]
    noise.add(everyone, everyone, 1.0)
    for round_ in range(rounds + 1):
        online = np.nonzero(history.online[round_])[0]
        row_of = np.full(parties, -1)
        row_of[online] = count + np.arange(online.size)
        count += online.size
        scale = scale_of[round_]
        if round_ > 0:
            arrived = delivered[round_ - 1]
            sending, slots = np.nonzero(arrived)
            receiving = schedule.neighbours[round_ - 1][sending, slots]
            dependence.add(row_of[receiving], current[sending], scale[receiving])
            known.add(current[sending], receiving.astype(np.int64), 1.0)
            degree = schedule.out_degree[round_ - 1][online]
            kept = 1.0 - acknowledged[round_ - 1].sum(axis=1)[online] / (degree + 1)
            # The own variable is a share of what was held: times (degree + 1) gives all of it.
            dependence.add(row_of[online], current[online], scale[online] * kept * (degree + 1))
            sent_row[round_] = current
            for earlier, holder in ((earlier, holder) for earlier, holder, _, later in settled if later == round_):
                dependence.add(row_of[[holder]], sent_row[earlier, [holder]], -scale[holder])
        for members, portion, terms in injection_groups(parameters, history, round_):
            rows = row_of[members]
            dependence.add(rows, members, scale[members] * portion)
            for index, coefficient in terms:
                column = parties + members * parameters.injections.noise_terms + index - 1
                noise.add(rows, column, scale[members] * coefficient)
        senders.append(online)
        sent_in.append(next_round[round_][online])
        current[online] = row_of[online]

    released = np.zeros(count, dtype=np.bool_)
    released[current[history.finished]] = True
    sender = np.concatenate(senders)
    known.add(np.arange(count), sender, 1.0)
    delta_terms = parties * parameters.injections.noise_terms
    owner = np.concatenate([everyone, np.repeat(everyone, parameters.injections.noise_terms)])
    return Transcript(
        dependence=dependence.matrix((count, count)),
        values=eye_array(count, parties, format="csr"),
        noise=noise.matrix((count, parties + delta_terms)),
        noise_scale=np.repeat([parameters.sigma_star, parameters.sigma_delta], [parties, delta_terms]),
        noise_group=np.repeat(["star", "delta"], [parties, delta_terms]),
        sender=sender,
        message_round=np.concatenate(sent_in),
        released=released,
        message_known=known.matrix((count, parties)).astype(np.bool_),
        noise_known=csr_array((np.ones(owner.size, dtype=np.bool_), (np.arange(owner.size), owner)), shape=(owner.size, parties)),
    )


def _shares(schedule: Schedule, next_round: Ints) -> NDArray[np.float64]:
    """Entry (t, i): the share of what i holds after round t that its next message carries; 1 if it sends no more."""
    rounds, parties = schedule.rounds, schedule.parties
    degree = np.vstack([schedule.out_degree, np.zeros((1, parties), dtype=np.int64)])
    shares: NDArray[np.float64] = 1.0 / (degree[next_round - 1, np.arange(parties)] + 1)
    return np.where(next_round > rounds, 1.0, shares)
