"""All coalitions of a size at once, where every value carries private noise: each costs a border of what its last member adds.

The private noise of a value is its prior, of variance v: with S the covariance of the values given a view, in units of v, what
the view tells of a replaced value is (1 - S_ii) / v. What is public is conditioned on once, and what a member of a coalition
knows besides (its value and noise, what it sent and received) is reduced to independent observations of unit variance, once a
member. A coalition is then conditioned on member by member, and its information is a sum of squares, to which each member adds:
nothing is taken away again but in covariances between members, whose rounding decides the stated error. Coalitions that
differ in the last member are one batch. With r observations a member, n parties and p public messages: O(r^2 (n + p) + r^3) for
each coalition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints, Mask, Matrix
from quietmean.core.lazy import sparse
from quietmean.core.party import PartyId
from quietmean.core.workers import Workers
from quietmean.transcript import Transcript

# Numbers that are held: all messages in terms of values and noise, and their covariances.
_MOST_NUMBERS = 6e7
# Variances are relative: below the first an observation follows from others, from the second on it is one of its own. What is
# between the two is for a solver that refines.
NOTHING, OBSERVED = 1e-11, 1e-6
# Beyond this relative error another solver has to answer.
DOUBTFUL = 1e-7
# What an observation that follows from others may have in common with a value.
_NOTHING_SHARED = 1e-8
_ROUNDING = 2.3e-16
# Keeps a factorisation of redundant observations going; then it is not used.
_RIDGE, _TIGHT = 1e-13, 1e4
# Into about so many jobs coalitions are divided.
_JOBS = 24
# Operations in a second on one core, for the time that is said beforehand: of large products, and of many small ones.
_LARGE, _SMALL = 2e10, 8e9


class Doubtful(ValueError):
    """A covariance has variances of which it is not clear whether they are zero."""


@dataclass(frozen=True, eq=False)
class CoalitionBatch:
    """Coalitions that differ in the last member: ``prefix`` with each of ``last``.

    ``information``: Lambda_ii of all values, shape (coalitions, n), of which those of the members mean nothing. ``error``: its
    relative error, (coalitions,); infinite where another solver has to answer.
    """

    prefix: tuple[PartyId, ...]
    last: tuple[PartyId, ...]
    information: Matrix
    error: Matrix


@dataclass(frozen=True, eq=False)
class _Members:
    """What each of the parties that may collude adds to what is public, in independent observations of unit variance.

    Padded to r observations with such as say nothing. ``places``: the raw observations (c, w) of which they are the combinations
    ``combined`` (c, r, w), places in rows of functionals of :class:`CoalitionBatches`; ``public``: their covariance with what is
    public, (c, r, p); ``values``: that with the values, given what is public, (c, r, n).
    """

    places: Ints
    combined: Matrix
    public: Matrix
    values: Matrix
    error: float

    @property
    def each(self) -> int:
        return int(self.combined.shape[1])


@dataclass(frozen=True, eq=False)
class _Given:
    """What is known of a prefix, for some ``later`` members, (c,): their conditional covariances, (c, r, r) with themselves and
    (c, r, n) with the values, and what they have in common with each member of the prefix, (c, r, r) each."""

    prefix: tuple[PartyId, ...]
    later: Ints
    information: Matrix
    error: float
    own: Matrix
    values: Matrix
    shared: tuple[Matrix, ...]


class CoalitionBatches:
    """One execution for all coalitions of a size. Made by :meth:`of`, and the same for every question."""

    def __init__(self, bare: Transcript, variance: float, public: Mask) -> None:
        """Raises :class:`Doubtful` where redundant observations cannot be distinguished from others."""
        self._variance = variance
        self._rows = _in_terms_of_noise(bare, math.sqrt(variance))
        self._covariance = self._rows @ self._rows.T
        self.parties = bare.parties
        known = np.nonzero(public)[0]
        whitening, self._error = _whitening(self._covariance[np.ix_(known, known)], self._rows[known, : bare.parties])
        # With all functionals, (p, n + K + M): those of values and noise, then messages.
        self._public = whitening @ np.hstack([self._rows[known], self._covariance[known]])
        self._public_values = self._public[:, : bare.parties]
        self._members = self._reduced(bare, public)

    @classmethod
    def of(cls, bare: Transcript, variance: float, public: Mask) -> CoalitionBatches | None:
        """``bare``: without the private noise, whose variance is ``variance``; ``public``: messages that everybody sees, (M,).

        None where there is none of this noise, where it would take too much memory, and where another solver has to answer.
        """
        if not feasible(bare, variance):
            return None
        try:
            return cls(bare, variance, public)
        except Doubtful:
            return None

    def tried(self, able: Sequence[PartyId], size: int, workers: Workers | None = None) -> Iterator[CoalitionBatch]:
        """Every coalition of ``size`` of the parties that are ``able`` to collude, in order."""
        rest = [np.array(list(itertools.combinations(able, size)), dtype=np.int64)] if size == 1 else []
        for place in range(len(able) - size + 1 if size > 1 else 0):
            others = itertools.combinations(able[place + 1 :], size - 1)
            after = np.fromiter(itertools.chain.from_iterable(others), dtype=np.int64).reshape(-1, size - 1)
            rest.append(np.hstack([np.full((len(after), 1), able[place]), after]))
        yield from self._shared(rest, workers)

    def those(self, coalitions: Ints, workers: Workers | None = None) -> Iterator[CoalitionBatch]:
        """Some coalitions, (m, size), each in rising order and all in order."""
        yield from self._shared(_by_first(coalitions), workers)

    def _shared(self, groups: Sequence[Ints], workers: Workers | None) -> Iterator[CoalitionBatch]:
        # What all jobs have in common is large: few jobs, the same ones for any number of workers.
        ends = np.cumsum([len(group) for group in groups])
        job_of = ends * _JOBS // (ends[-1] + 1) if len(groups) else ends
        jobs = [np.vstack(groups[begin:end]) for begin, end in itertools.pairwise(_changes(job_of))]
        for batches in (workers or Workers()).in_order(_solved, self, jobs):
            yield from batches

    def below(self, given: _Given, rest: Ints) -> Iterator[CoalitionBatch]:
        """The prefix with each row of ``rest``, (m, size)."""
        if rest.shape[1] == 1:
            yield self._batch(given, rest[:, 0])
            return
        for group in _by_first(rest):
            first, after = int(group[0, 0]), group[:, 1:]
            yield from self.below(self._extended(given, first, np.unique(after)), after)

    def nobody(self, later: Ints) -> _Given:
        """What is public, for some members."""
        members = self._members
        information = (self._public_values**2).sum(axis=0)
        own = np.broadcast_to(np.eye(members.each), (len(later), members.each, members.each))
        return _Given((), later, information, self._error + members.error, own, members.values[later], ())

    def _batch(self, given: _Given, last: Ints) -> CoalitionBatch:
        here = np.searchsorted(given.later, last)
        added, error = _added(given.own[here], given.values[here])
        information = (given.information + (added**2).sum(axis=1)) / self._variance
        return CoalitionBatch(given.prefix, tuple(last.tolist()), information, given.error + error)

    def _extended(self, given: _Given, place: int, later: Ints) -> _Given:
        """Coalitions with one more member, for some of those after it."""
        here, after = int(np.searchsorted(given.later, place)), np.searchsorted(given.later, later)
        triangle, error = _whitenings(given.own[here : here + 1], given.values[here : here + 1])
        common = self.common(place, later)
        for shared in given.shared:
            common = common - shared[after] @ shared[here].T
        common = common @ triangle[0].T
        explained = triangle[0] @ given.values[here]
        return _Given(
            (*given.prefix, place),
            later,
            given.information + (explained**2).sum(axis=0),
            given.error + float(error[0]),
            given.own[after] - common @ common.transpose(0, 2, 1),
            given.values[after] - common @ explained,
            (*(shared[after] for shared in given.shared), common),
        )

    def common(self, place: int, later: Ints) -> Matrix:
        """The covariances of some members' observations with those of one, given what is public: (c, r, r)."""
        members, nowhere = self._members, self._rows.shape[1] + len(self._rows)
        columns, where = np.unique(np.append(members.places[later], nowhere), return_inverse=True)
        functional = self._functional(members.combined[place], members.places[place], columns[:-1])
        # One more place, of what pads.
        padded = np.hstack([functional, np.zeros((members.each, 1))])
        raw = padded[:, where[:-1].reshape(len(later), -1)].transpose(1, 2, 0)
        common: Matrix = members.combined[later] @ raw - members.public[later] @ members.public[place].T
        return common

    def _functional(self, combined: Matrix, places: Ints, columns: Ints) -> Matrix:
        """The covariances of combinations of raw observations with some of all, (r, columns), which are in rising order."""
        width = self._rows.shape[1]
        units, messages = places < width, (places >= width) & (places < width + len(self._rows))
        rows, own = places[messages] - width, places[units]
        of_units, of_rows = columns[columns < width], columns[columns >= width] - width
        with_units: Matrix = combined[:, messages] @ self._rows[np.ix_(rows, of_units)]
        with_units += combined[:, units] @ (own[:, None] == of_units)
        with_rows: Matrix = combined[:, messages] @ self._covariance[np.ix_(rows, of_rows)]
        with_rows += combined[:, units] @ self._rows[np.ix_(of_rows, own)].T
        return np.hstack([with_units, with_rows])

    def _reduced(self, bare: Transcript, public: Mask) -> _Members:
        own = [self._observations(bare, public, party) for party in range(bare.parties)]
        reduced = [self._independent(places) for places in own]
        each, widest = max(len(rows) for rows, _ in reduced), max(len(places) for places in own)
        nowhere = self._rows.shape[1] + len(self._rows)
        places = np.full((bare.parties, widest), nowhere, dtype=np.int64)
        combined = np.zeros((bare.parties, each, widest))
        for party, (raw, (combination, _)) in enumerate(zip(own, reduced, strict=True)):
            places[party, : len(raw)] = raw
            combined[party, : len(combination), : len(raw)] = combination
        seen = np.hstack([self._public, np.zeros((len(self._public), 1))]).T[places]
        with_public = combined @ seen
        directly = np.vstack(
            [np.eye(self._rows.shape[1], self.parties), self._rows[:, : self.parties], np.zeros((1, self.parties))]
        )
        with_values = combined @ directly[places] - with_public @ self._public_values
        return _Members(places, combined, with_public, with_values, max(error for _, error in reduced))

    def _observations(self, bare: Transcript, public: Mask, party: PartyId) -> Ints:
        """Places of what one party knows besides what is public: its value, its noise, what it sent and received."""
        noise = self.parties + np.nonzero(bare.noise_known[:, [party]].toarray()[:, 0])[0]
        noise = noise[self._rows[:, noise].any(axis=0)]
        messages = np.nonzero(bare.message_known[:, [party]].toarray()[:, 0] & ~public)[0]
        return np.concatenate([[party], noise, self._rows.shape[1] + messages]).astype(np.int64)

    def _independent(self, places: Ints) -> tuple[Matrix, float]:
        """Combinations of observations that are independent and of unit variance, given what is public."""
        width = self._rows.shape[1]
        units, rows = places[places < width], places[places >= width] - width
        cross = self._rows[np.ix_(rows, units)]
        covariance = np.block([[np.eye(len(units)), cross.T], [cross, self._covariance[np.ix_(rows, rows)]]])
        seen = self._public[:, places]
        values = np.vstack([np.eye(width, self.parties)[units], self._rows[rows, : self.parties]])
        sizes = np.sqrt(np.diag(covariance))
        return _whitening(covariance - seen.T @ seen, values - seen.T @ self._public_values, sizes)


