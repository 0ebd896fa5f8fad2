"""How noise and lost values enter an estimate: exact, from the transcript; and the worst case over simulated scenarios."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError
from quietmean.core.lazy import sparse, sparse_linalg
from quietmean.core.noise_law import NoiseKind, NoiseLaw
from quietmean.core.party import NoiseGroup, PartyId
from quietmean.graphs import churn
from quietmean.privacy import InformationMatrix, bound_mu, mu_of_budget
from quietmean.privacy.coalitions import neighbour_coalitions, random_coalitions
from quietmean.privacy.information import CoalitionSolver
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.interception import Interception
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript


@dataclass(frozen=True, eq=False)
class LinearEstimate:
    """The estimate is sum_i weight_i x_i + Gaussian noise; for unit noise levels its variance per coordinate has two parts.

    ``weights``: shape (n,). ``star_variance`` is per unit of sigma_star^2, ``delta_variance`` per unit of sigma_delta^2 (None
    where no noise is cancelled), ``guard_variance`` per unit of the square of a guard's deviation.
    """

    weights: Array
    star_variance: float
    delta_variance: float | None
    guard_variance: float = 0.0

    @property
    def bias_square(self) -> float:
        """sum_i (weight_i - 1/n)^2: the squared error from lost values, per unit of their variance."""
        return float(((self.weights - 1.0 / self.weights.size) ** 2).sum())

    def noise_variance(self, sigma_star: float, sigma_delta: float, sigma_guard: float = 0.0) -> float:
        """Variance of the noise in the estimate, per coordinate."""
        cancelled = sigma_delta**2 * (self.delta_variance or 0.0) + sigma_guard**2 * self.guard_variance
        return sigma_star**2 * self.star_variance + cancelled


@dataclass(frozen=True)
class ReleasedNoise:
    """Noise per coordinate of what was released over its weight, before anything is decoded.

    ``variance``; ``most``: it, should no noise be cancelled; ``weight``: of all that is in the sum. None where not known.
    """

    variance: float
    most: float | None
    weight: float | None


def released_noise(execution: Execution) -> ReleasedNoise:
    """The variance of an execution that says exactly what is in the sum; exact, from its protocol or its transcript."""
    protocol, weights = execution.protocol, execution.weights
    stated = protocol.traits.checks.released_variance(protocol, execution.schedule, execution.trace, weights)
    if stated is not None:
        return ReleasedNoise(stated, None, execution.counted_weight() if protocol.traits.weight_is_known else None)
    transcript = execution.transcript()
    variance, total = _noise_and_weight(transcript, weights)
    return ReleasedNoise(variance, 4 * float((transcript.noise_scale**2).sum()) / total**2, total)


def noise_variance(transcript: Transcript, weights: Array) -> float:
    """Variance of the noise in the estimate per coordinate, at the transcript's own noise levels.

    ``weights``: the parties' public weights, shape (n,).
    """
    variance, _ = _noise_and_weight(transcript, weights)
    return variance


def _noise_and_weight(transcript: Transcript, weights: Array) -> tuple[float, float]:
    """Return of the estimate the variance of its noise, and all weight that is in it."""
    values, noise = _influence(transcript)
    total = float(values @ weights)
    return float(((noise * transcript.noise_scale) ** 2).sum()) / total**2, total


def stated_variance(execution: Execution) -> float:
    """The noise variance of each coordinate of a released mean: as the protocol states it, or by the transcript."""
    used = execution.in_result
    stated = used.error_variance()
    return noise_variance(used.transcript(), used.weights) if stated is None else stated


def stated_law(execution: Execution) -> NoiseLaw:
    """The law of the noise in each coordinate of a released mean; a Gaussian one has :func:`stated_variance`, an upper bound.

    Of other noise that variance is the law's and what rounding adds.
    """
    used = execution.in_result
    of_sum = used.protocol.traits.checks.noise_law(used.protocol, int(used.contributors().sum()))
    if of_sum is None:
        return NoiseLaw(NoiseKind.GAUSSIAN, math.sqrt(stated_variance(execution)))
    return of_sum.times(1.0 / used.counted_weight())


def curators_variance(target: Target, protocol: Mechanism) -> float:
    """The variance of a curator's noise on a sum, per coordinate: what the target needs of noise of the protocol's kind.

    Gaussian noise at (epsilon, delta), or Laplace noise at epsilon; both in exact arithmetic.
    """
    if protocol.traits.checks.noise_law(protocol, target.parties) is not None:
        return 2 * (target.l1_change / target.epsilon) ** 2
    return (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2


def linear_estimate(transcript: Transcript, weights: Array) -> LinearEstimate:
    """The sum of all released messages over their total weight. ``weights``: the parties' public weights, shape (n,)."""
    values, noise = _influence(transcript)
    noise = noise**2
    total = float(values @ weights)
    is_delta, is_guard = (transcript.noise_group == group for group in (NoiseGroup.CANCELLING, NoiseGroup.GUARD))
    return LinearEstimate(
        values * weights / total,
        float(noise[~(is_delta | is_guard)].sum()) / total**2,
        float(noise[is_delta].sum()) / total**2 if is_delta.any() else None,
        float(noise[is_guard].sum()) / total**2,
    )


