"""The declared transcript of GOPA, assembled for all parties at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array

from quietmean.graphs import History, Schedule
from quietmean.protocols.gopa.rounds import Happened
from quietmean.protocols.gopa.spec import PUBLISH, ROLL_BACK, ROUNDS, GopaParameters
from quietmean.transcript import Transcript

Ints = NDArray[np.int64]
Entries = tuple[Ints, Ints, NDArray[np.float64]]


def declared_transcript(parameters: GopaParameters, schedule: Schedule, history: History) -> Transcript:
    """Variables: x~_i = x_i + own noise, known to i; then what arrived at the collector; then the total that it releases.

    Who was told to roll back follows from who was online, which every adversary knows: the collector's list says nothing new.
    """
    parties, pairs, collector = schedule.parties, schedule.pairs, parameters.aggregator
    happened = Happened.of(collector, schedule, history)
    others = np.arange(parties) != collector
    # Each pair twice, once from either end: the larger number adds what they share, the smaller subtracts it.
    party, partner = (np.concatenate([pairs[:, one], pairs[:, 1 - one]]) for one in (0, 1))
    term, sign = np.tile(np.arange(len(pairs)) + parties, 2), np.where(party > partner, 1.0, -1.0)
    absent = ~happened.arrived[partner]
    missing = np.bincount(party[absent], minlength=parties) > 0

    published = np.nonzero(happened.arrived & others)[0]
    rolled_back = np.nonzero(happened.rolled_back & others & missing)[0]
    first = [0, parties, parties + published.size, parties + published.size + rolled_back.size]
    count = first[3] + bool(happened.released)
    row_published, row_rolled_back = _rows(parties, published, first[1]), _rows(parties, rolled_back, first[2])

    noise = [(np.arange(parties), np.arange(parties), np.ones(parties))]
    noise.append(_at(row_published[party], term, sign))
    noise.append(_at(np.where(absent, row_rolled_back[party], -1), term, -sign))
    dependence = [(row_published[published], published, np.ones(published.size))]
    if happened.released:
        release = count - 1
        noise.append(_at(np.where((party == collector) & ~absent, release, -1), term, sign))
        told = np.concatenate([[collector], np.arange(first[1], first[3])])
        dependence.append((np.full(told.size, release), told, np.ones(told.size)))

    sender = np.concatenate([np.arange(parties), published, rolled_back, np.full(count - first[3], collector)])
    told_rows = np.arange(parties, first[3])
    known = [(np.arange(count), sender, np.ones(count)), (told_rows, np.full(told_rows.size, collector), np.ones(told_rows.size))]
    owners = [(np.arange(parties), np.arange(parties), np.ones(parties)), (term, party, np.ones(term.size))]
    terms = parties + len(pairs)
    sizes = [parties, published.size, rolled_back.size, count - first[3]]
    return Transcript(
        dependence=_matrix(dependence, (count, count)),
        values=csr_array(eye_array(count, parties, format="csr")),
        noise=_matrix(noise, (count, terms)),
        noise_scale=np.repeat([parameters.sigma_star, parameters.sigma_delta], [parties, len(pairs)]),
        noise_group=np.repeat(["star", "delta"], [parties, len(pairs)]),
        sender=sender,
        message_round=np.repeat([0, PUBLISH, ROLL_BACK, ROUNDS + 1], sizes),
        released=np.arange(count) >= first[3],
        message_known=_matrix(known, (count, parties)).astype(np.bool_),
        noise_known=_matrix(owners, (terms, parties)).astype(np.bool_),
    )


def _rows(parties: int, members: Ints, first: int) -> Ints:
    """The row of each party's message, -1 where it has none."""
    rows = np.full(parties, -1)
    rows[members] = np.arange(first, first + members.size)
    return rows


def _at(rows: Ints, columns: Ints, weights: NDArray[np.float64]) -> Entries:
    """Those entries that have a row."""
    kept = rows >= 0
    return rows[kept], columns[kept], weights[kept]


def _matrix(entries: list[Entries], shape: tuple[int, int]) -> csr_array[np.float64]:
    rows, columns, weights = (np.concatenate(part) for part in zip(*entries, strict=True))
    return coo_array((weights, (rows, columns)), shape=shape).tocsr()
