"""The audit: attack what the real party machines send, and compare the outcome with the certificate.

Two worlds differ in one party's value by the sensitivity. The adversary's view is Gaussian with the same covariance S in both,
so the best test there is (Neyman and Pearson) compares one number with a threshold: w . view with w = S^+ (difference of means).
The weights w follow from the declared transcript; the messages come from the machines that the network runs. Noise is the same
on every coordinate and independent between coordinates, so a value of d coordinates is d independent trials.

Whatever w is, the error rates of the test bound the privacy loss from below, without any assumption about the machines.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.party import PartyId, Vector
from quietmean.core.schema import require_delta
from quietmean.core.workers import Workers
from quietmean.privacy import Adversary, Certificate
from quietmean.protocols.execution import Execution
from quietmean.simulation.adversary_view import AdversaryView, OpenedView
from quietmean.transcript import MachineMaker

CONFIDENCE = 0.95
# A build that keeps its certificate is flagged with at most this probability.
FLAG_BELOW = 1e-6
FEWEST_TRIALS = 100
# The most trials: the statistics of all are kept, 1.6 GB.
MOST_TRIALS = 10**8
# The chance with which a leak that "would be noticed" is, in standard deviations: 90 %.
_POWER = 1.2816
# How many trials look closer than fewer.
_CLOSER = 100_000
# Epsilon's thresholds, in standard deviations from either mean. Fixed beforehand: no trial is spent on choosing them.
_TAILS = (2.0, 2.5, 3.0, 3.5)
_RANK = 1e-11
# Beyond this distance of two worlds no leak is told from a larger one.
_MOST_MU = 1e6
# The first messages that have this part of the information of all are enough.
_TOLD = 1.0 - 1e-6


@dataclass(frozen=True)
class AttackPower:
    """What ``trials`` can show, if the certificate is right and the noise Gaussian.

    ``epsilon_found``: about the most that they find in a build that leaks all that is certified. ``epsilon_noticed``: a build
    that leaks at least this is flagged in 9 of 10 attacks; infinite where nothing is certified.
    """

    trials: int
    epsilon_found: float
    epsilon_noticed: float

    @classmethod
    def of(cls, certified: Certificate, mu: float, thresholds: Vector, trials: int) -> AttackPower:
        rates = [special.ndtr(-thresholds), special.ndtr(thresholds - mu)]
        # Both kinds of errors are fewer than expected by two standard deviations.
        few = [trials * rate - 2 * np.sqrt(trials * rate * (1 - rate)) for rate in rates]
        errors = [np.rint(np.maximum(count, 0)).astype(np.int64) for count in few]
        found = _Counts(trials, *errors).lower_bounds(1.0 - CONFIDENCE, certified.delta)[1]
        return cls(trials, found, math.inf if math.isinf(mu) else certified.terms.epsilon(_noticed(mu, trials)))


@dataclass(frozen=True)
class AttackResult:
    """What the attack achieved, next to what the certificate allows.

    ``mu_lower`` and ``epsilon_lower`` (at ``delta``) hold together with ``confidence`` for every mechanism, Gaussian or not.
    ``mu_estimate`` is the distance between the two worlds in standard deviations, with its standard error. ``p_value_exceeds``:
    how likely leakage as large as observed is if the certificate is right. ``power``: what these trials can show, and what
    ``closer`` ones would.
    """

    target: PartyId
    adversary: str
    trials: int
    confidence: float
    delta: float
    mu_certified: float
    epsilon_certified: float
    mu_lower: float
    epsilon_lower: float
    mu_estimate: float
    mu_standard_error: float
    false_positive_rate: float
    false_negative_rate: float
    p_value_exceeds: float
    power: AttackPower
    closer: AttackPower

    @property
    def flagged(self) -> bool:
        return self.p_value_exceeds < FLAG_BELOW

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"flag_below": FLAG_BELOW, "flagged": self.flagged}


def attack(
    execution: Execution,
    target: PartyId,
    adversary: Adversary,
    *,
    trials: int = 100_000,
    seed: int = 0,
    delta: float = 1e-6,
    machine: MachineMaker[Any] | None = None,
    workers: int | str = 1,
) -> AttackResult:
    """Try to distinguish two values of ``target`` that differ by the sensitivity, ``trials`` times for each of them.

    ``machine(party, value, noise)`` makes the party machines under attack; by default those of the execution's protocol.
    ``workers``: see :class:`~quietmean.core.workers.Workers`; they change no result. Raises :class:`ProtocolFailure` if the
    machines send something else than the declared transcript says.
    """
    _check(execution, target, adversary, trials, delta)
    shared = Workers(workers)
    view = _view(execution, target, adversary, machine)
    if not view.change:
        raise InputError(
            f"sensitivity {execution.sensitivity:g} is less than a step of the grid, so both values of the target are the "
            "same. Choose an execution with a finer grid."
        )
    certified = execution.privacy(delta).against(adversary.corrupt, adversary.observed)
    mu = float(certified.mu_upper[certified.honest.index(target)])
    view.check(target, seed)
    of_view = float(certified.information.mu(execution.sensitivity)[certified.honest.index(target)])
    weights, thresholds = _best_test(view, target, of_view, exact=math.isinf(mu))
    worlds = _Trials(execution, target, adversary, machine, weights, seed).worlds(trials, view.together, shared)
    counts = _Counts.of(worlds, thresholds)
    epsilon = certified.epsilon_of(target)
    mu_lower, epsilon_lower = counts.lower_bounds(1.0 - CONFIDENCE, delta)
    estimate, error = _estimate(worlds)
    # Two tests of the same claim, one for Gaussian noise, one without assumptions: twice the smaller p-value is valid for both.
    p_value = 2 * min(_p_gaussian(estimate, mu, trials), counts.p_value(mu, epsilon, delta))
    return AttackResult(
        target=target,
        adversary=adversary.describe(),
        trials=trials,
        confidence=CONFIDENCE,
        delta=delta,
        mu_certified=mu,
        epsilon_certified=epsilon,
        mu_lower=mu_lower,
        epsilon_lower=epsilon_lower,
        mu_estimate=estimate,
        mu_standard_error=error,
        false_positive_rate=float(counts.false_positives[0]) / trials,
        false_negative_rate=float(counts.false_negatives[0]) / trials,
        p_value_exceeds=min(1.0, p_value),
        power=AttackPower.of(certified, mu, thresholds, trials),
        closer=AttackPower.of(certified, mu, thresholds, _CLOSER if trials < _CLOSER else min(10 * trials, MOST_TRIALS)),
    )


def _check(execution: Execution, target: PartyId, adversary: Adversary, trials: int, delta: float) -> None:
    adversary.honest(execution.parties)
    if not 0 <= target < execution.parties:
        raise InputError(f"target {target} does not exist. Choose one of 0..{execution.parties - 1}.")
    if target in adversary.corrupt:
        raise InputError(f"target {target} is corrupt itself and has nothing to hide from the others. Choose an honest party.")
    if trials < FEWEST_TRIALS:
        raise InputError(f"{trials} trials prove nothing. Choose at least {FEWEST_TRIALS}, better 100000.")
    if trials > MOST_TRIALS:
        raise InputError(f"{trials} trials do not fit into memory. Choose at most {MOST_TRIALS}, 100000 are usual.")
    require_delta(delta)


def _view(
    execution: Execution, target: PartyId, adversary: Adversary, machine: MachineMaker[Any] | None
) -> AdversaryView | OpenedView:
    protocol = execution.protocol
    bound = protocol.traits.attack.linear(protocol)
    if bound is not None:
        return AdversaryView.of(replace(execution, protocol=bound), adversary, machine)
    opening = protocol.traits.attack.opening(
        protocol, execution.schedule, execution.trace, execution.weights, execution.sensitivity, adversary.corrupt, target
    )
    if opening is None:
        raise InputError(
            f"{protocol.name} as it is set here rounds, masks or draws at random what it sends. Attack sums with "
            "Gaussian noise, the only ones that this attack is for."
        )
    return OpenedView(execution, adversary, opening, machine)


def _best_test(view: AdversaryView | OpenedView, target: PartyId, of_view: float, exact: bool) -> tuple[Vector, Vector]:
    """Weights under which the statistic is N(0, 1) or N(mu, 1) if all is as declared, and thresholds, the middle one first.

    ``of_view``: mu of the declared view. Of its messages the first that tell all of it are used: what follows from them would
    only weigh rounding. ``exact``: the certificate says that no noise hides the difference; then the statistic is 0 or 1.
    """
    shift, noise = view.maps(target)
    shift = shift * view.execution.sensitivity
    if not exact:
        times = sorted(set(view.rounds.tolist()))
        enough = bisect.bisect_left(times, of_view * _TOLD, key=lambda time: _Best.of(shift, noise, view.rounds <= time).mu)
        used = view.rounds <= times[enough] if enough < len(times) else np.ones(len(shift), dtype=np.bool_)
        best = _Best.of(shift, noise, used)
        if best.mu == 0.0:
            return np.zeros(len(shift)), np.array([0.0])
        tails = np.array(_TAILS)
        return best.weights, np.concatenate([[best.mu / 2], tails, best.mu - tails])
    best = _Best.of(shift, noise, np.ones(len(shift), dtype=np.bool_))
    if best.bare @ best.bare > 0:
        return best.bare / (best.bare @ best.bare), np.array([0.5])
    return _best_test(view, target, of_view, exact=False)


@dataclass(frozen=True, eq=False)
class _Best:
    """The best test with some of the messages: ``weights`` (R,), its ``mu``, and the part of the shift (R,) that is ``bare``."""

    weights: Vector
    mu: float
    bare: Vector

    @classmethod
    def of(cls, shift: Vector, noise: Vector, used: Mask) -> _Best:
        left, scales, _ = np.linalg.svd(noise[used], full_matrices=False)
        real = scales > _RANK * scales.max(initial=0.0)
        left, scales = left[:, real], scales[real]
        inside = left.T @ shift[used]
        mu = float(np.linalg.norm(inside / scales))
        weights, bare = np.zeros(len(shift)), np.zeros(len(shift))
        weights[used] = left @ (inside / scales**2) / (mu or 1.0)
        bare[used] = shift[used] - left @ inside
        return cls(weights, mu, bare)


@dataclass(frozen=True, eq=False)
class _Trials:
    """What all trials have in common. The view has functions in it that no process can be sent: each makes it again."""

    execution: Execution
    target: PartyId
    adversary: Adversary
    machine: MachineMaker[Any] | None
    weights: Vector
    seed: int

    @cached_property
    def view(self) -> AdversaryView | OpenedView:
        return _view(self.execution, self.target, self.adversary, self.machine)

    def worlds(self, trials: int, together: int, workers: Workers) -> list[Vector]:
        """The statistic of each trial in both worlds, (trials,) each; so many at a time are made ``together``."""
        blocks = [(block, min(together, trials - begin)) for block, begin in enumerate(range(0, trials, together))]
        parts = list(workers.in_order(_statistic, self, [(world, *block) for world in (0, 1) for block in blocks]))
        return [np.concatenate(parts[: len(blocks)]), np.concatenate(parts[len(blocks) :])]


def _statistic(trials: _Trials, job: tuple[int, int, int]) -> Vector:
    world, block, size = job
    return trials.view.statistic(trials.weights, trials.target, world, block, size, trials.seed)


@dataclass(frozen=True, eq=False)
class _Counts:
    """Errors at each threshold, shape (J,): world 0 taken for world 1 and the reverse."""

    trials: int
    false_positives: Ints
    false_negatives: Ints

    @classmethod
    def of(cls, worlds: list[Vector], thresholds: Vector) -> _Counts:
        first, second = (np.sort(world) for world in worlds)
        return cls(
            len(first),
            len(first) - np.searchsorted(first, thresholds, side="right"),
            np.searchsorted(second, thresholds, side="right"),
        )

    def lower_bounds(self, error: float, delta: float) -> tuple[float, float]:
        """Lower bounds of mu and of epsilon at ``delta``: both hold but with probability ``error``.

        One half of it goes to mu, at the middle threshold; one half to epsilon, in equal parts to all thresholds; each part in
        equal parts to both error rates (Clopper and Pearson, one-sided; Bonferroni).
        """
        positive, negative = self._above(slice(0, 1), error / 4)
        mu = -float(special.ndtri(positive[0]) + special.ndtri(negative[0]))
        positive, negative = self._above(slice(None), error / (4 * len(self.false_positives)))
        hits = np.stack([(1 - delta - negative) / positive, (1 - delta - positive) / negative])
        return max(mu, 0.0), math.log(max(float(hits.max()), 1.0))

    def _above(self, which: slice, error: float) -> tuple[Vector, Vector]:
        """Upper bounds of both error rates."""
        counts = np.stack([self.false_positives[which], self.false_negatives[which]])
        rates = special.betainccinv(counts + 1, np.maximum(self.trials - counts, 1), error)
        rates = np.where(counts == self.trials, 1.0, rates)
        return rates[0], rates[1]

    def p_value(self, mu: float, epsilon: float, delta: float) -> float:
        """The least error probability at which a lower bound exceeds what is certified."""

        def exceeds(exponent: float) -> bool:
            bounds = self.lower_bounds(10.0**exponent, delta)
            return bounds[0] > mu or bounds[1] > epsilon

        low, high = -250.0, 0.0
        if not exceeds(high):
            return 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if exceeds(middle) else (middle, high)
        return float(10.0**high)


def _estimate(worlds: list[Vector]) -> tuple[float, float]:
    """The distance of the means in standard deviations, and its standard error."""
    trials = len(worlds[0])
    distance = float(worlds[1].mean() - worlds[0].mean())
    spread = math.sqrt(sum(float(world.var(ddof=1)) for world in worlds) / 2)
    if spread <= _RANK * abs(distance):
        return (math.inf, 0.0) if distance > 0 else (0.0, 0.0)
    mu = distance / spread
    return mu, math.sqrt(2 / trials + mu * mu / (4 * trials))


def _p_gaussian(estimate: float, mu: float, trials: int) -> float:
    """P(an estimate at least this large) for Gaussian worlds at distance ``mu``.

    estimate * sqrt(trials / 2) has a noncentral t distribution of 2 trials - 2 degrees of freedom, here by its normal
    approximation (Abramowitz and Stegun 26.7.10), which is good to a few percent with that many.
    """
    if math.isinf(mu) or estimate <= 0.0:
        return 1.0
    if math.isinf(estimate):
        return 0.0
    freedom, scale = 2 * trials - 2, math.sqrt(trials / 2)
    distance = estimate * scale
    z = (distance * (1 - 1 / (4 * freedom)) - mu * scale) / math.sqrt(1 + distance * distance / (2 * freedom))
    return math.exp(float(special.log_ndtr(-z)))


def _noticed(mu: float, trials: int) -> float:
    """The least distance of two Gaussian worlds at which 9 of 10 estimates contradict ``mu``."""

    def flagged(real: float) -> bool:
        error = math.sqrt(2 / trials + real * real / (4 * trials))
        return 2 * _p_gaussian(real - _POWER * error, mu, trials) < FLAG_BELOW

    low, high = mu, mu + 1.0
    while not flagged(high) and high < _MOST_MU:
        high = mu + 2 * (high - mu)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if flagged(middle) else (middle, high)
    return high if flagged(high) else math.inf
