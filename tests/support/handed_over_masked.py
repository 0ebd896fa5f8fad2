"""What a coalition can open of masked inputs, from the messages that real machines send: by brute force, without the accountant.

Masks are opened as a coalition would: it pools the shares that its members were dealt and those that others answered with, and a
mask falls when they are as many as the threshold. What is left is a graph: two honest parties whose common mask stays unknown are
joined, and a group of joined parties shows its sum if all their inputs were handed over without any other unknown mask.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Message, PartyId
from quietmean.protocols.execution import Execution
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg import keys as wire
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.transcript import run_lockstep

Array = NDArray[np.float64]
Members = frozenset[PartyId]
KEY_LIST, SHARES, SHARE_LIST, INPUT, REQUEST, ANSWER = 2, 3, 4, 5, 6, 7


class MaskedSumTruth:
    """Of secagg and secagg-plus. Whatever is sent counts as seen by whom it is sent to, whether or not it arrives."""

    def __init__(self, execution: Execution) -> None:
        assert isinstance(execution.protocol, SecAgg)
        self._execution, self._rules, parties = execution, execution.protocol, execution.parties
        self._partners = [frozenset(execution.schedule.partners(party)) for party in range(parties)]
        self._senders: dict[int, set[PartyId]] = defaultdict(set)
        self._sets: dict[int, Members] = defaultdict(frozenset)
        self._answers: dict[PartyId, bytes] = {}
        noise = InsecurePopulationNoise(1, parties)
        values = np.zeros((parties, self._rules.dimension or 1))
        machines = [execution.machine(party, values[party], noise.party(party)) for party in range(parties)]
        trace = replace(execution.trace, seen=None)
        result = run_lockstep(machines, trace, execution.arrivals(), self._keep, refusing=self._rules.traits.refuses_messages)
        self._published = self._sets[REQUEST] if result.releases else frozenset()

    def _keep(self, message: Message, reached: Members) -> None:
        parties = self._execution.parties
        self._senders[message.round].add(message.sender)
        if message.round % 2 == 0 and message.content[:1] == b"\1":
            self._sets[message.round] = wire.read_set(message.content[1 : 1 + wire.set_size(parties)], parties)
        if message.round == ANSWER:
            self._answers[message.sender] = message.content

    def against(self, coalition: tuple[PartyId, ...]) -> Array:
        """mu of each party, (n,): 0 for members and for those of whom nothing is seen."""
        groups = self._shown(frozenset(coalition)) if self._rules.aggregator in coalition else [self._published - {*coalition}]
        mu = np.zeros(self._execution.parties)
        for group in groups:
            for party in group:
                mu[party] = self._execution.sensitivity / (self._rules.sigma * math.sqrt(len(group)))
        return mu

    def worst(self, size: int) -> Array:
        """mu of each party against the worst coalition of ``size``, (n,)."""
        coalitions = itertools.combinations(range(self._execution.parties), size)
        mu: Array = np.max([self.against(coalition) for coalition in coalitions], axis=0)
        return mu

    def _shown(self, coalition: Members) -> list[Members]:
        """Whose inputs, added up, a coalition with the aggregator can take all masks from: the smallest such groups."""
        sharing = self._sets[SHARE_LIST]
        honest = sharing - coalition
        masks, keys = self._opened(coalition)
        links = {
            party: {other for other in self._partners[party] & honest if not {party, other} & keys} & honest for party in honest
        }
        readable = (self._senders[INPUT] & honest) & masks
        return [group for group in _components(links) if group <= readable]

    def _opened(self, coalition: Members) -> tuple[Members, Members]:
        """The honest parties whose own mask, and those whose key of the masks with others, the coalition can put together."""
        masks: dict[PartyId, set[PartyId]] = defaultdict(set)
        keys: dict[PartyId, set[PartyId]] = defaultdict(set)
        for party in self._senders[SHARES] - coalition:
            dealt = self._partners[party] & self._sets[KEY_LIST] & coalition
            masks[party] |= dealt
            keys[party] |= dealt
        sharing = self._sets[SHARE_LIST]
        for holder, content in self._answers.items():
            owners = sorted((self._partners[holder] | {holder}) & sharing)
            for owner in wire.read_shares(content, owners):
                (masks if owner in self._sets[REQUEST] else keys)[owner].add(holder)
        enough = self._rules.threshold
        opened = (frozenset(owner for owner, holders in found.items() if len(holders) >= enough) for found in (masks, keys))
        return next(opened), next(opened)


def _components(links: dict[PartyId, set[PartyId]]) -> list[Members]:
    left, found = set(links), []
    while left:
        group, border = set(), {left.pop()}
        while border:
            group |= border
            border = {other for party in border for other in links[party]} - group
        left -= group
        found.append(frozenset(group))
    return found
