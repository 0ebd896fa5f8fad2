"""Write docs/measurements/gate-cost.md: what the gate of ``inca`` costs in error, against the same protocol without one.

    python tools/gate_cost.py --resume FOLDER

Both are calibrated for the same target with the same rounds and schedule. Without a gate the target holds for the histories that
are expected; what happened is certified afterwards, and may be more.
Ten minutes of one core. The page about ``inca`` has more parties, with default options.
"""

from __future__ import annotations

import time
from functools import partial

from equal_promises import central
from page_parts import DOCS, resume_folder, resumed, row
from page_stamp import stamp

from quietmean.core.workers import one_thread
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.protocols import Target
from quietmean.protocols.inca import IncA
from quietmean.simulation import simulate

PAGE = DOCS / "measurements/gate-cost.md"
EPSILON, DELTA, SEED = 1.0, 1e-6, 20_261_123
# Parties, colluding, dropouts.
CELLS = ((10, 1, 0.1), (20, 2, 0.1), (30, 3, 0.1), (40, 2, 0.1), (40, 4, 0.1))
RUNS, COORDINATES = 100, 100
# Simulated histories where a plan tries none by default.
TRIALS = 5

HEAD = f"""# What the gate costs

This page is made by `python tools/gate_cost.py`. Same command, same page but for the seconds; do not edit it by hand.

`inca` on the circulant schedule with half as many rounds as parties (at least 11), at $\\epsilon = {EPSILON:g}$,
$\\delta = 10^{{-6}}$. **Without a gate** the target is met in the histories that are expected: what happened is certified
after the release, may cost more, and nothing bounds it beforehand but the own noise. **With the gate** nothing is published of a
history that costs more than the target against any coalition of that size; the chance of no result is stated, an upper bound
from the simulated histories that a plan tries by default, and from {TRIALS} where it tries none: they decide the noise to a few
percent, and show little of that chance. Errors are per coordinate, over those of one trusted curator without dropouts: {RUNS}
simulated runs of {COORDINATES} coordinates (standard error), values of zero. Seconds of planning are processor time of
one thread.

| parties, colluding, dropouts | without a gate | with the gate | ratio | chance of no result | planning without | with |
|---|---:|---:|---:|---:|---:|---:|
"""


def planned(parties: int, colluding: int, dropouts: float, trials: int | None) -> tuple[Plan, float]:
    """The plan, and the seconds that it took."""
    target = Target(parties, EPSILON, DELTA, COORDINATES, 1.0, colluding, dropouts)
    begun = time.process_time()
    plan = calibrate(target, IncA.read({"rounds": max(11, parties // 2), "schedule": "circulant"}), trials=trials)
    return plan, time.process_time() - begun


def error(plan: Plan) -> tuple[float, float]:
    """Over the curator's, and its standard error."""
    curator, found = central(plan.target), simulate(plan, runs=RUNS, seed=SEED)
    return found.mse / curator, found.mse_standard_error / curator


def line(parties: int, colluding: int, dropouts: float) -> str:
    (free, seconds_free), (gated, seconds) = (planned(parties, colluding, dropouts, trials) for trials in (0, None))
    if not gated.gated:
        gated, seconds = planned(parties, colluding, dropouts, TRIALS)
    before, after = error(free), error(gated)
    refused = gated.prediction["no_result_probability"]
    errors = (f"{error:.2f} ({deviation:.2f})" for error, deviation in (before, after))
    costs = (f"{after[0] / before[0]:.2f}", f"{refused:.3f}", f"{seconds_free:.1f} s", f"{seconds:.0f} s")
    return row((f"{parties}, {colluding}, {dropouts:.0%}", *errors, *costs)) + "\n"


def main() -> None:
    folder = resume_folder(__doc__)
    with one_thread():
        lines = [resumed(folder, f"gate-{'-'.join(map(str, cell))}", partial(line, *cell)) for cell in CELLS]
    PAGE.write_text(HEAD + "".join(lines) + "\n" + stamp(), encoding="utf-8")


if __name__ == "__main__":
    main()
