"""Run the real party machines on symbolic values: the code that the network runs is the code that is accounted."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from quietmean.core.party import Message, NoiseSource, PartyId, PartyMachine, State, Vector
from quietmean.graphs import History
from quietmean.transcript.lockstep import run_lockstep
from quietmean.transcript.transcript import Transcript, TranscriptBuilder

Term = tuple[str, int]  # ("message" | "value" | "noise", index)


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

    def __init__(self, builder: TranscriptBuilder, party: PartyId) -> None:
        self._builder = builder
        self._party = party
        self._drawn: dict[tuple[str, int], int] = {}

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        key = (purpose, index)
        if key not in self._drawn:
            self._drawn[key] = self._builder.add_noise([self._party], 1.0, purpose)
        return cast(Vector, LinearForm({("noise", self._drawn[key]): 1.0}))


MachineMaker = Callable[[PartyId, Vector, NoiseSource], PartyMachine[State]]


def trace(
    parties: int,
    make_machine: MachineMaker[State],
    history: History,
    arrives: Callable[[int, PartyId, PartyId], bool],
) -> Transcript:
    """The transcript of the real machines under ``history``. ``make_machine(party, value, noise)`` builds one of them."""
    builder = TranscriptBuilder(parties)
    machines = [
        make_machine(party, cast(Vector, LinearForm({("value", party): 1.0})), SymbolicNoise(builder, party))
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
        form = cast(LinearForm, message.vector)
        row = record(message.sender, message.round, receivers, message.vector)
        # What the receivers go on with is the new variable, not its definition: their copies are this very object.
        form.terms = {("message", row): 1.0}

    result = run_lockstep(machines, history, arrives, on_send)
    for party, release in result.releases.items():
        record(party, machines[party].rounds + 1, frozenset(), release.vector, released=True)
    return builder.build()
