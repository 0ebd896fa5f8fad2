"""The declared transcript of consensus, in full and in an equivalent short form.

View: z^(0) goes over secure channels; everything after it is heard by everybody. Quantised messages are functions of what is
declared here (the first unquantised differences determine them), so the account holds for them too: as an upper bound for any
cell width, and exactly in the limit delta_min = 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import History, Schedule
from quietmean.protocols.consensus.edges_in_use import Deliveries, still_in_use
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.transcript import Transcript, TranscriptBuilder

Flags = NDArray[np.bool_]


def full_transcript(parameters: ConsensusParameters, schedule: Schedule, history: History) -> Transcript:
    """Every message of every round."""
    return _Declaration(parameters, schedule, history, short=False).build()


def short_transcript(parameters: ConsensusParameters, schedule: Schedule, history: History) -> Transcript:
    """What the whole view is a function of, and what is a function of it: the same account, well-conditioned and small.

    Let a party have used the same edges in two iterations. Its x differ by a linear combination of the differences that it was
    sent in between, which everybody knows. So of unicast differences only the first over each link, for each set of edges that
    its sender used, says anything new. Of broadcasts it is the first two: the second says what the differences of the two halves
    of z^(0) add up to. Where messages were lost they are accounted as if unicast differences had been heard
    as well: an upper bound.
    """
    return _Declaration(parameters, schedule, history, short=True).build()


def least_transcript(parameters: ConsensusParameters, schedule: Schedule, history: History) -> Transcript:
    """The smallest form there is for a history: one row per party and noise term per edge, if every message arrived.

    From the differences over an edge in both directions everybody knows x_i - x_j and, if x_i, then z_{i|j} - z_{j|i} too. What
    is left of z^(0) on the edge is its mean u over both ends, Gaussian of variance sigma_z^2 / 2, so the view is worth
    y_i = s_i - sum_j B_{i|j} u_ij. A party that takes part knows its own y. For an outsider to unicast only the differences
    y_i - y_j are certain: of the level each edge shows as much as its z_{i|j} - z_{j|i}, of variance 2 sigma_z^2, lets through.
    """
    sigma = parameters.deviations
    alike = bool((sigma[:, 0] == sigma[:, 1]).all())
    everything = Deliveries.of(parameters, schedule, history).all_known
    if not (everything and alike) or (parameters.broadcast and parameters.iterations == 1):
        return short_transcript(parameters, schedule, history)
    builder, links = TranscriptBuilder(parameters.parties), parameters.links
    terms: list[dict[int, float]] = [{} for _ in range(parameters.parties)]
    values = _value_rows(builder, parameters)
    for (first, second), scale in zip(parameters.edges.tolist(), sigma[:, 0].tolist(), strict=True):
        noise = builder.add_noise([first, second], scale / math.sqrt(2.0), "delta")
        terms[first][noise], terms[second][noise] = -1.0, 1.0
    last, public = parameters.rounds, parameters.broadcast
    rows = [
        builder.add_message(party, last, messages={values[party]: 1.0}, noise=terms[party], released=public)
        for party in range(parameters.parties)
    ]
    if not public:
        for child, parent in _tree(links.first, links.receiver):
            builder.add_message(child, last, messages={rows[child]: 1.0, rows[parent]: -1.0}, released=True)
        # All edges' looks at the level, as the one look that they are worth.
        with np.errstate(divide="ignore"):
            level = math.sqrt(2.0 / float((sigma[:, 0] ** -2.0).sum())) / (2.0 * parameters.c)
        noise = builder.add_noise([0], level, "delta")
        builder.add_message(0, last, messages={rows[0]: 1.0}, noise={noise: 1.0}, released=True)
    return builder.build()


def _tree(first: NDArray[np.int64], receiver: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(child, parent) of a spanning tree, breadth first from party 0."""
    seen, queue, found = {0}, [0], []
    for parent in queue:
        for child in receiver[first[parent] : first[parent + 1]].tolist():
            if child not in seen:
                seen.add(child)
                queue.append(child)
                found.append((child, parent))
    return found


def _value_rows(builder: TranscriptBuilder, parameters: ConsensusParameters) -> list[int]:
    """A row for every party's value with its Gaussian local noise. Noise of other kinds is left out: an upper bound."""
    rows = []
    for party in range(parameters.parties):
        gaussian = parameters.local_noise == "gaussian"
        noise = {builder.add_noise([party], parameters.sigma_local, "star"): 1.0} if gaussian else {}
        rows.append(builder.add_message(party, 0, values={party: 1.0}, noise=noise))
    return rows


