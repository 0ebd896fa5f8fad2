"""A party of CorDP-DME: one message, hidden by own noise and by noise shared with its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.party import Message, NoiseGroup, PartyId, Release, Step, Vector, total_weight
from quietmean.core.schema import OPEN, parameter
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals, complete_pairs
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.publishing import PrivateValue
from quietmean.randomness import BitStream, Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

_DEVIATION = "choose a finite number >= 0"


class MeanDecoder(StrEnum):
    """``unbiased``: the mean of what was published. ``biased``: shrunk to the least worst-case error over a ball of values."""

    UNBIASED = "unbiased"
    BIASED = "biased"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CordpDmeParameters(DiscreteNoise):
    """``sigma_own`` and ``sigma_pair``: standard deviations per coordinate of N_i and of every S_ij.

    ``aggregator``: the party that collects all messages and publishes their sum; without one every party publishes its own.
    ``partners``: with how many others (an even number) each party shares noise; without it, with all. ``radius``: the largest
    L2 norm of a value, which the biased decoder needs; a plan takes that of its domain by default.
    """

    sigma_own: float = parameter(help="standard deviation of every party's own noise", at_least=0, remedy=_DEVIATION)
    sigma_pair: float = parameter(help="standard deviation of every pair's noise", at_least=0, remedy=_DEVIATION)
    decoder: MeanDecoder = parameter(
        MeanDecoder.UNBIASED, help="unbiased, or biased for the least worst-case error over a ball", option=True
    )
    aggregator: PartyId | None = parameter(
        None, help="the party that collects all messages and publishes their sum; by default all publish", option=True
    )
    partners: int | None = parameter(None, help="with how many others each party shares noise; by default with all", option=True)
    radius: float | None = parameter(
        None,
        help="the largest L2 norm of a value, for the biased decoder; by default that of the domain",
        option=True,
        above=0,
        remedy="give the largest L2 norm of a value, a finite number > 0",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder == MeanDecoder.BIASED and self.radius is None and self.sigma_own is not OPEN:
            raise InputError("decoder biased has no radius. Give the largest L2 norm of a value, for example radius 1.")

    @property
    def own_deviation(self) -> float:
        return self.sigma_own

    def degree(self, parties: int) -> int:
        """How many others each party shares noise with."""
        return parties - 1 if self.partners is None else self.partners

    def noise_in_sum(self, parties: int, responding: int) -> float:
        """Variance of the noise in the sum of ``responding`` messages, per coordinate.

        Exact on the complete graph; otherwise the mean over random responders, each of whose partners is absent with
        probability (n-u)/(n-1).
        """
        cut = self.degree(parties) * (parties - responding) / max(parties - 1, 1)
        return responding * (self.sigma_own**2 + cut * self.sigma_pair**2)


@dataclass(frozen=True, slots=True)
class CordpDmeState:
    """``hidden``: the value with all noise on it, shape (d,), while this party still has to publish it; else None."""

    round: int
    hidden: Vector | None


class CordpDmeParty(PrivateValue[CordpDmeParameters]):
    """Draws all noise before the round. In the round it sends the hidden value to the aggregator; without one it publishes it.

    The aggregator adds what it received to its own and publishes the sum.
    """

    rounds = 1
    state_type = CordpDmeState

    def start(self) -> Step[CordpDmeState]:
        hidden = self._hidden_value()
        recipients = self._schedule.recipients(1, self._party)
        if not recipients:
            return Step(CordpDmeState(1, hidden))
        return Step(CordpDmeState(1, None), (Message(self._party, recipients, 1, hidden, self._weight),))

    def end_round(self, state: CordpDmeState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[CordpDmeState]:
        finished = CordpDmeState(2, None)
        if state.hidden is None:
            return Step(finished)
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        messages = sorted(received, key=lambda message: message.sender)
        total = self._numbers.total([state.hidden, *(message.vector for message in messages)])
        weight = total_weight(self._weight, messages)
        return Step(finished, release=Release(total, weight))

    def miss_round(self, state: CordpDmeState) -> Step[CordpDmeState]:
        return Step(CordpDmeState(2, None))

    def expects(self, state: CordpDmeState) -> frozenset[PartyId]:
        return self._schedule.senders(1, self._party)

    def _hidden_value(self) -> Vector:
        size, parameters, numbers = self._value.size, self._parameters, self._numbers
        hidden = self._value + numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, parameters.sigma_own, size)
        for other in self._schedule.partners(self._party):
            # One end adds and the other subtracts: the larger number adds.
            sign = 1.0 if other < self._party else -1.0
            shared = numbers.noise(self._noise, NoiseGroup.CANCELLING, 0, parameters.sigma_pair, size, shared_with=other)
            hidden = hidden + shared * sign
        return numbers.total([hidden])


def pair_signs(parties: int, pairs: Ints) -> Flow:
    """The signs (n, M) of shared terms of pairs (M, 2): the larger number of a pair adds its term, the smaller subtracts it."""
    columns = np.repeat(np.arange(len(pairs)), 2)
    return Flow((parties, len(pairs)), pairs.ravel(), columns, np.tile([-1.0, 1.0], len(pairs)))


def population(
    parameters: CordpDmeParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Every party adds its noise to its value. It sends the sum or, without recipients, publishes it with what it received.

    With an aggregator only the aggregator sees the single messages, and so does every coalition with it. ``values`` have n rows
    (d,), ``weights`` the shape (n,).
    """
    parties, sends = schedule.parties, schedule.out_degree[0] > 0
    noisy = values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_own)
    shared = noise.shared_normal(schedule.pairs, NoiseGroup.CANCELLING, 0, parameters.sigma_pair)
    hidden = noisy + pair_signs(parties, schedule.pairs) @ shared
    arrived = arrivals(schedule, trace.delivered(schedule), 1)
    hidden = out.send(hidden, trace.online[1] & sends, 1, arrived)
    sender, receiver = arrived
    received = Flow.of((parties, parties), receiver, sender)
    publishes = trace.online[1] & ~sends
    total = out.release(hidden + received @ hidden, publishes, 2)
    return Results(total, weights + received.numbers(weights), publishes)


