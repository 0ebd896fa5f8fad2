"""Write docs/gate-cost.md: what the gate of ``inca`` costs in error, against the same protocol without one.

    python tools/gate_cost.py

Both are calibrated for the same target with the same rounds and schedule. Without a gate the target holds for the histories that
are expected; what happened is certified afterwards, and may be more.
"""

from __future__ import annotations

import time
from pathlib import Path

from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.privacy import mu_of_budget
from quietmean.privacy.information import one_thread
from quietmean.protocols import Target
from quietmean.protocols.inca import IncA
from quietmean.simulation import simulate

PAGE = Path(__file__).parents[1] / "docs" / "gate-cost.md"
EPSILON, DELTA, SEED = 1.0, 1e-6, 20_261_123
# Parties, colluding, dropouts.
CELLS = ((20, 2, 0.1), (30, 3, 0.1), (40, 2, 0.1), (40, 4, 0.1), (60, 12, 0.1), (100, 5, 0.1))
TRIALS, RUNS, COORDINATES = 19, 100, 100

HEAD = f"""# What the gate costs

This page is made by `python tools/gate_cost.py`. Same command, same page but for the seconds; do not edit it by hand.

`inca` on the circulant schedule with half as many rounds as parties (at least 11), at $\\epsilon = {EPSILON:g}$,
$\\delta = 10^{{-6}}$. **Without a gate** the target is met in the histories that are expected: what happened is certified
after the release, may cost more, and nothing bounds it beforehand but the own noise. **With the gate** nothing is published of a
history that costs more than the target against any coalition of that size; the chance of no result is stated, an upper bound from
{TRIALS} simulated histories. Errors are per coordinate, over those of one trusted curator without dropouts: {RUNS} simulated runs
of {COORDINATES} coordinates with one standard error, values of zero. Seconds of planning are processor time of one thread.

| parties, colluding, dropouts | without a gate | with the gate | ratio | chance of no result | planning without | with |
|---|---:|---:|---:|---:|---:|---:|
"""


def planned(parties: int, colluding: int, dropouts: float, trials: int) -> tuple[Plan, float]:
    """The plan, and the seconds that it took."""
    target = Target(parties, EPSILON, DELTA, COORDINATES, 1.0, colluding, dropouts)
    begun = time.process_time()
    plan = calibrate(target, IncA.from_options({"rounds": max(11, parties // 2), "schedule": "circulant"}), trials=trials)
    return plan, time.process_time() - begun


def error(plan: Plan) -> tuple[float, float]:
    """Over the curator's, and its standard error."""
    central = (1 / mu_of_budget(EPSILON, DELTA) / plan.target.parties) ** 2
    found = simulate(plan, runs=RUNS, seed=SEED)
    return found.mse / central, found.mse_standard_error / central


def row(parties: int, colluding: int, dropouts: float) -> str:
    (free, seconds_free), (gated, seconds) = (planned(parties, colluding, dropouts, trials) for trials in (0, TRIALS))
    before, after = error(free), error(gated)
    return (
        f"| {parties}, {colluding}, {dropouts:.0%} | {before[0]:.2f} ± {before[1]:.2f} | {after[0]:.2f} ± {after[1]:.2f} | "
        f"{after[0] / before[0]:.2f} | {gated.prediction['no_result_probability']:.3f} | {seconds_free:.1f} s | {seconds:.0f} s |"
    )


def main() -> None:
    lines = []
    with one_thread():
        for cell in CELLS:
            lines.append(row(*cell))
            print(lines[-1], flush=True)
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
