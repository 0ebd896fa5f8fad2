"""How often the plan names the better noise, Gaussian or Laplace, of drawn studies: by errors of executions that are simulated.

Each study is drawn from its seed: parties, colluding and dropouts, epsilon, delta, protocol and questions. Planned are both kinds
of noise; the one that a plan's sentence calls smaller is right if its simulated error, of the noise in all coordinates, is
smaller too. Errors that differ by less than their own sampling errors decide nothing: these are ties, counted as neither.

    python tools/planner_choice.py [STUDIES] [SEED]
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.planning.plan import Plan
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.studies.agreement.study import StudyTerms

LEVELS = {name: [f"{name}{number}" for number in range(count)] for name, count in (("a", 2), ("b", 3), ("c", 8), ("d", 20))}
COLUMNS: list[dict[str, Any]] = [
    *({"name": name, "levels": levels} for name, levels in LEVELS.items()),
    {"name": "x", "low": 0, "high": 100},
    {"name": "y", "low": -5, "high": 5},
]
QUESTIONS: list[dict[str, Any]] = [
    {"kind": "count", "where": "x >= 50"},
    *({"kind": "proportion", "column": name} for name in LEVELS),
    *({"kind": "crosstab", "row": one, "column": other} for one, other in ("ab", "ac", "cd", "bd")),
    *({"kind": "mean", "column": name} for name in "xy"),
    {"kind": "histogram", "column": "x", "bins": 12},
    {"kind": "group-means", "column": "y", "by": "b"},
]
PROTOCOLS = ("packed-sharing", "secagg", "central-dp")
# Coordinates that are simulated, at least: their variance is then known to 2 or 3 %.
_NUMBERS = 4_000


@dataclass(frozen=True)
class Found:
    """Of a study: errors in all coordinates under Gaussian and Laplace noise, as planned and as simulated."""

    planned: tuple[float, float]
    simulated: tuple[float, float]

    @property
    def tied(self) -> bool:
        """Are both errors the same, but for chance? Three standard errors of a variance of so many numbers, both."""
        return abs(math.log(self.simulated[0] / self.simulated[1])) < 3 * math.sqrt(3 / _NUMBERS)

    @property
    def right(self) -> bool:
        """Has the noise that the plan calls smaller the smaller error?"""
        return (self.planned[0] < self.planned[1]) == (self.simulated[0] < self.simulated[1])


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """The fields of a study."""
    questions = rng.permutation(len(QUESTIONS))[: int(rng.integers(1, 7))]
    return {
        "name": "s",
        "protocol": str(rng.choice(PROTOCOLS)),
        "epsilon": float(np.round(np.exp(rng.uniform(np.log(0.1), np.log(8))), 2)),
        "delta": float(rng.choice([1e-5, 1e-6, 1e-8])),
        "colluding": int(rng.integers(1, 4)),
        "dropouts": float(rng.choice([0.0, 0.05, 0.1])),
        "column": COLUMNS,
        "statistic": [QUESTIONS[place] for place in questions],
    }


def error_of(plan: Plan, seed: int) -> float:
    """The root mean squared error of the sum in an execution with noise alone, all coordinates alike."""
    parties, dimension = plan.target.parties, plan.target.dimension
    execution = plan.execution(
        Seed.public("choice", seed), ExecutionTrace.everyone(plan.protocol.rounds, parties), np.ones(parties)
    )
    values = np.zeros((parties, dimension))
    runs = max(math.ceil(_NUMBERS / dimension), 1)
    sums = [execution.run_batch(values, InsecurePopulationNoise(seed + run, parties)) for run in range(runs)]
    errors = np.concatenate([execution.estimate(one) for one in sums])
    return float(np.sqrt(np.mean(errors**2)))


def found(seed: int) -> Found | None:
    """What a drawn study says; None where one kind of noise cannot be had, or the other option is the same."""
    fields, plans = drawn(np.random.default_rng((20_701, seed))), []
    for options in ({}, {"noise": "laplace"}):
        try:
            plan = StudyTerms.parse({**fields, "options": options}).plan(int(np.random.default_rng(seed).integers(6, 31)))
        except InputError:
            return None
        plans.append(plan)
    planned = [math.sqrt(float(plan.prediction["mse_noise"])) for plan in plans]
    simulated = [error_of(plan, 1000 * seed) for plan in plans]
    return Found((planned[0], planned[1]), (simulated[0], simulated[1]))


def main(studies: int = 500, first: int = 0) -> None:
    """Print the shares of so many studies from a seed on."""
    known = [one for seed in range(first, first + studies) if (one := found(seed)) is not None]
    decided = [one for one in known if not one.tied]
    right = sum(one.right for one in decided)
    laplace = sum(one.simulated[1] < one.simulated[0] for one in decided)
    apart = [abs(math.log(mine / its)) for one in known for mine, its in zip(one.planned, one.simulated, strict=True)]
    print(f"seeds {first} to {first + studies - 1}: {len(known)} studies with both kinds of noise, {len(decided)} not tied")
    print(f"right in {right / len(decided):.1%} of these ({right}); Laplace noise is smaller in {laplace / len(decided):.1%}")
    print(f"planned errors off those simulated: median {np.median(apart):.1%}, 95 % {np.quantile(apart, 0.95):.1%}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
