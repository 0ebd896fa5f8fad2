"""The linear description of an execution: (I - L) m = B x + A e, and which party knows which part of it.

Transcripts as data.

An execution of a linear-Gaussian protocol is

    (I - L) m = B x + A e,      e ~ N(0, diag(s^2)),

one row per message in causal order. Message variables are kept, never eliminated: that keeps every matrix sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.lazy import sparse
from quietmean.core.party import (
    Message,
    NoiseSource,
    PartyId,
    PartyMachine,
    PartyState,
    Release,
    State,
    Units,
    Vector,
    settlement,
)
from quietmean.graphs import ExecutionTrace

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Sparse: TypeAlias = "csr_array[np.float64]"
Known: TypeAlias = "csr_array[np.bool_]"


@dataclass(frozen=True, eq=False)
class Transcript:
    """The linear combination that each message is, its sender, and the parties that know it.

    Shapes: M messages, n parties, K noise terms. ``message_round[m]`` is the round in which the message is sent (one after the
    last round for what is released); a variable that is never sent, such as the last state of a party that dropped out, is known
    to its sender alone.
    """

    dependence: Sparse  # L, (M, M), strictly lower triangular
    values: Sparse  # B, (M, n)
    noise: Sparse  # A, (M, K)
    noise_scale: Array  # s, (K,): standard deviations
    noise_group: NDArray[np.str_]  # (K,): what the noise is for; scales may be changed group by group
    sender: Ints  # (M,)
    message_round: Ints  # (M,)
    released: Mask  # (M,): known to all parties
    message_known: Known  # (M, n): sender and receivers
    noise_known: Known  # (K, n)

    @property
    def parties(self) -> int:
        return int(self.values.shape[1])

    @property
    def messages(self) -> int:
        return int(self.values.shape[0])

    def with_noise_scales(self, scales: Mapping[str, float]) -> Transcript:
        """Return this execution with other standard deviations, one per noise group; for declared transcripts.

        A traced one has unit scales and the party machine's own levels in ``noise``.
        """
        return replace(self, noise_scale=np.array([scales[str(group)] for group in self.noise_group], dtype=np.float64))

    def with_seen(self, seen: Iterable[tuple[int, PartyId, PartyId]]) -> Transcript:
        """Return this transcript where receivers know more: (round, sender, receiver) of messages that it has already.

        All that a sender sends in one round counts as seen, if the transcript has several messages of it.
        """
        knowers = self.message_known.tolil()
        for round_, sender, receiver in seen:
            knowers[np.nonzero((self.sender == sender) & (self.message_round == round_) & ~self.released)[0], receiver] = True
        return replace(self, message_known=sparse.csr_array(knowers))

    def find(self, party: PartyId, time: int) -> int:
        """The row of what ``party`` held after round ``time``: the message it sent next, or its last state.

        Raises :class:`InputError` if there is none.
        """
        own = np.nonzero((self.sender == party) & (self.message_round > time))[0]
        if own.size == 0:
            raise InputError(f"message [{party}, {time}] does not exist. Name [party, round] with a round of this execution.")
        return int(own[np.argmin(self.message_round[own])])

    def eliminated(self) -> tuple[Array, Array]:
        """The dense maps (M, n) and (M, K) from values and from standard noise to every message: for tests and small sizes.

        They are (I - L)^-1 B and (I - L)^-1 A diag(s).
        """
        columns = np.hstack([self.values.toarray(), self.noise.toarray() * self.noise_scale])
        # Forward substitution: every message comes after those that it builds on.
        begins, used, weights = self.dependence.indptr, self.dependence.indices, self.dependence.data
        for row in np.nonzero(np.diff(begins))[0].tolist():
            entries = slice(begins[row], begins[row + 1])
            for message, weight in zip(used[entries].tolist(), weights[entries].tolist(), strict=True):
                columns[row] += weight * columns[message]
        return columns[:, : self.parties], columns[:, self.parties :]


class TranscriptBuilder:
    """Collects rows one by one; for protocols with few messages and for tracing."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._entries: dict[str, list[tuple[int, int, float]]] = {"dependence": [], "values": [], "noise": []}
        self._senders: list[int] = []
        self._rounds: list[int] = []
        self._released: list[bool] = []
        self._message_known: list[set[int]] = []
        self._scales: list[float] = []
        self._groups: list[str] = []
        self._noise_known: list[set[int]] = []

    def add_noise(self, known_to: Iterable[PartyId], scale: float, group: str) -> int:
        """A new independent Gaussian of standard deviation ``scale``; returns its index."""
        self._scales.append(scale)
        self._groups.append(group)
        self._noise_known.append(set(known_to))
        return len(self._scales) - 1

    def add_message(
        self,
        sender: PartyId,
        round_: int,
        receivers: Iterable[PartyId] = (),
        *,
        messages: Mapping[int, float] | None = None,
        values: Mapping[int, float] | None = None,
        noise: Mapping[int, float] | None = None,
        released: bool = False,
    ) -> int:
        """A new variable: a linear combination of earlier messages, values and noise; returns its row."""
        row = len(self._senders)
        for kind, coefficients in (("dependence", messages), ("values", values), ("noise", noise)):
            self._entries[kind] += [(row, column, weight) for column, weight in (coefficients or {}).items() if weight != 0.0]
        self._senders.append(sender)
        self._rounds.append(round_)
        self._released.append(released)
        self._message_known.append({sender, *receivers})
        return row

    def build(self) -> Transcript:
        """The transcript of all rows added so far."""
        count = len(self._senders)
        return Transcript(
            dependence=_matrix(self._entries["dependence"], (count, count)),
            values=_matrix(self._entries["values"], (count, self._parties)),
            noise=_matrix(self._entries["noise"], (count, len(self._scales))),
            noise_scale=np.array(self._scales, dtype=np.float64),
            noise_group=np.array(self._groups, dtype=np.str_),
            sender=np.array(self._senders, dtype=np.int64),
            message_round=np.array(self._rounds, dtype=np.int64),
            released=np.array(self._released, dtype=np.bool_),
            message_known=known_matrix(self._message_known, self._parties),
            noise_known=known_matrix(self._noise_known, self._parties),
        )