def _solved(batches: CoalitionBatches, coalitions: Ints) -> list[CoalitionBatch]:
    """What a worker does: coalitions that have the first member in common."""
    return list(batches.below(batches.nobody(np.unique(coalitions)), coalitions))


def _changes(numbers: Ints) -> list[int]:
    """Where rising numbers change, with beginning and end."""
    return [0, *(np.nonzero(np.diff(numbers))[0] + 1).tolist(), len(numbers)] if len(numbers) else [0]


def _by_first(coalitions: Ints) -> list[Ints]:
    """Rows that are in order, (m, size), by their first number."""
    return np.split(coalitions, np.nonzero(np.diff(coalitions[:, 0]))[0] + 1) if len(coalitions) else []


def feasible(bare: Transcript, variance: float) -> bool:
    """Whether there is private noise, and all covariances fit into some hundred megabytes."""
    messages, columns = bare.messages, bare.parties + bare.noise.shape[1]
    return variance > 0 and messages * (messages + columns) <= _MOST_NUMBERS


def seconds(bare: Transcript, variance: float, public: Mask, size: int, coalitions: int) -> float:
    """About what all of them take on one core; infinite where it is not feasible. Counted, the same on every machine."""
    if not feasible(bare, variance):
        return math.inf
    parties, columns = bare.parties, bare.parties + bare.noise.shape[1]
    hidden = bare.message_known[~public]
    raw = (hidden.nnz + bare.noise_known.nnz) / parties + 1
    # Half of what is known follows from the rest: what was sent from what was received.
    each = 0.7 * raw
    border = 2 * each**2 * (raw + float(public.sum()) + 2 * parties + size * each)
    return bare.messages**2 * columns / _LARGE + coalitions * border / _SMALL


