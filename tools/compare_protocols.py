"""Write docs/measurements/comparison.md: every private protocol for the same adversary. Deterministic.

    python tools/compare_protocols.py --resume FOLDER

``--quick`` takes fewer runs and prints instead of writing.
"""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from equal_promises import BY_GATE, promised
from equal_promises import error as prediction
from page_parts import DOCS, add_resume, resumed, table
from page_stamp import stamp

from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.party import Message, PartyId
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.protocols import registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import SimulationResult, simulate
from quietmean.transcript import run_lockstep

PAGE = DOCS / "measurements/comparison.md"
TARGET = Target(parties=30, epsilon=1.0, delta=1e-6, dimension=10, sensitivity=2.0, colluding=3, dropouts=0.1)
SEED = 20_261_122
# Protocols whose runs cannot be stacked into one large one are slower to simulate.
RUNS, SLOW_RUNS = 1000, 300
# Header and framing of one message, as the planner has it.
OVERHEAD_BYTES = 40
# Some parties of each execution, to ask what all the others together would learn about them.
SAMPLED = (1, 10, 20, 29)


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes that a party sends: the mean over the parties, and the most that any of them sends."""

    messages: float
    most_messages: int
    bytes_sent: float
    most_bytes: int


@dataclass(frozen=True)
class Row:
    """A plan as the page has it. ``cells``: of its errors and costs."""

    protocol: str
    promise: str
    mse: float
    cells: list[str]
    certificate: str


def count_traffic(plan: Plan) -> Traffic:
    """Count one run of the real machines in which everybody stays and, where releases are public, tells them to all others."""
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
    if plan.protocol.traits.releases_are_public:
        releasers = list(plan.protocol.traits.releasers(target.parties))
        messages[releasers] += target.parties - 1
        sizes[releasers] += (target.parties - 1) * (8 * target.dimension + OVERHEAD_BYTES)
    return Traffic(float(messages.mean()), int(messages.max()), float(sizes.mean()), int(sizes.max()))


def example_values(execution: Execution, target: Target) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    width = target.sensitivity / math.sqrt(target.dimension)
    drawn = BitStream(Seed.public("values")).uniform(target.parties * target.dimension) * width - width / 2
    return execution.protocol.TRAITS.inputs.fitted(
        execution.protocol, drawn.reshape(target.parties, target.dimension), execution.weights
    )


def epsilon_alone(plan: Plan) -> str:
    """The largest epsilon over some parties, each against all the others together, nobody having dropped out."""
    protocol, target = plan.protocol, plan.target
    if not protocol.traits.has_transcript:
        return f"{target.epsilon:g} (pure)"
    execution = plan.execution(Seed.public("alone"), ExecutionTrace.everyone(protocol.rounds, target.parties))
    privacy = execution.privacy(target.delta)
    parties = frozenset(range(target.parties))
    worst = max(privacy.against(parties - {party}).max_epsilon for party in SAMPLED)
    return "everything" if math.isinf(worst) else f"{worst:.3g}"


def make_row(plan: Plan, promise: str, quick: bool) -> Row:
    protocol = plan.protocol
    runs = (RUNS if protocol.traits.batchable and protocol.traits.has_transcript else SLOW_RUNS) // (10 if quick else 1)
    planned, calm = simulate(plan, runs=runs, seed=SEED), simulate(plan, runs=runs, seed=SEED, dropouts=0.0)
    return Row(
        protocol.name,
        promise,
        planned.mse,
        [
            number(prediction(plan)),
            in_words(planned) + (f" ({planned.failed} failed)" if planned.failed else ""),
            f"{in_words(calm)} (x {planned.mse / calm.mse:.2f})",
            *in_cells(rounds_of(plan), count_traffic(plan)),
            epsilon_alone(plan),
        ],
        str(plan.prediction["certificate"]),
    )


def rounds_of(plan: Plan) -> int:
    return plan.protocol.rounds + (plan.dissemination.rounds if plan.protocol.traits.releases_are_public else 0)


def in_cells(rounds: int, traffic: Traffic) -> list[str]:
    """Three cells: rounds, messages and kilobytes."""
    messages = f"{traffic.messages:.0f} ({traffic.most_messages})"
    return [str(rounds), messages, f"{traffic.bytes_sent / 1000:.1f} ({traffic.most_bytes / 1000:.1f})"]


def in_words(found: SimulationResult) -> str:
    return f"{number(found.mse)} ({found.mse_standard_error:.1g})"


def plans(target: Target, name: str, folder: Path | None = None) -> Iterator[tuple[Plan, str]]:
    """The plan as it is made by default, and the one that keeps the target whatever happens, each with what it promises."""
    found = promised(target, name, folder)
    yield found.usual, found.promise_of_usual
    if found.kept is not found.usual:
        refused = f" (no result: {found.kept.prediction['no_result_probability']:.0%} at most)" if found.how == BY_GATE else ""
        yield found.kept, found.how + refused


def rows_of(target: Target, name: str, quick: bool, folder: Path | None) -> list[Row] | str:
    """The rows of a protocol, or why there are none."""
    try:
        return [make_row(plan, promise, quick) for plan, promise in plans(target, name, folder)]
    except InputError as error:
        return str(error)


def kept_rows(folder: Path | None, target: Target, name: str, quick: bool) -> list[Row] | str:
    """The rows of a protocol, measured once."""

    def measure() -> str:
        found = rows_of(target, name, quick, folder)
        return json.dumps(found if isinstance(found, str) else [asdict(row) for row in found]) + "\n"

    found = json.loads(resumed(folder, f"comparison-{name}-{target.epsilon:g}", measure))
    return found if isinstance(found, str) else [Row(**one) for one in found]


def make_rows(target: Target, quick: bool, folder: Path | None) -> tuple[list[Row], dict[str, str]]:
    """Rows, least simulated error first, and why a protocol has none."""
    rows, missing = list[Row](), dict[str, str]()
    for name, protocol in registry().items():
        if not protocol.TRAITS.private:
            continue
        found = kept_rows(folder, target, name, quick)
        if isinstance(found, str):
            missing[name] = found
        else:
            rows += found
    return sorted(rows, key=lambda row: row.mse), missing


def number(value: float) -> str:
    return f"{value:.4g}"


def errors_and_costs(rows: list[Row]) -> str:
    errors, costs = ("MSE predicted", "MSE simulated", "if nobody drops out"), ("rounds", "messages", "kB", "epsilon alone")
    cells = ([f"`{one.protocol}`", one.promise, *one.cells] for one in rows)
    return table(("protocol", "promise", *errors, *costs), cells, 2)


def guarantees(rows: list[Row]) -> str:
    cells = ((f"`{one.protocol}`", one.promise, one.certificate) for one in sorted(rows, key=lambda one: one.protocol))
    return table(("protocol", "promise", "how the plan's noise is certified"), cells, 3)


INTRODUCTION = """\
# All protocols against the same adversary

