"""Consensus for all parties at once: the machines' numbers to the last bit, so that quantisers agree.

Rows are links (i, j), shape (2m,), or parties. z^(0) is sent over secure channels; all later messages are public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import NoiseGroup, PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace, Flow, Schedule
from quietmean.protocols.consensus.party import local_noise
from quietmean.protocols.consensus.quantiser import Quantisers
from quietmean.protocols.consensus.spec import ConsensusParameters, Deliveries, DirectedEdges, still_in_use
from quietmean.protocols.mechanism import Releases
from quietmean.transcript.numbers import NumericReading, NumericRows, NumericTerms, RealRows
from quietmean.transcript.population import PopulationTerms, Reading, Receivers, Results, Rows

# Called after each iteration t = 1, 2, ... with the estimates x^(t), a row for each party.
Watch = Callable[[int, Rows], None]


def population(
    parameters: ConsensusParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """z^(0) is drawn and exchanged, and then differences of z or, with broadcasts, x. Values: n rows (d,); weights (n,)."""
    noisy, z = noisy_values(parameters, values, noise), perturbation(parameters, noise)
    return LinkVariables(parameters, Deliveries.of(parameters, schedule, trace), trace.online, noisy, weights, z, out).run()


def noisy_values(parameters: ConsensusParameters, values: Rows, noise: PopulationTerms) -> Rows:
    """Values with local noise, n rows. Transcripts leave out noise that is not Gaussian: an upper bound of the loss."""
    if parameters.local_noise in ("uniform", "laplace"):
        return noise.randomised(values, lambda party, value, its_noise: local_noise(parameters, value, its_noise))
    if parameters.local_noise == "gaussian":
        return values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_local)
    return values


def perturbation(parameters: ConsensusParameters, noise: PopulationTerms) -> Rows:
    """z^(0) of every link, 2m rows."""
    links = parameters.links
    return noise.normal_of(links.sender, NoiseGroup.CANCELLING, links.slot, links.sigma)


def _nobody(iteration: int, x: Rows) -> None:
    """Observe nothing."""


class LinkVariables:
    """The variables at link (i, j): ``own`` is z_{i|j}, ``other`` the copy of z_{j|i} that i holds.

    The copy equals that of j, unless i does not learn that a message of its own arrived. ``active`` (2m,): the links that their
    senders use. Values have n rows, weights the shape (n,), z has 2m rows.
    """

    def __init__(
        self,
        parameters: ConsensusParameters,
        deliveries: Deliveries,
        online: Mask,
        values: Rows,
        weights: Array,
        z: Rows,
        out: Reading,
        watch: Watch = _nobody,
    ) -> None:
        links = parameters.links
        self._parameters, self._links, self._deliveries, self._online = parameters, links, deliveries, online
        self._weights, self._out, self._watch = weights, out, watch
        self._everyone, self._every = np.ones(parameters.parties, dtype=np.bool_), np.ones(len(links), dtype=np.bool_)
        self._mine, self._theirs, self._back = _flows(links, parameters.parties)
        settings = None if out.symbolic else parameters.quantisation
        self._two_step = settings is not None and settings.two_step
        self.quantisers = Quantisers(settings, parameters.iterations) if settings is not None else None
        self._values = out.keep(values, self._everyone, 0)
        self._own = out.send(z, online[1, links.sender], 1, self._receivers(deliveries.arrived[0]), owner=links.sender)
        self._start = self._own
        self._between: Rows | None = None
        if parameters.step:
            # As the machines on a grid: differences from z^(0).
            self._between = self._own - self._back @ self._own
            self._own = self._own * 0.0
        self._other = self._back @ self._own
        self._own_before, self._other_before = self._own, self._other
        self._delivered_x: Rows | float = 0.0
        self._received_x: Rows | float = 0.0
        self._own_weight, self._other_weight = np.zeros(len(links)), np.zeros(len(links))
        self._alike = True
        self.active, self._silent = deliveries.opened(), np.zeros(len(links), dtype=np.int64)
        self._in_use = self._sums()

    def run(self) -> Results[Rows]:
        """All iterations: the estimates of all parties, n rows and weights (n,)."""
        iterations = self._parameters.iterations
        for iteration in range(1, iterations + 1):
            self._iterate(iteration)
        x, weight = self._estimate(iterations + 1)
        return Results(x, weight, self._online[-1] & self._deliveries.tells())

    def _sums(self) -> Flow:
        links, used = self._links, np.nonzero(self.active)[0]
        return Flow((self._parameters.parties, len(links)), links.sender[used], used, links.sign[used])

    def _estimate(self, iteration: int) -> tuple[Rows, Array]:
        """x_i of equation (10), and the same of the weights, from the edges in use."""
        degree = np.bincount(self._links.sender[self.active], minlength=self._parameters.parties)
        share: Array = 1.0 / (1.0 + self._parameters.c * degree.astype(np.float64))
        level = self._values if self._between is None else self._values - self._in_use @ self._start
        x = (level - self._in_use @ self._own) * share
        self._watch(iteration, x)
        return x, (self._weights - self._in_use.numbers(self._own_weight)) * share

    def _iterate(self, iteration: int) -> None:
        links = self._links
        delivered, received = self._deliveries.exchanged(iteration, self.active)
        x, weight = self._estimate(iteration)
        move = self._broadcast if self._parameters.broadcast else self._unicast
        outward, inward = move(iteration, x, delivered, received)
        weight_out = self._step(self._own_weight, self._other_weight, weight[links.sender], 1.0)
        weight_in = weight_out[links.reverse]
        if self._parameters.broadcast:
            weight_in = self._step(self._other_weight, self._own_weight, weight[links.receiver], -1.0)
        self._own_before, self._other_before = self._own, self._other
        # A message from i to j changes z_{j|i}; the adversary computes that from the message.
        keep = partial(self._out.keep, holders=self._every, round_=iteration + 1, owner=links.sender)
        self._alike = self._alike and bool((delivered == received[links.reverse]).all())
        self._own = keep(self._own + inward.at(received))
        self._other = self._back @ self._own if self._alike else keep(self._other + outward.at(delivered))
        self._own_weight = self._own_weight + weight_in * received
        self._other_weight = self._other_weight + weight_out * delivered
        active, self._silent = still_in_use(self.active, self._silent, delivered | received, self._parameters.patience)
        if (active != self.active).any():
            self.active = active
            self._in_use = self._sums()

    def _unicast(self, iteration: int, x: Rows, delivered: Mask, received: Mask) -> tuple[Rows, Rows]:
        """Steps of z_{j|i} as i computes it, and of z_{i|j} as i decodes it from the message of j."""
        x = self._out.keep(x, self._everyone, iteration + 1)
        step = self._z_step(self._mine @ x, 1.0)
        lag, lag_back = (self._other - self._other_before, self._own - self._own_before) if self._two_step else (0.0, 0.0)
        sends, arrived = self._sending(iteration)
        sent = self._quantised(iteration, step + lag, np.arange(len(self._links)), sends)
        sent = self._out.send(sent, sends, iteration + 1, self._receivers(arrived), public=True, owner=self._links.sender)
        return sent - lag, self._back @ sent - lag_back

    def _broadcast(self, iteration: int, x: Rows, delivered: Mask, received: Mask) -> tuple[Rows, Rows]:
        links, (sends, arrived) = self._links, self._sending(iteration)
        broadcasts = np.zeros(self._parameters.parties, dtype=np.bool_)
        broadcasts[links.sender[sends]] = True
        link, receiver = self._receivers(arrived)
        x = self._out.send(x, broadcasts, iteration + 1, (links.sender[link], receiver), public=True)
        mine, theirs = self._mine @ x, self._theirs @ x
        if self.quantisers is not None:
            sent = self._quantised(iteration, mine - self._delivered_x, links.sender, sends)
            mine, theirs = self._delivered_x + sent, self._received_x + self._back @ sent
            self._delivered_x = _moved(self._delivered_x, mine, delivered)
            self._received_x = _moved(self._received_x, theirs, received)
        return self._z_step(mine, 1.0), self._z_step(theirs, -1.0)

    def _z_step(self, x: Rows, end: float) -> Rows:
        """The step of z_{j|i} for ``end`` 1, of z_{i|j} for -1; ``x`` is that of the end that changes it."""
        from_, to = (self._own, self._other) if end > 0 else (self._other, self._own)
        step: Rows = self._step(from_ if self._between is None else self._between * end + from_, to, x, end)
        return step

    def _step(self, from_: Any, to: Any, x: Any, end: float) -> Any:
        """z_{j|i}^(t+1) - z_{j|i}^(t) of equation (11); ``x`` is that of the end that changes it."""
        return (from_ - to + x * (2.0 * self._parameters.c * self._links.sign * end)) * (1.0 - self._parameters.theta)

    def _quantised(self, iteration: int, target: Rows, rows: Ints, sends: Mask) -> Rows:
        quantisers = self.quantisers
        if quantisers is None:
            return target
        return self._out.computed(target, lambda numbers: quantisers.sent(iteration, numbers, rows, sends))

    def _sending(self, iteration: int) -> tuple[Mask, Mask]:
        """The links over which a message is sent, and those over which it is accepted; both (2m,)."""
        sends = self.active & self._online[iteration + 1, self._links.sender]
        return sends, sends & self._deliveries.arrived[iteration] & self.active[self._links.reverse]

    def _receivers(self, arrived: Mask) -> Receivers:
        link = np.nonzero(arrived)[0]
        return link, self._links.receiver[link]


def _flows(links: DirectedEdges, parties: int) -> tuple[Flow, Flow, Flow]:
    """The matrices from parties to the links that start and end there, and from each link to its reverse."""
    every = np.arange(len(links))
    mine, theirs = (Flow.of((every.size, parties), every, end) for end in (links.sender, links.receiver))
    return mine, theirs, Flow.of((every.size, every.size), every, links.reverse)


def _moved(before: Rows | float, now: Rows, mask: Mask) -> Rows:
    return now.at(mask) if not isinstance(before, Rows) else now.at(mask) + before.at(~mask)


# Called after each iteration t = 1, 2, ... with the estimates x^(t), shape (n, d).
RowWatch = Callable[[int, Vector], None]


def _no_rows(iteration: int, x: Vector) -> None:
    """Observe no rows."""


@dataclass(frozen=True, eq=False)
class ConsensusRun:
    """``releases`` of all parties; ``overloads`` (iterations,) how many entries overloaded a quantiser in each iteration.

    ``active`` (2m,): which links their senders used to the end. ``peaks`` (iterations,): the largest input of a quantiser, in
    cells.
    """

    releases: Releases
    overloads: Ints
    active: Mask
    peaks: Array


def run_consensus(
    parameters: ConsensusParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Vector,
    weights: Array,
    noise: PopulationNoise,
    watch: RowWatch = _no_rows,
    initial: Vector | None = None,
) -> ConsensusRun:
    """Run on values (n, d), weights (n,). ``initial``: z^(0) of every link, shape (2m, d), instead of drawn noise."""
    arithmetic = RealRows(parameters.numbers())
    reading, terms = NumericReading(values, arithmetic), NumericTerms(noise, len(values), values.shape[1], arithmetic.numbers)
    noisy = reading.vectors(noisy_values(parameters, reading.values, terms))
    z = reading.vectors(perturbation(parameters, terms)) if initial is None else initial
    return follow(parameters, Deliveries.of(parameters, schedule, trace), trace.online, noisy, weights, z, watch)


def follow(
    parameters: ConsensusParameters,
    deliveries: Deliveries,
    online: Mask,
    values: Vector,
    weights: Array,
    z: Vector,
    watch: RowWatch = _no_rows,
) -> ConsensusRun:
    """Run from noisy values (n, d), weights (n,) and z^(0) (2m, d), without drawing noise. ``online``: (T + 1, n)."""
    reading = NumericReading(values)
    exchange = LinkVariables(
        parameters,
        deliveries,
        online,
        reading.values,
        weights,
        NumericRows(z),
        reading,
        lambda iteration, x: watch(iteration, reading.vectors(x)),
    )
    results = exchange.run()
    releases = Releases(reading.vectors(results.rows), results.weight, results.by)
    quantisers, none = exchange.quantisers, np.zeros(parameters.iterations)
    overloads, peaks = (none.astype(np.int64), none) if quantisers is None else (quantisers.overloads, quantisers.peaks)
    return ConsensusRun(releases, overloads, exchange.active, peaks)