def _matrix(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> Sparse:
    rows, columns, weights = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.coo_array(
        (np.array(weights, dtype=np.float64), (np.array(rows, int), np.array(columns, int))), shape=shape
    ).tocsr()


def known_matrix(knowers: list[set[int]], parties: int) -> Known:
    """One row of booleans for each set of parties, shape (rows, n)."""
    rows = [row for row, members in enumerate(knowers) for _ in members]
    columns = [party for members in knowers for party in members]
    data = np.ones(len(rows), dtype=np.bool_)
    return sparse.coo_array((data, (np.array(rows, int), np.array(columns, int))), shape=(len(knowers), parties)).tocsr()


Delivery = Callable[[Message, frozenset[PartyId]], None]


@dataclass(frozen=True)
class LockstepResult:
    """The releases of the parties that finished, by party, and the last state of every party."""

    releases: dict[PartyId, Release]
    states: list[PartyState]


def run_lockstep(
    machines: Sequence[PartyMachine[State]],
    trace: ExecutionTrace,
    arrives: Callable[[int, PartyId, PartyId], bool],
    on_send: Delivery = lambda message, receivers: None,
    *,
    refusing: bool = False,
) -> LockstepResult:
    """Run all rounds. ``arrives(round, sender, recipient)`` decides deliveries; ``on_send`` is called with each message.

    If parties are ``refusing``, a message that its recipient does not expect does not arrive, whatever ``arrives`` returns.
    """
    steps, everybody = [machine.start() for machine in machines], frozenset(range(len(machines)))
    releases: dict[PartyId, Release] = {}
    settlements = _Settlements(trace)
    for round_ in range(1, machines[0].rounds + 1):
        inboxes: dict[PartyId, list[Message]] = {party: [] for party in range(len(machines))}
        delivered: dict[PartyId, frozenset[PartyId]] = {}
        awaited = [machine.expects(step.state) if refusing else everybody for machine, step in zip(machines, steps, strict=True)]
        for party, step in enumerate(steps):
            arrived: set[PartyId] = set()
            for message in step.send if trace.online[round_, party] else ():
                reached = frozenset(
                    other for other in message.recipients if party in awaited[other] and arrives(round_, party, other)
                )
                on_send(message, reached)
                for other in reached:
                    inboxes[other].append(message)
                arrived |= settlements.acknowledged(message, reached)
            delivered[party] = frozenset(arrived)
        for party, machine in enumerate(machines):
            state = steps[party].state
            if trace.online[round_, party]:
                inboxes[party] += settlements.due(round_, party)
                steps[party] = machine.end_round(state, inboxes[party], delivered[party])
            else:
                steps[party] = machine.miss_round(state)
    for party, step in enumerate(steps):
        if step.release is not None:
            releases[party] = step.release
    return LockstepResult(releases, [step.state for step in steps])


class _Settlements:
    """Messages whose arrival the sender learns of some rounds late."""

    def __init__(self, trace: ExecutionTrace) -> None:
        self._later = {(round_, sender, receiver): later for round_, sender, receiver, later in trace.settled.tolist()}
        self._kept: dict[tuple[int, PartyId], list[Message]] = {}

    def acknowledged(self, message: Message, reached: frozenset[PartyId]) -> frozenset[PartyId]:
        """The recipients that the sender knows to have been reached; what the others received is kept for later."""
        later = {other: self._later.get((message.round, message.sender, other)) for other in reached} if self._later else {}
        for settled in later.values():
            if settled is not None:
                self._kept.setdefault((settled, message.sender), []).append(message)
        return frozenset(other for other in reached if later.get(other) is None)

    def due(self, round_: int, party: PartyId) -> list[Message]:
        return [settlement(message) for message in self._kept.get((round_, party), [])]


Term = tuple[str, int]  # ("message" | "value" | "noise", index)
NoiseAddress = tuple[tuple[PartyId, ...], str, int]  # who knows it, purpose, index


class LinearForm:
    """A sparse linear combination of messages, values and noise that stands in for a vector."""

    __array_ufunc__ = None  # numpy scalars defer to our operators

    size = 1  # a vector of one coordinate: all coordinates are treated alike

    def __init__(self, terms: dict[Term, float]) -> None:
        self.terms = terms

    def __add__(self, other: LinearForm | float) -> LinearForm:
        if not isinstance(other, LinearForm):
            if other == 0:
                return self
            raise TypeError("a traced party may add only traced vectors to a traced vector")
        terms = dict(self.terms)
        for term, weight in other.terms.items():
            terms[term] = terms.get(term, 0.0) + weight
        return LinearForm(terms)

    __radd__ = __add__

    def __mul__(self, factor: float) -> LinearForm:
        return LinearForm({term: weight * float(factor) for term, weight in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> LinearForm:
        return self * (1.0 / float(divisor))

    def __neg__(self) -> LinearForm:
        return self * -1.0

    def __sub__(self, other: LinearForm | float) -> LinearForm:
        return self + (-other)

    def part(self, kind: str) -> dict[int, float]:
        return {index: weight for (name, index), weight in self.terms.items() if name == kind and weight != 0.0}


class SymbolicNoise:
    """A party's noise as symbols: the same address gives the same symbol."""

    def __init__(self, builder: TranscriptBuilder, drawn: dict[NoiseAddress, int], party: PartyId) -> None:
        """``drawn`` is common to all parties of an execution."""
        self._builder = builder
        self._party = party
        self._drawn = drawn

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return self._symbol((self._party,), purpose, index)

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        return self._symbol((min(self._party, other), max(self._party, other)), purpose, index)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        raise TypeError("whole numbers cannot be traced: a traced party computes with real numbers")

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        raise TypeError("whole numbers cannot be traced: a traced party computes with real numbers")

    def secret(self, purpose: str, index: int) -> bytes:
        raise TypeError("bits cannot be traced: only Gaussian noise is symbolic")

    def _symbol(self, known_to: tuple[PartyId, ...], purpose: str, index: int) -> Vector:
        address = (known_to, purpose, index)
        if address not in self._drawn:
            self._drawn[address] = self._builder.add_noise(known_to, 1.0, purpose)
        return cast(Vector, LinearForm({("noise", self._drawn[address]): 1.0}))


MachineMaker = Callable[[PartyId, Vector, NoiseSource], PartyMachine[State]]


def trace_machines(
    parties: int,
    make_machine: MachineMaker[State],
    trace: ExecutionTrace,
    arrives: Callable[[int, PartyId, PartyId], bool],
    *,
    public_releases: bool = True,
    overheard: bool = False,
    refusing: bool = False,
) -> Transcript:
    """The transcript of the real machines under ``trace``. ``make_machine(party, value, noise)`` builds one of them.

    Without ``public_releases`` every party keeps its result to itself. With ``overheard``, messages after the first round are
    known to all, also where they did not arrive. ``refusing``: see :func:`~quietmean.transcript.run_lockstep`.
    """
    builder = TranscriptBuilder(parties)
    drawn: dict[NoiseAddress, int] = {}
    machines = [
        make_machine(party, cast(Vector, LinearForm({("value", party): 1.0})), SymbolicNoise(builder, drawn, party))
        for party in range(parties)
    ]

    def record(sender: PartyId, round_: int, receivers: frozenset[PartyId], vector: Vector, released: bool = False) -> int:
        form = cast(LinearForm, vector)
        return builder.add_message(
            sender,
            round_,
            receivers,
            messages=form.part("message"),
            values=form.part("value"),
            noise=form.part("noise"),
            released=released,
        )

    def on_send(message: Message, receivers: frozenset[PartyId]) -> None:
        if message.vector.size == 0:
            return  # content alone: nothing that depends on values or noise
        form = cast(LinearForm, message.vector)
        row = record(message.sender, message.round, receivers, message.vector, overheard and message.round > 1)
        # What the receivers go on with is the new variable, not its definition: their copies are this very object.
        form.terms = {("message", row): 1.0}

    result = run_lockstep(machines, trace, arrives, on_send, refusing=refusing)
    for party, release in result.releases.items():
        record(party, machines[party].rounds + 1, frozenset(), release.vector, released=public_releases)
    return builder.build()


__all__ = ["LockstepResult", "Transcript", "TranscriptBuilder", "run_lockstep", "trace_machines"]
