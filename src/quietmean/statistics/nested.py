"""Statistics that are asked of other statistics: how their text is read, which the registry of all kinds knows, and no kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quietmean.statistics.statistic import Statistic


@dataclass(frozen=True)
class StatisticReader:
    """``read``: the table that a text means; ``parse``: the statistic of a table. Both raise :class:`InputError`."""

    read: Callable[[str], dict[str, Any]]
    parse: Callable[[Mapping[str, Any]], Statistic]


_READERS: list[StatisticReader] = []


def install(reader: StatisticReader) -> None:
    """Called once, by the registry."""
    _READERS[:] = [reader]


def statistic_reader() -> StatisticReader:
    """That of the registry."""
    return _READERS[0]