def _influence(transcript: Transcript) -> tuple[Array, Array]:
    """How much of each value and of each noise term ends up in the sum of all releases."""
    unit = sparse.csr_array(sparse.eye_array(transcript.messages) - transcript.dependence)
    # One backward sweep through the messages.
    influence = sparse_linalg.spsolve_triangular(
        sparse.csr_array(unit.T), transcript.released.astype(np.float64), lower=False, unit_diagonal=True
    )
    return np.asarray(transcript.values.T @ influence), np.asarray(transcript.noise.T @ influence)


# Release variances below this, at unit delta noise, are what rounding left of zero; squared parts below the other likewise.
_DISCLOSED, _TOUCHED = 1e-9, 1e-9


@dataclass(frozen=True, eq=False)
class Scenario:
    """One simulated execution, at unit ``delta`` and without ``star`` noise (or at unit ``star`` where there is no ``delta``)."""

    squares: Array  # basis ** 2 of the information matrix per coalition, shape (coalitions, n_H, n_H)
    release: Array  # release variances per coalition, shape (coalitions, n_H)
    paper_star: Array  # |xi|^2 of IncA, Theorem 4.7, shape (coalitions, n_H)
    paper_delta: Array  # |Delta|^2 of the same at unit sigma_delta, shape (coalitions, n_H)
    estimate: LinearEstimate
    dropouts: float

    def worst_information(self, ratio: float | None) -> float:
        """max Lambda_ii over parties and coalitions at sigma_star = 1 and sigma_delta = ratio (None: it has no delta noise)."""
        release = self.release if ratio is None else 1.0 + ratio**2 * self.release
        return float(np.einsum("cij,cj->ci", self.squares, 1.0 / release).max())


def draw_scenario(target: Target, template: Mechanism, seed: Seed, tried: int, dropouts: float | None = None) -> Scenario:
    """Schedule, dropouts (by default as planned) and up to ``tried`` coalitions from a public seed.

    ``template``: complete, with unit noise.
    """
    dropouts = target.dropouts if dropouts is None else dropouts
    execution = draw_execution(target, template, seed, dropouts)
    transcript, trusted = execution.transcript(), template.traits.trusted
    solver = CoalitionSolver(transcript, eavesdropper=execution.eavesdropper)
    # The template has unit noise: taking sigma_star^2 = 1 away leaves what the cancelled noise hides.
    own = 1.0 if NoiseGroup.CANCELLING in transcript.noise_group else 0.0
    estimate = linear_estimate(transcript, execution.weights)
    squares, release, paper = [], [], []
    for coalition in _coalitions(transcript, target.colluding, trusted, tried, seed):
        information = solver.information(coalition)
        squares.append(information.basis**2)
        release.append(np.maximum(information.release - own, 0.0))
        paper.append(_paper_costs(information, release[-1], execution.trace.finished))
    paper_star, paper_delta = (np.array(part) for part in zip(*paper, strict=True))
    return Scenario(np.array(squares), np.array(release), paper_star, paper_delta, estimate, dropouts)


def draw_estimates(target: Target, template: Mechanism, seed: Seed, count: int) -> list[LinearEstimate]:
    """How noise and values enter the result in ``count`` simulated executions, dropouts as planned."""
    executions = (draw_execution(target, template, seed.derive(number), target.dropouts) for number in range(count))
    return [linear_estimate(execution.transcript(), execution.weights) for execution in executions]


def draw_execution(target: Target, template: Mechanism, seed: Seed, dropouts: float) -> Execution:
    """Schedule, dropouts and what is intercepted, from a public seed; who is indispensable stays."""
    schedule = template.draw_schedule(target.parties, seed.derive("schedule"))
    permanent = dropouts if schedule.rounds else 0.0
    trace = churn(
        seed.derive("churn"),
        schedule.rounds,
        target.parties,
        permanent=permanent,
        within=template.traits.usual_rounds or schedule.rounds,
    )
    trace.online[:, list(template.traits.indispensable)] = True
    read = Interception.of(template, target.eavesdropping, schedule, seed)
    return Execution(template, schedule, trace, target.sensitivity, np.ones(target.parties), interception=read)


