"""Write docs/comparison.md: every private protocol for the same adversary. Deterministic; two to three minutes.

Run it as ``python tools/compare_protocols.py``; ``--quick`` takes fewer runs and prints instead of writing.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.party import Message, PartyId
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import SimulationResult, simulate
from quietmean.transcript import run_lockstep

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
TARGETS = tuple(
    Target(parties=100, epsilon=epsilon, delta=1e-6, dimension=10, sensitivity=2.0, colluding=10, dropouts=0.1)
    for epsilon in (1.0, 0.2)
)
SEED = 20_261_122
# Protocols whose runs cannot be stacked into one large one are slower to simulate.
RUNS, SLOW_RUNS = 1000, 300
# Header and framing of one message, as the planner has it.
OVERHEAD_BYTES = 40
# Some parties of each execution, to ask what all the others together would learn about them.
SAMPLED = (1, 34, 67, 99)


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes that a party sends: the mean over the parties, and the most that any of them sends."""

    messages: float
    most_messages: int
    bytes_sent: float
    most_bytes: int


@dataclass(frozen=True)
class Row:
    plan: Plan
    planned: SimulationResult
    calm: SimulationResult
    traffic: Traffic
    alone: str

    @property
    def rounds(self) -> int:
        protocol = self.plan.protocol
        return protocol.rounds + (self.plan.dissemination.rounds if protocol.releases_are_public else 0)


def count_traffic(plan: Plan) -> Traffic:
    """Of one run of the real machines in which everybody stays and, where releases are public, tells them to all others."""
    target = plan.target
    rounds = plan.protocol.rounds
    execution = plan.execution(Seed.public("traffic"), ExecutionTrace.everyone(rounds, target.parties))
    messages, sizes = np.zeros(target.parties, dtype=np.int64), np.zeros(target.parties, dtype=np.int64)

    def watch(message: Message, receivers: frozenset[PartyId]) -> None:
        messages[message.sender] += len(message.recipients)
        size = 8 * message.vector.size + len(message.content) + OVERHEAD_BYTES
        sizes[message.sender] += size * len(message.recipients)

    noise = InsecurePopulationNoise(1, target.parties)
    values = example_values(execution, target)
    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(target.parties)]
    run_lockstep(machines, execution.trace, lambda round_, sender, receiver: True, watch)
    if plan.protocol.releases_are_public:
        releasers = list(plan.protocol.releasers(target.parties))
        messages[releasers] += target.parties - 1
        sizes[releasers] += (target.parties - 1) * (8 * target.dimension + OVERHEAD_BYTES)
    return Traffic(float(messages.mean()), int(messages.max()), float(sizes.mean()), int(sizes.max()))


def example_values(execution: Execution, target: Target) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    width = target.sensitivity / math.sqrt(target.dimension)
    drawn = BitStream(Seed.public("values")).uniform(target.parties * target.dimension) * width - width / 2
    return execution.protocol.project_to_domain(drawn.reshape(target.parties, target.dimension), execution.weights)


def epsilon_alone(plan: Plan) -> str:
    """The largest epsilon over some parties, each against all the others together, nobody having dropped out."""
    protocol, target = plan.protocol, plan.target
    if not protocol.has_transcript:
        return f"{target.epsilon:g} (pure)"
    execution = plan.execution(Seed.public("alone"), ExecutionTrace.everyone(protocol.rounds, target.parties))
    privacy = execution.privacy(target.delta)
    parties = frozenset(range(target.parties))
    worst = max(privacy.against(parties - {party}).max_epsilon for party in SAMPLED)
    return "everything" if math.isinf(worst) else f"{worst:.3g}"


def make_row(target: Target, protocol: type[Protocol], quick: bool) -> Row:
    plan = calibrate(target, protocol.from_options({}))
    runs = (RUNS if protocol.batchable and protocol.has_transcript else SLOW_RUNS) // (10 if quick else 1)
    planned = simulate(plan, runs=runs, seed=SEED)
    calm = simulate(plan, runs=runs, seed=SEED, dropouts=0.0)
    return Row(plan, planned, calm, count_traffic(plan), epsilon_alone(plan))


