"""Write the table of plans into proofs/inca.md: what ``inca`` promises before and tells after a study, with a gate and without.

    python tools/inca_plans.py --resume FOLDER

Default options. Ten minutes of one core; plans that another page has made in that folder are not made again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from equal_promises import BY_GATE, MOST_GATED, TRIALS, central, error, planned, promised
from page_parts import DOCS, between, resume_folder, resumed, row
from page_stamp import stamp

from quietmean.core.workers import one_thread
from quietmean.planning.accuracy import draw_execution
from quietmean.planning.gate import decide
from quietmean.planning.plan import Plan
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols import Target
from quietmean.randomness import Seed
from quietmean.simulation import simulate

PAGE = DOCS / "proofs/inca.md"
BEGIN, END = "<!-- plans: written by tools/inca_plans.py -->", "<!-- end of plans -->"
EPSILON, DELTA, DROPOUTS, SEED = 1.0, 1e-6, 0.1, 20_261_125
# Parties and colluders.
PLACES = ((20, 2), (30, 3), (50, 5), (100, 10), (200, 20), (1000, 100))
# Simulated runs, by the number of parties: more where a ratio of 1.05 is to be distinguished from 1, fewer where each takes long.
RUNS = {20: 10_000, 30: 10_000, 50: 10_000, 100: 10_000, 200: 20_000, 1000: 2000}

HEAD = f"""

Made by `python tools/inca_plans.py`; the same command makes the same table. Default options, one in ten colluding,
{DROPOUTS:.0%} leave, epsilon {EPSILON:g} at delta {DELTA:g}, one coordinate. *Promised*: what holds before the first message,
whatever happens. *Told*: what the certificate of one simulated history says, against every coalition of that size. Errors are
mean squared errors over a curator's from whom nobody leaves, simulated ones with the standard error in brackets;
a predicted one is a mean over some executions, with a standard error of up to 1 % of its own. A gate is tried on {TRIALS}
histories where a plan has none by default. Beyond {MOST_GATED} parties none is tried here, since planning takes many
minutes: without one only noise of each party's own would keep the promise, with the error of local DP or more.

| parties, colluding | promise by | epsilon promised | told | error predicted | simulated | simulated / predicted |
|---|---|---:|---:|---:|---:|---:|
"""


def rows(parties: int, colluding: int, folder: Path | None) -> str:
    """The plan without a gate, and the one that promises the target where there is one."""
    target = Target(parties, EPSILON, DELTA, colluding=colluding, dropouts=DROPOUTS)
    free = line(planned(target, "inca", 0, folder), "nothing", target)
    if parties > MOST_GATED:
        return free
    found = promised(target, "inca", folder)
    return free + line(found.kept, "a gate" if found.how == BY_GATE else "own noise", target)


def line(plan: Plan, how: str, target: Target) -> str:
    simulated, curator = simulate(plan, runs=RUNS[target.parties], seed=SEED), central(target)
    mse, deviation = simulated.mse / curator, simulated.mse_standard_error / curator
    predicted = error(plan) / curator
    cells = (
        f"{target.parties}, {target.colluding}",
        how,
        f"{plan.epsilon_a_priori:.3g}",
        certified(plan, target),
        f"{predicted:.3g}",
        f"{mse:.3g} ({deviation:.1g})",
        f"{mse / predicted:.2f} ({deviation / predicted:.2f})",
    )
    return row(cells) + "\n"


def certified(plan: Plan, target: Target) -> str:
    """The epsilon of one history in which as many leave as planned."""
    if target.parties > MOST_GATED:
        return "-"
    found = decide(target, draw_execution(target, plan.protocol, Seed.public("told"), target.dropouts))
    return f"{epsilon_of_mu(found.mu, target.delta):.3g}"


def main() -> None:
    folder = resume_folder(__doc__)
    with one_thread():
        lines = [resumed(folder, f"inca-{place[0]}-{place[1]}", partial(rows, *place, folder)) for place in PLACES]
    part = f"{HEAD}{''.join(lines)}\n{stamp()}"
    PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), BEGIN, END, part), encoding="utf-8")


if __name__ == "__main__":
    main()
