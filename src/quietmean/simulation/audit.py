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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu
from scipy.special import log_ndtr
from scipy.stats import beta, norm

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Message, NoiseSource, PartyId, Vector
from quietmean.core.schema import require_delta
from quietmean.privacy import Adversary
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilence, insecure_seed
from quietmean.simulation.opened import KnownToCoalition, OpenedView
from quietmean.transcript import Transcript, run_lockstep
from quietmean.transcript.tracing import MachineMaker

CONFIDENCE = 0.95
# A build that keeps its certificate is flagged with at most this probability.
FLAG_BELOW = 1e-6
FEWEST_TRIALS = 100
# The most trials: the statistics of all are kept, 1.6 GB.
MOST_TRIALS = 10**8
# Numbers per noise term in memory at once, over all parties.
_BLOCK = 2_000_000
# Epsilon's thresholds, in standard deviations from either mean. Fixed beforehand: no trial is spent on choosing them.
_TAILS = (2.0, 2.5, 3.0, 3.5)
_RANK = 1e-11
_SAME = 1e-7
# The first messages that have this part of the information of all are enough.
_TOLD = 1.0 - 1e-6


@dataclass(frozen=True)
class AttackResult:
    """What the attack achieved, next to what the certificate allows.

    ``mu_lower`` and ``epsilon_lower`` (at ``delta``) hold together with ``confidence`` for every mechanism, Gaussian or not.
    ``mu_estimate`` is the distance between the two worlds in standard deviations, with its standard error. ``p_value_exceeds``:
    how likely leakage as large as observed is if the certificate is right.
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
    confidence: float = CONFIDENCE,
    machine: MachineMaker[Any] | None = None,
) -> AttackResult:
    """Try to distinguish two values of ``target`` that differ by the sensitivity, ``trials`` times for each of them.

    ``machine(party, value, noise)`` makes the party machines under attack; by default those of the execution's protocol. Raises
    :class:`ProtocolFailure` if they send something else than the declared transcript says.
    """
    _check(execution, target, adversary, trials, delta, confidence)
    view = _view(execution, target, adversary, machine)
    certified = execution.privacy(delta).against(adversary.corrupt, adversary.observed)
    mu = float(certified.mu_upper[certified.honest.index(target)])
    view.check(target, seed)
    of_view = float(certified.information.mu(execution.sensitivity)[certified.honest.index(target)])
    weights, thresholds = _best_test(view, target, of_view, exact=math.isinf(mu))
    worlds = [view.statistic(weights, target, world, trials, seed) for world in (0, 1)]
    counts = _Counts.of(worlds, thresholds)
    epsilon = certified.epsilon_of(target)
    mu_lower, epsilon_lower = counts.lower_bounds(1.0 - confidence, delta)
    estimate, error = _estimate(worlds)
    # Two tests of the same claim, one for Gaussian noise, one without assumptions: twice the smaller p-value is valid for both.
    p_value = 2 * min(_p_gaussian(estimate, mu, trials), counts.p_value(mu, epsilon, delta))
    return AttackResult(
        target=target,
        adversary=adversary.describe(),
        trials=trials,
        confidence=confidence,
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
    )


def _check(execution: Execution, target: PartyId, adversary: Adversary, trials: int, delta: float, confidence: float) -> None:
    adversary.honest(execution.parties)
    if not 0 <= target < execution.parties:
        raise InputError(f"target {target} does not exist: parties are numbered 0..{execution.parties - 1}")
    if target in adversary.corrupt:
        raise InputError(f"target {target} is corrupt itself and has nothing to hide from the others: choose an honest party")
    if trials < FEWEST_TRIALS:
        raise InputError(f"{trials} trials prove nothing: choose at least {FEWEST_TRIALS}, better 100000")
    if trials > MOST_TRIALS:
        raise InputError(f"{trials} trials do not fit into memory: choose at most {MOST_TRIALS}, 100000 are usual")
    require_delta(delta)
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence is {confidence:g}: choose 0.5 <= confidence < 1, for example 0.95")


def _view(execution: Execution, target: PartyId, adversary: Adversary, machine: MachineMaker[Any] | None) -> _View | OpenedView:
    protocol = execution.protocol
    bound = protocol.linear_bound
    if bound is not None:
        return _View.of(replace(execution, protocol=bound), adversary, machine)
    opening = protocol.opening(
        execution.schedule, execution.trace, execution.weights, execution.sensitivity, adversary.corrupt, target
    )
    if opening is None:
        raise InputError(
            f"{protocol.name} as it is set here rounds, masks or draws at random what it sends, and the attack is one on sums "
            "with Gaussian noise: there is none on this protocol"
        )
    return OpenedView(execution, adversary, opening, machine)


class _Rows:
    """Which row of the transcript a message is: the next one of its sender in its round.

    A transcript may also have what its sender keeps. Where it has several rows of one sender in one round, those that nobody
    else knows are no messages, or ones that were lost.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._of: defaultdict[tuple[PartyId, int], list[int]] = defaultdict(list)
        for row, key in enumerate(zip(transcript.sender.tolist(), transcript.message_round.tolist(), strict=True)):
            self._of[key].append(row)
        delivered = transcript.released | (transcript.message_known.astype(np.int64).sum(axis=1) > 1)
        self._several = {key for key, rows in self._of.items() if len(rows) > 1}
        for key in self._several:
            self._of[key] = [row for row in self._of[key] if delivered[row]]
        self._taken: Counter[tuple[PartyId, int]] = Counter()

    def next(self, sender: PartyId, round_: int, delivered: bool) -> int | None:
        """``delivered``: whether anybody got it."""
        key = (sender, round_)
        if key in self._several and not delivered:
            return None
        self._taken[key] += 1
        rows = self._of.get(key, [])
        return rows[self._taken[key] - 1] if self._taken[key] <= len(rows) else None


