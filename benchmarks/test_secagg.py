"""Secure aggregation against Flower's SecAgg+ in the same run: server and client time, bytes, error.

100 clients, 1e5 coordinates, 21 shares (20 neighbours and oneself) of which 11 open a secret, without dropouts and with 10 % of
the clients gone before they send their masked inputs. Seconds are processor time of one thread, the best of two runs on both
sides. Flower lives in an environment of its own, since its pins clash with ours: ``make bench-flower`` makes it and names its
Python in ``QUIETMEAN_FLOWER_PYTHON``.
Both sides compute in one process; Flower's messages go through protobuf, which is counted apart, ours through nothing. Flower
adds no noise, so that our run without noise is the one to compare; with distributed discrete Gaussian noise is shown besides,
and what CorDP-DME costs for the same task.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from benchmarks.measuring import FLOWER, flower

from quietmean.core.party import Message, NoiseSource, Vector
from quietmean.core.workers import one_thread
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Mechanism, configure, registry
from quietmean.protocols.mechanism import decoded, vector_bytes
from quietmean.protocols.secagg_plus import SecAggPlus
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecureStackedNoise
from quietmean_reproduction.inca.machines import Meter
from support.bars import Bar

PARTIES, DIMENSION, NEIGHBOURS, THRESHOLD = 100, 100_000, 22, 12
# Values lie in [-1, 1]; one step of the grid as Flower has it.
STEP, RADIUS = 2.0**-21, math.sqrt(DIMENSION)
EPSILON, DELTA, COLLUDING = 2.0, 1e-5, 1
MASKED = 5


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time, ``offline`` before a client knows its value; bytes that a client sends.

    ``error``: root mean square per coordinate, of the mean over those counted.
    """

    label: str
    server: float
    client: float
    sent: float
    error: float
    epsilon: float = math.inf
    offline: float = 0.0

    def line(self) -> str:
        times = f"{self.server:9.3f} s {1000 * self.offline:9.1f} ms {1000 * self.client:9.1f} ms"
        return f"{self.label:<44} {times} {self.sent / 1000:9.1f} kB {self.error:9.1e} {self.epsilon:9.3g}"


HEADER = f"{'':<44} {'server':>11} {'offline':>12} {'client':>12} {'sent':>12} {'error':>9} {'epsilon':>9}"


def values() -> Vector:
    """Public test data, as on the other side."""
    return np.sin(np.arange(DIMENSION)[None, :] + 7.0 * np.arange(PARTIES)[:, None])


