"""What a seed of ``make chaos`` says: one study in one way in, and one to three faults."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from support.proxy import GOOD, ProxyConditions
from support.struck_ways import YES, changes_of, feature_cells, table
from support.ways_in import NAMES, Cell

WAYS = ("run", "join", "folder", "file", "session", "committee", "drop")
KINDS = ("disk", "death", "kill", "stop", "clock", "network", "cut", "apart")
# In seconds: how long a round and the start wait.
ROUND, START = 20.0, 60.0
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


@dataclass(frozen=True)
class Fault:
    """What happens to the party at the place ``victim`` of those that take part, ``at`` seconds from the start.

    It lasts for ``seconds``.
    """

    kind: str
    victim: int
    at: float
    seconds: float
    # Of a disk or a clock: its rule, but for the prefix.
    rule: tuple[str, int, int, str, int] = ("", 0, 1, "any", 0)
    network: ProxyConditions = GOOD
    # Of what goes over the network: whether connections end by a reset.
    reset: bool = False

    def __str__(self) -> str:
        named = [f"{self.kind} of {self.victim} at {self.at:.2f} s for {self.seconds:.2f} s"]
        named += [" ".join(map(str, self.rule))] if self.rule[0] else []
        named += [str(self.network)] if self.kind == "network" else []
        return ", ".join([*named, *(["reset"] if self.reset else [])])


@cache
def chaos_cells() -> list[tuple[str, str, Cell]]:
    """Feature, way and cell, each way in turn, so that few seeds have all ways."""
    by_way: dict[str, list[tuple[str, str, Cell]]] = {way: [] for way in WAYS}
    told = table()
    for feature, cell in feature_cells():
        if told[feature][cell.way] == YES:
            shorter = tuple(({"round_timeout": ROUND, "start_timeout": START} | dict(cell.more)).items())
            timed = cell if cell.way in ("run", "folder") else replace(cell, more=shorter)
            for way in (cell.way, *(["drop"] if cell.way == "committee" else [])):
                by_way[way].append((feature, way, timed))
    for way, found in by_way.items():
        Random(way).shuffle(found)
    longest = max(map(len, by_way.values()))
    return [found[turn % len(found)] for turn in range(longest) for found in by_way.values()]


def drawn(seed: int) -> tuple[str, str, Cell, tuple[Fault, ...]]:
    """What a seed says: one to three faults, in one cell."""
    cells = chaos_cells()
    feature, way, cell = cells[seed % len(cells)]
    random = Random(f"chaos {seed}")
    what = {"drop": "committee"}.get(way, way)
    most = changes_of(feature)[what]
    kinds = [kind for kind in KINDS if kind not in _impossible(way)]
    return feature, way, cell, tuple(_fault(random, random.choice(kinds), way, most) for _ in range(random.choice((1, 2, 2, 3))))


def _impossible(way: str) -> set[str]:
    """What has nothing to strike there: files go over no network, and deadlines are by the clock that would be wrong."""
    network = {"network", "cut", "apart"}
    return {
        "folder": network | {"clock"},
        "file": network,
        "run": {"cut", "apart"},
        "committee": {"clock"},
        "drop": {"clock"},
    }.get(way, set())


def _fault(random: Random, kind: str, way: str, most: int) -> Fault:
    victim = 0 if way == "run" else random.randrange(len(NAMES) + (way == "drop"))
    fault = Fault(kind, victim, random.uniform(0.0, 1.5), random.uniform(0.3, 4.0), reset=random.random() < 0.5)
    first = random.randrange(most)
    if kind == "disk":
        action, times = random.choice((("fail", 1), ("fail", 3), ("fail", 10**9), ("short", 1)))
        kinds = random.choice(("any", "any", "write", "sync", "create"))
        return replace(fault, rule=(action, first // (1 if kinds == "any" else 4), times, kinds, random.choice(_ERRORS)))
    if kind == "death":
        return replace(fault, rule=("die", first, 1, "any", 0))
    if kind == "clock":
        return replace(fault, rule=("clock", 0, 1, "any", random.choice((-86400, -3600, 3600, 86400))))
    if kind == "network":
        loss, reset, twice = (random.choice((0.0, most)) for most in (0.1, 0.05, 0.05))
        return replace(fault, network=ProxyConditions(random.randrange(1000), (0.0, 0.2), loss, (0.1, 0.5), reset, twice))
    return fault


def shrunk(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """The fewest faults of those that still fail: one after the other is left out."""
    left = list(faults)
    for fault in faults:
        fewer = [one for one in left if one is not fault]
        if fewer and fails(fewer):
            left = fewer
    return left
