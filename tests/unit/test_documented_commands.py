"""Every command that a page shows can be typed: it exists, and so do its options, their values and what it needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from quietmean.cli.common import Common, command_of
from quietmean.cli.main import make_app
from quietmean.core.errors import InputError
from support.arguments import arguments_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Of the protocol that this page builds, which is not installed here.
_BUILT = "group-masks"
# Placeholders in a sentence, such as `quietmean check FILE ...`.
_OPEN = re.compile(r"\.\.\.|[<>\[\]|]|…")


def lines_of(text: str) -> list[str]:
    """Lines of shell blocks and of indented ones that begin with the command; a line that ends with a backslash goes on."""
    joined = re.sub(r" *\\\n *", " ", text)
    blocks = [
        *re.findall(r"^```[a-z]*\n(.*?)^```$", joined, re.DOTALL | re.MULTILINE),
        *re.findall(r"^    (.*)$", joined, re.MULTILINE),
    ]
    return [line for block in blocks for line in re.findall(r"^(?:\$ )?(quietmean [a-z].*)$", block, re.MULTILINE)]


def mentions_of(text: str) -> list[str]:
    """What stands in a sentence between backticks: a part of a command, perhaps over two lines."""
    return [" ".join(words.split()) for words in re.findall(r"`(quietmean [a-z][^`]*)`", text)]


def words(line: str) -> list[str]:
    tokens = shlex.split(line.partition(" | ")[0], comments=True)[1:]
    for end in ("&&", ";", "&", ">", "2>"):
        tokens = tokens[: tokens.index(end)] if end in tokens else tokens
    return Common.taken(tokens)[1]


def shown() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for line in lines_of(page.read_text()):
            if not _OPEN.search(line):
                yield str(page.relative_to(ROOT)), line


@pytest.mark.sampled(10)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_can_be_typed(page: Path) -> None:
    wrong = []
    for line in lines_of(page.read_text()):
        if _OPEN.search(line) or _BUILT in line:
            continue
        tokens = words(line)
        try:
            make_app(tokens[0]).parse_args(tokens, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            wrong.append(f"{line}: {error}")
    assert wrong == []


@pytest.mark.sampled(24)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_sentence_names_exists(page: Path) -> None:
    wrong = []
    for mention in mentions_of(page.read_text()):
        rest = mention.split()[1:]
        if rest[:2] == ["help", "protocol"]:
            # It may be of another distribution.
            continue
        command = command_of(rest[rest[:1] == ["help"] :]) or ""
        try:
            names = {name for one in arguments_of(command) for name in one.names}
        except KeyError:
            wrong.append(f"{mention}: no command {command}")
            continue
        options = {word.partition("=")[0] for word in rest if word.startswith("--")} - {
            "--json",
            "--help",
            "--quiet",
            "--force",
            "--log-file",
        }
        wrong += [f"{mention}: no option {option}" for option in options if option not in names]
    assert wrong == []


def test_there_are_commands_to_look_at() -> None:
    assert len(list(shown())) > 80


def test_a_command_that_is_not_there_is_found() -> None:
    for line in (
        "quietmean runn --data x.csv",
        "quietmean plan --partys 3",
        "quietmean run --parties many --data x 'mean(y in 0..1)'",
    ):
        tokens = words(line)
        with pytest.raises((CycloptsError, InputError)):
            make_app(tokens[0]).parse_args(tokens, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_who_invites_or_signs_has_made_the_key_on_the_same_page(page: Path) -> None:
    """Who types a page from its top has no key yet. accept makes one, and invite one without a name; approve and desk do not."""
    made: set[str] = set()
    for line in map(words, lines_of(page.read_text())):
        key = line[line.index("--key") + 1] if "--key" in line[:-1] else ""
        if command_of(line) in ("key new", "accept"):
            made.add(key)
        assert command_of(line) != "study invite" or "--after" in line or key in made | {""}, line
        owner = Path(line[line.index("--owner-key") + 1]).name if "--owner-key" in line[:-1] else ""
        assert not owner or owner in made, line


def test_a_consortium_needs_few_commands() -> None:
    """From nothing to a result: four of a site, and all that the convener types, its own part among it, at most ten."""
    page = (ROOT / "docs" / "take-part" / "invitation.md").read_text().partition("## A new member")[0]
    # With another party's key a line is the same as that of south, and without a terminal it is typed in its place.
    typed = [words(line) for line in lines_of(page) if "--accept DIGEST" not in line]
    sites = [command_of(line) for line in typed if "south.key" in line]
    convener = [line for line in typed if "north.key" in line or command_of(line) == "study new"]
    assert sites == ["accept", "verify words", "check", "join"]
    assert len(convener) + len(sites) <= 10