Pairs = Ints

# The list of all pairs takes 8 n^2 bytes, and every one of them is a noise term in the account.
_MOST_COMPLETE = 20_000
_DRAWS = 64


def all_pairs(parties: int) -> Pairs:
    """All pairs, shape (n (n-1) / 2, 2). Raises :class:`InputError` for more than 20 000 parties."""
    if parties > _MOST_COMPLETE:
        raise InputError(f"{parties} parties have too many pairs to share noise in all of them. Choose partners, for example 30.")
    return complete_pairs(parties)


@lru_cache(maxsize=8)
def place_pairs(places: int, partners: int) -> Pairs:
    """A regular graph on places 0..n-1, the same for all parties: shape (n k / 2, 2).

    Every place is joined to those k/2 given steps further on in a ring, in both directions. Random steps of about log n make an
    expander with high probability (Alon and Roichman 1994): it stays connected when random places are removed. Of several public
    draws the one with the largest spectral gap is taken.
    """
    stream = BitStream(Seed.public("cordp-dme places", places, partners))
    drawn = [stream.permutation((places - 1) // 2)[: partners // 2] + 1 for _ in range(_DRAWS)]
    steps = max(drawn, key=lambda steps: _spectral_gap(places, steps))
    ring = np.arange(places)
    ends = np.concatenate([np.stack([ring, (ring + step) % places], axis=1) for step in steps])
    pairs = _in_order(ends, places)
    # One array for all callers.
    pairs.flags.writeable = False
    return pairs


def _spectral_gap(places: int, steps: Ints) -> int:
    """The least positive eigenvalue of the graph's Laplacian, in units of 2**-20: the same on every machine."""
    waves = np.arange(1, places)[:, None] * steps[None, :]
    return int(np.round((2 - 2 * np.cos(2 * np.pi * waves / places)).sum(axis=1).min() * 2**20))


def sparse_pairs(parties: int, partners: int, seed: Seed) -> Pairs:
    """The graph of :func:`place_pairs`, with the parties at places that the public ``seed`` draws."""
    party_at = BitStream(seed.derive("cordp-dme pairs", parties, partners)).permutation(parties)
    return _in_order(party_at[place_pairs(parties, partners)], parties)


def _in_order(ends: Ints, parties: int) -> Pairs:
    ends = np.sort(ends, axis=1)
    numbers = np.unique(ends[:, 0] * parties + ends[:, 1])
    return np.stack([numbers // parties, numbers % parties], axis=1).astype(np.int64)
