"""Hypothesis strategies of configured values: what their declared fields may be, as JSON. Needs the ``hypothesis`` package."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from quietmean.core.schema import OPEN, Configured, Parameter, parameters_of

# Numbers without a limit are no larger than this.
_LARGEST = 100.0


def deviations() -> st.SearchStrategy[float]:
    """Positive numbers over four orders of magnitude, such as standard deviations."""
    return st.floats(-2.0, 2.0).map(lambda exponent: float(10.0**exponent))


def documents(kind: type[Configured], parties: int = 9) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects whose entries are what the fields of ``kind`` say of themselves: type, range, choices.

    Fields that must be there always are, others now and then. Whole numbers without an upper limit are at most ``parties``.
    A field that reads JSON in its own way keeps its default; ``LookupError`` if it has none.
    """
    always: dict[str, st.SearchStrategy[Any]] = {}
    sometimes: dict[str, st.SearchStrategy[Any]] = {}
    for name, parameter in parameters_of(kind).items():
        needed = parameter.required and parameter.default is OPEN
        if parameter.read is None:
            (always if needed else sometimes)[parameter.key] = _values(parameter, parties)
        elif needed:
            raise LookupError(f"field {name!r} reads JSON in its own way and has no default: give a strategy of the whole object")
    return st.fixed_dictionaries(always, optional=sometimes)


def _values(parameter: Parameter, parties: int) -> st.SearchStrategy[Any]:
    strategies: list[st.SearchStrategy[Any]] = [st.just("auto")] if parameter.auto else []
    if parameter.choices:
        strategies.append(st.sampled_from(parameter.choices))
    else:
        # Where a number is allowed, a text is a keyword of the protocol.
        numbers = [kind for kind in parameter.kinds if kind in (int, float)]
        strategies += [_values_of(kind, parameter, parties) for kind in numbers or parameter.kinds]
    return st.one_of(*strategies, *([st.none()] if parameter.optional else []))


def _values_of(kind: type, parameter: Parameter, parties: int) -> st.SearchStrategy[Any]:
    if kind is bool:
        return st.booleans()
    if kind is int:
        return _whole_numbers(parameter, parties)
    if kind is float:
        return _numbers(parameter)
    if issubclass(kind, StrEnum):
        return st.sampled_from([str(member) for member in kind])
    return st.text("abcxyz-_", min_size=1, max_size=8)


def _whole_numbers(parameter: Parameter, parties: int) -> st.SearchStrategy[int]:
    lows = [parameter.at_least, None if parameter.above is None else parameter.above + 1]
    highs = [parameter.at_most, None if parameter.below is None else math.ceil(parameter.below) - 1]
    low = math.ceil(max((limit for limit in lows if limit is not None), default=0))
    high = math.floor(min((limit for limit in highs if limit is not None), default=max(parties, low)))
    return st.integers(min(low, high), high)


def _numbers(parameter: Parameter) -> st.SearchStrategy[float]:
    low = parameter.at_least if parameter.above is None else parameter.above
    high = parameter.at_most if parameter.below is None else parameter.below
    if high is not None:
        lowest = low if low is not None else high - _LARGEST
        return st.floats(lowest, high, exclude_min=parameter.above is not None, exclude_max=parameter.below is not None)
    return st.floats(-_LARGEST, _LARGEST) if low is None else deviations().map(lambda distance: float(low + distance))
