"""Commands of other distributions: listed without being imported, run as ours are, one sentence for what is wrong with them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from quietmean.cli.common import GROUPS
from quietmean.cli.main import COMMANDS, HEADINGS, LATER, main
from support.command_lines import fails

MODULE = '''
from cyclopts import App
from quietmean.core.errors import InputError

def greet(name: str, *, times: int = 1) -> None:
    """Greet somebody."""
    if times < 1:
        raise InputError(f"{times} greetings are none. Choose at least 1")
    print(" ".join([f"hello {name}"] * times))

group = App(name="anything", help="A group of commands.")

@group.command
def leave(name: str) -> None:
    print(f"bye {name}")
'''
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution on the path: its name, its entry points, its module."""
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, points: dict[str, str], source: str = MODULE) -> None:
        (tmp_path / f"{name}_module.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: Commands of {name}.\n")
        lines = [f"{command} = {name}_module:{target}" for command, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[quietmean.commands]", *lines, ""]))

    yield write
    for module in set(sys.modules) - modules:
        if module.endswith("_module"):
            del sys.modules[module]


def test_it_is_listed_and_not_imported(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("polite", {"greet": "greet"}, "raise SystemError('imported')")
    main(["--help", "--all"])
    output = capsys.readouterr()
    assert "greet" in output.out
    assert "Commands of polite." in output.out
    assert all(name in output.out for name in COMMANDS)
    assert output.err == ""
    assert "polite_module" not in sys.modules


def test_a_newcomer_sees_a_command_or_group_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """On a screen of 25 lines, with those of another distribution; the others are named by what shows them."""
    listed = {}
    for arguments in (["--help"], [], ["help"], ["--help", "--all"], ["--all"]):
        main(arguments)
        shown = capsys.readouterr().out
        listed[tuple(arguments)] = {name for name in {*COMMANDS, *GROUPS} if re.search(rf"(?m)^.{{17}}{name}  ", shown)}
        every = "--all" in arguments
        assert ("All commands: quietmean --help --all" in shown) != every
        assert every or (shown.count("\n") <= 25 and max(map(len, shown.splitlines())) <= 80)
        assert all(re.search(rf"(?m)^{heading} ", shown) for heading in HEADINGS if every or heading != "For programs")
    first = {*GROUPS, *(line for line in COMMANDS if " " not in line)} - set(LATER)
    assert listed["--help",] == listed[()] == listed["help",] == first
    assert len(first) < 14
    assert listed["--help", "--all"] == listed["--all",] == set(COMMANDS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = set()
    for arguments in ([group], [group, "--help"], ["help", group]):
        main(arguments)
        shown.add(capsys.readouterr().out)
    (text,) = shown
    for line, (_, purpose) in COMMANDS.items():
        word, _, name = line.partition(" ")
        assert (re.search(rf"│ {name} +{re.escape(purpose)}", text) is not None) == (word == group)


def test_our_own_commands_do_not_look_for_others(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("greedy", {"plan": "greet"})
    main(["plan", "--help"])
    output = capsys.readouterr()
    assert "epsilon" in output.out
    assert output.err == ""
    assert "greedy_module" not in sys.modules


@pytest.mark.parametrize("arguments", [["greet", "--help"], ["--help", "greet"]])
def test_its_help(install: Install, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    install("polite", {"greet": "greet"})
    main(arguments)
    assert "Greet somebody." in capsys.readouterr().out


def test_it_runs(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("polite", {"greet": "greet", "manners": "group"})
    main(["greet", "Ada", "--times", "2"])
    main(["manners", "leave", "Ada"])
    assert capsys.readouterr().out.split("\n")[:2] == ["hello Ada hello Ada", "bye Ada"]


def test_its_mistakes_are_told_like_ours(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("polite", {"greet": "greet"})
    assert "0 greetings are none" in fails(["greet", "Ada", "--times", "0"], capsys)
    assert "--volume" in fails(["greet", "Ada", "--volume", "3"], capsys)


@pytest.mark.parametrize(
    ("target", "source", "words"),
    [
        ("greet", "import no_such_package_anywhere", "no_such_package_anywhere"),
        ("greet", "raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("greet", "greet = ", "SyntaxError"),
        ("missing", MODULE, "missing"),
        ("greet", "greet = 3", "not callable"),
    ],
)
def test_a_broken_one(install: Install, capsys: pytest.CaptureFixture[str], target: str, source: str, words: str) -> None:
    install("broken", {"greet": target}, source)
    told = fails(["greet"], capsys)
    assert words in told
    assert "distribution broken" in told
    assert "uninstall" in told
    main(["--help"])
    assert "greet" in capsys.readouterr().out


def test_our_own_that_is_not_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietmean.cli.main.entry_points", lambda group: EntryPoints(()))
    told = fails(["reproduce", "--list"], capsys)
    assert "quietmean-reproduction" in told
    assert "pip install ./reproduction" in told
    main(["--help"])
    assert "reproduce" not in capsys.readouterr().out


def test_two_of_one_name(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("first", {"greet": "greet"})
    install("second", {"greet": "greet"})
    told = fails(["greet", "Ada"], capsys)
    assert "first" in told
    assert "second" in told
    main(["--help"])
    assert "Claimed by distribution" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"), [("plan", "quietmean has one of that name"), ("--help", "letters"), ("a b", "letters")]
)
def test_a_name_that_cannot_be_used(install: Install, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    install("greedy", {name: "greet"})
    main(["--help"])
    output = capsys.readouterr()
    assert output.err.count("\n") == 1
    assert words in output.err
    assert "greedy" in output.err
    assert "Commands of greedy." not in output.out
