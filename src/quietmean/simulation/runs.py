"""Many runs of a plan at once, by the batch kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Vector
from quietmean.core.schema import require_usual
from quietmean.core.tables import Tabular
from quietmean.core.workers import Workers
from quietmean.graphs import ExecutionTrace, Schedule, churn
from quietmean.graphs.schedule import NOBODY
from quietmean.planning.gate import decide
from quietmean.planning.plan import Plan
from quietmean.privacy import CoalitionCertificate
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed

# Runs are stacked until an (n, d) array has about this many entries, or they are so many: fast, memory stays flat as runs grow,
# and there is something to share out.
_STACK, _RUNS = 2_000_000, 1000
# So many histories are certified together.
_CERTIFIED = 10


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult(Tabular):
    """The results of many simulated runs.

    ``estimates`` and the true means ``truth`` have shape (runs that finished, d), in the units of the encoded values.

    ``first`` is the execution of the first run. ``refused``: runs without a result because the gate refused the release; None if
    the gate was not tried. ``failures``: how many runs have no result, by the reason, with what the first of them was like.
    """

    plan: Plan
    estimates: Vector
    truth: Vector
    runs: int
    first: Execution
    refused: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        mse = f"mse {self.mse:.4g} (standard error {self.mse_standard_error:.2g}), predicted {self.prediction:.4g}"
        return f"SimulationResult({self.plan.protocol.name}, {self.runs} runs, {mse})"

    def rows(self) -> list[dict[str, Any]]:
        """One row for each run that finished and each coordinate, in the units of the encoded values."""
        pairs = zip(self.estimates, self.truth, strict=True)
        return [
            {"run": run, "coordinate": index, "estimate": float(estimate), "truth": float(truth)}
            for run, (estimates, truths) in enumerate(pairs)
            for index, (estimate, truth) in enumerate(zip(estimates, truths, strict=True))
        ]

    @cached_property
    def errors(self) -> Vector:
        """Estimate minus true mean, shape (runs that finished, d)."""
        return self.estimates - self.truth

    @property
    def failed(self) -> int:
        """Number of runs without a result: nobody was left to release one, or the gate refused the release."""
        return self.runs - len(self.estimates)

    @property
    def estimate(self) -> Vector:
        """The estimate of the first run, shape (d,)."""
        first: Vector = self.estimates[0]
        return first

    @cached_property
    def certificate(self) -> CoalitionCertificate:
        """What the first run leaked to coalitions of the planned size."""
        return self.first.privacy(self.plan.target.delta).coalitions(self.plan.target.colluding)

    @property
    def prediction(self) -> float:
        """The plan's predicted mean squared error per coordinate; NaN if it predicts none."""
        predicted = self.plan.prediction
        return float(predicted.get("mse_noise", np.nan)) + float(predicted.get("mse_dropout_bias", np.nan))

    @property
    def mse(self) -> float:
        """Mean squared error per coordinate: an estimate."""
        return float((self.errors**2).mean())

    @property
    def mse_standard_error(self) -> float:
        """The standard error of ``mse``. Runs are independent; coordinates of one run need not be."""
        per_run = (self.errors**2).mean(axis=1)
        return float(per_run.std(ddof=1) / np.sqrt(len(per_run))) if len(per_run) > 1 else float("inf")

    @property
    def bias(self) -> Vector:
        """Mean error per coordinate, shape (d,): an estimate."""
        mean: Vector = self.errors.mean(axis=0)
        return mean

    def to_json(self) -> dict[str, Any]:
        count = len(self.errors)
        return {
            "mse": self.mse,
            "mse_standard_error": self.mse_standard_error,
            "predicted_mse": self.prediction,
            "bias": self.bias,
            "bias_standard_error": self.errors.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else "inf",
            "runs": self.runs,
            "failed_runs": self.failed,
            **({"failures": dict(self.failures)} if self.failures else {}),
            **({} if self.refused is None else {"refused_runs": self.refused}),
            "unit": "squared units of the encoded values, per coordinate",
        }


