"""Ctrl-D at any question ends a command as Ctrl-C does, and an answer that cannot be read is told what a good one is."""

from __future__ import annotations

import ast
from io import StringIO
from pathlib import Path

import pytest

import quietmean.cli
from quietmean.cli import identity, new
from quietmean.cli.main import main
from quietmean.studies.party.accounts import AccountQuestion

SOURCE = Path(quietmean.cli.__file__).parent
# Answers before the end, and the question that is open then.
ANSWERS = {
    "name": [],
    "column": ["ages"],
    "kind": ["ages", "age"],
    "low": ["ages", "age", "numbers"],
    "high": ["ages", "age", "", "0"],
    "next column": ["ages", "age", "", "0", "110"],
    "levels": ["ages", "sex", "levels"],
    "epsilon": ["ages", "age", "", "0", "110", ""],
    "colluding": ["ages", "age", "", "0", "110", "", "1"],
}


def at_terminal(monkeypatch: pytest.MonkeyPatch, answers: list[str], folder: Path) -> None:
    stdin = StringIO("".join(f"{answer}\n" for answer in answers))
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("asked", ANSWERS)
def test_the_end_of_the_answers_is_an_interruption(
    asked: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_terminal(monkeypatch, ANSWERS[asked], tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["study", "new"])
    assert ended.value.code == 130
    assert "defect" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_key_is_made_where_its_passphrase_is_not_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(_: str) -> str:
        raise EOFError

    at_terminal(monkeypatch, [], tmp_path)
    monkeypatch.setattr(identity, "getpass", ended)
    with pytest.raises(SystemExit) as code:
        main(["key", "new", "--key", "a.key", "--passphrase"])
    assert code.value.code == 130
    assert not list(tmp_path.iterdir())
    capsys.readouterr()


def test_questions_before_and_after_the_yes_end_so_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    with pytest.raises(KeyboardInterrupt):
        identity.AtTerminal().compared(["north"])


def test_every_read_from_a_terminal_is_at_such_a_prompt() -> None:
    found = []
    for path in sorted(SOURCE.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "at_prompt"
            for inner in ast.walk(node)
        }
        found += [
            (path.name, node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("input", "getpass")
            if id(node) not in inside
        ]
    assert found == []


@pytest.mark.parametrize(
    ("kept", "wrong", "said"),
    [
        (["ages", "age"], "number", "Type numbers, levels or yes-no."),
        (["ages"], "", "Type the name of a column"),
        (["ages", "sex", "levels"], "", "Type levels, such as"),
        (["ages", "age", ""], "ten", "Type a number, such as"),
        (["ages", "age", "", "0", "110", "", "1"], "a few", "Type a whole number, such as"),
    ],
)
def test_an_answer_that_cannot_be_read_is_told_what_a_good_one_is(
    kept: list[str], wrong: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_terminal(monkeypatch, [*kept, wrong], tmp_path)
    with pytest.raises(SystemExit):
        main(["study", "new"])
    assert said in capsys.readouterr().err


def test_every_question_has_a_good_answer() -> None:
    readers = {
        ast.unparse(node.args[1])
        for node in ast.walk(ast.parse((SOURCE / "new.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_ask"
    }
    # What takes every text needs none.
    assert {name for name in readers if name != "str" and not name.startswith("lambda")} == {one.__name__ for one in new._GOOD}


@pytest.mark.parametrize(("typed", "names"), [("ada\nnorth\n", ["north"]), ("north, ada\n\n", [])])
def test_who_compared_the_code_is_asked_again_after_a_name_of_nobody(
    typed: str, names: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(typed))
    assert identity.AtTerminal().compared(["north", "south"]) == names
    assert "'ada' is not one of them" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["3", "-1", "", "one", "01"])
def test_the_account_is_asked_again_after_an_answer_that_is_none(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = AccountQuestion(Path("ledger.sqlite"), "They have the same columns", ["ages", "wards"], "more")
    monkeypatch.setattr("sys.stdin", StringIO(f"{wrong}\n2\n"))
    assert question.chosen(identity.AtTerminal().account(question)) == "wards"


def test_a_passphrase_that_is_typed_differently_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_terminal(monkeypatch, [], tmp_path)
    typed = iter(["one", "other", "third", "third"])
    monkeypatch.setattr(identity, "getpass", lambda _: next(typed))
    assert identity._ask("a passphrase", twice=True) == b"third"
