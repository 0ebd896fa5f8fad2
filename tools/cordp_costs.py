"""Write measurements/cordp-costs.md and its picture: Table I of the CorDP-DME paper measured, and noise shared with a few only.

    python tools/cordp_costs.py

A minute of one core. Bytes, rounds and errors are the same each time; times are processor times of the machine that ran it.
"""

from __future__ import annotations

import functools
import math
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from quietmean.core.party import Message, PartyId, Step
from quietmean.core.workers import one_thread
from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure
from quietmean.protocols.cordp_dme.design import gaussian_variance, least_error, sparse_design
from quietmean.protocols.cordp_dme.party import place_pairs
from quietmean.randomness import Seed
from quietmean.randomness.noise import ExchangeKey, SecureNoise
from quietmean.transcript import run_lockstep

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "measurements/cordp-costs.md", DOCS / "images" / "cordp-partners.png"
EPSILON, DELTA = 2.0, 1e-5
# Parties and coordinates: a base, twice as many parties, twice as many coordinates.
BASE, MORE_PARTIES, MORE_COORDINATES = (32, 16_384), (64, 16_384), (32, 32_768)
# Times are the least of so many runs.
TIMES = 3
# The protocols of the table; a party of the first two that collects is the server, one receiver for that of local DP.
OPTIONS: dict[str, dict[str, Any]] = {"local-dp": {}, "secagg": {}, "cordp-dme": {"aggregator": 0}}
# SecAgg sends masked inputs in its fifth round; what comes before needs no value.
MASKED = {"secagg": 5}
KEY_BYTES = 32
SERVER = 0

# --- Table I ---


@dataclass(frozen=True)
class Costs:
    """What one run costs in which everybody stays; of users a mean. Seconds of processor time, bytes."""

    rounds: int
    seconds: dict[str, float]
    before: dict[str, float]
    during: dict[str, float]
    stored: dict[str, float]


