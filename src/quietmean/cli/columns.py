"""Columns on the command line: what follows --column NAME belongs to it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from quietmean.core.errors import InputError

# Options about the column before them, and how many values they take; None for all up to the next option.
_ABOUT: dict[str, int | None] = {
    "--levels": None,
    "--boolean": 0,
    "--dates": 2,
    "--from": 1,
    "--missing-codes": None,
    "--scale": 1,
    "--whole": 0,
    "--edges": None,
}

# Separates the name of a column from its levels inside one argument; no user types it.
_BETWEEN = "\x1f"


def attach(tokens: Sequence[str]) -> list[str]:
    """The arguments of ``run`` and ``new``, with the last --column in the options that only follow one, such as --levels A B."""
    if not tokens or tokens[0] not in ("run", "new"):
        return list(tokens)
    attached: list[str] = []
    column, index = "", 0
    while index < len(tokens):
        word = tokens[index]
        index += 1
        attached.append(word)
        if word == "--column" and index < len(tokens):
            column = tokens[index]
        elif word.startswith("--column="):
            column = word.partition("=")[2]
        elif word in _ABOUT:
            values, limit = [column], _ABOUT[word]
            while index < len(tokens) and not tokens[index].startswith("--") and (limit is None or len(values) <= limit):
                values.append(tokens[index])
                index += 1
            attached.append(_BETWEEN.join(values))
    return attached


def declared(
    column: Sequence[str],
    bounds: Sequence[tuple[float, float]] | None,
    levels: Sequence[str] | None,
    boolean: Sequence[str] | None,
    missing: str,
    *,
    dates: Sequence[str] | None = None,
    origins: Sequence[str] | None = None,
    codes: Sequence[str] | None = None,
    scales: Sequence[str] | None = None,
    whole: Sequence[str] | None = None,
    edges: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """The tables [[column]] that options stand for; None of what was not given.

    Bounds belong to the columns without another declaration, in their order;
    those of transforms may be left out, all together. Raises :class:`InputError`
    unless every column has exactly one of bounds, levels, boolean and dates, or is a transform.
    """
    tables: dict[str, dict[str, Any]] = {}
    bounds = bounds or ()
    for text in levels or ():
        name, *values = text.split(_BETWEEN)
        _declare(tables, column, name, {"levels": values}, "--levels A B")
    for name in boolean or ():
        _declare(tables, column, name, {"boolean": True}, "--boolean")
    for text in dates or ():
        name, *days = text.split(_BETWEEN)
        if len(days) != 2:
            raise InputError(f"--dates of column {name!r} has {len(days)} days: give the first and the last one")
        _declare(tables, column, name, {"low": days[0], "high": days[1], "missing": missing}, "--dates FIRST LAST")
    made = dict(_named(column, origins or (), "--from EXPRESSION"))
    numbers = [name for name in column if name not in tables]
    plain = [name for name in numbers if name not in made]
    bounded = plain if len(bounds) == len(plain) else numbers
    if len(bounds) != len(bounded):
        others = " (or --levels A B or --boolean or --dates or --from)" if not bounds or tables else ""
        if len(bounds) > len(plain) and tables:
            others += ", and none for what has --levels, --boolean or --dates"
        raise InputError(f"{len(plain)} columns have {len(bounds)} bounds: give --bounds LOW HIGH once for each --column{others}")
    for name, (low, high) in zip(bounded, bounds, strict=True):
        tables[name] = {"low": low, "high": high, "missing": missing}
    for name, texts in made.items():
        tables[name] = {"missing": missing, **tables.get(name, {}), "from": " ".join(texts)}
    for name, texts in _named(column, codes or (), "--missing-codes A B"):
        tables[name]["missing_codes"] = texts
    for name, texts in _named(column, scales or (), "--scale SCALE"):
        tables[name]["scale"] = " ".join(texts)
    for name in whole or ():
        if name not in column:
            raise InputError("--whole follows no --column: write it behind the column that it is about")
        tables[name]["whole"] = True
    for name, texts in _named(column, edges or (), "--edges A B"):
        tables[name]["edges"] = [_edge(name, text) for text in texts]
    return [{"name": name, **tables[name]} for name in column]


def _edge(name: str, text: str) -> float | str:
    """A number, or a day as it is written. Raises :class:`InputError` for what is neither."""
    with suppress(ValueError):
        return float(text)
    with suppress(ValueError):
        return datetime.date.fromisoformat(text).isoformat()
    raise InputError(f"--edges of column {name!r} has {text!r}: give rising numbers, such as --edges 0 10 100")


def _named(columns: Sequence[str], texts: Sequence[str], flag: str) -> list[tuple[str, list[str]]]:
    """The column and the values of each option."""
    values_of_columns = []
    for text in texts:
        name, *values = text.split(_BETWEEN)
        if name not in columns or not values:
            raise InputError(f"{flag} follows no --column or has no value: write it behind the column that it is about")
        values_of_columns.append((name, values))
    return values_of_columns


def _declare(
    tables: dict[str, dict[str, Any]], columns: Sequence[str], name: str, declaration: dict[str, Any], flag: str
) -> None:
    if name not in columns:
        raise InputError(f"{flag} follows no --column: write it behind the column that it is about")
    if name in tables:
        raise InputError(f"column {name!r} is declared twice: give it either --levels, --boolean or --dates, once")
    tables[name] = declaration
