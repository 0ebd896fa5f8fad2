"""What would make a statistic of a planned study tell more: a number of records or parties, or an epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quietmean.core.readable import bound_text, count_of, for_terminal, plain
from quietmean.statistics.simulated import reach_text


@dataclass(frozen=True)
class Needed:
    """What a statistic needs for a ``goal``, a width of its interval or a power: so many records, parties of the planned size, or
    such an epsilon with as many as planned; None where none would do."""

    statistic: str
    term: str
    what: str
    goal: float
    records: int | None
    parties: int | None
    epsilon: float | None
    reason: str = ""
    counted: str = "records"
    # How many there are as planned.
    planned: float = math.inf
    # Of which interval a width is, and the standard deviations that nobody guessed, by column.
    interval: str = ""
    assumed: Mapping[str, float] = field(default_factory=dict)
    # Of a ratio, the value at which its interval is said.
    at: float | None = None

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name not in ("counted", "planned", "at")}
        return {name: value for name, value in fields.items() if value not in ("", None, {}) or name == "epsilon"}

    @property
    def _goal(self) -> str:
        half = for_terminal(reach_text(self.goal, self.at, 6))
        return f"a width of {self.goal:g} ({half})" if self.what == "width" else f"a power of {100 * self.goal:g} %"

    @property
    def _enough(self) -> float:
        """How many records, rounded up, but not beyond those planned where these do."""
        records = float(self.records or 0)
        return min(round_up(records), self.planned) if records <= self.planned else round_up(records)

    @property
    def clause(self) -> str:
        """What is needed beside the planned interval, in short."""
        if self.reason:
            return f"no {self.what}, {self.reason}"
        ways = [] if self.records is None else [f"{self._enough:,.0f} {self.counted}"]
        if self.epsilon is not None:
            ways.append(f"epsilon {bound_text(self.epsilon)} with {self.planned:,.0f}")
        return f"for {self._goal} you need {self._or_nothing(ways)}"

    @property
    def sentence(self) -> str:
        interval = "the population's interval" if self.interval == "population" else "the noise's interval"
        goal = f"{self._goal} of {interval}" if self.what == "width" else self._goal
        of = f" of {self.term}" if self.term else ""
        if self.reason:
            return f"{self.statistic}: no {self.what}, {self.reason}"
        ways = []
        if self.records is not None:
            parties = of_this_size(self.parties or 1)
            ways.append(f"{self._enough:,.0f} {self.counted} ({parties})")
        if self.epsilon is not None:
            ways.append(f"epsilon {bound_text(self.epsilon)} with the {self.counted} planned")
        spreads = " and ".join(f"{short_number(spread)} of {name}" for name, spread in self.assumed.items())
        typical = f"; assumes a standard deviation of {spreads}" if spreads else ""
        return f"{self.statistic}: {goal}{of} needs {self._or_nothing(ways)}{typical}"

    def _or_nothing(self, ways: Sequence[str]) -> str:
        return ", or ".join(ways) or f"more than any number of {self.counted}, at any epsilon"


def short_number(number: float, digits: int = 3) -> str:
    return plain(float(f"{number:.{digits}g}"))


def of_this_size(parties: float) -> str:
    return f"{count_of(int(round_up(parties)), 'party', 'parties')} of this size"


def round_up(value: float) -> float:
    """Round up to two digits."""
    step = 10.0 ** max(math.floor(math.log10(value)) - 1, 0)
    return math.ceil(value / step) * step