def _in_terms_of_noise(bare: Transcript, prior: float) -> Matrix:
    """All messages in terms of values of unit variance and standard noise: (M, n + K). By rows that build on earlier ones."""
    dependence = sparse.csr_array(bare.dependence)
    level = np.zeros(bare.messages, dtype=np.int64)
    for row in range(bare.messages):
        before = dependence.indices[dependence.indptr[row] : dependence.indptr[row + 1]]
        level[row] = level[before].max(initial=-1) + 1
    rows = np.hstack([bare.values.toarray() * prior, bare.noise.toarray() * bare.noise_scale])
    for number in range(1, int(level.max(initial=0)) + 1):
        here = np.nonzero(level == number)[0]
        rows[here] += np.asarray(sparse.csr_array(dependence[here]) @ rows)
    return rows


def _whitening(covariance: Matrix, values: Matrix, sizes: Matrix | None = None) -> tuple[Matrix, float]:
    """Combinations of observations that have unit variance and are independent, and the relative error of what they tell.

    ``values``: the covariances with the values; ``sizes``: standard deviations that variances are relative to, by default their
    own. Raises :class:`Doubtful`.
    """
    spread = np.sqrt(np.diag(covariance).clip(min=0.0)) if sizes is None else sizes
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    variances, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    projected = vectors.T @ (scale[:, None] * values)
    kept, error = _kept(variances, np.abs(projected).max(axis=1, initial=0.0))
    if not math.isfinite(error):
        raise Doubtful
    whitening: Matrix = (vectors[:, kept] / np.sqrt(variances[kept])).T * scale
    return whitening, error


