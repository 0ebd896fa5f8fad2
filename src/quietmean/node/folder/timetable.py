"""When the waits of a study through a folder end: at times that are agreed on before it begins, the same for all parties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from quietmean.node.phase import GATE_STAGES, Phase, Position
from quietmean.planning.plan import Plan


@dataclass(frozen=True)
class Timetable:
    """The times at which parties that exchange files wait for each other.

    ``waits``: at which positions parties wait for each other, in order. Times are in seconds since 1970, UTC.

    The first wait, for the start, ends at ``first``; each of the others ``interval`` seconds after the one before.
    """

    waits: tuple[Position, ...]
    first: float
    interval: float

    @classmethod
    def of(cls, plans: Iterable[Plan], first: float, interval: float) -> Self:
        """The timetable of the rounds that any of the plans has, with one more to resolve shares that are in doubt at the end.

        Where one has a gate, its stages are waits like rounds.
        """
        rounds = {Phase.MIXING: 0, Phase.GATE: 0, Phase.DISSEMINATION: 0}
        for plan in plans:
            mixing, releases = plan.protocol, plan.dissemination
            rounds[Phase.MIXING] = max(rounds[Phase.MIXING], mixing.rounds + mixing.traits.transfers_mass)
            if plan.gated:
                rounds[Phase.GATE] = GATE_STAGES
            if mixing.traits.releases_are_public:
                last = releases.rounds + releases.transfers_mass
                rounds[Phase.DISSEMINATION] = max(rounds[Phase.DISSEMINATION], last)
        between = [(int(phase), round_) for phase, last in rounds.items() for round_ in range(1, last + 1)]
        return cls(((int(Phase.AGREEMENT), 0), *between, (int(Phase.FINALIZATION), 0)), first, interval)

    def of_round(self, number: int) -> Timetable:
        """The timetable of one round of many, from 1, in which each has the same waits after one start for all."""
        return replace(self, first=self.first + (number - 1) * self.round_seconds)

    @property
    def round_seconds(self) -> float:
        """How long the waits of one round are together."""
        return self.interval * (len(self.waits) - 1)

    def end(self, position: Position) -> float:
        """When the wait at this position ends. Raises ValueError where parties do not wait for each other."""
        return self.first + self.interval * self.waits.index(position)

    def last_end(self, rounds: int) -> float:
        """When all of so many rounds are over."""
        return self.first + rounds * self.round_seconds

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Each wait in words, with its end."""
        for phase, round_ in self.waits:
            label = Phase(phase).label
            yield f"{label} {round_}" if round_ else label, self.end((phase, round_))
