"""Every option of every command whose value is a path, or a text that could be one, x every kind of file that is there.

Whatever the command does, nothing of what is there is lost, changed or given away, and what is wrong is said in one sentence.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from quietmean.cli.main import COMMANDS
from support.every_file import EVERY_KIND, documents, nobody_waits, path_options, put, rights
from support.hostile_numbers import Went, nothing_begins
from support.site_files import Site, attempt, remove, state, wrong_ending
from system.test_any_file import LINES

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="devices and files of somebody else are made by root")

OPTIONS = [(command, *option) for command in COMMANDS for option in path_options(command)]
# What a person asks for in so many words, and lines that are added to a document of the very kind.
MEANT = {("site clean", "--remove", "store"), ("join", "--ledger", "ledger"), ("send", "--ledger", "ledger")}


@pytest.fixture(scope="module")
def made(site: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return documents(site, tmp_path_factory.mktemp("documents"))


def with_place(command: str, name: str, index: int | None, place: str) -> list[str]:
    """A line of the command that would work, or comes far, with the place in this option."""
    words = shlex.split(LINES[command])
    if index is not None:
        index += len(command.split())
        return [*words[:index], place, *words[index + 1 :]] if len(words) > index else [*words, place]
    if name in words:
        words[words.index(name) + 1] = place
        return words
    return [*words, name, place]


def fault(site: Site, words: list[str], place: Path, meant: bool, capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how the line ends; empty for nothing."""
    before, whose = state(site.folder), rights(site.folder)
    try:
        code, errors = attempt(shlex.join(words), capsys)
    except Went:
        code, errors = 0, ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not meant:
        after, now = state(site.folder), rights(site.folder)
        mine = ("share", "config")
        # What is empty has nothing to lose.
        kept = {name: one for name, one in before.items() if one != ("file", b"") and not name.startswith(mine)}
        if lost := [name for name, one in kept.items() if after.get(name) != one]:
            return f"{lost} changed"
        if lost := [name for name, one in whose.items() if now.get(name) != one and not name.startswith(mine)]:
            return f"the rights of {lost} changed"
    return wrong_ending(site, code, errors)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("command", "name", "index"), OPTIONS)
def test_nothing_is_lost(
    command: str, name: str, index: int | None, site: Site, made: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {}
    before = state(site.folder)
    for kind in EVERY_KIND:
        place = site.folder / f"place{Path(with_place(command, name, index, '')[0]).suffix}"
        put(site, made, kind, place)
        line = with_place(command, name, index, place.name)
        try:
            with nothing_begins():
                if kind == "pipe":
                    with nobody_waits(place):
                        wrong = fault(site, line, place, False, capsys)
                else:
                    wrong = fault(site, line, place, (command, name, kind) in MEANT, capsys)
        finally:
            remove(site, before, place)
        if wrong:
            faults[kind] = wrong
    assert {f"{kind}: {wrong}" for kind, wrong in faults.items()} == set()
