"""GOPA and CorDP-DME under dropouts, in the reading of the IncA paper: everything that is published is public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import mu_of_budget
from quietmean.privacy.composition import classical_mu
from quietmean.protocols.cordp_dme.design import least_error
from quietmean.protocols.execution import Execution
from quietmean.protocols.gopa import GOPA
from quietmean.protocols.gopa.loss import complete_graph, laplacian, pairwise_sigma, shared_pairs
from quietmean.protocols.gopa.party import GopaOutcome, GopaParameters, PeerOutcome
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import insecure_seed
from quietmean_reproduction.inca.accounts import SPREAD
from quietmean_reproduction.inca.setting import DELTA

# sigma_star^2 over its lower bound: the paper's choice, and what the exact calibration chooses from.
_PAPER_EXCESS = 1.3
# Eigenvalues of a Laplacian below this share of the largest are zero: one for each connected component.
_CONNECTED = 1e-10
_HOPELESS = 1e8
_EXCESSES = (1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0)


def cordp_rows(parties: int, corrupt: float, dropouts: float, unit: float) -> list[dict[str, Any]]:
    """CorDP-DME's error from noise alone, a lower bound as in the paper.

    ``cordp-dme``: at its own optimum for the planned dropouts. ``cordp-dme-as-gopa``: with GOPA's noise on the complete graph of
    the honest who stay, since the paper proceeds for it as for GOPA with all pairs. ``unit``: the variance of one Gaussian
    release with the same guarantee.
    """
    staying = parties - round(dropouts * parties)
    least = least_error(parties, staying, round(corrupt * parties), unit)
    honest = staying - round(corrupt * parties)
    star = _PAPER_EXCESS * unit / honest
    pair = pairwise_sigma(complete_graph(honest), math.sqrt(star), 1.0 / math.sqrt(unit)) ** 2
    return [
        {"method": "cordp-dme", "mse": least / staying},
        {
            "method": "cordp-dme-as-gopa",
            "mse": (star + (parties - staying) * pair) / staying,
            "sigma_star2": star,
            "sigma_delta2": pair,
        },
    ]


def gopa_rows(
    parties: int,
    epsilon: float,
    corrupt: float,
    dropouts: float,
    late: float,
    partners: int,
    executions: int,
    seed: int,
    published: bool = False,
) -> list[dict[str, Any]]:
    """GOPA: the worst of the executions decides the pair noise, for each sigma_star; then the expected error of them all.

    Every point is of executions of the protocol `gopa`: who is counted, which pairs hide whom, and which noise stays. A fraction
    ``late`` of the parties drops out in the second round, the others of the ``dropouts`` before. Without a collector values are
    released and noise is rolled back in one round: one term stays for each pair of a late party and one that stays. With one the
    late parties have ``published`` by then: one term for each pair of a late and an early one.
    """
    root = insecure_seed(seed, "gopa")
    drawn = [_draw(root.derive(number), parties, corrupt, dropouts, late, partners, published) for number in range(executions)]
    graphs = [_Spectrum.of(graph) for graph, _, _ in drawn]
    counted = np.array([count for _, count, _ in drawn])
    left_over = np.array([count for _, _, count in drawn])
    lost = SPREAD * (1.0 / counted - 1.0 / parties)
    rows = []
    for calibration, budget, excesses in (("paper", classical_mu, (_PAPER_EXCESS,)), ("exact", mu_of_budget, _EXCESSES)):
        largest_mu = budget(epsilon, DELTA)
        found = []
        for excess in excesses:
            remaining = parties * (1 - dropouts - corrupt)
            star = math.sqrt(excess / remaining) / largest_mu
            delta = least_pair_sigma(graphs, star, largest_mu)
            errors = star**2 / counted + delta**2 * left_over / counted**2 + lost
            found.append((float(errors.mean()), star, delta, errors))
        mse, star, delta, errors = min(found, key=lambda one: one[0])
        rows.append(
            {
                "calibration": calibration,
                "sigma_star2": star**2,
                "sigma_delta2": delta**2,
                "mse": mse,
                "mse_standard_error": float(errors.std(ddof=1) / math.sqrt(executions)),
                "mse_lost_values": float(lost.mean()),
                "runs": executions,
            }
        )
    return rows


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Eigenvalues of a graph's Laplacian, shape (m,), and its squared eigenvectors, (m, m)."""

    eigenvalues: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, graph: NDArray[np.float64]) -> _Spectrum:
        eigenvalues, basis = np.linalg.eigh(graph)
        eigenvalues[eigenvalues < _CONNECTED * eigenvalues[-1]] = 0.0
        return cls(eigenvalues, basis**2)

    def worst(self, star: float, delta: float) -> float:
        """Largest diagonal entry of (star^2 I + delta^2 L)^-1: mu^2 of the worst-off party for a unit change."""
        return float((self.squares @ (1.0 / (star**2 + delta**2 * self.eigenvalues))).max())


