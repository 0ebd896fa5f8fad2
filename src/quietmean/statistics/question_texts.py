"""Questions as texts, from the columns and statistics of a study: what :mod:`quietmean.statistics.questions` reads as these."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quietmean.statistics.columns import CENTRE, INDICATOR, YES, Column
from quietmean.statistics.names import one_blank, quoted, unquoted
from quietmean.statistics.questions import OF_NUMBERS, as_name, changed, is_transform, short_number
from quietmean.statistics.transforms import Transform


def question_texts(columns: Iterable[Column], statistics: Sequence[str]) -> list[str]:
    """The texts that mean these columns in their order, and the statistics of these texts.

    A column's domain stands where the first statistic names it, if that keeps the order; else it has a text of its own.
    """
    known = {column.name: column for column in columns}
    # Transforms that are called as they are written need no declaration: they come behind all others, as they are named.
    behind = [name for text in statistics for name in _values_of(text) if name in known and _says_itself(known[name], known)]
    ends = len(known) - len(set(behind))
    waiting, texts = [*known][: ends if [*known][ends:] == list(dict.fromkeys(behind)) else None], list[str]()
    for text in statistics:
        named = [name for name in dict.fromkeys(_values_of(text)) if name in known]
        plain = [name for name in named if name in waiting and not known[name].origin]
        if plain != waiting[: len(plain)] or any(source in waiting for name in named for source in _made_of(known[name])):
            needed = {*named, *(source for name in named for source in _made_of(known[name]))}
            until = max(place for place, name in enumerate(waiting, 1) if name in needed)
            texts += [_alone(known[name], known) for name in waiting[:until]]
            waiting, plain = waiting[until:], []
        texts.append(_with_domains(text, {name: known[name] for name in plain}))
        waiting = waiting[len(plain) :]
    return [*texts, *(_alone(known[name], known) for name in waiting)]


def _values_of(text: str) -> list[str]:
    """What stands in a statistic where a column can."""
    found: list[str] = []

    def kept(value: str) -> str:
        found.append(unquoted(value))
        return value

    changed(text, kept)
    return found


def with_domains(text: str, columns: Iterable[Column]) -> str:
    """The question of complete records as it can be typed: with the domain of each of these columns that is no transform."""
    own = [column.model_copy(update={"missing": INDICATOR}) for column in columns if not column.origin]
    return _with_domains(text, {column.name: column for column in own})


def _with_domains(text: str, columns: Mapping[str, Column]) -> str:
    """The statistic with the domain of each of these columns where it is first named."""
    left = dict(columns)

    def with_domain(value: str) -> str:
        column = left.pop(unquoted(value), None)
        return value if column is None else declared_text(column)

    return changed(text, with_domain)


def _says_itself(column: Column, known: Mapping[str, Column]) -> bool:
    """Is it a transform that is called as it is written, with nothing said of it?"""
    return is_transform(column.origin) and column.name == one_blank(column.origin) and not _written(column, known)


def _made_of(column: Column) -> tuple[str, ...]:
    return Transform(column.origin).sources if column.origin else ()


def declared_texts(columns: Iterable[Column]) -> dict[str, str]:
    """The columns that are no transforms by name, with their domains."""
    return {column.name: declared_text(column) for column in columns if not column.origin}


def declared_text(column: Column) -> str:
    """A column with its domain, as it may stand in a question."""
    return f"{as_name(column.name)} in {_domain_text(column)}"


def _alone(column: Column, known: Mapping[str, Column]) -> str:
    """The text that declares a column and asks nothing."""
    if not column.origin:
        return declared_text(column)
    return f"{as_name(column.name)} = {column.origin}{_written(column, known)}"


def _written(column: Column, known: Mapping[str, Column]) -> str:
    """What stands behind a transform that is declared: its bounds, and what does not follow from its columns."""
    fills_in = all(known[source].fills_in for source in _made_of(column) if source in known)
    more = [*_besides(column, CENTRE if fills_in else INDICATOR)]
    said = [f"in {_bounds_text(column)}"] if {"low", "high"} <= column.model_fields_set else []
    return "".join(f" {text}" for text in [*said, *([f"[{', '.join(more)}]"] if more else [])])


def _domain_text(column: Column) -> str:
    if column.boolean:
        domain = f"{YES}/no"
    elif column.levels:
        domain = "{" + ", ".join(quoted(level, ",") for level in column.levels) + "}"
    else:
        domain = _bounds_text(column)
    more = [*_besides(column)]
    return f"{domain} [{', '.join(more)}]" if more else domain


def _bounds_text(column: Column) -> str:
    return "..".join(_bound(column, end) for end in (column.low, column.high))


def _bound(column: Column, end: float) -> str:
    if column.since and end.is_integer() and (column.high.is_integer() and column.low.is_integer()):
        return (datetime.date.fromisoformat(column.since) + datetime.timedelta(days=int(end))).isoformat()
    return short_number(end)


def _besides(column: Column, rule: str = INDICATOR) -> Iterator[str]:
    """What stands in square brackets; ``rule``: what counts for missing cells where nothing is said."""
    if column.whole:
        yield "whole"
    if column.other:
        yield "other"
    if column.scale != type(column).model_fields["scale"].default:
        yield f"scale={column.scale}"
    for key in OF_NUMBERS:
        if values := getattr(column, key):
            yield f"{key}={' '.join(map(short_number, values))}"
    if column.missing_codes:
        yield f"missing_codes={' '.join(quoted(code, ' ,') for code in column.missing_codes)}"
    if column.numeric and column.missing != rule:
        yield f"missing={column.missing}"
    if column.since and column.since != _bound(column, column.low):
        yield f"since={column.since}"
