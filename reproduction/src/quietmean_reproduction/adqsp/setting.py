"""What the experiments of the paper have in common: its networks, and runs of the protocol that are watched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Vector
from quietmean.graphs import Edges, make_graph
from quietmean.protocols.consensus import Consensus, Quantisation
from quietmean.protocols.consensus.analysis import Dynamics, default_delta_0, default_gamma, slowest_difference
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.adqsp.batch import run_batch
from quietmean_reproduction.columns import numbers
from quietmean_reproduction.figure import Claim, Effort
from quietmean_reproduction.style import band

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

PAPER = "ADQSP (Li, Gundersen, Lopuhaä-Zwakenberg, Heusdens)"
Array = NDArray[np.float64]

# Of section VII. Values are N(0, 1).
PARTIES, STEP, BITS = 30, 1.0, 2
THETAS = (0.0, 0.2, 0.5)
NOTE = (
    f"n = {PARTIES}, random geometric graphs in the unit square (the paper's radius belongs to it, not to the cube), "
    f"c = {STEP:g}, {BITS} bits, values N(0, 1), unicast. The paper states neither gamma nor Delta_0. "
)


def sizes(effort: Effort) -> tuple[int, int]:
    """Graphs, and runs on each: the paper averages 10 000 runs."""
    return (3, 60) if effort == Effort.QUICK else (20, 500)


def network(seed: int) -> Edges:
    """A connected random geometric graph in the unit square, which the paper's radius sqrt(2 ln n / n) belongs to."""
    return make_graph("geometric", PARTIES, insecure_seed(seed, "graph"))


def gamma_for(edges: Edges, thetas: tuple[float, ...] = THETAS, step: float = STEP) -> float:
    """One gamma that the quantisers of all these theta can follow."""
    return default_gamma(max(slowest_difference(Dynamics(edges, PARTIES, theta, step)) for theta in thetas))


def unquantised(edges: Edges, theta: float, sigma_z: float, iterations: int, step: float = STEP) -> Consensus:
    """Without noise on the values."""
    return Consensus(
        edges=edges,
        parties=int(edges.max()) + 1,
        theta=theta,
        c=step,
        sigma_z=sigma_z,
        iterations=iterations,
        local_noise="none",
        sigma_local=0.0,
    )


def quantised(protocol: Consensus, gamma: float, delta_min: float, dither_seed: int, bits: int = BITS) -> Consensus:
    """With differences of ``bits`` bits; over two steps for theta = 0, where those over one step overload for ever."""
    delta_0 = default_delta_0(bits, float(protocol.deviations[0, 0]), 1.0)
    settings = Quantisation(bits, gamma, delta_0, delta_min, protocol.theta == 0, dither_seed)
    return protocol.quantised(settings)


def narrowest_from(protocol: Consensus) -> int:
    """The first iteration with cells of width delta_min."""
    settings = protocol.quantisation
    assert settings is not None  # noqa: S101 - for the type checker
    return max(1, math.ceil(math.log(settings.delta_min / settings.delta_0) / math.log(settings.gamma)))


def draw_values(samples: int, seed: int, parties: int = PARTIES) -> Vector:
    """N(0, 1), shape (n, samples): every coordinate is a run of its own."""
    values: Vector = BitStream(insecure_seed(seed, "values")).standard_normal((parties, samples))
    return values


@dataclass(frozen=True, eq=False)
class Watched:
    """``mse`` (T + 1, samples): the squared error of x^(1) .. x^(T + 1), mean over the parties. ``overloads``: their share."""

    mse: Array
    overloads: float

    def settled(self, last: int) -> tuple[float, float]:
        """The mean over the last iterations and its standard error over the runs."""
        sample = self.mse[-last:].mean(axis=0)
        return float(sample.mean()), float(sample.std(ddof=1) / math.sqrt(sample.size))

    def curve(self, every: int) -> list[dict[str, float | int]]:
        """Rows for every so many iterations: mean over the runs and its standard error."""
        scale = 1 / math.sqrt(self.mse.shape[1])
        places = range(0, len(self.mse), every)
        return [
            {
                "iteration": place + 1,
                "mse": float(self.mse[place].mean()),
                "mse_standard_error": float(self.mse[place].std(ddof=1) * scale),
            }
            for place in places
        ]


def watch(protocol: Consensus, samples: int, seed: int) -> Watched:
    """Run the protocol on random values, ``samples`` runs at once; everybody stays and nothing gets lost."""
    parties = protocol.parties
    values = draw_values(samples, seed, parties)
    goal = values.mean(axis=0)
    errors = np.empty((protocol.iterations + 1, samples))

    def note(iteration: int, x: Vector) -> None:
        errors[iteration - 1] = ((x - goal) ** 2).mean(axis=0)

    overloads = run_batch(protocol, values, InsecurePopulationNoise(seed, parties), note)
    return Watched(errors, overloads / (protocol.iterations * len(protocol.links) * samples))


def last_error_mse(dynamics: Dynamics) -> float:
    """What (38)-(39) of the paper keep of the error, for cells of width 1: the quantisation errors of the last iteration only."""
    degree = dynamics.links.degree
    return float((degree / (1 + dynamics.c * degree) ** 2).mean()) / 12


def title_of(theta: float) -> str:
    return f"θ = {theta:g}" + {0.0: " (PDMM)", 0.5: " (ADMM)"}.get(theta, "")


def draw_curve(axes: Axes, part: pl.DataFrame, colour: str, label: str, dashed: bool = False) -> None:
    """The mean over runs against the iteration, and its uncertainty."""
    mean, error = numbers(part, "mse"), 1.96 * numbers(part, "mse_standard_error")
    iterations = numbers(part, "iteration").tolist()
    axes.plot(iterations, mean, color=colour, label=label, linestyle="dashed" if dashed else "solid")
    band(axes, iterations, np.maximum(mean - error, mean / 10).tolist(), (mean + error).tolist(), colour)


def overload_claim(summary: pl.DataFrame) -> Claim:
    """Claim about overloads in simulations with 2 bits."""
    shares = {theta: float(numbers(summary.filter(theta=theta), "overloads").max()) for theta in THETAS}
    return Claim(
        f"{BITS} bits are enough",
        None,
        max(shares.values()),
        None,
        "largest share of quantised numbers that were out of range: "
        + ", ".join(f"theta {theta:g}: {share:.2g}" for theta, share in shares.items())
        + ". All runs caught up. With theta = 0 the differences are over two iterations",
    )
