"""Optimal variances per noise term of IncA (Corollary 4.2): a semidefinite programme, solved by Clarabel through CVXPY.

With Sigma = sigma_star^2 B B' + sum_k v_k A_k A_k' linear in the variances, the condition h' Sigma^-1 h <= mu^2 of every honest
party is the linear matrix inequality [[Sigma, h], [h', mu^2]] >= 0: one for each party and coalition, so for small executions.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError, NumericalError
from quietmean.core.party import NoiseGroup, PartyId
from quietmean.privacy import Adversary, information_matrix
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, Injection
from quietmean.protocols.mechanism import program_symbols
from quietmean.transcript import Transcript

Array = NDArray[np.float64]

# A variance without effect on the error would be chosen infinite. This cost per unit, relative to the rest, keeps it finite.
_PRICE = 1e-6
# Observations whose part outside the others is below this are redundant.
_REDUNDANT = 1e-9


@dataclass(frozen=True)
class OptimalVariances:
    """``protocol``: IncA with its own variance for each noise term; ``gain``: over the best equal variances.

    Variances of the noise in the estimate are per coordinate and an average over the executions.
    """

    protocol: IncA
    variance: float
    equal_variance: float

    @property
    def gain(self) -> float:
        return self.equal_variance / self.variance


def optimal_variances(
    executions: Sequence[Execution], coalitions: Sequence[frozenset[PartyId]], largest_mu: float
) -> OptimalVariances:
    """The noise levels of least error that keep mu <= ``largest_mu`` (at each execution's sensitivity) against each coalition.

    All executions have the same IncA parameters; their noise levels do not matter. Raises :class:`InputError` for another
    protocol and where the extra ``conic`` is not installed, :class:`NumericalError` if the solver fails.
    """
    protocol = executions[0].protocol
    if not isinstance(protocol, IncA):
        raise InputError(f"protocol {protocol.name} has no noise per round to optimise. Choose inca.")
    views = [_view(execution, coalition) for execution in executions for coalition in coalitions]
    costs = np.mean([_costs(execution) for execution in executions], axis=0)
    free = _solve(views, costs, largest_mu, equal=False)
    equal = _solve(views, costs, largest_mu, equal=True)
    result = _levels(protocol, free)
    excess = _excess(executions, coalitions, result, largest_mu)
    # The solver is not exact; scaling all noise makes the inequalities hold.
    result = replace(result, sigma_star=result.sigma_star * excess, sigma_delta=result.sigma_delta * excess)
    return OptimalVariances(result, float(costs @ free) * excess**2, float(costs @ equal))


@dataclass(frozen=True)
class _View:
    """``parts[0]`` is B B', ``parts[k]`` is A_k A_k', each (m, m); ``shifts`` is B times the sensitivity, (m, n_H)."""

    parts: list[Array]
    shifts: Array


def _view(execution: Execution, coalition: frozenset[PartyId]) -> _View:
    adversary = Adversary(coalition)
    transcript, columns = _unit_transcript(execution)
    honest = adversary.honest(execution.parties)
    values, noise = transcript.eliminated()
    observed = np.nonzero(adversary.view(transcript).messages)[0]
    blocks = [values[np.ix_(observed, np.array(honest))]]
    blocks += [noise[np.ix_(observed, own[np.isin(np.arange(own.size), honest)])] for own in columns]
    kept = _independent(np.hstack(blocks))
    return _View([block[kept] @ block[kept].T for block in blocks], blocks[0][kept] * execution.sensitivity)


def _independent(rows: Array) -> NDArray[np.int64]:
    """Indices of rows that are no combination of earlier ones."""
    kept: list[int] = []
    basis = np.zeros((0, rows.shape[1]))
    for index, row in enumerate(rows):
        rest = row - basis.T @ (basis @ row)
        rest -= basis.T @ (basis @ rest)
        if np.linalg.norm(rest) > _REDUNDANT * max(1.0, float(np.linalg.norm(row))):
            kept.append(index)
            basis = np.vstack([basis, rest / np.linalg.norm(rest)])
    return np.array(kept, dtype=np.int64)


def _costs(execution: Execution) -> Array:
    """What each variance (star first) adds to the variance of the estimate."""
    transcript, columns = _unit_transcript(execution)
    values, noise = transcript.eliminated()
    total = float(values[transcript.released].sum(axis=0) @ execution.weights)
    squares = (noise[transcript.released].sum(axis=0) / total) ** 2
    return np.array([squares[transcript.noise_group == NoiseGroup.INDEPENDENT].sum(), *(squares[own].sum() for own in columns)])


def _unit_transcript(execution: Execution) -> tuple[Transcript, list[NDArray[np.int64]]]:
    """At unit noise levels; and for each noise term the columns of the parties' draws of it, none where nobody drew it."""
    # The guard is none of the variances that are chosen.
    protocol = replace(cast("IncA", execution.protocol), sigma_guard=0.0)
    reading = program_symbols(protocol, execution.schedule, execution.trace)
    columns = [reading.noise.columns(NoiseGroup.CANCELLING, index + 1) for index in range(protocol.injections.noise_terms)]
    return reading.transcript().with_noise_scales({NoiseGroup.INDEPENDENT: 1.0, NoiseGroup.CANCELLING: 1.0}), columns


def _solve(views: list[_View], costs: Array, largest_mu: float, *, equal: bool) -> Array:
    try:
        cp: Any = importlib.import_module("cvxpy")
    except ImportError:
        raise InputError("optimal variances need a conic solver. Install quietmean-reproduction[conic].") from None
    # In units of 1 / mu^2, where all numbers are near 1.
    levels = cp.Variable(2 if equal else costs.size, nonneg=True)
    spread = np.eye(costs.size) if not equal else np.vstack([[1.0, 0.0], np.tile([0.0, 1.0], (costs.size - 1, 1))])
    variances = spread @ levels
    conditions = []
    for view in views:
        covariance = sum(variances[index] * part for index, part in enumerate(view.parts))
        for shift in view.shifts.T:
            column = shift[:, None]
            conditions.append(cp.bmat([[covariance, column], [column.T, np.ones((1, 1))]]) >> 0)
    price = costs / costs.max() + _PRICE
    problem = cp.Problem(cp.Minimize(price @ variances), conditions)
    with warnings.catch_warnings():
        # It does not matter if the solver stopped a little early: the exact certificate decides.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL)
    if problem.status not in ("optimal", "optimal_inaccurate") or levels.value is None:
        raise NumericalError(f"the programme for the variances ended {problem.status}. Take more rounds or a larger budget.")
    found: Array = np.maximum(spread @ np.asarray(levels.value), 0.0) / largest_mu**2
    return found


def _levels(protocol: IncA, variances: Array) -> IncA:
    """Relative scales of the noise terms become part of the injection."""
    scales = np.sqrt(np.maximum(variances[1:], 1e-12 * max(float(variances[1:].max()), 1e-300)))
    delta = float(scales.max())
    injection = Injection("general", protocol.injections.portion, protocol.injections.noise * (scales / delta))
    # In real numbers: whole ones have no such injection.
    real: dict[str, Any] = {"noise": None, "value_bits": 64, "grid": 0.0, "largest_value": 0.0} if protocol.whole else {}
    return replace(protocol, injection=injection, sigma_star=float(np.sqrt(variances[0])), sigma_delta=delta, **real)


def _excess(
    executions: Sequence[Execution], coalitions: Sequence[frozenset[PartyId]], protocol: IncA, largest_mu: float
) -> float:
    """By how much the exact certificate exceeds the target, at least 1."""
    worst = max(
        information_matrix(replace(execution, protocol=protocol).transcript(), Adversary(coalition))
        .mu_upper(execution.sensitivity)
        .max(initial=0.0)
        for execution in executions
        for coalition in coalitions
    )
    return max(1.0, float(worst) / largest_mu)
