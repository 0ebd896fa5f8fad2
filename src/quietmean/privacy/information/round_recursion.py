"""The information matrix by a recursion over rounds: exact, and without a system that holds all rounds at once.

Give every value an independent prior of variance v. What is known of the values after a view is then their posterior
covariance C, and the view's information about values that carry extra noise v is (I - C / v) / v. C is computed as a Kalman
filter does: the joint covariance of the values and of the messages still to be used (each without its own noise) goes from
step to step by sparse updates, and shrinks by a low-rank one for the messages that the adversary sees. With h honest parties,
T rounds, k neighbours and o observed messages a round: O(T h^2 (k + o)) operations, O(h^2) numbers stored.

In many protocols what a party sends is a linear combination of what was sent in one earlier step, of hidden values, of noise
that was sent along with those earlier messages, and of at most one noise term of its own. Then the joint covariance of the
messages not yet used and of the values is all that has to be carried from one step to the next, whatever the protocol is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask, Matrix
from quietmean.core.lazy import linalg, sparse
from quietmean.core.workers import few_threads
from quietmean.privacy.adversary import Adversary, View
from quietmean.privacy.information.matrix import InformationMatrix, extra_variance, without_private_noise
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


# Rounding in a covariance of unit scale: this much for each step, times the condition of what was inverted.
_ROUNDING = 2e-16
# An innovation whose variance fell below this share of what it was is noise-free up to rounding: not for this solver.
_SINGULAR = 1e-9
# Rows of a covariance that are updated at a time: bounds temporary memory, and leaves out most of the symmetric half.
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class _Seen:
    """Messages seen (M,), whose own noise is hidden (M,), its size (M,) in ``unit``; place of honest parties (n,), else -1."""

    message: Mask
    hidden: Mask
    size: Matrix
    unit: float
    honest: Ints


def recursive_information(structure: RoundStructure, adversary: Adversary) -> InformationMatrix | None:
    """Lambda of the adversary's view, exact up to ``release_error``; None where the recursion does not apply or fails."""
    bare = bare_information(structure, adversary)
    return None if bare is None else bare.with_independent_noise(structure.variance)


def bare_information(structure: RoundStructure, adversary: Adversary) -> InformationMatrix | None:
    """Information without the private noise on every value, which adds ``structure.variance`` to each release."""
    honest = adversary.honest(structure.transcript.parties)
    view = adversary.view(structure.transcript)
    extra = extra_variance(structure.transcript, structure.variance)
    if not honest or view.messages[structure.value_row[honest]].any():
        return None
    with few_threads(len(honest)):
        try:
            covariance, error = posterior(structure, view, np.array(honest), extra)
        except np.linalg.LinAlgError:
            return None
        noisy = covariance / -extra
        noisy[np.diag_indices_from(noisy)] += 1.0 / extra
        return InformationMatrix.of_noisy_values(tuple(honest), noisy, extra, error)


def private_diagonal(structure: RoundStructure, adversary: Adversary) -> tuple[Matrix, float] | None:
    """Lambda_ii of the honest parties, shape (n_H,), and its relative error, where all values carry private noise.

    No eigenvalues and no matrix Lambda: the private noise itself is the prior.
    """
    honest = adversary.honest(structure.transcript.parties)
    view = adversary.view(structure.transcript)
    if structure.variance == 0.0 or not honest or view.messages[structure.value_row[honest]].any():
        return None
    with few_threads(len(honest)):
        try:
            covariance, error = posterior(structure, view, np.array(honest), structure.variance, diagonal_only=True)
        except np.linalg.LinAlgError:
            return None
    variances = covariance if covariance.ndim == 1 else np.diag(covariance)
    return (1.0 - variances).clip(min=0.0) / structure.variance, error


def posterior(
    structure: RoundStructure, view: View, honest: Ints, prior: float, diagonal_only: bool = False
) -> tuple[Matrix, float]:
    """Covariance of the honest values given the view, in units of their ``prior`` variance, shape (h, h), and its error.

    With ``diagonal_only`` shape (h,) if anything is observed in the last step. Raises ``LinAlgError`` where what is seen is free
    of noise, or nearly so, and redundant.
    """
    hidden = (structure.own_noise >= 0) & (structure.own_size != 0)
    hidden[hidden] = ~view.noise[structure.own_noise[hidden]]
    unit = float(np.sqrt(prior))
    index_of = np.full(structure.transcript.parties, -1, dtype=np.int64)
    index_of[honest] = np.arange(honest.size)
    seen = _Seen(view.messages, hidden, structure.own_size / unit, unit, index_of)
    state = _State(structure, honest.size, diagonal_only)
    for number, step in enumerate(structure.steps):
        state.advance(step, seen)
        state.observe(seen, last=number == len(structure.steps) - 1)
    return state.values, state.error


