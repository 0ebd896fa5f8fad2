"""Columns on the command line: what follows --column NAME belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quietmean.core.errors import InputError

# Between the name of a column and its levels, inside one argument. Nobody types it.
_BETWEEN = "\x1f"


def attach(tokens: Sequence[str]) -> list[str]:
    """The arguments of ``run`` and ``new``, with the last --column's name in --levels A B ... and --boolean, which follow one."""
    if not tokens or tokens[0] not in ("run", "new"):
        return list(tokens)
    attached: list[str] = []
    column, place = "", 0
    while place < len(tokens):
        word = tokens[place]
        place += 1
        attached.append(word)
        if word == "--column" and place < len(tokens):
            column = tokens[place]
        elif word.startswith("--column="):
            column = word.partition("=")[2]
        elif word in ("--levels", "--boolean"):
            values = [column]
            while word == "--levels" and place < len(tokens) and not tokens[place].startswith("--"):
                values.append(tokens[place])
                place += 1
            attached.append(_BETWEEN.join(values))
    return attached


def declared(
    column: Sequence[str], bounds: Sequence[tuple[float, float]], levels: Sequence[str], boolean: Sequence[str], missing: str
) -> list[dict[str, Any]]:
    """The tables [[column]] that options stand for. Bounds belong to the columns without levels, in their order.

    Raises :class:`InputError` unless every column has exactly one of the three.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in levels:
        name, *values = text.split(_BETWEEN)
        _declare(found, column, name, {"levels": values}, "--levels A B")
    for name in boolean:
        _declare(found, column, name, {"boolean": True}, "--boolean")
    numbers = [name for name in column if name not in found]
    if len(bounds) != len(numbers):
        others = " (or --levels A B or --boolean)" if not bounds or found else ""
        raise InputError(
            f"{len(numbers)} columns have {len(bounds)} bounds: give --bounds LOW HIGH once for each --column{others}"
        )
    for name, (low, high) in zip(numbers, bounds, strict=True):
        found[name] = {"low": low, "high": high, "missing": missing}
    return [{"name": name, **found[name]} for name in column]


def _declare(found: dict[str, dict[str, Any]], columns: Sequence[str], name: str, declaration: dict[str, Any], flag: str) -> None:
    if name not in columns:
        raise InputError(f"{flag} follows no --column: write it behind the column that it is about")
    if name in found:
        raise InputError(f"column {name!r} is declared twice: give it either --levels or --boolean, once")
    found[name] = declaration
