"""When the waits of a study through a folder end: at times that are agreed on before it begins, the same for all parties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from quietmean.node.phase import Phase, Position
from quietmean.planning.plan import Plan


@dataclass(frozen=True)
class Timetable:
    """``waits``: at which positions parties wait for each other, in order. Times are in seconds since 1970, UTC.

    The first wait, for the start, ends at ``first``; each of the others ``interval`` seconds after the one before.
    """

    waits: tuple[Position, ...]
    first: float
    interval: float

    @classmethod
    def of(cls, plans: Iterable[Plan], first: float, interval: float) -> Self:
        """Of the rounds that any of the plans has, with one more where shares that are in doubt at the end are resolved."""
        rounds = {Phase.MIXING: 0, Phase.DISSEMINATION: 0}
        for plan in plans:
            mixing, releases = plan.protocol, plan.dissemination
            rounds[Phase.MIXING] = max(rounds[Phase.MIXING], mixing.rounds + mixing.transfers_mass)
            if mixing.releases_are_public:
                last = releases.rounds + releases.transfers_mass
                rounds[Phase.DISSEMINATION] = max(rounds[Phase.DISSEMINATION], last)
        between = [(int(phase), round_) for phase, last in rounds.items() for round_ in range(1, last + 1)]
        return cls(((int(Phase.AGREEMENT), 0), *between, (int(Phase.FINALIZATION), 0)), first, interval)

    def end(self, position: Position) -> float:
        """When the wait at this position ends. Raises ValueError where parties do not wait for each other."""
        return self.first + self.interval * self.waits.index(position)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Each wait in words, with its end."""
        for phase, round_ in self.waits:
            label = Phase(phase).label
            yield f"{label} {round_}" if round_ else label, self.end((phase, round_))