def without_noise() -> SecAggPlus:
    raw = {"threshold": THRESHOLD, "minimum": PARTIES // 2, "granularity": STEP, "sigma": 0.0, "clip": RADIUS, "noise": "none"}
    return SecAggPlus.read(raw | {"degree": NEIGHBOURS}).resolved(PARTIES)


def with_noise(dropouts: float) -> Plan:
    target = Target(PARTIES, EPSILON, DELTA, DIMENSION, 2 * RADIUS, COLLUDING, dropouts)
    options = {"degree": NEIGHBOURS, "threshold": THRESHOLD, "domain": "ball"}
    return calibrate(target, SecAggPlus.read(options))


def run_machines(protocol: Mechanism, dropped: int, label: str, epsilon: float = math.inf) -> Cost:
    """All machines in one process. The aggregator is a client too: a client's mean time is taken off its own."""
    data = values()
    schedule, noise = protocol.draw_schedule(PARTIES, Seed.public("benchmark")), InsecureStackedNoise(1, PARTIES)
    machines = [protocol.machine(schedule, p, data[p], 1.0, noise.party(p)) for p in range(PARTIES)]
    gone, online = set(range(1, dropped + 1)), np.ones((protocol.rounds + 1, PARTIES), dtype=np.bool_)
    online[MASKED:, 1 : dropped + 1] = False
    meter = Meter.of(PARTIES)
    meter.drive(machines, online)
    seconds, sent = meter.seconds, meter.sent
    staying = [party for party in range(1, PARTIES) if party not in gone]
    release = meter.releases[0]
    error = release.vector / release.weight - data[[0, *staying]].mean(axis=0)
    client = float(seconds[staying].mean())
    # Dropped clients have sent nothing since: the mean over the others is what a whole run costs.
    return Cost(label, float(seconds[0]) - client, client, float(sent[staying].mean()), math.sqrt((error**2).mean()), epsilon)


class Prepared:
    """A noise source that has drawn everything beforehand, as a client can before it knows its value.

    What is asked for a first time, in a rehearsal, is drawn and kept; ``seconds``: how long the drawing took.
    """

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._drawn: dict[tuple[Any, ...], Any] = {}
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        draw = getattr(self._noise, name)

        def drawn(*address: Any) -> Any:
            key = (name, *address)
            if key not in self._drawn:
                begun = time.process_time()
                self._drawn[key] = draw(*address)
                self.seconds += time.process_time() - begun
            return self._drawn[key]

        return drawn


def run_cordp(dropped: int, options: dict[str, Any], label: str) -> Cost:
    """CorDP-DME's machines: one message a client; who dropped out leaves its shared noise behind."""
    target = Target(PARTIES, EPSILON, DELTA, DIMENSION, 2 * RADIUS, COLLUDING, dropped / PARTIES)
    plan = calibrate(target, configure("cordp-dme", options))
    data, schedule, source = (
        values(),
        plan.schedule(Seed.public("benchmark")),
        InsecureStackedNoise(1, PARTIES),
    )
    admitted = [plan.admit(value) for value in data]
    staying, offline, online = [*range(dropped + 1, PARTIES)], 0.0, 0.0
    messages: list[Message] = []
    for party in staying:
        noise: Any = Prepared(source.party(party))
        plan.machine(schedule, party, admitted[party], noise).start()
        begun = time.process_time()
        messages += plan.machine(schedule, party, admitted[party], noise).start().send
        online += time.process_time() - begun
        offline += noise.seconds
    server = plan.machine(schedule, 0, admitted[0], source.party(0))
    begun_state = server.start().state
    begun = time.process_time()
    release = server.end_round(begun_state, messages, frozenset()).release
    seconds = time.process_time() - begun
    assert release is not None
    mean = decoded(plan.protocol, PARTIES, release.vector, release.weight)
    error = math.sqrt(((mean - data[[0, *staying]].mean(axis=0)) ** 2).mean())
    count = len(staying)
    sent = float(vector_bytes(plan.protocol, DIMENSION))
    return Cost(label, seconds, online / count, sent, error, EPSILON, offline / count)


def run_flower(dropped: int) -> Cost:
    """Flower's workflow and client, unmodified, by its own Python."""
    found = flower(parties=PARTIES, dimension=DIMENSION, shares=NEIGHBOURS + 1, threshold=THRESHOLD, dropped=dropped)
    if found is None:
        pytest.skip(f"{FLOWER} is not set: run make bench-flower")
    return Cost("Flower SecAgg+", found["server_seconds"], found["client_seconds"], found["client_bytes_sent"], found["error"])


def best(costs: Sequence[Cost]) -> Cost:
    """The least times of several runs of the same."""
    return replace(costs[0], server=min(cost.server for cost in costs), client=min(cost.client for cost in costs))


def run_ours(dropped: int) -> list[Cost]:
    """Without noise, with noise, and CorDP-DME where it is there."""
    plain = best([run_machines(without_noise(), dropped, "quietmean SecAgg+, no noise") for _ in range(2)])
    plan, label = with_noise(dropped / PARTIES), "quietmean SecAgg+, discrete Gaussian noise"
    costs = [plain, best([run_machines(plan.protocol, dropped, label, EPSILON) for _ in range(2)])]
    if "cordp-dme" in registry():
        server = {"aggregator": 0}
        costs += [run_cordp(dropped, server, "quietmean CorDP-DME, all pairs")]
        costs += [run_cordp(dropped, server | {"partners": NEIGHBOURS}, f"quietmean CorDP-DME, {NEIGHBOURS} partners each")]
    return costs


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [0, PARTIES // 10])
def test_secure_aggregation_against_flower(dropped: int, table: Callable[[str], None], bar: Bar) -> None:
    theirs = best([run_flower(dropped) for _ in range(2)])
    # Idle threads of the linear algebra would count as processor time.
    with one_thread():
        costs = [theirs, *run_ours(dropped)]
    plain, noisy = costs[1:3]
    lines = [HEADER, *(cost.line() for cost in costs)]
    ratios = f"{theirs.server / plain.server:.0f}x server, {theirs.client / plain.client:.1f}x client (no noise), "
    ratios += f"{theirs.server / noisy.server:.0f}x server, {theirs.client / noisy.client:.1f}x client (noise)"
    table(f"{PARTIES} clients, {DIMENSION} coordinates, {dropped} dropped\n" + "\n".join(lines) + f"\n{ratios}")
    assert plain.error < STEP
    assert theirs.error < STEP
    for ours in (plain, noisy):
        bar(f"{ours.label}, {dropped} dropped: server, tenths of Flower's", 10 * ours.server / theirs.server, 1)
        bar(f"{ours.label}, {dropped} dropped: client, thirds of Flower's", 3 * ours.client / theirs.client, 1)