def least_pair_sigma(graphs: Sequence[_Spectrum], star: float, largest_mu: float) -> float:
    """The least standard deviation of pair noise with which nobody has more than ``largest_mu`` in any of the graphs.

    As :func:`quietmean.protocols.gopa.loss.pairwise_sigma` for each of them, with every graph decomposed only once.
    """
    high = 1.0 / largest_mu

    def excess(delta: float) -> float:
        return max(graph.worst(star, delta) for graph in graphs) / largest_mu**2 - 1.0

    while excess(high) > 0:
        high *= 2.0
        if high > _HOPELESS / largest_mu:
            raise InputError(f"with sigma_star = {star:g} some connected honest parties are not hidden by any pair noise")
    return float(brentq(excess, 0.0, high, rtol=1e-12)) if excess(0.0) > 0 else 0.0


def gopa_execution(
    seed: Seed, parties: int, dropouts: float, late: float, partners: int, published: bool
) -> tuple[Execution, NDArray[np.int64]]:
    """An execution of the protocol `gopa` with noise of unit variance, and all parties in random order.

    The first of these drop out: those who are late after the first round, the others before it. If the late ones have
    ``published`` by then, the last of all collects, and stays.
    """
    order = BitStream(seed.derive("who")).permutation(parties)
    protocol = GOPA(sigma_star=1.0, sigma_delta=1.0, partners=partners, aggregator=int(order[-1]) if published else None)
    protocol = protocol.resolved(parties)
    vanish_late = max(1, round(late * parties))
    online = np.ones((protocol.rounds + 1, parties), dtype=np.bool_)
    online[1:, order[vanish_late : round(dropouts * parties)]] = False
    online[2:, order[:vanish_late]] = False
    schedule = protocol.draw_schedule(parties, seed)
    return Execution(protocol, schedule, ExecutionTrace(online), 1.0, np.ones(parties)), order


def _draw(
    seed: Seed, parties: int, corrupt: float, dropouts: float, late: float, partners: int, published: bool
) -> tuple[NDArray[np.float64], int, float]:
    """Laplacian of the honest whose values are in the sum; how many there are in it; how many noise terms stay."""
    execution, _ = gopa_execution(seed, parties, dropouts, late, partners, published)
    stream = BitStream(seed.derive("who"))
    stream.permutation(parties)
    honest = stream.permutation(parties)[round(corrupt * parties) :]
    counted = np.flatnonzero(execution.contributors())
    graph = laplacian(shared_pairs(execution), np.intersect1d(honest, counted).tolist())
    left_over = _left_over(execution)
    return graph, counted.size, left_over


def _left_over(execution: Execution) -> int:
    """How many noise terms stay in the sum: of a pair with one end that published what was not rolled back."""
    protocol, schedule, trace = execution.protocol, execution.schedule, execution.trace
    assert isinstance(protocol, GopaParameters)  # noqa: S101 - for the type checker
    if protocol.aggregator is None:
        return PeerOutcome.of(protocol.least_partners, schedule, trace).left_over
    outcome = GopaOutcome.of(protocol.aggregator, schedule, trace)
    # A rollback takes out the noise with whom did not publish.
    remains = (outcome.arrived & ~outcome.rolled_back)[schedule.pairs]
    return int((remains & ~outcome.arrived[schedule.pairs][:, ::-1]).any(axis=1).sum())
