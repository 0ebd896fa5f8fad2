"""What an execution of IncA hides and how noise enters its estimate, for many executions of the incremental injection.

Equal to the general accountant and to the transcript's linear estimate, which build and take apart a transcript first: that takes
several times as long as the account itself, and the figures with dropouts are of tens of thousands of executions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array

from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.planning.accuracy import LinearEstimate
from quietmean.privacy import InformationMatrix

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Round:
    """``online`` and ``kept`` (n,): who takes part, and how much of what it holds it keeps; ``part`` goes to each receiver.

    ``neighbours`` and ``delivered``: (n, k).
    """

    online: Mask
    kept: Array
    neighbours: NDArray[np.int32]
    delivered: Mask
    part: float


def rounds_of(schedule: Schedule, trace: ExecutionTrace) -> Iterator[Round]:
    """Rounds 1 .. T: who sends keeps one share, and those that do not arrive."""
    delivered = trace.delivered(schedule)
    part = 1.0 / (schedule.neighbours.shape[2] + 1)
    for number in range(schedule.rounds):
        online = trace.online[number + 1]
        yield Round(online, 1.0 - part * delivered[number].sum(axis=1), schedule.neighbours[number], delivered[number], part)


def hidden_information(schedule: Schedule, trace: ExecutionTrace, honest: Ints) -> InformationMatrix:
    """Information about values that only cancelling noise hides, of unit standard deviation, for the view of all but ``honest``.

    Dropouts are for good. A Kalman filter of what the honest parties hold but for the noise that they take out again in the next
    round: that noise is fresh, independent, and gone after one message. ``spread`` is its covariance given the values, ``slope``
    how its mean depends on them; what the messages tell of the values adds up.
    """
    size, portion = honest.size, 1.0 / (schedule.rounds + 1)
    place, adversary = np.zeros(schedule.parties, dtype=np.int64), np.ones(schedule.parties, dtype=np.bool_)
    place[honest], adversary[honest] = np.arange(size), False
    spread, slope = np.zeros((size, size)), portion * np.eye(size)
    learned: list[Array] = []
    for step in rounds_of(schedule, trace):
        corrupt: Mask = np.logical_or.reduce(step.delivered[honest] & adversary[step.neighbours[honest]], axis=1)
        sends = step.online[honest]
        learned.append(_condition(spread, slope, np.flatnonzero(sends & corrupt)))
        unseen = np.flatnonzero(sends & ~corrupt)
        spread[unseen, unseen] += 1.0
        sender, receiver = _exchanges(step, honest[unseen], place)
        # Who sends something that is seen takes out noise that is known but for what else it held.
        kept = np.where(corrupt, 1.0, step.kept[honest]) * sends
        move = _transition(kept, sender, receiver, step.part)
        spread = np.asarray(move @ np.ascontiguousarray((move @ spread).T))
        spread[unseen, unseen] += 1.0 - 2.0 * kept[unseen]
        spread[receiver, sender] -= step.part
        spread[sender, receiver] -= step.part
        slope = np.asarray(move @ slope)
        slope[sends, sends] += portion
    finished = np.flatnonzero(trace.finished[honest])
    noisy = _after_release(np.concatenate(learned), spread[np.ix_(finished, finished)], slope[finished])
    return InformationMatrix.of_noisy_values(tuple(honest.tolist()), noisy, 1.0)


def _condition(spread: Array, slope: Array, seen: Ints) -> Array:
    """On messages of what is held and unit noise; returns rows whose squares are what they tell of the values."""
    if not seen.size:
        return np.zeros((0, len(slope)))
    innovation = spread[np.ix_(seen, seen)] + np.eye(seen.size)
    triangle = cholesky(innovation, lower=True, check_finite=False)
    gain, learned = (solve_triangular(triangle, matrix[seen], lower=True, check_finite=False) for matrix in (spread, slope))
    spread -= gain.T @ gain
    slope -= gain.T @ learned
    return learned


def _after_release(learned: Array, spread: Array, slope: Array) -> Array:
    """The information about values that carry extra noise of unit variance, after releases without noise of their own."""
    posterior = np.linalg.inv(np.eye(learned.shape[1]) + learned.T @ learned)
    moved = slope @ posterior
    gain = solve_triangular(cholesky(spread + moved @ slope.T, lower=True, check_finite=False), moved, lower=True)
    noisy: Array = np.eye(learned.shape[1]) - posterior + gain.T @ gain
    return noisy


def _exchanges(step: Round, senders: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Places of sender and receiver of all messages of ``senders`` that arrive."""
    row, slot = np.nonzero(step.delivered[senders])
    return place[senders[row]], place[step.neighbours[senders[row], slot]]


def _transition(kept: Array, sender: Ints, receiver: Ints, part: float) -> csr_array[np.float64]:
    """From what is held to what is held; who is away keeps nothing that matters, and no message to it arrives."""
    own = np.arange(kept.size)
    rows, columns = np.concatenate([own, receiver]), np.concatenate([own, sender])
    weights = np.concatenate([kept, np.full(sender.size, part)])
    order = np.argsort(rows, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=kept.size))])
    return csr_array((weights[order], columns[order], begins), shape=(kept.size, kept.size))


def influence(schedule: Schedule, trace: ExecutionTrace, released: Array) -> tuple[Array, Array]:
    """How sums of what parties hold at the end, ``released`` (n, ...), depend on values, (n, ...), and on cancelled noise.

    The second is the sum of the squared coefficients of all its terms, (...).
    """
    portion, values = 1.0 / (schedule.rounds + 1), np.zeros_like(released)
    noise, now = np.zeros(released.shape[1:]), released
    for step in reversed(list(rounds_of(schedule, trace))):
        now = now * _column(step.online, now)
        values += portion * now
        before = sent_back(step, now)
        noise += np.einsum("i...,i...->...", before - now, before - now)
        now = before
    return values + portion * now, noise


def sent_back(step: Round, now: Array) -> Array:
    """How sums depend on what parties held before a round, given how they depend on what parties hold after it.

    What a party holds that is away is never sent.
    """
    before: Array = _column(step.kept * step.online, now) * now
    for receivers, arrives in zip(step.neighbours.T, (step.delivered & step.online[:, None]).T, strict=True):
        before += _column(step.part * arrives, now) * now[receivers]
    return before


def _column(factors: Mask | Array, like: Array) -> Array:
    column: Array = factors.astype(np.float64).reshape(-1, *(1,) * (like.ndim - 1))
    return column


def estimate_of(schedule: Schedule, trace: ExecutionTrace) -> LinearEstimate:
    """As :func:`quietmean.planning.accuracy.linear_estimate`, all parties of weight one."""
    values, noise = influence(schedule, trace, trace.finished.astype(np.float64))
    total = float(values.sum())
    return LinearEstimate(values / total, float((values**2).sum()) / total**2, float(noise) / total**2)
