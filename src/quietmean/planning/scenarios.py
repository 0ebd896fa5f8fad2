"""Simulated executions of a target: how each would leak against several coalitions, and how noise would enter its estimate."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.noise import NoiseGroup
from quietmean.core.party import PartyId
from quietmean.graphs import churn
from quietmean.planning.accuracy import LinearEstimate, linear_estimate
from quietmean.privacy import InformationMatrix
from quietmean.privacy.coalitions import neighbour_coalitions, random_coalitions
from quietmean.privacy.information import CoalitionSolver
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.interception import Interception
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

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