class _Declaration:
    """Mirrors the batch kernel, with rows of the transcript in place of numbers."""

    def __init__(self, parameters: ConsensusParameters, schedule: Schedule, history: History, short: bool) -> None:
        self._parameters, self._links, self._history, self._short = parameters, parameters.links, history, short
        self._deliveries = Deliveries.of(parameters, schedule, history)
        self._builder = TranscriptBuilder(parameters.parties)
        everything = self._deliveries.all_known
        # With all messages delivered, whatever comes later is determined by these iterations.
        self._iterations = parameters.iterations
        if short and everything:
            self._iterations = min(self._iterations, 2 if parameters.broadcast else 1)
        self._irregular = short and not everything
        # Rows for z, by what they were and how they moved: both ends of an edge mostly know the same.
        self._moved: dict[tuple[int, tuple[tuple[int, float], ...]], int] = {}

    def build(self) -> Transcript:
        self._start()
        for iteration in range(1, self._iterations + 1):
            self._iterate(iteration)
        return self._builder.build()

    def _start(self) -> None:
        builder, links, parameters = self._builder, self._links, self._parameters
        self._values = _value_rows(builder, parameters)
        self._initial = []
        for link, (sender, receiver) in enumerate(zip(links.sender.tolist(), links.receiver.tolist(), strict=True)):
            noise = {builder.add_noise([sender], float(links.sigma[link]), "delta"): 1.0}
            known = [receiver] if self._deliveries.arrived[0, link] else []
            # A party that is away in the first round sends nothing: then the variable stays its own.
            round_ = 1 if self._history.online[1, sender] else 0
            self._initial.append(builder.add_message(sender, round_, known, noise=noise))
        self._own = list(self._initial)
        self._other = [self._initial[link] for link in links.reverse.tolist()]
        self._active: Flags = self._deliveries.opened()
        self._silent = np.zeros(len(links), dtype=np.int64)
        self._said: set[tuple[int, bytes]] = set()

    def _iterate(self, iteration: int) -> None:
        parameters = self._parameters
        told, heard = self._deliveries.exchanged(iteration, self._active)
        if self._irregular:
            self._talk(iteration)
        elif self._short and not parameters.broadcast:
            self._tell(iteration)
        else:
            self._move(self._tell(iteration), told, heard, iteration + 1)
        self._active, self._silent = still_in_use(self._active, self._silent, told | heard, parameters.patience)

    def _speakers(self, iteration: int) -> Iterator[tuple[int, list[int]]]:
        """Who is online, with the links that it uses, if any."""
        for party in np.nonzero(self._history.online[iteration + 1])[0].tolist():
            first, last = self._links.first[party], self._links.first[party + 1]
            mine = [link for link in range(int(first), int(last)) if self._active[link]]
            if mine:
                yield party, mine

    def _talk(self, iteration: int) -> None:
        for party, mine in self._speakers(iteration):
            self._say_anew(party, mine, iteration + 1)

    def _tell(self, iteration: int) -> dict[int, int]:
        """The rows told over links in use: the step of z at the other end, or with broadcasts x."""
        links, builder, rows = self._links, self._builder, {}
        arrived = self._deliveries.arrived[iteration] & self._active[links.reverse]
        for party, mine in self._speakers(iteration):
            hearing = [int(links.receiver[link]) for link in mine if arrived[link]]
            x = self._add_estimate(party, mine, iteration + 1, self._own, hearing if self._parameters.broadcast else None)
            for link in mine:
                rows[link] = x
                if not self._parameters.broadcast:
                    reached = [int(links.receiver[link])] if arrived[link] else []
                    terms = self._step(link, x, self._own[link], self._other[link])
                    rows[link] = builder.add_message(party, iteration + 1, reached, messages=terms, released=True)
        return rows

    def _move(self, rows: Mapping[int, int], told: Flags, heard: Flags, round_: int) -> None:
        """Both ends move their z by what was told, as far as they know; to the adversary it follows from what is sent."""
        own, other = list(self._own), list(self._other)
        for link, back in enumerate(self._links.reverse.tolist()):
            mine, theirs = self._own[link], self._other[link]
            if told[link]:
                step = self._step(link, rows[link], mine, theirs) if self._parameters.broadcast else {rows[link]: 1.0}
                other[link] = self._moved_row(theirs, step, int(self._links.receiver[link]), round_)
            if heard[link]:
                step = self._step(back, rows[back], theirs, mine) if self._parameters.broadcast else {rows[back]: 1.0}
                own[link] = self._moved_row(mine, step, int(self._links.sender[link]), round_)
        self._own, self._other = own, other

    def _moved_row(self, before: int, step: Mapping[int, float], holder: int, round_: int) -> int:
        combined = dict(step)
        combined[before] = combined.get(before, 0.0) + 1.0
        key = before, tuple(sorted(combined.items()))
        if key not in self._moved:
            self._moved[key] = self._builder.add_message(holder, round_, messages=combined)
        return self._moved[key]

    def _say_anew(self, party: int, mine: list[int], round_: int) -> None:
        """Irregular histories: the first time that a party talks over a link with this set of edges."""
        key = np.array(mine).tobytes()
        fresh = [link for link in mine if (link, key) not in self._said]
        if not fresh:
            return
        x = self._add_estimate(party, mine, round_, self._initial, [] if self._parameters.broadcast else None)
        for link in fresh:
            self._said.add((link, key))
            self._builder.add_message(
                party,
                round_,
                messages=self._step(link, x, self._initial[link], self._initial[int(self._links.reverse[link])]),
                released=True,
            )

    def _add_estimate(self, party: int, mine: list[int], round_: int, z: list[int], hearing: list[int] | None) -> int:
        """x_i as a row: a broadcast that ``hearing`` take in, or (None) a party's own number."""
        share = 1.0 / (1.0 + self._parameters.c * len(mine))
        terms = {self._values[party]: share} | {z[link]: -share * float(self._links.sign[link]) for link in mine}
        return self._builder.add_message(party, round_, hearing or [], messages=terms, released=hearing is not None)

    def _step(self, link: int, x: int, from_: int, to: int) -> dict[int, float]:
        """z_{j|i}^(t+1) - z_{j|i}^(t) for link (i, j), from the rows of z_{i|j} and z_{j|i}."""
        rest = 1.0 - self._parameters.theta
        pull = 2.0 * self._parameters.c * float(self._links.sign[link]) * rest
        return {from_: rest, to: -rest, x: pull}
