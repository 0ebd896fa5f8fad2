"""Options that are misspelt, wherever they stand and whatever is behind them; and what people type for help."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from quietmean.cli.main import COMMANDS, main, make_app
from quietmean.cli.mistakes import _MEANT, _arguments
from quietmean.cli.options import OF_COMMITTEE
from quietmean.core import schema
from quietmean.protocols import registry


def said(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    try:
        main(shlex.split(line))
    except SystemExit as end:
        captured = capsys.readouterr()
        return int(end.code or 0), captured.out, captured.err
    captured = capsys.readouterr()
    return 0, captured.out, captured.err


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


@cache
def options_of(command: str) -> list[str]:
    arguments = _arguments(make_app(command), command.split())
    return [name for argument in arguments for name in argument.names if name.startswith("--")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelt_option_is_told_whatever_stands_behind_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = options_of(command)
    for name in names[:: max(1, len(names) // 8)]:
        wrong = f"{name[:-1]}" if len(name) > 6 else f"{name}s"
        if wrong in names or name.startswith(("--empty", "--no-")):
            continue
        for line in (
            f"{wrong} 1",
            f"{wrong} 0 110",
            f"{wrong}=a",
            f"{wrong} a b c --json",
            f"file {wrong} x",
            f"-{wrong.strip('-')} 1",
        ):
            code, _, errors = said(f"{command} {line}", capsys)
            assert code == 2, (line, errors)
            first = line.removeprefix("file ").split()[0].partition("=")[0]
            assert errors.startswith(f"quietmean: {first} is not an option of {command}"), (line, errors)
            assert "Did you mean " in errors


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run d.csv age --parties 4", 'Write for example "mean(age in 0..110)"'),
        ("run 'mean(age in 0..110)' d.csv --parties 4", "Write quietmean run FILE 'mean(age in 0..110)'"),
        ("run --data d.csv -v", "quietmean --version shows the version"),
        ("--verbose", "--log-file FILE keeps what happens"),
        ("--foo", "name the command first"),
        ("help foo", "'foo' is not a command of quietmean"),
    ],
)
def test_what_is_typed_for_something_else_leads_there(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = said(line, capsys)
    assert code == 2
    assert words in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "same"), [("help", "--help"), ("help run", "run --help"), ("help --all", "--help --all"), ("version", "--version"),
                       ("-v", "--version"), ("-V", "--version"), ("-h", "--help")]
)  # fmt: skip
def test_help_and_version_by_other_names(line: str, same: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(line, capsys) == said(same, capsys)


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--with" in options_of(command)])
def test_an_option_of_a_protocol_in_its_old_place_leads_to_with(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    declared = {
        option.flag: option.key for kind in registry().values() for option in schema.options_of(kind).values() if option.flag
    }
    own = options_of(command)
    for flag, key in {**declared, **{name: name.replace("-", "_") for name in OF_COMMITTEE}}.items():
        for typed in {f"--{flag}", f"--{key}"} - set(own):
            code, _, errors = said(f"{command} {typed} 3", capsys)
            assert code == 2
            assert errors.startswith(f"quietmean: {typed} is an option of a protocol. Write --with {flag}=VALUE"), errors


@pytest.mark.parametrize("command", [command for command in COMMANDS if " " in command])
def test_a_command_with_a_hyphen_leads_to_the_two_words(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for typed in (command.replace(" ", "-"), command.replace(" ", "-").title()):
        assert f"Write for example quietmean {command} " in said(f"{typed} x", capsys)[2]


@pytest.mark.parametrize("line", ["site status my store", "key revoke my key.revocation", "study start my study.sealed"])
def test_a_name_with_blanks_is_to_be_quoted(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "put a name with blanks in quotation marks" in said(line, capsys)[2]


@pytest.mark.parametrize("word", _MEANT)
def test_a_command_that_people_look_for_leads_to_ours(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word not in COMMANDS
    code, _, errors = said(f"{word} something --with 3", capsys)
    assert code == 2
    assert f"{word!r} is not a command. Write for example quietmean {_MEANT[word]}" in errors


@pytest.mark.parametrize(
    "line", ["run --data d.csv 'mean(age in -inf..inf)'", "run --data d.csv 'mean(t in -5..-1)' 'proportion(s in {-a, -b})'"]
)
def test_a_value_that_begins_with_a_hyphen_is_a_value(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not an option" not in said(line, capsys)[2]


def shown(line: str, capsys: pytest.CaptureFixture[str]) -> int:
    code, out, _ = said(line, capsys)
    assert code == 0
    return sum(1 for row in out.splitlines() if re.match(r"│[ *]+--", row))


@pytest.mark.parametrize("command", ["run", "study new"])
def test_help_shows_at_most_twenty_options_first(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 8 < shown(f"{command} --help", capsys) <= 20
    assert shown(f"{command} --help --all", capsys) > 20


def test_each_option_of_a_protocol_is_listed_with_its_default_and_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    for name, kind in registry().items():
        code, out, _ = said(f"help protocol {name}", capsys)
        assert code == 0
        for option in schema.options_of(kind).values():
            assert option.flag is None or (f"  {option.flag}=" in out and option.help[1:] in out)
    assert "Choose one of" in said("help protocol foo", capsys)[2]


def test_an_option_of_a_protocol_is_what_the_protocol_declares(capsys: pytest.CaptureFixture[str]) -> None:
    line = "plan --parties 6 --protocol inca --json"
    assert said(f"{line} --with rounds=3 value-bits=32", capsys) == said(f"{line} --with rounds=3 --with value_bits=32", capsys)
    for wrong, words in {
        "rounds": "--with rounds has no value. Write --with rounds=VALUE.",
        "rounds=two": "rounds is 'two'. Give a whole number, such as 3.",
        "rouns=3": "'rouns' is not an option of a protocol (did you mean 'rounds'?)",
        "rounds=3 --with rounds=4": "--with rounds is given twice",
        "theta=0.5": "inca has no option 'theta'",
        "verified=yes": "go with --committee MEMBERS",
    }.items():
        code, out, _ = said(f"{line} --with {wrong}", capsys)
        assert code == 2
        assert words in out


def test_the_program_has_at_most_140_different_options() -> None:
    names = {name for command in COMMANDS for name in options_of(command)}
    assert 100 < len(names) <= 140, len(names)
    # What a column has is said in a question.
    of_columns = "column bounds levels boolean dates from missing missing-codes scale whole edges statistic"
    assert not {f"--{name}" for name in of_columns.split()} & names
