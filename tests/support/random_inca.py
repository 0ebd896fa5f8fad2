"""Random executions of IncA, against which bounds for all coalitions are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.workers import one_thread
from quietmean.graphs import NEVER, SCHEDULES, ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution
from support.every_coalition import worst_tried_mu

Array = NDArray[np.float64]
DELTA = 1e-6


def random_executions(
    number: int, seed: int, sizes: tuple[int, int] = (6, 13), degrees: tuple[int, ...] = (1, 1, 2)
) -> Iterator[tuple[Execution, int]]:
    """Executions of so many parties, of all schedules and injections, with dropouts and guards; and how many collude, 1 to 3."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < number:
        parties = int(rng.integers(sizes[0], sizes[1] + 1))
        fields: dict[str, Any] = {
            "rounds": int(rng.integers(3, parties)),
            "injection": str(rng.choice(["incremental", "early"])),
            "schedule": str(rng.choice(list(SCHEDULES))),
            "out_degree": int(rng.choice(degrees)),
            "sigma_star": float(rng.uniform(0.5, 6)),
            "sigma_delta": float(rng.uniform(1, 30)),
            "sigma_guard": float(rng.choice([0, 0, 2.0])),
        }
        churn = {"permanent": float(rng.choice([0, 0.1, 0.25])), "temporary": float(rng.choice([0, 0.1, 0.2]))}
        try:
            execution = example_execution("inca", parties, int(rng.integers(10**6)), **churn, **fields)
        except InputError:
            # Such a schedule does not exist for so many parties or receivers.
            continue
        made += 1
        yield execution, int(rng.integers(1, 4))


def lossy_executions(number: int, seed: int, sizes: tuple[int, int]) -> Iterator[tuple[Execution, int]]:
    """The same with up to three receivers a round, and shares that got lost or whose arrival the sender learnt late or never."""
    rng = np.random.default_rng([seed, 1])
    for execution, size in random_executions(number, seed, sizes, (1, 1, 2, 3)):
        schedule, trace = execution.schedule, execution.trace
        if rng.random() < 0.5:
            trace = replace(trace, lost=rng.random(schedule.neighbours.shape) < 0.1)
            late = [
                row for place in np.argwhere(trace.delivered(schedule)).tolist() if (row := _late(execution, trace, place, rng))
            ]
            trace = replace(trace, settled=np.array(late, dtype=np.int64).reshape(-1, 4)).all_handed(schedule)
        yield execution.with_trace(trace), size


def _late(execution: Execution, trace: ExecutionTrace, place: list[int], rng: np.random.Generator) -> list[int]:
    """One in ten is late: (round, sender, receiver, later round)."""
    round_, sender, slot = place[0] + 1, place[1], place[2]
    if rng.random() >= 0.1:
        return []
    later = [NEVER, *(np.nonzero(trace.online[round_ + 1 :, sender])[0] + round_ + 1).tolist()]
    return [round_, sender, int(execution.schedule.neighbours[round_ - 1, sender, slot]), int(rng.choice(later))]


def least_over_exact(
    bounds: Callable[[Execution, int], Iterable[Array]], number: int, seed: int, sizes: tuple[int, int] = (6, 13)
) -> float:
    """The least of any of ``bounds`` of Lambda_ii, each (n,), over that of the worst coalition, in so many executions.

    Of many parties not every coalition is tried: see :func:`~support.every_coalition.worst_tried_mu`.
    """
    least = np.inf
    with one_thread():
        for execution, size in random_executions(number, seed, sizes):
            worst = worst_tried_mu(execution.privacy(DELTA), size, seed) ** 2
            known = worst > 0
            ratios = [float((bound[known] / worst[known]).min(initial=np.inf)) for bound in bounds(execution, size)]
            least = min(least, *ratios)
    return least
