"""Errors name fields, and each front end calls them by its own names: options, keywords of Python, arguments of R."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

import quietmean as qm
from quietmean import learning
from quietmean.cli.main import COMMANDS, main, make_app
from quietmean.cli.mistakes import _arguments
from quietmean.core.errors import OF_COLUMNS, InputError, QuietmeanError, as_option, named
from quietmean.core.keywords import as_argument, as_keyword, keyword_names
from quietmean.learning import StandardScaler
from quietmean.statistics import Column, Columns
from support.refusals import raised, refused
from support.sources import modules, parsed, text_of, walked

SOURCE = Path(qm.__file__).parent
OF_COMMANDS = {
    "flower/workflow.py", "ledger/database.py", "ledger/filter.py", "ledger/ledger.py",
    "node/preflight.py",
    "node/relay/exchange.py", "node/tunnel/route.py", "planning/automatic.py", "protocols/secagg/spec.py",
}  # fmt: skip
# Sentences that name a command with its options are about that command, in Python too.
_OF_COMMAND = re.compile(r"(quietmean [a-z]+|\{command\}|_command\(name\)\})[^:;]*$")


OF_ERRORS = ("InputError", "ProtocolFailure")


def strings_in_errors() -> Iterator[tuple[Path, str]]:
    """The texts that stand in the making of an error outside of the command line."""
    for path in modules():
        if path.relative_to(SOURCE).parts[0] in ("cli", "desk", "drop"):
            continue
        if not any(f"{error}(" in text_of(path) for error in OF_ERRORS):
            continue
        for node in walked(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OF_ERRORS:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                        yield path, inner.value


@cache
def named_fields() -> dict[str, set[int]]:
    """The fields that errors name, with how many values each."""
    fields: dict[str, set[int]] = {}
    for path in modules():
        # Every worker of the tests asks this first, for the names of tests.
        if "named(" not in text_of(path):
            continue
        for node in walked(parsed(path)):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "named"
            if called and isinstance(node, ast.Call) and node.args and isinstance(field := node.args[0], ast.Constant):
                fields.setdefault(str(field.value), set()).add(len(node.args) - 1)
    return fields


@cache
def options() -> frozenset[str]:
    return frozenset(
        name.removeprefix("--")
        for command in COMMANDS
        for one in _arguments(make_app(command), command.split())
        for name in one.names
    )


def test_no_error_outside_of_the_command_line_has_an_option_in_its_text() -> None:
    left = [
        (path.relative_to(SOURCE).as_posix(), text)
        for path, text in strings_in_errors()
        for found in re.finditer(r"(?<![\w-])--[a-z]", text)
        if not _OF_COMMAND.search(text[: found.start()]) and not text.startswith(("--budget", "--program"))
    ]
    # Of these the command stands in another part of the sentence, or it is another program's option.
    assert {path for path, _ in left} <= OF_COMMANDS, left


def test_no_error_that_others_than_python_get_has_a_keyword_in_its_text() -> None:
    of_python = ("api", "learning")
    for path, text in strings_in_errors():
        if path.relative_to(SOURCE).parts[0] not in of_python:
            assert not re.search(r"\b[a-z_]+=(True|False|None)\b", text), (path, text)


def test_every_field_that_an_error_names_is_an_option() -> None:
    assert len(named_fields()) >= 25
    assert set(named_fields()) - set(OF_COLUMNS) <= options()
    assert set(named_fields()) >= set(OF_COLUMNS)


@pytest.mark.parametrize("field", sorted(named_fields()))
def test_a_field_is_called_by_each_front_ends_name(field: str) -> None:
    for count in named_fields()[field]:
        values = ["LOW", "HIGH"][:count]
        error = InputError(f"give {named(field, *values, file='this')}, or not")
        said = OF_COLUMNS.get(field, " ".join([f"--{field}", *values]))
        assert str(error) == f"give {said} (in a study file this), or not"
        assert error.fields == (field,)
        in_r = as_argument(field, values, "this")
        assert "--" not in in_r
        assert "-" not in in_r
        # Whatever a function of Python accepts, and were it nothing.
        for accepted in ((field.replace("-", "_"),), (f"{field.replace('-', '_')}s",), *keywords_in_python()):
            assert "--" not in as_keyword(accepted, field, values, "this"), accepted
        assert as_option(field, values, "") == said


@cache
def keywords_in_python() -> tuple[tuple[str, ...], ...]:
    """What each public function and class takes by name."""
    public = [getattr(qm, name) for name in qm.__all__] + [getattr(learning, name) for name in learning.__all__]
    ours = [one for one in public if callable(one) and not (isinstance(one, type) and issubclass(one, BaseException))]
    found = tuple(tuple(keyword_names(attrgetter("__init__")(one) if isinstance(one, type) else one)) for one in ours)
    assert len(found) >= 40
    return ((), *found)


FRAME = pd.DataFrame({"age": [30.0, 40.0] * 20})
AGE = qm.Study({"age": (0, 110)}, "mean(age)", epsilon=1.0)
BARE = qm.Study({"age": (0, 110)}, "mean(age)", epsilon=1.0, protocol="gossip")
TARGET = qm.Target(parties=4, epsilon=1.0, delta=1e-6)
ABOVE = qm.Plan(TARGET, qm.GOPA(partners=3, aggregator=0, sigma_star=1.0, sigma_delta=1.0))
SESSION = {"name": "rounds", "dimension": 2, "rounds": 2, "epsilon": 1.0, "delta": 1e-6}
CALLS: dict[str, Callable[[], object]] = {
    "bounds the wrong way round": lambda: qm.Study({"age": (110, 0)}, epsilon=1.0),
    "bounds that are one": lambda: qm.Study({"age": (5, 5)}, epsilon=1.0),
    "bounds of no study": lambda: qm.Study({"age": (0, 1e40)}, epsilon=1.0),
    "bounds as a list": lambda: qm.Study(cast(Any, {"age": [0, 110]}), epsilon=1.0),
    "no column": lambda: qm.Study({}, epsilon=1.0),
    "no budget": lambda: qm.Study({"age": (0, 110)}),
    "a column that is not declared": lambda: qm.Study({"age": (0, 110)}, "mean(bmi)", epsilon=1.0),
    "a transform without bounds": lambda: qm.Study(
        {"age": (0, 110), "l": Column.model_validate({"name": "l", "from": "log(age)"})}, epsilon=1.0
    ),
    "a frame without the column": lambda: AGE.run(FRAME.rename(columns={"age": "alter"}), parties=4),
    "nobody's rows": lambda: AGE.run(FRAME),
    "no privacy": lambda: qm.plan(parties=20, epsilon=1.0, delta=1e-6, protocol="gossip"),
    "a protocol without privacy": lambda: qm.Gossip(rounds=3).calibrate(TARGET),
    "a protocol without privacy in a ranking": lambda: qm.rank(TARGET, ["gossip"]),
    "a study without privacy, planned": lambda: BARE.plan(4),
    "a study without privacy, run": lambda: BARE.run(FRAME, parties=4),
    "privacy that nobody wants": lambda: qm.LocalDP().calibrate(TARGET, no_privacy=True),
    "no protocol": lambda: qm.rank(TARGET, []),
    "no promise": lambda: ABOVE.require_target_kept(False),
    "no hope": lambda: qm.Study({"age": (0, 1e9)}, "variance(age)", epsilon=0.001).run(FRAME, parties=4),
    "no columns of a table": lambda: Columns([]),
    "a column of a table that is not declared": lambda: Columns([Column(name="age", low=0, high=110)])["bmi"],
    "a transform of a table without bounds": lambda: Columns(
        [Column(name="age", low=0, high=110), Column.model_validate({"name": "l", "from": "log(age)"})]
    ),
    "a column the wrong way round": lambda: Column(name="age", low=110, high=0),
    "a column as nothing": lambda: Column(name="age"),
    "a column as two things": lambda: Column(name="age", low=0, high=110, boolean=True),
    "a column of days the wrong way round": lambda: Column.model_validate(
        {"name": "day", "low": "2020-01-02", "high": "2020-01-01"}
    ),
    "no parties of a session": lambda: qm.session(SESSION, None, "north.key").__enter__(),
    "no roster of a study": lambda: qm.contract(AGE, None, "north.key"),
    "no budget to be charged": lambda: qm.join(AGE, "roster.toml", "north.key", data=FRAME, account="a", no_ledger=True),
    "a session of nobody": lambda: qm.Session(rounds=2, parties=4, dimension=2, epsilon=1.0, delta=1e-6, protocol="gossip"),
    "rows of nobody": lambda: StandardScaler(bounds=(0, 110), epsilon=1.0).fit(FRAME.to_numpy()),
}


@pytest.mark.parametrize("call", CALLS)
def test_python_is_told_in_words_of_python(call: str) -> None:
    told = refused("", CALLS[call])
    said = told
    assert "--" not in said
    assert "study file" not in said
    assert "first row of the file" not in said
    assert "[[column]]" not in said
    assert said.isprintable()


def test_r_is_told_in_words_of_r(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(QuietmeanError, "words", QuietmeanError.words)
    monkeypatch.setenv("QUIETMEAN_CALLER", "r")
    (tmp_path / "d.csv").write_text("age\n" + "41\n" * 40)
    for bounds, words in (
        ("5..5", "Write two different ones, as in age in 0..100"),
        ("0..110", "Give either parties = N or party_column = NAME"),
    ):
        raised(SystemExit, "", main, ["run", "d.csv", f"mean(age in {bounds})", "--json"])
        printed = capsys.readouterr()
        assert words in printed.out
        assert "--" not in printed.out