def _paper_costs(information: InformationMatrix, release: Array, finished: Mask) -> tuple[Array, Array]:
    """|xi|^2 and |Delta|^2 of the proof of Theorem 4.7, for a unit change of each honest party.

    xi_j = -w_i w_j / |w_J|^2 on the honest parties J that finish, here w = 1, since scenarios have no temporary dropouts; a party
    that dropped out changes alone, hidden by noise that it did not cancel. Delta is the least change of the cancelled noise that
    leaves the view as it is.
    """
    honest = np.array(information.honest)
    weights = finished[honest].astype(np.float64)
    norm = max(float(weights @ weights), np.finfo(float).tiny)
    changes = np.eye(honest.size) - np.outer(weights, weights) / norm
    parts = (changes.T @ information.basis) ** 2
    disclosed = release <= _DISCLOSED
    hidden = parts[:, ~disclosed] @ (1.0 / release[~disclosed])
    touched = (parts[:, disclosed] > _TOUCHED).any(axis=1)
    return weights**2 / norm, np.where(touched, np.inf, hidden)


def _coalitions(
    transcript: Transcript, size: int, trusted: frozenset[PartyId], tried: int, seed: Seed
) -> list[tuple[PartyId, ...]]:
    """All coalitions if they are few; else those next to each party and random ones."""
    # A party that is trusted by definition colludes with nobody; the guarantee states this.
    able = [party for party in range(transcript.parties) if party not in trusted]
    size = min(size, len(able) - (not trusted))
    if math.comb(len(able), size) <= tried:
        return list(itertools.combinations(able, size))
    near = [coalition for coalition in neighbour_coalitions(transcript, size) if not trusted & set(coalition)]
    chosen = near[: tried // 2]
    return [*chosen, *random_coalitions(able, size, tried - len(chosen), seed.derive("coalitions"))]


# Parties whose mu is bounded in each execution.
WATCHED = 16
# Bounds may be this wide, relative to mu: far less than the margin.
_WIDTH = 5e-3


def worst_mu(target: Target, protocol: Mechanism, seed: Seed, dropouts: float) -> float:
    """An upper bound of mu, at unit sensitivity, of the worst of some parties in one simulated execution.

    The coalition holds everybody who received from them or shares noise with them, as far as there are colluders enough. Raises
    :class:`InputError` if a value would be disclosed.
    """
    execution = draw_execution(target, protocol, seed, dropouts)
    watched, coalition = _exposed(execution, target.colluding, protocol.traits.trusted, seed)
    adversary = execution.eavesdropper.with_corrupt(coalition)
    bounds = bound_mu(execution.transcript(), adversary, 1.0, watched, _WIDTH)
    worst = max(bound.upper for bound in bounds)
    if not np.isfinite(worst):
        raise InputError(
            f"with {target.parties} parties and {target.colluding} colluding some value would be disclosed. Take more rounds."
        )
    return worst


def _exposed(
    execution: Execution, colluding: int, trusted: frozenset[PartyId], seed: Seed
) -> tuple[list[PartyId], frozenset[PartyId]]:
    stream = BitStream(seed.derive("coalition"))
    order = [int(party) for party in stream.permutation(execution.parties)]
    able = [party for party in order if party not in trusted]
    coalition: set[PartyId] = set()
    watched: list[PartyId] = []
    for party in able:
        near = _counterparts(execution, party) - trusted
        if len(watched) == WATCHED or len(coalition | near) > colluding or party in coalition or near & set(watched):
            continue
        watched.append(party)
        coalition |= near
    # Where the counterparts of not even one party fit, take as many of them as there are colluders.
    if not watched:
        watched = able[:1]
        coalition = set(sorted(_counterparts(execution, watched[0]) - trusted)[:colluding])
    rest = (party for party in reversed(able) if party not in coalition and party not in watched)
    coalition |= {party for party, _ in zip(rest, range(colluding - len(coalition)), strict=False)}
    return watched, frozenset(coalition)


def _counterparts(execution: Execution, party: PartyId) -> set[PartyId]:
    """The parties that receive from a party in any round, or share noise with it."""
    sent = execution.schedule.neighbours[:, party]
    return {int(other) for other in np.unique(sent[sent >= 0])} | set(execution.schedule.partners(party))
