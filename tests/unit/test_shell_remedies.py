"""What a person is told to type works in a shell, whatever files are called; and the end of a name says what is in a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import quietmean
from quietmean.report.words import page_at
from support.refusals import refused

SOURCE = Path(quietmean.__file__).parent
# The command line of a sentence, up to what ends it.
_BEGINS, _ENDS = re.compile(r"quietmean [a-z]+ [^;:,]*$"), re.compile(r"[;:,]|\. | (says|makes|tells|opens|shows)\b|'$")
# Words of ours, and numbers, need no quotes.
_HARMLESS = {"named", "certified", "self.explanation.party"}
# Labels of keys and of formats begin with the same word.
_NO_COMMAND = ("node/storage", "ledger/database.py: SCHEMA", "protocols/")


def unquoted(text: str) -> Iterator[str]:
    """The parts of f-strings in a program that go into a command line as they are."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        typed = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                typed = (typed + str(part.value)).rpartition("\n")[2]
                if _ENDS.search(typed[typed.rfind("quietmean ") :]) is not None:
                    typed = typed[_last_end(typed) :]
            elif isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                quoted = isinstance(part.value, ast.Call) and ast.unparse(part.value.func).endswith("quote")
                if _BEGINS.search(typed) and not quoted and part.format_spec is None and value not in _HARMLESS:
                    yield value
                typed += "x"


def _last_end(typed: str) -> int:
    return max((end.end() for end in _ENDS.finditer(typed)), default=0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('f"quietmean study invite {path} --key NAME.key"', ["path"]),
        ('f"quietmean study invite {quote(path)} --key {key}; {path} is there"', ["key"]),
        ('f"{path}: quietmean plan --study {shlex.quote(str(path))} says what {this} gives"', []),
    ],
)
def test_parts_without_quotes_are_found(text: str, found: list[str]) -> None:
    assert list(unquoted(text)) == found


def test_what_is_to_be_typed_is_quoted_for_the_shell() -> None:
    found = {
        f"{path.relative_to(SOURCE)}: {part}"
        for path in SOURCE.rglob("*.py")
        if "quietmean " in (text := path.read_text())
        for part in unquoted(text)
    }
    assert sorted(part for part in found if not part.startswith(_NO_COMMAND)) == []


@pytest.mark.parametrize("name", ["page.pdf", "page.docx", "page.json", "page.csv", "page.PNG", "page.tex", "page.txt"])
def test_a_page_whose_name_says_something_else_is_refused(tmp_path: Path, name: str) -> None:
    refused(r"page\.html", page_at(tmp_path / name, "certificate", "").require_free)
    for right in ("page.html", "page.HTM", "page", "page.2026"):
        page_at(tmp_path / right, "certificate", "").require_free()