def simulate(
    plan: Plan,
    values: Vector | None = None,
    *,
    runs: int = 1000,
    seed: int = 0,
    dropouts: float | None = None,
    gate: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    workers: int | str = 1,
) -> SimulationResult:
    """Simulate ``runs`` independent runs, each with its own schedule, dropouts and noise.

    ``values`` has shape (n, d), and is moved into the plan's domain; without it every run draws values uniformly from a cube
    whose diagonal is the plan's sensitivity. The randomness is insecure by construction: for simulation only. ``gate``: certify
    every history before its release, which takes far longer than the run; what the gate refuses has no result. ``workers``: see
    :class:`~quietmean.core.workers.Workers`; they change no result. Raises :class:`InputError` for less than one run, for values
    of another shape, for a gate where the protocol has none and for workers that are not there, :class:`ProtocolFailure` if no
    run finishes.
    """
    if runs < 1:
        raise InputError(f"{runs} runs simulate nothing. Choose at least 1.")
    require_usual("runs", runs)
    target = plan.target
    if gate and not (plan.protocol.TRAITS.gate is not None):
        raise InputError(f"protocol {plan.protocol.name} has no gate before its release. Leave gate out.")
    if values is not None and values.shape != (target.parties, target.dimension):
        raise InputError(
            f"values have shape {values.shape}, which does not fit the plan. Give ({target.parties}, {target.dimension})."
        )
    if values is not None:
        values = np.array([plan.admit(value).vector for value in values])
    lost = target.dropouts if dropouts is None else dropouts
    population = _Population(plan, values, lost, insecure_seed(seed, "simulate", plan.digest))
    stacks = list(_stacks(runs, max(1, min(_RUNS, _STACK // (target.parties * target.dimension)))))
    shared = Workers(workers)
    refused = np.zeros(runs, dtype=np.bool_)
    if gate:
        certified = list(_stacks(runs, _CERTIFIED))
        for (first, count), refusals in zip(certified, shared.in_order(_refused, population, certified), strict=True):
            refused[first : first + count] = refusals
            progress(first + count)
    parts = []
    for (first, count), part in zip(stacks, shared.in_order(_run_stack, population, stacks), strict=True):
        parts.append(part)
        progress(first + count)
    estimates, truth, done = (np.concatenate(part) for part in zip(*parts, strict=True))
    failures = _failures(population, refused, done)
    passed = ~refused[done]
    estimates, truth = estimates[passed], truth[passed]
    if not len(estimates):
        reason = "the gate refused the release or nobody was left" if gate else "nobody is left"
        raise ProtocolFailure(f"none of the {runs} runs finished: with dropouts of {lost:g} {reason}. Choose fewer.")
    first_run = plan.execution(*population.draw(0))
    return SimulationResult(plan, estimates, truth, runs, first_run, int(refused.sum()) if gate else None, failures)


def _failures(population: _Population, refused: Mask, done: Mask) -> dict[str, int]:
    """How many runs have no result, by the reason: which were ``refused`` by the gate, and which were ``done``, each (runs,)."""
    found = {}
    for why, failed in (("the gate refused the release", refused), ("too few parties were left for a result", ~done & ~refused)):
        if failed.any():
            finished = population.draw(first := int(failed.argmax()))[1].finished
            found[f"{why}, first in run {first + 1}, where {finished.sum()} of {finished.size} stayed"] = int(failed.sum())
    return found


@dataclass(frozen=True, eq=False)
class _Population:
    """What all runs have in common."""

    plan: Plan
    values: Vector | None
    dropouts: float
    root: Seed

    def draw(self, run: int) -> tuple[Seed, ExecutionTrace]:
        """The public seed and the history of a run."""
        plan, root, rounds = self.plan, self.root, self.plan.protocol.rounds
        permanent, usual = self.dropouts if rounds else 0.0, plan.protocol.traits.usual_rounds or plan.protocol.rounds
        trace = churn(root.derive(run, "churn"), rounds, plan.target.parties, permanent=permanent, within=usual)
        trace.online[:, list(plan.protocol.traits.indispensable)] = True
        return root.derive(run, "schedule"), trace


def _stacks(runs: int, together: int) -> Iterator[tuple[int, int]]:
    for first in range(0, runs, together):
        yield first, min(together, runs - first)


def _refused(population: _Population, stack: tuple[int, int]) -> Mask:
    """Which of some runs the gate refuses, shape (count,)."""
    plan, (first, count) = population.plan, stack
    drawn_runs = [population.draw(run) for run in range(first, first + count)]
    return np.array([not decide(plan.target, plan.execution(*drawn_run)).passes for drawn_run in drawn_runs])


def _run_stack(population: _Population, stack: tuple[int, int]) -> tuple[Vector, Vector, Mask]:
    """Estimates and true means of runs first .. first + count - 1 as one disjoint execution of count * n parties.

    Third, which of these runs have a result, shape (count,).
    """
    plan, values, root, (first, count) = population.plan, population.values, population.root, stack
    parties, dimension = plan.target.parties, plan.target.dimension
    drawn_runs = [population.draw(run) for run in range(first, first + count)]
    schedules = [plan.schedule(seed) for seed, _ in drawn_runs]
    traces = [trace for _, trace in drawn_runs]
    if values is None:
        width = plan.target.sensitivity / np.sqrt(dimension)
        drawn = BitStream(root.derive(first, "values")).uniform(count * parties * dimension) * width
        stacked = plan.protocol.TRAITS.inputs.fitted(
            plan.protocol, drawn.reshape(count * parties, dimension), np.ones(count * parties)
        )
    else:
        stacked = np.tile(values, (count, 1))
    total = _stack_execution(plan, schedules, traces, stacked, root.derive(first))
    vector, weight, by = (part.reshape(count, parties, *part.shape[1:]) for part in total)
    if not plan.protocol.traits.releases_are_public:
        # Every party has an estimate of its own: that of the first party to finish is that of the run.
        by = by & (by.cumsum(axis=1) == 1)
    sums, weights = (vector * by[:, :, None]).sum(axis=1), (weight * by).sum(axis=1)
    done = weights > 0
    truth = stacked.reshape(count, parties, dimension).mean(axis=1)
    estimates = [
        decoded(plan.protocol, parties, total, float(weight)) for total, weight in zip(sums[done], weights[done], strict=True)
    ]
    return np.array(estimates).reshape(-1, dimension), truth[done], done


def _stack_execution(
    plan: Plan, schedules: list[Schedule], traces: list[ExecutionTrace], values: Vector, seed: Seed
) -> tuple[Vector, Array, Mask]:
    parties = plan.target.parties
    if not plan.protocol.traits.stackable:
        results = []
        for run, (schedule, trace) in enumerate(zip(schedules, traces, strict=True)):
            noise = InsecurePopulationNoise(int.from_bytes(seed.derive(run).secret[:8], "big"), parties)
            part = values[run * parties : (run + 1) * parties]
            results.append(plan.protocol.batch(schedule, trace, part, np.ones(parties), noise))
        return (
            np.concatenate([result.vector for result in results]),
            np.concatenate([result.weight for result in results]),
            np.concatenate([result.by for result in results]),
        )
    tables = [schedule.neighbours for schedule in schedules]
    shifted = [np.where(table == NOBODY, NOBODY, table + run * parties) for run, table in enumerate(tables)]
    pairs = np.concatenate([schedule.pairs + run * parties for run, schedule in enumerate(schedules)])
    schedule = Schedule(np.concatenate(shifted, axis=1).astype(np.int32), pairs)
    trace = ExecutionTrace(np.concatenate([trace.online for trace in traces], axis=1))
    noise = InsecurePopulationNoise(int.from_bytes(seed.secret[:8], "big"), len(values))
    releases = plan.protocol.batch(schedule, trace, values, np.ones(len(values)), noise)
    return releases.vector, releases.weight, releases.by
