"""How much is tried in every run: a third of the examples of a property, some cases of a matrix; all in ``make test-all``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import settings

THOROUGH = "thorough"
# Fewer show next to nothing.
_LEAST = 15


def is_thorough() -> bool:
    """Whether everything is tried, as ``make test-all`` does."""
    return settings.get_current_profile_name() == THOROUGH


def examples(thorough: int) -> int:
    """Of ``thorough`` many: all under the profile of that name, a third (at least 15) otherwise."""
    if is_thorough():
        return thorough
    return min(thorough, max(thorough // 3, _LEAST))


def spread(cases: int, count: int) -> set[int]:
    """The places of ``count`` of so many cases, evenly spread."""
    return {index * cases // count for index in range(count)}


def covering(cases: Sequence[Mapping[str, object]]) -> set[int]:
    """The places of a few cases among which each parameter has each of its values, all of them about as often."""
    values = [[(name, repr(value)) for name, value in case.items()] for case in cases]
    times, kept = Counter[tuple[str, str]](), set[int]()
    while True:
        place = min(range(len(cases)), key=lambda place: sorted(times[value] for value in values[place]))
        if all(times[value] for value in values[place]):
            return kept
        kept.add(place)
        times.update(values[place])