This page is made by `python tools/compare_protocols.py`. Same command, same page; do not edit it by hand.

{parties} parties with vectors of {dimension} coordinates and L2 norm at most 1, so that replacing a party's vector moves it by
at most {sensitivity:g}. {colluding} parties collude, {dropouts:.0%} of the parties drop out for good, each in a random round;
epsilon = {epsilon:g}, delta = {delta:g}. Every protocol is planned for this target with its default options. With another
epsilon all errors are larger or smaller by nearly the same factor.

- *Promise*: is the target **guaranteed** before the start, or only **realised**, said after the release, where
  nothing but the epsilon that is stated holds beforehand? Of a protocol whose default plan is of the second kind there is a
  second row, with the plan that guarantees the target: by a gate before the release, or by so much noise of each party's
  own, by what costs less. Compare rows of one promise.
- *MSE* is per coordinate, against the mean of all {parties} values, lost ones included. Simulated: {runs} runs ({slow} where
  runs cannot be stacked), with its standard error in brackets. Where every party ends with an estimate of its own,
  it is that of one party.
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

PROMISES = "Who is trusted, and what each guarantees: [the protocols](../reference/protocols.md).\n"
READING = """\
## How to read it

The kinds of guarantee are not interchangeable. Most rows are (epsilon, delta) under replacement of one party's vector, exact,
and hold whatever the adversary can compute. `priv-unit-g` promises more (delta = 0, any coalition) to fewer values (unit
vectors only). Neither limits what the adversary can compute. Rows that speak of computationally bounded parties stand and fall
with their cryptography. "Exact" is the account of an execution once it has happened; how much noise a plan takes is found as the
last column says.
"""


def introduction() -> str:
    return INTRODUCTION.format(**TARGET.describe() | {"runs": RUNS, "slow": SLOW_RUNS, "overhead": OVERHEAD_BYTES})


def make_page(quick: bool, folder: Path | None) -> str:
    rows, missing = make_rows(TARGET, quick, folder)
    lines = [introduction(), errors_and_costs(rows)]
    for name, reason in missing.items():
        lines += [f"Not in the table: `{name}`, which refuses this target ({reason}).", ""]
    return "\n".join([*lines, "## What the rows promise", "", PROMISES, guarantees(rows), READING, stamp()])


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    add_resume(parser)
    parser.add_argument("--quick", action="store_true", help="fewer runs, and the page is printed")
    chosen = parser.parse_args()
    try:
        page = make_page(chosen.quick, chosen.resume)
    except QuietmeanError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.quick:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