class _State:
    """Joint covariance: of messages without their own noise ``messages`` (f, f), with the values ``cross`` (f, h), of these."""

    def __init__(self, structure: RoundStructure, honest: int, diagonal_only: bool) -> None:
        self.diagonal_only = diagonal_only
        self.needed = structure.needed
        self.place = np.full(structure.needed.size, -1, dtype=np.int64)
        self.rows = np.zeros(0, dtype=np.int64)
        self.old = 0  # the first of the rows that are older than the latest step
        self.messages, self.cross = np.zeros((0, 0)), np.zeros((0, honest))
        self.values: Matrix = np.eye(honest)
        self.error = _ROUNDING

    def advance(self, step: MessageBatch, seen: _Seen) -> None:
        """Replace the used messages by the new ones. What is known altogether is left out."""
        states, noise, values = _transition(step, seen, self.place)
        unknown = ~seen.message[step.rows] | seen.hidden[step.rows]
        for row, _, weight in (states, noise, values):
            unknown[row[weight != 0.0]] = True
        kept = self._unused(step)
        target = np.cumsum(unknown) - 1 + kept.size
        carried = np.arange(kept.size), kept, np.ones(kept.size)
        count = kept.size + int(unknown.sum())
        total = _matrix([carried, _renumbered(states, target)], (count, self.rows.size))
        shares = _matrix([_renumbered(values, target)], (count, len(self.values)))
        self._propagate(total, shares)
        self._add_noise(_matrix([_renumbered(noise, target)], (count, int(noise[1].max(initial=-1)) + 1)))
        self.place[self.rows] = -1
        self.rows, self.old = np.concatenate([self.rows[kept], step.rows[unknown]]), kept.size
        self.place[self.rows] = np.arange(count)

    def _unused(self, step: MessageBatch) -> Ints:
        """Places of messages that wait for a later step."""
        waiting = self.needed[self.rows]
        used = self.place[np.concatenate([step.dependence[1], step.reuse[1]])]
        waiting[used[used >= 0]] = False
        return np.nonzero(waiting)[0]

    def _propagate(self, states: Sparse, values: Sparse) -> None:
        """Covariances of states s + values x, some rows at a time: besides old and new nothing large is in memory."""
        count = states.shape[0]
        messages, cross = np.empty((count, count)), np.empty((count, len(self.values)))
        blocks = [slice(begin, begin + _BLOCK) for begin in range(0, count, _BLOCK)]
        for block in blocks:
            part = np.asarray(_rows(states, block) @ self.messages)
            messages[:, block] = states @ np.ascontiguousarray(part.T)
        self.messages = messages
        for block in blocks:
            part = np.asarray(_rows(states, block) @ self.cross)
            messages[:, block] += np.asarray(values @ np.ascontiguousarray(part.T))
            part += np.asarray(_rows(values, block) @ self.values)
            # The new cross-covariance holds the rest of the values' part.
            messages[block] += np.asarray(values @ np.ascontiguousarray(part.T)).T
            cross[block] = part
        self.cross = cross

    def _add_noise(self, noise: Sparse) -> None:
        fresh = (noise @ noise.T).tocoo()
        self.messages[fresh.coords] += fresh.data

    def observe(self, seen: _Seen, last: bool) -> None:
        """Condition on those of the new messages that are seen; if it is the ``last`` step, only the values matter."""
        fresh = np.nonzero(seen.message[self.rows[self.old :]])[0] + self.old
        if not fresh.size:
            return
        rows = self.rows[fresh]
        innovation = self.messages[np.ix_(fresh, fresh)]
        innovation[np.diag_indices_from(innovation)] += np.where(seen.hidden[rows], seen.size[rows] ** 2, 0.0)
        other = None if last else self.messages[fresh]
        if last:
            self.messages = np.zeros((0, 0))
        triangle, condition = _factor(innovation)
        del innovation
        self.error += _ROUNDING * condition
        if other is None:
            self._finish(triangle, fresh)
            return
        gain = linalg.solve_triangular(triangle, self.cross[fresh], lower=True, check_finite=False)
        other = linalg.solve_triangular(triangle, other, lower=True, check_finite=False)
        _downdate(self.values, gain)
        for begin in range(0, len(self.cross), _BLOCK):
            self.cross[begin : begin + _BLOCK] -= other[:, begin : begin + _BLOCK].T @ gain
        _downdate(self.messages, other)

    def _finish(self, triangle: Matrix, fresh: Ints) -> None:
        if not self.diagonal_only:
            _downdate(self.values, linalg.solve_triangular(triangle, self.cross[fresh], lower=True, check_finite=False))
            return
        variance: Matrix = np.diag(self.values).copy()
        for begin in range(0, variance.size, _BLOCK):
            gain = linalg.solve_triangular(triangle, self.cross[fresh, begin : begin + _BLOCK], lower=True, check_finite=False)
            variance[begin : begin + _BLOCK] -= np.einsum("ij,ij->j", gain, gain)
        self.values = variance


