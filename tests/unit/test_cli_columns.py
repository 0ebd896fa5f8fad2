"""Columns on the command line: bounds, levels and boolean ones, each behind its --column."""

from __future__ import annotations

import pytest

from quietmean.cli.columns import attach, declared
from quietmean.core.errors import InputError

LINE = ["run", "--column", "age", "--bounds", "0", "100", "--column=sex", "--levels", "f", "m", "--column", "smoker", "--boolean"]


def read(tokens: list[str]) -> list[dict[str, object]]:
    """What run makes of them; bounds as cyclopts reads them."""
    attached = attach(tokens)
    values: dict[str, list[str]] = {name: [] for name in ("--column", "--bounds", "--levels", "--boolean")}
    for place, token in enumerate(attached):
        name, equals, value = token.partition("=")
        if name in values:
            values[name].append(value if equals else attached[place + 1])
    bounds = [(float(low), 100.0) for low in values["--bounds"]]
    return declared(values["--column"], bounds, values["--levels"], values["--boolean"], "centre")


def test_every_column_is_declared_by_what_follows_it() -> None:
    assert read(LINE) == [
        {"name": "age", "low": 0.0, "high": 100.0, "missing": "centre"},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "smoker", "boolean": True},
    ]


def test_other_commands_keep_their_arguments() -> None:
    assert attach(["mine", "--levels", "3", "--boolean"]) == ["mine", "--levels", "3", "--boolean"]
    assert attach([]) == []


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["run", "--levels", "f", "m", "--column", "sex"], "--levels A B follows no --column"),
        (["run", "--boolean"], "--boolean follows no --column"),
        (["run", "--column", "sex", "--levels", "f", "m", "--boolean"], "'sex' is declared twice"),
        (["run", "--column", "sex", "--levels", "f", "m", "--bounds", "0", "1"], "0 columns have 1 bounds"),
        (["run", "--column", "age"], "1 columns have 0 bounds: .*or --levels A B or --boolean"),
    ],
)
def test_columns_that_are_not_declared_once(tokens: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(tokens)