@dataclass(frozen=True, eq=False)
class _View:
    """What the adversary receives from honest parties: rows of the transcript, in their order."""

    execution: Execution
    adversary: Adversary
    # By default the machines of the execution's protocol.
    machine: MachineMaker[Any] | None
    transcript: Transcript
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, execution: Execution, adversary: Adversary, machine: MachineMaker[Any] | None) -> _View:
        # Certificates may leave out what follows from the rest; machines send it.
        transcript = execution.full_transcript()
        # What corrupt parties send follows from what they know and receive.
        by_honest = ~np.isin(transcript.sender, list(adversary.corrupt))
        rows = np.nonzero(adversary.view(transcript).messages & by_honest)[0]
        return cls(execution, adversary, machine, transcript, rows)

    @property
    def rounds(self) -> NDArray[np.int64]:
        """When each row is sent, shape (R,)."""
        return self.transcript.message_round[self.rows]

    def maps(self, target: PartyId) -> tuple[Vector, Vector]:
        """By the transcript: what a unit of the target's value adds to each row (R,), and the unknown noise in it (R, K)."""
        chosen = np.zeros((self.transcript.messages, len(self.rows)))
        chosen[self.rows, np.arange(len(self.rows))] = 1.0
        system = csc_array(eye_array(self.transcript.messages) - self.transcript.dependence.T)
        adjoint = splu(system, permc_spec="NATURAL", diag_pivot_thresh=0.0).solve(chosen) if len(self.rows) else chosen
        unknown = ~self.adversary.view(self.transcript).noise
        values, noise = (np.asarray(part.T @ adjoint) for part in (self.transcript.values, self.transcript.noise))
        return values[target], noise.T[:, unknown] * self.transcript.noise_scale[unknown]

    def check(self, target: PartyId, seed: int) -> None:
        """Without noise the view must be what the transcript says; raises :class:`ProtocolFailure`."""
        seen: list[dict[int, Vector]] = [{}, {}]
        for world in (0, 1):
            self._observe(self._values(target, world, seed, 1), lambda party: InsecureSilence(), seen[world].__setitem__)
        shifts, _ = self.maps(target)
        for index, row in enumerate(self.rows):
            party, round_ = int(self.transcript.sender[row]), int(self.transcript.message_round[row])
            if index not in seen[0]:
                raise self._never_sent(int(row))
            share = float(seen[1][index][0] - seen[0][index][0]) / self._change
            if abs(share - shifts[index]) > _SAME * (1.0 + abs(shifts[index])) + self._rounding / self._change:
                raise ProtocolFailure(
                    f"round {round_} of party {party} holds {share:.6g} of the target's value, the declared transcript says "
                    f"{shifts[index]:.6g}: the certificate does not describe this build"
                )

    @property
    def _rounding(self) -> float:
        """By how much a message may differ from that in real numbers, where shares are rounded to a grid: a step each.

        A rounded share errs at both ends, and mixing does not enlarge the sum of all errors.
        """
        protocol, schedule = self.execution.protocol, self.execution.schedule
        step = protocol.grid or protocol.numbers().step
        return 2 * step * float(schedule.out_degree.sum()) if protocol.transfers_mass else 0.0

    def _never_sent(self, row: int) -> InputError:
        pairs = sorted(pair for pair in self.adversary.observed if self.transcript.find(*pair) == row)
        party, round_ = pairs[0] if pairs else (int(self.transcript.sender[row]), int(self.transcript.message_round[row]))
        return InputError(
            f"party {party} sent nothing of what it held after round {round_}: leave [{party}, {round_}] out of the intercepted "
            "messages"
        )

    def statistic(self, weights: Vector, target: PartyId, world: int, trials: int, seed: int) -> Vector:
        """w . view in one world, shape (trials,); less what the adversary can compute on its own."""
        parts = []
        for block, size in _blocks(trials, self.execution.parties):
            secret = insecure_seed(seed, "attack", world, block).secret
            noise = InsecurePopulationNoise(int.from_bytes(secret[:8], "big"), self.execution.parties)
            parts.append(self._residual(weights, target, world, seed, noise, size))
        return np.concatenate(parts)

    def _residual(
        self, weights: Vector, target: PartyId, world: int, seed: int, noise: InsecurePopulationNoise, size: int
    ) -> Vector:
        """w . (view less what is expected of it), shape (size,)."""
        own = self.adversary.corrupt
        seen = self._weighted(weights, self._values(target, world, seed, size), noise.party)
        # The coalition knows its own noise and world 0, so it can run the machines itself, without the noise of honest parties.
        own_values = self._values(target, 0, seed, size if own else 1)

        def known_noise(party: PartyId) -> NoiseSource:
            source = noise.party(party)
            return source if party in own else KnownToCoalition(source, own)

        return seen - self._weighted(weights, own_values, known_noise)

    def _weighted(self, weights: Vector, values: Vector, noise: Callable[[PartyId], NoiseSource]) -> Vector:
        total = np.zeros(values.shape[1])

        def take(index: int, vector: Vector) -> None:
            nonlocal total
            total = total + weights[index] * vector

        self._observe(values, noise, take)
        return total

    def _values(self, target: PartyId, world: int, seed: int, dimension: int) -> Vector:
        parties = self.execution.parties
        drawn = BitStream(insecure_seed(seed, "attack", "values")).uniform(parties) * self.execution.sensitivity
        values = self.execution.protocol.numbers().value(drawn)
        values[target] += world * self._change
        return np.broadcast_to(values[:, None], (parties, dimension))

    @property
    def _change(self) -> float:
        """The change of the target's value: the sensitivity, in whole steps where values are on a grid."""
        sensitivity = np.array([self.execution.sensitivity])
        return float(self.execution.protocol.numbers().value(sensitivity)[0])

    def _observe(self, values: Vector, noise: Callable[[PartyId], NoiseSource], take: Callable[[int, Vector], None]) -> None:
        """Run the machines; pass on what the adversary sees, with its place in ``rows``."""
        place_of = {int(row): index for index, row in enumerate(self.rows)}
        rows, corrupt, protocol = _Rows(self.transcript), self.adversary.corrupt, self.execution.protocol

        def observe(sender: PartyId, round_: int, vector: Vector, exposed: bool, delivered: bool) -> None:
            row = rows.next(sender, round_, delivered)
            index = None if row is None else place_of.get(row)
            if index is not None:
                take(index, vector)
            elif exposed and sender not in corrupt:
                raise ProtocolFailure(
                    f"party {sender} shows the adversary a message in round {round_} that the declared transcript does not have: "
                    "the certificate does not describe this build"
                )

        def on_send(message: Message, receivers: frozenset[PartyId]) -> None:
            # Content alone depends on no value.
            if message.vector.size:
                delivered = bool(receivers) or protocol.is_overheard(message.round)
                observe(message.sender, message.round, message.vector, bool(receivers & corrupt), delivered)

        make = self.machine or _for_coordinates(self.execution, values.shape[1]).machine
        machines = [make(party, values[party], noise(party)) for party in range(self.execution.parties)]
        result = run_lockstep(
            machines,
            self.execution.trace,
            _arrivals(self.execution),
            on_send,
            refusing=protocol.refuses_messages,
        )
        for party, release in result.releases.items():
            observe(party, machines[party].rounds + 1, release.vector, protocol.releases_are_public, delivered=True)