def make_rows(target: Target, quick: bool) -> tuple[list[Row], dict[str, str]]:
    """Rows, least simulated error first, and why a protocol is not among them."""
    rows, missing = [], {}
    for name, protocol in registry().items():
        if not protocol.private:
            continue
        try:
            rows.append(make_row(target, protocol, quick))
        except InputError as error:
            missing[name] = str(error)
    return sorted(rows, key=lambda row: row.planned.mse), missing


def number(value: float) -> str:
    return f"{value:.4g}"


def table(rows: list[Row]) -> list[str]:
    heads = ("protocol", "MSE predicted", "MSE simulated", "if nobody drops out", "rounds", "messages", "kB", "epsilon alone")
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        planned, calm, traffic = row.planned, row.calm, row.traffic
        cells = (
            f"`{row.plan.protocol.name}`",
            number(planned.prediction),
            f"{number(planned.mse)} ± {planned.mse_standard_error:.1g}"
            + (f" ({planned.failed} failed)" if planned.failed else ""),
            f"{number(calm.mse)} ± {calm.mse_standard_error:.1g} (x {planned.mse / calm.mse:.2f})",
            str(row.rounds),
            f"{traffic.messages:.0f} ({traffic.most_messages})",
            f"{traffic.bytes_sent / 1000:.1f} ({traffic.most_bytes / 1000:.1f})",
            row.alone,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def guarantees(rows: list[Row]) -> list[str]:
    lines = ["| protocol | who is trusted | guarantee | how the plan's noise is certified |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: row.plan.protocol.name):
        protocol = row.plan.protocol
        cells = (f"`{protocol.name}`", protocol.trust, protocol.guarantee, str(row.plan.prediction["certificate"]))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


INTRODUCTION = """\
# All protocols against the same adversary

This page is made by `python tools/compare_protocols.py`. Same command, same page; do not edit it by hand.

{parties} parties with vectors of {dimension} coordinates and L2 norm at most 1, so that replacing a party's vector moves it by
at most {sensitivity:g}. {colluding} parties collude, {dropouts:.0%} of the parties drop out for good, each in a random round;
delta = {delta:g}. Every protocol is planned for this target with its default options.

- *MSE* is per coordinate, against the mean of all {parties} values, lost ones included. Simulated: {runs} runs ({slow} where
  runs cannot be stacked), with its standard error. Where every party ends with an estimate of its own, it is that of one party.
- *If nobody drops out*: the same plan without dropouts, and by how much dropouts multiply the error.
- *Rounds, messages, kB*: of one run of the real machines in which everybody stays, spreading the result included: what a party
  sends on average (and the most that one sends), {overhead} bytes of framing a message. Encryption and the agreement before the
  first round are not in it.
- *Epsilon alone*: what all others together learn about one party if nobody drops out, at the same delta, whatever was planned:
  what is left beyond the planned number of colluders. "Everything": they learn the value. Of `priv-unit-g` it is the pure
  epsilon. It is the largest over four of the parties.

Parties without whom a protocol says that it has no result are assumed to stay. Runs that failed are counted beside the MSE, which
is that of the others.
"""

READING = """\
## How to read it

The kinds of guarantee are not interchangeable. Most rows are (epsilon, delta) under replacement of one party's vector, exact,
and hold whatever the adversary can compute. `priv-unit-g` promises more (delta = 0, whoever colludes) to fewer values (unit
vectors only). Neither limits what the adversary can compute. Rows that speak of computationally bounded parties stand and fall
with their cryptography. "Exact" is the account of an execution once it has happened; how much noise a plan takes is found as the
last column says.
"""


def make_page(quick: bool) -> str:
    first = TARGETS[0]
    facts = first.describe() | {"runs": RUNS, "slow": SLOW_RUNS, "overhead": OVERHEAD_BYTES}
    lines, promises = [INTRODUCTION.format(**facts)], list[str]()
    for target in TARGETS:
        rows, missing = make_rows(target, quick)
        promises = promises or guarantees(rows)
        lines += [f"## epsilon = {target.epsilon:g}", "", *table(rows), ""]
        for name, reason in missing.items():
            lines += [f"Not in the table: `{name}`, which refuses this target ({reason}).", ""]
    lines += ["## What the rows promise", "", f"At epsilon = {first.epsilon:g}; otherwise alike.", "", *promises, ""]
    return "\n".join([*lines, READING])


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    try:
        page = make_page(quick)
    except QuietmeanError as error:
        print(error, file=sys.stderr)
        return 2
    if quick:
        print(page)
    else:
        PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