def _transition(step: MessageBatch, seen: _Seen, index_of: Ints) -> tuple[Entries, Entries, Entries]:
    """New messages from earlier ones without their noise, from hidden noise, and from honest values.

    An unseen message enters with its noise. A seen message is a constant; if its own noise is used again, the message determines
    that noise given the rest of its content.
    """
    row, used, weight = step.dependence
    again, owner, reuse = step.reuse
    reuse = reuse / seen.unit
    unseen, reuse_unseen = ~seen.message[used], ~seen.message[owner] & seen.hidden[owner]
    reuse_seen = seen.message[owner] & seen.hidden[owner]
    states = _joined(
        (row[unseen], index_of[used[unseen]], weight[unseen]),
        (again[reuse_seen], index_of[owner[reuse_seen]], -reuse[reuse_seen]),
    )
    states[2][unseen.sum() :] /= seen.size[owner[reuse_seen]]
    noisy = unseen & seen.hidden[used]
    noise = _joined(
        (row[noisy], used[noisy], weight[noisy] * seen.size[used[noisy]]),
        (again[reuse_unseen], owner[reuse_unseen], reuse[reuse_unseen]),
    )
    party, person, share = step.values
    values = party, seen.honest[person], share
    # Variables without a place are known.
    return _placed(states), (noise[0], np.unique(noise[1], return_inverse=True)[1], noise[2]), _placed(values)


def _joined(first: Entries, second: Entries) -> Entries:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]), np.concatenate([first[2], second[2]])


def _placed(entries: Entries) -> Entries:
    row, column, weight = entries
    inside = column >= 0
    return row[inside], column[inside], weight[inside]


def _renumbered(entries: Entries, target: Ints) -> Entries:
    row, column, weight = entries
    return target[row], column, weight


def _matrix(parts: Sequence[Entries], shape: tuple[int, int]) -> Sparse:
    # Straight to compressed rows; repeated entries count as their sum in every product.
    rows, columns, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    begins = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=begins[1:])
    return sparse.csr_array((weights[order], columns[order], begins), shape=shape)


def _rows(matrix: Sparse, rows: slice) -> Sparse:
    """Some rows; without a copy if they are all of them."""
    return matrix if matrix.shape[0] <= _BLOCK else sparse.csr_array(matrix[rows])


def _factor(innovation: Matrix) -> tuple[Matrix, float]:
    """The lower Cholesky factor, and the largest factor by which conditioning on the others shrinks one variance."""
    variances = np.diag(innovation).copy()
    # The transpose is the same matrix in the order that allows factorisation in place.
    triangle = linalg.cholesky(innovation.T, lower=True, overwrite_a=True, check_finite=False)
    shares = np.diag(triangle) ** 2 / variances
    if not shares.min() > _SINGULAR:
        raise np.linalg.LinAlgError("an observation without noise is redundant")
    return triangle, float(1.0 / shares.min())


def _downdate(matrix: Matrix, gain: Matrix) -> None:
    """matrix -= gain' gain, in place; computes one half and mirrors it."""
    for begin in range(0, len(matrix), _BLOCK):
        end = begin + _BLOCK
        matrix[begin:end, :end] -= gain[:, begin:end].T @ gain[:, :end]
        matrix[:begin, begin:end] = matrix[begin:end, :begin].T