def _kept(variances: Matrix, shared: Matrix) -> tuple[Mask, float]:
    """Which combinations are observations of their own; and the error of what they tell, infinite where that is not clear."""
    kept = variances >= OBSERVED
    if (variances[~kept] > NOTHING).any() or (shared[~kept] > _NOTHING_SHARED).any():
        return kept, math.inf
    return kept, _ROUNDING * len(variances) / float(variances[kept].min(initial=1.0))


def _whitenings(covariances: Matrix, values: Matrix) -> tuple[Matrix, Matrix]:
    """Whiten many blocks at once, (c, r, r) and (c, r, n).

    The results are square, with rows of zeros for what is not kept; infinite errors for doubt.
    """
    each = covariances.shape[1]
    try:
        triangles = np.linalg.inv(np.linalg.cholesky(covariances + _RIDGE * np.eye(each)))
        tight = (triangles**2).sum(axis=(1, 2))
    except np.linalg.LinAlgError:
        triangles, tight = np.zeros(covariances.shape), np.full(len(covariances), np.inf)
    errors = (_RIDGE + _ROUNDING * each) * tight
    for place in np.nonzero(tight > _TIGHT)[0]:
        variances, vectors = np.linalg.eigh(covariances[place])
        kept, errors[place] = _kept(variances, np.abs(vectors.T @ values[place]).max(axis=1, initial=0.0))
        scale = np.divide(1.0, np.sqrt(variances.clip(min=0.0)), out=np.zeros(each), where=kept)
        triangles[place] = (vectors * scale).T
    return triangles, errors


def _added(covariances: Matrix, values: Matrix) -> tuple[Matrix, Matrix]:
    """What observations tell of the values, whitened (c, r, n), and relative errors (c,)."""
    triangles, errors = _whitenings(covariances, values)
    return triangles @ values, errors
