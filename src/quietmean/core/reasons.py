"""Why parties failed, in a sentence that stays short however many they are: who has the same reason is named once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from quietmean.core.readable import some_of

# So many names of those with one reason.
_NAMED = 3


def listed(names: Collection[str]) -> str:
    """All names, or the first of many and how many more there are."""
    shown = list(names)
    if len(shown) <= _NAMED + 1:
        return ", ".join(shown)
    return some_of(shown, _NAMED)


def grouped(reasons: Mapping[str, str], kind: Callable[[str], str] = str) -> str:
    """``reasons`` by name. Those of one ``kind`` count as the same, of which the first is said."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(kind(reason), []).append(name)
    return "; ".join(f"{listed(names)}: {reasons[names[0]]}" for names in groups.values())


def but_for_names(names: Collection[str]) -> Callable[[str], str]:
    """A kind for :func:`grouped`: what is left of a reason without the names in it, and without how many they are."""
    any_name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    lists = re.compile(rf"(?:{any_name})(?:, (?:{any_name}))*(?: and \d+ more)?")
    return lambda reason: lists.sub("...", reason)
