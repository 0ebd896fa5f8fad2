"""Equivalent smaller forms of the transcript of consensus.

View: z^(0) is sent over secure channels; all later messages are public. Quantised messages are functions of what is
declared here (the first unquantised differences determine them), so the account holds for them too: as an upper bound for any
cell width, and exactly in the limit delta_min = 0.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.party import NoiseGroup
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.consensus.population import population
from quietmean.protocols.consensus.spec import ConsensusParameters, Deliveries, still_in_use
from quietmean.transcript import Transcript, TranscriptBuilder
from quietmean.transcript.symbols import SymbolicReading


def short_transcript(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
    """A transcript equivalent to the whole view: each is a function of the other. This one is well-conditioned and small.

    Let a party have used the same edges in two iterations. Its x differ by a linear combination of the differences that it
    received in between, which are public. So of unicast differences only the first over each link, for each set of edges that
    its sender used, adds information. Of broadcasts it is the first two: the second reveals the sum of the differences of the two
    halves of z^(0). Where messages were lost, broadcasts are accounted as if unicast differences had been public as well: an
    upper bound.
    """
    deliveries = Deliveries.of(parameters, schedule, trace)
    if not deliveries.all_known:
        return _Irregular(parameters, deliveries, trace).build()
    # If all messages arrived, these iterations determine all later ones.
    first = replace(parameters, iterations=min(parameters.iterations, 2 if parameters.broadcast else 1))
    reading = SymbolicReading(parameters.parties)
    population(first, schedule, trace, reading.values, np.ones(parameters.parties), reading.noise, reading)
    return reading.transcript()


def least_transcript(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
    """The smallest form for a trace: one row per party and noise term per edge, if every message arrived.

    The differences over an edge in both directions determine x_i - x_j and, together with x_i, z_{i|j} - z_{j|i} too. What
    is left of z^(0) on the edge is its mean u over both ends, Gaussian of variance sigma_z^2 / 2, so the view is worth
    y_i = s_i - sum_j B_{i|j} u_ij. A party that takes part knows its own y. For an outsider to unicast only the differences
    y_i - y_j are certain: of the level each edge shows as much as its z_{i|j} - z_{j|i}, of variance 2 sigma_z^2, reveals.
    """
    sigma = parameters.deviations
    alike = bool((sigma[:, 0] == sigma[:, 1]).all())
    everything = Deliveries.of(parameters, schedule, trace).all_known
    if not (everything and alike) or (parameters.broadcast and parameters.iterations == 1):
        return short_transcript(parameters, schedule, trace)
    builder, links = TranscriptBuilder(parameters.parties), parameters.links
    terms: list[dict[int, float]] = [{} for _ in range(parameters.parties)]
    values = _value_rows(builder, parameters)
    for (first, second), scale in zip(parameters.edges.tolist(), sigma[:, 0].tolist(), strict=True):
        noise = builder.add_noise([first, second], scale / math.sqrt(2.0), NoiseGroup.CANCELLING)
        terms[first][noise], terms[second][noise] = -1.0, 1.0
    last, public = parameters.rounds, parameters.broadcast
    rows = [
        builder.add_message(party, last, messages={values[party]: 1.0}, noise=terms[party], released=public)
        for party in range(parameters.parties)
    ]
    if not public:
        for child, parent in _tree(links.first, links.receiver):
            builder.add_message(child, last, messages={rows[child]: 1.0, rows[parent]: -1.0}, released=True)
        # What all edges reveal of the level, as one equivalent observation.
        with np.errstate(divide="ignore"):
            level = math.sqrt(2.0 / float((sigma[:, 0] ** -2.0).sum())) / (2.0 * parameters.c)
        noise = builder.add_noise([0], level, NoiseGroup.CANCELLING)
        builder.add_message(0, last, messages={rows[0]: 1.0}, noise={noise: 1.0}, released=True)
    return builder.build()


def _tree(first: Ints, receiver: Ints) -> list[tuple[int, int]]:
    """The edges (child, parent) of a spanning tree, breadth first from party 0."""
    seen, queue, tree = {0}, [0], []
    for parent in queue:
        for child in receiver[first[parent] : first[parent + 1]].tolist():
            if child not in seen:
                seen.add(child)
                queue.append(child)
                tree.append((child, parent))
    return tree


def _value_rows(builder: TranscriptBuilder, parameters: ConsensusParameters) -> list[int]:
    """A row for every party's value with its Gaussian local noise. Noise of other kinds is left out: an upper bound."""
    rows = []
    for party in range(parameters.parties):
        gaussian = parameters.local_noise == "gaussian"
        noise = {builder.add_noise([party], parameters.sigma_local, NoiseGroup.INDEPENDENT): 1.0} if gaussian else {}
        rows.append(builder.add_message(party, 0, values={party: 1.0}, noise=noise))
    return rows


