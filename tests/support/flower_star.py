"""A star in one process: real clients with folders of their own, and a server that tests can make lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from quietmean.core.party import NoiseSource, PopulationNoise, Vector
from quietmean.flower import FlowerAgreement, Home, Relay, StarParty, make_home
from quietmean.flower.party import Stored, round_seed
from quietmean.flower.site import AGREEMENT, SESSION, SITE
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import SecureNoise, Seed
from quietmean.sessions.round_mean import clipped_vector

FIRST_NODE = 1000
# Of a site that keeps account elsewhere.
UNCHARGED = "no_ledger = true\n"
# (requests by node, does a round begin, the honest way on) -> answers by node.
Lie = Callable[[Mapping[int, bytes], bool, Callable[[Mapping[int, bytes]], Mapping[int, bytes]]], Mapping[int, bytes]]


def make_homes(
    root: Path, parties: int, rounds: int, dimension: int, dropouts: float = 0.1, site: str = UNCHARGED
) -> FlowerAgreement:
    """Folders 0, 1, ... in the order of the agreement; ``site``: what each site says."""
    keys = {make_home(root / f"new-{number}"): root / f"new-{number}" for number in range(parties)}
    agreement = FlowerAgreement.make(list(keys), dimension=dimension, epsilon=4.0, delta=1e-5, rounds=rounds, dropouts=dropouts)
    for number, key in enumerate(agreement.identities):
        home = keys[key].rename(root / str(number))
        agreement.save(home / AGREEMENT)
        (home / SITE).write_text(site)
    return agreement


@dataclass
class Star:
    """``values`` (n, d): of the parties. ``away``: parties that answer nothing. ``seen``: all that the server got to see."""

    root: Path
    values: Vector
    lie: Lie | None = None
    away: set[int] = field(default_factory=set)
    seen: list[bytes] = field(default_factory=list)

    def relay(self, agreement: FlowerAgreement) -> Relay:
        relay = Relay(agreement, self.exchange)
        relay.meet(self.nodes)
        return relay

    @property
    def nodes(self) -> Sequence[int]:
        return [FIRST_NODE + party for party in range(len(self.values))]

    def exchange(self, requests: Mapping[int, bytes], begins: bool) -> Mapping[int, bytes]:
        return self.honest(requests) if self.lie is None else self.lie(requests, begins, self.honest)

    def honest(self, requests: Mapping[int, bytes]) -> Mapping[int, bytes]:
        self.seen += requests.values()
        answers = {node: self.ask(node - FIRST_NODE, raw) for node, raw in requests.items() if node - FIRST_NODE not in self.away}
        self.seen += answers.values()
        return answers

    def ask(self, party: int, raw: bytes) -> bytes:
        """As Flower does: the client is made anew for each message."""
        return StarParty(Home(self.root / str(party))).answer(raw, lambda: np.array(self.values[party]))


class _Population:
    """The noise of the parties of one round, from the seeds in their folders."""

    def __init__(self, seeds: Sequence[Seed]) -> None:
        self._seeds = seeds

    def party(self, party: int) -> NoiseSource:
        return SecureNoise(self._seeds[party])


def in_one_process(root: Path, agreement: FlowerAgreement, values: Vector, round_: int, away: set[int]) -> Vector:
    """The mean of the same machines in lockstep, with the inputs and seeds of the clients: what a round has to release."""
    plan, parties = agreement.terms.plan, agreement.parties
    raw = [msgspec.msgpack.decode((root / str(party) / SESSION).read_bytes(), type=Stored) for party in range(parties)]
    trace = ExecutionTrace.everyone(plan.protocol.rounds, parties)
    trace.online[:, list(away)] = False
    execution = Execution(plan.protocol, agreement.schedule(round_), trace, plan.target.sensitivity, np.ones(parties))
    rows = np.array([plan.admit(clipped_vector(value, agreement.study.clip), 1.0) for value in values])
    noise = cast(PopulationNoise, _Population([round_seed(Seed(one.seed), round_) for one in raw]))
    release = next(iter(execution.run(rows, noise).releases.values()))
    return decoded(plan.protocol, parties, release.vector, release.weight) * agreement.study.clip
