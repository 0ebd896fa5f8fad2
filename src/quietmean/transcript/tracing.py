"""Run the real party machines on symbolic values: the code that the network runs is the code that is accounted."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from quietmean.core.party import Message, NoiseSource, PartyId, PartyMachine, State, Units, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.transcript.lockstep import run_lockstep
from quietmean.transcript.transcript import Transcript, TranscriptBuilder

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
    known to all, also where they did not arrive. ``refusing``: see :func:`~quietmean.transcript.lockstep.run_lockstep`.
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
