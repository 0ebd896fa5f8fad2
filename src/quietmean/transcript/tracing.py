"""Run real party machines in step, and on symbolic values: the code that the network runs is the code that is accounted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

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
from quietmean.transcript.transcript import Transcript, TranscriptBuilder

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

    def discrete(self, purpose: str, index: int, scale: float, dimension: int) -> Units:
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
    known to all, also where they did not arrive. ``refusing``: see :func:`~quietmean.transcript.tracing.run_lockstep`.
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