class _Irregular:
    """The form where messages were lost: the first message over each link for each set of edges that its sender used."""

    def __init__(self, parameters: ConsensusParameters, deliveries: Deliveries, trace: ExecutionTrace) -> None:
        self._parameters, self._links = parameters, parameters.links
        self._deliveries, self._trace = deliveries, trace
        self._builder = TranscriptBuilder(parameters.parties)
        self._sent: set[tuple[int, bytes]] = set()

    def build(self) -> Transcript:
        self._start()
        active, silent = self._deliveries.opened(), np.zeros(len(self._links), dtype=np.int64)
        for iteration in range(1, self._parameters.iterations + 1):
            delivered, received = self._deliveries.exchanged(iteration, active)
            for party in np.nonzero(self._trace.online[iteration + 1])[0].tolist():
                first, last = self._links.first[party], self._links.first[party + 1]
                mine = [link for link in range(int(first), int(last)) if active[link]]
                self._send_anew(party, mine, iteration + 1)
            active, silent = still_in_use(active, silent, delivered | received, self._parameters.patience)
        return self._builder.build()

    def _start(self) -> None:
        builder, links = self._builder, self._links
        self._values = _value_rows(builder, self._parameters)
        self._initial = []
        for link, (sender, receiver) in enumerate(zip(links.sender.tolist(), links.receiver.tolist(), strict=True)):
            noise = {builder.add_noise([sender], float(links.sigma[link]), NoiseGroup.CANCELLING): 1.0}
            receivers = [receiver] if self._deliveries.handed[0, link] else []
            # A party that is away in the first round sends nothing: then the variable stays its own.
            round_ = 1 if self._trace.online[1, sender] else 0
            self._initial.append(builder.add_message(sender, round_, receivers, noise=noise))

    def _send_anew(self, party: int, mine: list[int], round_: int) -> None:
        key = np.array(mine).tobytes()
        fresh = [link for link in mine if (link, key) not in self._sent]
        if not fresh:
            return
        x = self._add_estimate(party, mine, round_)
        for link in fresh:
            self._sent.add((link, key))
            self._builder.add_message(party, round_, messages=self._step(link, x), released=True)

    def _add_estimate(self, party: int, mine: list[int], round_: int) -> int:
        """x_i from z^(0), as a row: a broadcast, or a party's own number."""
        share = 1.0 / (1.0 + self._parameters.c * len(mine))
        terms = {self._values[party]: share} | {self._initial[link]: -share * float(self._links.sign[link]) for link in mine}
        return self._builder.add_message(party, round_, messages=terms, released=self._parameters.broadcast)

    def _step(self, link: int, x: int) -> dict[int, float]:
        """The first step of z_{j|i} for link (i, j), from the rows of x_i, z_{i|j} and z_{j|i}."""
        rest = 1.0 - self._parameters.theta
        pull = 2.0 * self._parameters.c * float(self._links.sign[link]) * rest
        return {self._initial[link]: rest, self._initial[int(self._links.reverse[link])]: -rest, x: pull}