def _for_coordinates(execution: Execution, count: int) -> Execution:
    """The same for values of this many coordinates, all of which are treated alike: on a grid a plan says how many there are."""
    protocol = execution.protocol
    if getattr(protocol, "dimension", None) is None:
        return execution
    return replace(execution, protocol=replace(protocol, **{"dimension": count}))


def _blocks(trials: int, parties: int) -> Iterator[tuple[int, int]]:
    together = max(1, _BLOCK // parties)
    for block, first in enumerate(range(0, trials, together)):
        yield block, min(together, trials - first)


def _arrivals(execution: Execution) -> Callable[[int, PartyId, PartyId], bool]:
    delivered = execution.trace.delivered(execution.schedule)
    rounds, senders, slots = np.nonzero(delivered)
    receivers = execution.schedule.neighbours[rounds, senders, slots]
    arrived = set(zip((rounds + 1).tolist(), senders.tolist(), receivers.tolist(), strict=True))
    return lambda round_, sender, receiver: (round_, sender, receiver) in arrived


def _best_test(view: _View | OpenedView, target: PartyId, of_view: float, exact: bool) -> tuple[Vector, Vector]:
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
    def of(cls, shift: Vector, noise: Vector, used: NDArray[np.bool_]) -> _Best:
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
class _Counts:
    """Errors at each threshold, shape (J,): world 0 taken for world 1 and the reverse."""

    trials: int
    false_positives: NDArray[np.int64]
    false_negatives: NDArray[np.int64]

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
        mu = float(norm.isf(positive[0]) - norm.ppf(negative[0]))
        positive, negative = self._above(slice(None), error / (4 * len(self.false_positives)))
        hits = np.stack([(1 - delta - negative) / positive, (1 - delta - positive) / negative])
        return max(mu, 0.0), math.log(max(float(hits.max()), 1.0))

    def _above(self, which: slice, error: float) -> tuple[Vector, Vector]:
        """Upper bounds of both error rates."""
        counts = np.stack([self.false_positives[which], self.false_negatives[which]])
        rates = beta.isf(error, counts + 1, np.maximum(self.trials - counts, 1))
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
    return math.exp(float(log_ndtr(-z)))
