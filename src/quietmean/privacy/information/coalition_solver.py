"""Many coalitions against one execution: one elimination for all, a small Cholesky factorisation each, and bounds for triples.

What is public is given. With U_a the span of what member a knows besides, P_h the projection on U_h and f a value, of variance 1,
the pair {h, a} tells I(h) + A of it, A the squared norm of f's projection on (1 - P_h) U_a, and {h, b} tells I(h) + B. Let s < 1
bound the cosines between these two spans of a and b. Then the three tell at most

    I(h) + (A + B + 2 s sqrt(A B)) / (1 - s^2).

Proof: f's projection on the sum of the two spans is p = u + w with u in the one and w in the other; |p|^2 = <f, u> + <f, w> <=
sqrt(A) |u| + sqrt(B) |w|, and |p|^2 >= |u|^2 + |w|^2 - 2 s |u| |w|. So |p|^2 = (|p|^2)^2 / |p|^2 is at most the largest
(sqrt(A) x + sqrt(B) y)^2 / (x^2 + y^2 - 2 s x y), which is the fraction above.

For s: with s_ab the largest cosine between U_a and U_b, and r_ah the largest one below 1 between U_a and U_h (both know what they
wrote to each other: 1), s <= (s_ab + r_ah r_bh) / sqrt((1 - r_ah^2) (1 - r_bh^2)). Proof: every element of (1 - P_h) U_a is
(1 - P_h) x with x in U_a and orthogonal to all that U_a and U_h have in common, so that |P_h x| <= r_ah |x|; the same of b with
y; and <(1 - P_h) x, (1 - P_h) y> = <x, y> - <P_h x, P_h y>. Each of three may be h: that with the least s is taken. Where each
two of the three wrote to each other, or something is not clear, the bound is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask, Matrix
from quietmean.core.lazy import linalg, sparse
from quietmean.core.party import PartyId
from quietmean.core.workers import Workers
from quietmean.privacy.adversary import Adversary, Eavesdropper
from quietmean.privacy.information.coalition_batches import DOUBTFUL, NOTHING, OBSERVED, CoalitionBatches, seconds
from quietmean.privacy.information.matrix import InformationMatrix, extra_variance
from quietmean.privacy.information.solver import ViewSolver
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

# Elimination makes matrices dense: beyond this many messages the other solvers are better.
_MESSAGES = 2500
# Redundant observations make the covariance singular; what is observed lies in its range, so a tiny ridge only bounds rounding.
_RIDGE = 1e-13
_ACCURACY = 1e-11
# What two steps with the ridge may leave of a shift, at unit extra noise. Beyond it an observation lies below the ridge.
_LEFT, _PROBES = 1e-13, 4
# What a coalition costs beside its arithmetic, in multiplications.
PER_COALITION = 3e6
# Up to this many messages in a row may build on each other for noise to be kept as a sparse matrix.
_SHALLOW = 3


@dataclass(frozen=True, eq=False)
class _Elimination:
    """All messages in terms of values (M, n) and of noise (M, K), which includes noise of variance ``extra`` on the values."""

    values: Array
    noise: Array | sparse.csr_array[np.float64]
    extra: float


class CoalitionSolver:
    """Information matrices of one execution for many adversaries.

    :meth:`against` takes any adversary, and each costs a solution of its own; :meth:`information` takes coalitions, and gives
    the same, only faster where they are many: the elimination of messages is done once, when it is first needed.
    """

    def __init__(self, transcript: Transcript, method: str = "auto", eavesdropper: Eavesdropper | None = None) -> None:
        """``eavesdropper``: who reads messages, whichever coalition :meth:`information` is about; nobody by default."""
        self.transcript = transcript
        self._eavesdropper = eavesdropper or Eavesdropper()
        self._views = ViewSolver(transcript, method)

    def against(self, adversary: Adversary) -> InformationMatrix:
        """Against one adversary, as by :func:`information_matrix`."""
        return self._views.information(adversary)

    @cached_property
    def _elimination(self) -> _Elimination | None:
        """None where the matrices would be too large."""
        if self.transcript.messages > _MESSAGES:
            return None
        bare, private_variance = self._views.bare
        extra = extra_variance(bare, private_variance)
        return _Elimination(*_columns(bare, np.sqrt(extra)), extra)

    @cached_property
    def _read(self) -> Mask:
        """What the eavesdropper knows, (M,)."""
        return self._eavesdropper.with_corrupt(()).view(self.transcript).messages

    @cached_property
    def _ingredients(self) -> sparse.csr_array[np.float64]:
        """Which noise, values and other messages each message is made of, (M, K + n + M)."""
        bare = self._views.bare[0]
        made = sparse.csr_array(sparse.hstack([bare.noise, bare.values, bare.dependence]))
        made.data = np.ones_like(made.data)
        return made

    def information(self, coalition: Collection[PartyId]) -> InformationMatrix:
        """Against a coalition, one of many, and the eavesdropper.

        Raises :class:`InputError` and :class:`NumericalError` as :meth:`against` does.
        """
        adversary = self._eavesdropper.with_corrupt(coalition)
        honest = tuple(adversary.honest(self.transcript.parties))
        if not self._views.has_noise or not honest:
            return self._views.information(adversary)
        if self._elimination is None:
            return self._large(adversary)
        values, columns, extra = self._elimination.values, self._elimination.noise, self._elimination.extra
        seen = self._read | Adversary.collusion(coalition).view(self.transcript).messages
        # From the unknown columns, not by taking the known ones away from a total: that would leave rounding of either sign.
        members = np.zeros(self.transcript.parties)
        members[list(coalition)] = 1.0
        known_by = np.concatenate([np.asarray(self.transcript.noise_known @ members), members])
        # What a member makes of what it was sent and of its own tells nothing more.
        made_of_unknown = self._ingredients @ np.concatenate([known_by == 0, ~seen]).astype(np.float64)
        observed = np.nonzero(seen & (made_of_unknown > 0))[0]
        covariance = _gram(columns, observed, known_by == 0)
        unknown = np.diag(covariance) > 1e-9 * extra
        observed, covariance = observed[unknown], covariance[np.ix_(unknown, unknown)]
        noisy, error = _information(covariance, values[np.ix_(observed, np.array(honest))], extra)
        information = InformationMatrix.of_noisy_values(honest, noisy, extra, max(error, _ACCURACY))
        information = information.with_independent_noise(self._views.bare[1])
        # Where it is doubtful, something may be disclosed exactly, which a covariance with a ridge cannot show.
        return information if information.relative_error <= DOUBTFUL else self._views.sparse(adversary)

    @cached_property
    def batches(self) -> CoalitionBatches | None:
        """All coalitions of a size at once, each for a fraction of what :meth:`information` takes; None where it cannot be."""
        bare, variance = self._views.bare
        return CoalitionBatches.of(bare, variance, self._public)

    def seconds(self, size: int, coalitions: int) -> float:
        """About what so many of them take by :attr:`batches`, on one core; infinite where it is not feasible."""
        return seconds(*self._views.bare, self._public, size, coalitions)

    @cached_property
    def _public(self) -> Mask:
        """What is released, and what the eavesdropper knows, (M,)."""
        return self._read | self.transcript.released

    def effort(self, size: int) -> float:
        """What :meth:`information` costs for a usual coalition of ``size``, in multiplications; infinite without an elimination.

        Counted, not measured: it is the same on every machine.
        """
        transcript = self.transcript
        if transcript.messages > _MESSAGES:
            return math.inf
        shared = transcript.message_known[~transcript.released]
        public = transcript.released.sum() + len(self._eavesdropper.observed)
        seen = min(shared.nnz * size / transcript.parties + public, transcript.messages)
        return float(seen**2 * (len(transcript.noise_scale) + transcript.parties + seen) + PER_COALITION)

    def _large(self, adversary: Adversary) -> InformationMatrix:
        structured = self._views.by_rounds(adversary)
        return self._views.sparse(adversary) if structured is None else structured


def _columns(bare: Transcript, extra: float) -> tuple[Array, Array | sparse.csr_array[np.float64]]:
    """The dense map from values, and that from all noise, which includes ``extra`` noise on the values."""
    direct = sparse.csr_array(sparse.hstack([bare.values, bare.noise @ sparse.diags_array(bare.noise_scale)]))
    every, passed_on = direct, direct
    for _ in range(_SHALLOW):
        passed_on = sparse.csr_array(bare.dependence @ passed_on)
        if passed_on.nnz == 0:
            # Messages hardly build on each other, so noise stays sparse: pairs of parties may share a term each.
            values, noise = every[:, : bare.parties], every[:, bare.parties :]
            return values.toarray(), sparse.csr_array(sparse.hstack([noise, extra * values]))
        every = sparse.csr_array(every + passed_on)
    dense_values, dense_noise = bare.eliminated()
    return dense_values, np.hstack([dense_noise, extra * dense_values])


def _gram(columns: Array | sparse.csr_array[np.float64], rows: Ints, unknown: Mask) -> Array:
    if isinstance(columns, np.ndarray):
        dense = columns[np.ix_(rows, unknown)]
        covariance: Array = dense @ dense.T
        return covariance
    seen = columns[rows] @ sparse.diags_array(unknown.astype(np.float64))
    return np.asarray((seen @ seen.T).toarray())


def _information(covariance: Array, shifts: Array, extra: float) -> tuple[Array, float]:
    """The information about values that carry noise of variance ``extra``, and an estimate of its relative error."""
    if not len(covariance):
        return np.zeros((shifts.shape[1], shifts.shape[1])), 0.0
    spread = np.sqrt(np.diag(covariance))
    ridge = _RIDGE * len(covariance)
    factor = linalg.cho_factor(covariance / np.outer(spread, spread) + ridge * np.eye(len(covariance)))
    right = shifts / spread[:, None]
    solution = linalg.cho_solve(factor, right)
    result: Array = right.T @ solution
    # What the ridge took away, to first order; and all of it where an observation is smaller than the ridge.
    lost = extra * ridge * float((solution**2).sum(axis=0).max(initial=0.0))
    if lost > _ACCURACY:
        # Too much to leave to the bound: give the first order back, what the second took is left.
        result += ridge * solution.T @ solution
        lost = extra * ridge**2 * float((solution * linalg.cho_solve(factor, solution)).sum(axis=0).max(initial=0.0))
    left = ridge * linalg.cho_solve(factor, ridge * (solution @ _probes(shifts.shape[1])))
    if np.sqrt(extra) * float(np.abs(left).max()) > _LEFT:
        return result, np.inf
    return (result + result.T) / 2, lost


@cache
def _probes(columns: int) -> Array:
    """Random signs: what is left of any column shows in one of these combinations of all."""
    signs = np.where(BitStream(Seed.public("probes", columns)).uniform(columns * _PROBES) < 0.5, -1.0, 1.0)
    return signs.reshape(columns, _PROBES)


# Of each value the pairs that tell most of it, to begin with.
_PAIRS = 8
# Triples whose bounds are computed together.
_TOGETHER = 1024
# Bounds of a triple for a value that one core computes in a second, for the time that is said beforehand.
_BOUNDED = 4e7


@dataclass(frozen=True, eq=False)
class TripleBounds:
    """Bounds for triples in one execution, from the information of each value that a member and that two tell.

    In units of that of a bare value: ``one`` (n, n) of a member, ``two`` (n, n, n) of two; what they tell
    of their own means nothing. ``error``: the relative error of all of it.

    ``cosine`` and ``below``: s and r of above, (n, n).
    """

    one: Matrix
    two: Array
    cosine: Matrix
    below: Matrix
    error: float
    able: Ints

    @classmethod
    def of(cls, batches: CoalitionBatches, able: list[PartyId], workers: Workers) -> TripleBounds:
        """Make triple bounds from all pairs of those who are able to collude."""
        parties = batches.parties
        one, two = np.zeros((parties, parties)), np.zeros((parties, parties, parties))
        clear, errors = np.ones((parties, parties), dtype=np.bool_), [0.0]
        for batch in batches.tried(able, 1):
            one[list(batch.last)] = batch.information
            clear[list(batch.last)] &= batch.error[:, None] <= DOUBTFUL
            errors += batch.error[batch.error <= DOUBTFUL].tolist()
        for batch in batches.tried(able, 2, workers):
            first, last = batch.prefix[0], list(batch.last)
            two[first, last] = two[last, first] = batch.information
            clear[first, last] &= batch.error <= DOUBTFUL
            errors += batch.error[batch.error <= DOUBTFUL].tolist()
        cosine, below = np.ones((parties, parties)), np.ones((parties, parties))
        for place, cosines in zip(able, workers.in_order(_cosines, batches, [(place, able) for place in able]), strict=True):
            last = [party for party in able if party > place]
            cosine[place, last], below[place, last] = cosine[last, place], below[last, place] = cosines
        unclear = ~(clear & clear.T)
        cosine[unclear] = below[unclear] = 1.0
        return cls(one, two, cosine, below, max(errors), np.array(able))

    def likely(self) -> Ints:
        """Triples that tell much of some value, (m, 3): the best pairs, each with whom it seems to be worst."""
        chosen = set()
        unable = np.ones(len(self.one), dtype=np.bool_)
        unable[self.able] = False
        for value in range(len(self.one)):
            pairs = self.two[:, :, value].copy()
            pairs[value] = pairs[:, value] = 0.0
            # Each of them stands there twice.
            best = np.argpartition(pairs, -2 * _PAIRS, axis=None)[-2 * _PAIRS :]
            for first, second in zip(*np.unravel_index(best, pairs.shape), strict=True):
                third = pairs[first] + pairs[second] - self.one[:, value]
                third[[first, second, value]] = third[unable] = -np.inf
                chosen.add(tuple(sorted((int(first), int(second), int(third.argmax())))))
        return np.array([triple for triple in sorted(chosen) if self._possible(triple)], dtype=np.int64).reshape(-1, 3)

    def _possible(self, triple: tuple[int, ...]) -> bool:
        return len(set(triple)) == 3 and set(triple) <= set(self.able.tolist())

    def exceeding(self, floor: Array, workers: Workers) -> Ints:
        """Triples that may tell more of some value than ``floor``, (n,); those that may exceed it most come first, (m, 3)."""
        jobs = [(int(first), floor) for first in self.able[:-2]]
        found = list(workers.in_order(_exceeding, self, jobs))
        triples, excess = np.vstack([triples for triples, _ in found]), np.concatenate([excess for _, excess in found])
        return triples[np.argsort(-excess, kind="stable")]

    def bounds(self, triples: Ints, rank: int = 0) -> Matrix:
        """At most what three tell, (m, n), of others than themselves; infinite where the bound says nothing.

        ``rank``: 0 with the best of the three for h, 2 with the last.
        """
        cosines = np.full((len(triples), 3), np.inf)
        for place, (hub, left, right) in enumerate(_TURNS):
            first, second = self.below[triples[:, hub], triples[:, left]], self.below[triples[:, hub], triples[:, right]]
            between = self.cosine[triples[:, left], triples[:, right]] + first * second + 8 * self.error
            room = (1 - first**2) * (1 - second**2)
            cosines[:, place] = np.divide(between, np.sqrt(room), out=np.full(len(triples), np.inf), where=room > 0)
        rows, turn = np.arange(len(triples)), cosines.argsort(axis=1, kind="stable")[:, rank]
        hub, left, right = (triples[rows, np.array(_TURNS)[turn, place]] for place in range(3))
        cosine = cosines[rows, turn][:, None]
        alone = self.one[hub]
        one, two = self._added(hub, left, alone), self._added(hub, right, alone)
        room = np.where(cosine < 1, 1 - np.minimum(cosine, 1) ** 2, 0.0)
        within = np.where(cosine < 1, cosine, 0.0)
        added = np.divide(one + two + 2 * within * np.sqrt(one * two), room, out=np.full(one.shape, np.inf), where=room > 0)
        bounds: Matrix = (alone + added) * (1 + 2 * self.error)
        np.put_along_axis(bounds, triples, 0.0, axis=1)
        return bounds

    def largest(self, triples: Ints) -> Array:
        """At most what any of these tells, (n,)."""
        parts = [triples[begin : begin + _TOGETHER] for begin in range(0, len(triples), _TOGETHER)]
        return np.asarray(np.max([self._best(part).max(axis=0) for part in parts] or [np.zeros(len(self.one))], axis=0))

    def _best(self, triples: Ints) -> Matrix:
        return np.asarray(np.min([self.bounds(triples, rank) for rank in range(3)], axis=0))

    def _added(self, hub: Ints, other: Ints, alone: Matrix) -> Matrix:
        both = self.two[hub, other]
        # Of two figures with an error each.
        return np.asarray(np.maximum(both - alone, 0.0) + 2 * self.error * both)


_TURNS = ((0, 1, 2), (1, 0, 2), (2, 0, 1))


def triple_seconds(triples: int, parties: int) -> float:
    """About what it takes on one core to bound so many."""
    return triples * parties / _BOUNDED


def _cosines(batches: CoalitionBatches, job: tuple[PartyId, list[PartyId]]) -> tuple[Array, Array]:
    """The largest cosine between what a member and each later one know, and the largest that is not 1."""
    place, able = job
    later = np.array([party for party in able if party > place], dtype=np.int64)
    if not len(later):
        return np.zeros(0), np.zeros(0)
    common = batches.common(place, later)
    # The singular values of a matrix are the roots of the eigenvalues of its square.
    squares = np.linalg.eigvalsh(common @ common.transpose(0, 2, 1)).clip(0.0, 1.0)
    shared = 1 - squares <= NOTHING
    rest = np.where(shared, 0.0, squares).max(axis=1)
    rest = np.where(1 - rest < OBSERVED, 1.0, rest)
    return np.sqrt(squares[:, -1]), np.sqrt(rest)


def _exceeding(triples: TripleBounds, job: tuple[PartyId, Array]) -> tuple[Ints, Array]:
    """Those of one first member, and how much they may exceed the floor, relatively."""
    first, floor = job
    later = triples.able[triples.able > first]
    left, right = (later[index] for index in np.triu_indices(len(later), 1))
    every = np.column_stack([np.full(len(left), first), left, right])
    kept, excess = [], []
    for begin in range(0, len(every), _TOGETHER):
        some = every[begin : begin + _TOGETHER]
        bounds = triples.bounds(some)
        for rank in (1, 2):
            above = (bounds > floor).any(axis=1)
            some = some[above]
            bounds = np.minimum(bounds[above], triples.bounds(some, rank))
        ratio = np.divide(bounds, floor, out=np.where(bounds > 0, np.inf, 0.0), where=floor > 0)
        above = (bounds > floor).any(axis=1)
        kept.append(some[above])
        excess.append(ratio[above].max(axis=1))
    return np.vstack(kept), np.concatenate(excess)