class Watched:
    """A party machine whose time is taken, with the most that it remembers or is given between two rounds.

    ``closing``: of its ``seconds``, those of the ends of rounds, in which messages of others are worked on.
    """

    def __init__(self, make: Callable[[], Any], fixed: int) -> None:
        self.seconds = self.closing = 0.0
        self._fixed = self.stored = fixed
        begun = time.process_time()
        self._machine = make()
        self.seconds = time.process_time() - begun
        self.rounds, self.state_type = self._machine.rounds, self._machine.state_type
        self.released = 0

    def start(self) -> Step[Any]:
        return self._timed(self._machine.start, 0)

    def end_round(self, state: Any, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[Any]:
        before = self.seconds
        inbox = sum(size_of(message) for message in received)
        step = self._timed(functools.partial(self._machine.end_round, state, received, delivered), inbox)
        self.closing += self.seconds - before
        return step

    def miss_round(self, state: Any) -> Step[Any]:
        return self._timed(functools.partial(self._machine.miss_round, state), 0)

    def expects(self, state: Any) -> frozenset[PartyId]:
        found: frozenset[PartyId] = self._machine.expects(state)
        return found

    def _timed(self, work: Callable[[], Step[Any]], inbox: int) -> Step[Any]:
        begun = time.process_time()
        step = work()
        self.seconds += time.process_time() - begun
        self.stored = max(self.stored, self._fixed + inbox, self._fixed + len(pickle.dumps(step.state)))
        self.released = self.released if step.release is None else 8 * step.release.vector.size
        return step


def size_of(message: Message) -> int:
    return 8 * message.vector.size + len(message.content)


def measured(name: str, parties: int, dimension: int) -> Costs:
    """One run of the real machines with real noise and keys."""
    plan = calibrate(Target(parties, EPSILON, DELTA, dimension, 2.0, 1), configure(name, OPTIONS[name]))
    trace = ExecutionTrace.everyone(plan.protocol.rounds, parties)
    execution = plan.execution(Seed.public("costs"), trace)
    keys = [ExchangeKey(Seed.public("costs", party)) for party in range(parties)]
    used = np.zeros(parties)

    def noise(party: PartyId) -> SecureNoise:
        def shared(other: PartyId) -> Seed:
            used[party] += 1
            return keys[party].shared_seed(keys[other].public, "costs")

        return SecureNoise(Seed.public("costs of", party), shared)

    value = np.full(dimension, 0.5 / math.sqrt(dimension))
    fixed = 8 * dimension + (KEY_BYTES * (parties - 1) if name == "cordp-dme" else 0)
    machines = [Watched(functools.partial(execution.machine, party, value, noise(party)), fixed) for party in range(parties)]
    sent = {phase: np.zeros(parties) for phase in ("before", "during")}
    taken = {phase: np.zeros(parties) for phase in sent}

    def watch(message: Message, receivers: frozenset[PartyId]) -> None:
        phase = "before" if message.round < MASKED.get(name, 1) else "during"
        sent[phase][message.sender] += size_of(message)
        for receiver in receivers:
            taken[phase][receiver] += size_of(message)

    run_lockstep(machines, trace, lambda round_, sender, receiver: True, watch)
    users = np.arange(parties) != SERVER
    if name not in MASKED and "aggregator" not in OPTIONS[name]:
        # What everybody publishes goes to the server once.
        released = np.array([machine.released for machine in machines], dtype=float)
        sent["during"] += released
        taken["during"][SERVER] += released[users].sum()
    seconds, closing = (np.array([getattr(machine, one) for machine in machines]) for one in ("seconds", "closing"))
    stored = np.array([machine.stored for machine in machines], dtype=float)
    # Keys are exchanged when a study is agreed on, each once with each.
    sent["before"] += KEY_BYTES * used
    taken["before"][SERVER] += KEY_BYTES * used.sum()
    return Costs(
        plan.protocol.rounds,
        {"user": float(seconds[users].mean()), "server": float(closing[SERVER] - closing[users].mean())},
        {"user": float(sent["before"][users].mean()), "server": float(taken["before"][SERVER])},
        {"user": float(sent["during"][users].mean()), "server": float(taken["during"][SERVER])},
        {"user": float(stored[users].mean()), "server": float(stored[SERVER])},
    )


def least(name: str, parties: int, dimension: int) -> Costs:
    """The costs of several runs: bytes are the same in all, of times the least."""
    found = [measured(name, parties, dimension) for _ in range(TIMES)]
    seconds = {who: min(one.seconds[who] for one in found) for who in ("user", "server")}
    return replace(found[0], seconds=seconds)


# What Table I says, in the order of OPTIONS, with d coordinates and n users.
SAID: dict[str, tuple[str, str, str]] = {
    "computation, user": ("d", "n^2 + dn", "dn"),
    "computation, server": ("d", "dn^2", "d"),
    "before values, user": ("nothing", "n", "n"),
    "before values, server": ("nothing", "n^2", "n^2"),
    "with values, user": ("d", "d + n", "d"),
    "with values, server": ("dn", "dn + n^2", "dn"),
    "storage, user": ("d", "d + n", "d + n"),
    "storage, server": ("d", "d + n^2", "d"),
}


def of(costs: Costs, row: str) -> float:
    what, who = row.split(", ")
    fields = {"computation": costs.seconds, "before values": costs.before, "with values": costs.during, "storage": costs.stored}
    return fields[what][who]


def table_1(found: dict[str, dict[tuple[int, int], Costs]]) -> list[str]:
    """What the paper says beside what was measured, and how that grows."""
    lines = ["| | " + " | ".join(f"`{name}`: paper | measured | n x 2 | d x 2" for name in OPTIONS) + " |"]
    lines.append("|---|" + "---|---:|---:|---:|" * len(OPTIONS))
    rounds = " | ".join(f"{said} | {found[name][BASE].rounds} | | " for name, said in zip(OPTIONS, ROUNDS, strict=True))
    lines.append(f"| rounds | {rounds} |")
    for row, said in SAID.items():
        cells = [f"{words} | {cells_of(found[name], row)}" for name, words in zip(OPTIONS, said, strict=True)]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


ROUNDS = ("single", "multiple", "single")


def cells_of(found: dict[tuple[int, int], Costs], row: str) -> str:
    base = of(found[BASE], row)
    if base == 0:
        return "0 | | "
    shown = f"{1000 * base:.2g} ms" if row.startswith("computation") else f"{base:,.0f} B"
    return f"{shown} | {of(found[MORE_PARTIES], row) / base:.2f} | {of(found[MORE_COORDINATES], row) / base:.2f}"


# --- the error of Table I, as n grows ---


def error_lines() -> list[str]:
    """What the O() of the errors hide: the least error over the order that is stated, nobody colluding."""
    lines = [
        "| users | all respond: error / (s d / n^2) | p = n / 10 missing: error / (s d p / (n (n - p))) |",
        "|---:|---:|---:|",
    ]
    for parties in (10, 100, 1000, 10_000):
        missing = parties // 10
        everybody = least_error(parties, parties, 0, 1.0) / parties * parties**2
        fewer = (
            least_error(parties, parties - missing, 0, 1.0) / (parties - missing) / (missing / (parties * (parties - missing)))
        )
        lines.append(f"| {parties:,} | {everybody:.3f} | {fewer:.3f} |")
    return lines


# --- noise shared with a few ---

PARTIES, RESPONDING = 100, 90
COLLUDING = (0, 2, 5, 10, 20)
PARTNERS = (2, 4, 6, 8, 14, 20, 30, 50, 98)
# Graphs of which weights are optimised, and how many are tried for each number of partners.
OPTIMISED, GRAPHS = (2, 4, 6, 8, 14, 20), 100


def costs_of_partners(colluding: int) -> list[float]:
    """Error of the designs that are shipped, over the least with noise shared in all pairs."""
    unit = gaussian_variance(EPSILON, DELTA, 2.0)
    return [sparse_design(PARTIES, RESPONDING, colluding, unit, partners).cost for partners in PARTNERS]


def optimised(partners: int) -> float:
    """Error over the least, nobody colluding, with a variance of its own for each step of the ring, on the best of many graphs.

    The graph looks alike from every place, so that all parties leak alike: the mean of the inverse eigenvalues of the covariance.
    """
    rng = np.random.default_rng(partners)
    shipped = place_pairs(PARTIES, partners)
    steps = np.unique(np.minimum((shipped[:, 1] - shipped[:, 0]) % PARTIES, (shipped[:, 0] - shipped[:, 1]) % PARTIES))
    drawn = [rng.choice(np.arange(1, PARTIES // 2), partners // 2, replace=False) for _ in range(GRAPHS)]
    return min(best_weights(one) for one in (steps, *drawn)) / least_error(PARTIES, RESPONDING, 0, 1.0)


def best_weights(steps: NDArray[np.int64]) -> float:
    """The least v + (shared variance left by who is missing) with (v, b of each step) that leak what s allows, s = 1."""
    waves = 2.0 - 2.0 * np.cos(2.0 * np.pi * np.arange(PARTIES)[:, None] * steps[None, :] / PARTIES)
    cut = 2.0 * (PARTIES - RESPONDING) / (PARTIES - 1)

    def error(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        ratios = np.exp(logs)
        inverse = 1.0 / (1.0 + waves @ ratios)
        leak, left = float(inverse.mean()), 1.0 + cut * float(ratios.sum())
        slope = -(inverse**2 @ waves) / PARTIES * left + leak * cut
        return leak * left, slope * ratios

    return float(minimize(error, np.full(steps.size, 0.5), jac=True, method="L-BFGS-B").fun)


def partner_lines(found: dict[int, list[float]], best: dict[int, float]) -> list[str]:
    heads = [f"{colluding} collude" for colluding in COLLUDING]
    lines = ["| partners | " + " | ".join(heads) + " | 0 collude, optimised |", "|---:|" + "---:|" * (len(heads) + 1)]
    for place, partners in enumerate(PARTNERS):
        cells = [f"{found[colluding][place]:.2f}" for colluding in COLLUDING]
        lines.append(f"| {partners} | {' | '.join(cells)} | {f'{best[partners]:.2f}' if partners in best else ''} |")
    return lines


def draw(found: dict[int, list[float]], best: dict[int, float]) -> None:
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = canvas.subplots()
    for colluding, costs in found.items():
        axes.plot(PARTNERS, costs, marker="o", markersize=4, label=f"{colluding} of {PARTIES} collude")
        axes.axhline(local(colluding), color=axes.lines[-1].get_color(), linestyle="dotted", linewidth=0.8)
    axes.plot(list(best), list(best.values()), color="black", linestyle="dashed", label="0 collude, variances optimised")
    axes.set(xlabel="partners of each party", ylabel="error over the least with all pairs", xscale="log", yscale="log")
    axes.set_xticks(PARTNERS, [str(one) for one in PARTNERS])
    axes.minorticks_off()
    ticks = (1, 1.5, 2, 3, 4, 5, 6)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.grid(alpha=0.3)
    canvas.legend(loc="outside upper center", ncols=3, fontsize=8)
    canvas.savefig(PICTURE, dpi=150)


def local(colluding: int) -> float:
    """Local DP, which shares nothing, over the same."""
    return 1.0 / least_error(PARTIES, RESPONDING, colluding, 1.0)


# --- the page ---

HEAD = f"""# What CorDP-DME costs, and noise shared with a few

This page is made by `python tools/cordp_costs.py`. Same command, same page but for the milliseconds; do not edit it by hand.

## Table I of the paper, measured

One run of the real machines with real keys and noise, in which everybody stays: n = {BASE[0]} users, d = {BASE[1]:,} coordinates,
and by which factor a figure grows with twice as many users or coordinates. In the paper's columns O() is left out. A factor of 1
means that a figure does not depend on it, 2 that it is linear, 4 quadratic; between 1 and 2 is a sum of both. For the server
stands the party that collects (`local-dp` has none: whoever receives everything that is published). Bytes are of vectors, keys
and ciphertexts, without framing: numbers of `secagg` take 4 bytes, of the others 8. Keys of `cordp-dme` are counted where they
are used for the first time. Storage is a party's value, its keys, and the most that it remembers or is handed at once between
two rounds.

"""
DIFFERENCES = """
Rounds, bytes and the work of users grow as the paper says. Three figures are others:

- **The server's work** is linear in d and in n for `cordp-dme`, not d: whoever adds up n vectors reads them all. The paper
  counts what is needed beside the sum, which for this protocol is nothing.
- **The server's storage** likewise: our parties close a round at once, so that one that was restarted gets the same sum to the
  last bit; until then all n vectors are kept. A server that adds vectors as they come needs d.
- **`secagg`'s server** is far from d n^2 here, since nobody drops out: it expands a pair's mask for who dropped out only.

### Errors

The orders of the errors hide small constants (s: the variance of one Gaussian release; nobody colludes, unbiased decoder):

"""
SPARSE = f"""
## Noise shared with a few only

The authors leave open what it costs if each party shares noise with a few others only, and say that the covariance would have
to be optimised under that constraint. Here {PARTIES} parties of whom {RESPONDING} respond; the squared error over the least
that noise shared in *all* pairs could have, against **every** coalition of that size (`--partners`). Dotted: local DP, which
shares nothing.

![Error against the number of partners](../images/cordp-partners.png)

"""
READING = f"""
What shares less is cheaper before the study, with as many keys and expansions as partners. It costs little while partners are
several times as many as colluders; once colluders can be all partners of somebody, that party is hidden by its own noise only,
and the error is that of local DP. Log n partners, 6 or 8 here, are enough where nobody colludes, and of no use against one in
ten.

The last column gives each step of the ring a variance of its own and takes the best of {GRAPHS} random graphs and the one that is
shipped, all by the exact account. It has no margin; the shipped designs have 2 % in standard deviation, 4 % in error. So equal
variances on one good graph leave little to be gained: what a sparse covariance loses, it loses by having few partners. Against
coalitions nothing was optimised but the two variances: which coalition is the worst then depends on the variances.
"""


def sparse_section() -> tuple[dict[int, list[float]], dict[int, float]]:
    return {colluding: costs_of_partners(colluding) for colluding in COLLUDING}, {one: optimised(one) for one in OPTIMISED}


def main() -> None:
    with one_thread():
        costs = {name: {place: least(name, *place) for place in (BASE, MORE_PARTIES, MORE_COORDINATES)} for name in OPTIONS}
        found, best = sparse_section()
    draw(found, best)
    tables = "\n".join(table_1(costs)), "\n".join(error_lines()), "\n".join(partner_lines(found, best))
    PAGE.write_text(f"{HEAD}{tables[0]}\n{DIFFERENCES}{tables[1]}\n{SPARSE}{tables[2]}\n{READING}", encoding="utf-8")


if __name__ == "__main__":
    main()
