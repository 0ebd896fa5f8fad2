"""Executions in rounds, recognised from the sparsity of their transcript alone.

In many protocols what a party sends is a linear combination of what was sent in one earlier step, of hidden values, of noise
that was sent along with those earlier messages, and of at most one noise term of its own. Then the joint covariance of the
messages not yet used and of the values is all that has to be carried from one step to the next, whatever the protocol is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.lazy import sparse
from quietmean.privacy.information.matrix import without_private_noise
from quietmean.transcript import Transcript

Sparse: TypeAlias = "sparse.csr_array[np.float64]"
# Row, column and weight of the entries of a sparse matrix.
Entries = tuple[Ints, Ints, Array]

_NONE = -1


@dataclass(frozen=True, eq=False)
class MessageBatch:
    """One batch of messages m = s + own noise, where s = dependence m' + reuse e' + values x.

    ``rows`` are the transcript's rows of m, sorted. Entries are (place in ``rows``, transcript's row of m' or party, weight);
    those of ``reuse`` weigh the own noise of m' at unit variance.
    """

    rows: Ints
    dependence: Entries
    reuse: Entries
    values: Entries


@dataclass(frozen=True, eq=False)
class RoundStructure:
    """A transcript as a sequence of steps. No message is used in more than one step.

    ``variance`` is that of the private noise on every value, taken out of the steps; ``value_row`` (n,) the row that carries
    each value; ``own_noise`` (M,) the index of a message's own noise term or -1, ``own_size`` (M,) its standard deviation in the
    message; ``needed`` (M,) is whether a later step uses the message.
    """

    transcript: Transcript
    variance: float
    value_row: Ints
    steps: tuple[MessageBatch, ...]
    own_noise: Ints
    own_size: Array
    needed: Mask


def find_rounds(transcript: Transcript) -> RoundStructure | None:
    """The steps of a transcript, or None if it has no such structure."""
    bare, variance = without_private_noise(transcript)
    value_row = _value_rows(bare)
    if value_row is None:
        return None
    carries = np.zeros(bare.messages, dtype=np.bool_)
    carries[value_row] = True
    rows, columns, weights = _entries(bare.dependence)
    plain = ~carries[columns]
    dependence = rows[plain], columns[plain], weights[plain]
    created = _created(bare, dependence, carries)
    noise = None if created is None else _own_noise(bare, created)
    if created is None or noise is None:
        return None
    own_noise, own_size, reuse = noise
    party = np.zeros(bare.messages, dtype=np.int64)
    party[value_row] = np.arange(bare.parties)
    values = rows[~plain], party[columns[~plain]], weights[~plain]
    needed = np.zeros(bare.messages, dtype=np.bool_)
    needed[dependence[1]] = needed[reuse[1]] = True
    steps = _steps(created, carries, dependence, reuse, values)
    return RoundStructure(bare, variance, value_row, steps, own_noise, own_size, needed)


def _entries(matrix: Sparse) -> Entries:
    triplets = sparse.coo_array(matrix)
    row, column = triplets.coords
    return row.astype(np.int64), column.astype(np.int64), triplets.data.astype(np.float64)


def _value_rows(bare: Transcript) -> Ints | None:
    """The row of each value, shape (n,), if it occurs nowhere else and nothing but its private noise is in that row."""
    values = bare.values.tocsc()
    if (np.diff(values.indptr) != 1).any() or (values.data != 1.0).any():
        return None
    rows = values.indices.astype(np.int64)
    other_noise = sparse.csr_array(bare.noise[rows] * bare.noise_scale[None, :])
    alone = (
        np.unique(rows).size == rows.size and not np.diff(bare.dependence.indptr)[rows].any() and not other_noise.count_nonzero()
    )
    return rows if alone else None


def _created(bare: Transcript, dependence: Entries, carries: Mask) -> Ints | None:
    """The step in which each message comes about: the round in which all that goes into it is sent. Shape (M,)."""
    rows, columns, _ = dependence
    sent = bare.message_round[columns]
    first, last = np.full(bare.messages, np.iinfo(np.int64).max), np.zeros(bare.messages, dtype=np.int64)
    np.minimum.at(first, rows, sent)
    np.maximum.at(last, rows, sent)
    consistent = (last[rows] == first[rows]).all() and (last < bare.message_round)[~carries].all()
    return last if consistent else None


def _own_noise(bare: Transcript, created: Ints) -> tuple[Ints, Array, Entries] | None:
    """Each message's own noise term (M,), its size (M,), and where own noise occurs again, as (row, message, weight)."""
    rows, terms, weights = _entries(bare.noise)
    weights = weights * bare.noise_scale[terms]
    present = weights != 0.0
    rows, terms, weights = rows[present], terms[present], weights[present]
    order = np.lexsort((created[rows], terms))
    rows, terms, weights = rows[order], terms[order], weights[order]
    first = np.ones(terms.size, dtype=np.bool_)
    first[1:] = terms[1:] != terms[:-1]
    own_noise, own_size = np.full(bare.messages, _NONE, dtype=np.int64), np.zeros(bare.messages)
    own_noise[rows[first]], own_size[rows[first]] = terms[first], weights[first]
    owner = np.zeros(bare.noise.shape[1], dtype=np.int64)
    owner[terms[first]] = rows[first]
    again = rows[~first], owner[terms[~first]], weights[~first]
    single = np.unique(rows[first]).size == first.sum()
    return (own_noise, own_size, again) if single and (created[again[0]] == bare.message_round[again[1]]).all() else None


def _steps(created: Ints, carries: Mask, dependence: Entries, reuse: Entries, values: Entries) -> tuple[MessageBatch, ...]:
    steps = []
    row_of = np.zeros(created.size, dtype=np.int64)
    for number in np.unique(created[~carries]):
        rows = np.nonzero((created == number) & ~carries)[0]
        row_of[rows] = np.arange(rows.size)
        parts = []
        for row, column, weight in (dependence, reuse, values):
            here = (created[row] == number) & ~carries[row]
            parts.append((row_of[row[here]], column[here], weight[here]))
        steps.append(MessageBatch(rows, *parts))
    return tuple(steps)
