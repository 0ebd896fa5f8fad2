"""Lines as people mistype or paste them, at random: one sentence that shows the wrong word, exit code 2, and nothing is lost."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quietmean.cli.common import command_of
from quietmean.cli.main import COMMANDS
from quietmean.studies.agreement.study_keys import Distrusted
from support.arguments import arguments_of
from support.hostile_numbers import Went, nothing_begins, numeric_options, refusal
from support.site_files import Site, attempt, remove, sentences_of, state
from system.test_any_file import LINES

SEED = 20261127
COUNT = 100
# Words for "none", as people fill forms.
NOTHINGS = ("", " ", "-", "none", "n/a", "?")
Words = list[str]
# The line, and what its sentence has to show.
Mistake = Callable[[Words, random.Random], tuple[Words, str] | None]


def asked(words: Words) -> str:
    """The command of the line."""
    return command_of(words) or ""


def options(words: Words) -> list[int]:
    return [place for place, word in enumerate(words) if word.startswith("--")]


def valued(words: Words) -> list[int]:
    """Options with one value behind them."""
    return [place for place in options(words) if words[place + 1 : place + 2] and not words[place + 1].startswith("--")]


def a_letter_is_missing(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    long = [place for place in options(words) if len(words[place]) > 6]
    if not long:
        return None
    place = chance.choice(long)
    letter = chance.randrange(3, len(words[place]))
    wrong = words[place][:letter] + words[place][letter + 1 :]
    return [*words[:place], wrong, *words[place + 1 :]], wrong


def an_option_of_another_command(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    """Or of none, with a value."""
    own = {name for each in arguments_of(asked(words)) for name in each.names}
    others = [name for name in ("--minimum", "--folder", "--patients", "--verbose", "--ouput") if name not in own]
    foreign = chance.choice(others)
    return [*words, foreign, "3"], foreign


def the_last_value_is_missing(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    places = valued(words)
    if not places:
        return None
    place = chance.choice(places)
    end = next((later for later in options(words) if later > place), len(words))
    rest = [*words[:place], *words[end:]]
    return [*rest, words[place]], words[place]


def a_dash_of_a_word_processor(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    """Which makes one long dash of two short ones."""
    if not options(words):
        return None
    place = chance.choice(options(words))
    wrong = chance.choice("–—") + words[place][2:]
    return [*words[:place], wrong, *words[place + 1 :]], wrong


def quotation_marks_of_a_word_processor(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    first = len(asked(words).split())
    place = chance.randrange(first, len(words)) if len(words) > first else 0
    if not place or words[place].startswith("--"):
        return None
    return [*words[:place], f"“{words[place]}”", *words[place + 1 :]], words[place]


def a_word_too_many(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    # A study beside a store has to be left out as much as the store.
    return [*words, "--quiet", "surplus"], "STORE" if words[:2] == ["site", "status"] else "surplus"


def nothing_for_a_value(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    places = valued(words)
    if not places:
        return None
    place = chance.choice(places)
    return [*words[:place], f"{words[place]}={chance.choice(NOTHINGS)}", *words[place + 2 :]], ""


def a_file_that_is_not_there(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    """Its name is mistyped."""
    places = [place for place, word in enumerate(words) if place and Path(word).is_file()]
    if not places:
        return None
    place = chance.choice(places)
    wrong = words[place].replace(".", "x.", 1)
    return [*words[:place], wrong, *words[place + 1 :]], wrong


def two_values_in_each_others_place(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    places = valued(words)
    if len(places) < 2:
        return None
    first, second = sorted(chance.sample(places, 2))
    if words[first + 1] == words[second + 1] or words[first] == words[second]:
        return None
    changed = list(words)
    changed[first + 1], changed[second + 1] = words[second + 1], words[first + 1]
    return changed, ""


def an_option_twice(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    """With another value, where it has one only."""
    own = arguments_of(asked(words))
    once = {name for each in own if each.token_count() == (1, False) and not _is_list(each.hint) for name in each.names}
    places = [place for place in valued(words) if words[place] in once]
    if not places:
        return None
    place = chance.choice(places)
    return [*words, words[place], "another"], words[place]


def _is_list(hint: object) -> bool:
    return any(kind in str(hint) for kind in ("list", "Sequence", "tuple"))


def a_comma_for_a_point(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    """As numbers are written in half of Europe, in an option of the command that takes one."""
    numeric = [
        option
        for option in numeric_options(asked(words))
        if option.values == 1 and option.name not in words and " " not in option.name
    ]
    if not numeric:
        return None
    return [*words, chance.choice(numeric).name, "0,5"], "0,5"


def capital_letters(words: Words, chance: random.Random) -> tuple[Words, str] | None:
    if not options(words):
        return None
    place = chance.choice(options(words))
    return [*words[:place], words[place].upper(), *words[place + 1 :]], words[place].upper()


MISTAKES: tuple[Mistake, ...] = (
    a_letter_is_missing,
    an_option_of_another_command,
    the_last_value_is_missing,
    a_dash_of_a_word_processor,
    quotation_marks_of_a_word_processor,
    a_word_too_many,
    nothing_for_a_value,
    a_file_that_is_not_there,
    two_values_in_each_others_place,
    an_option_twice,
    a_comma_for_a_point,
    capital_letters,
)


def fault(site: Site, words: Words, shown: str, capsys: pytest.CaptureFixture[str], known: str = "") -> str:
    """What is wrong with how a line ends; empty for nothing. ``known``: what is wrong besides, which may be said first."""
    before = state(site.folder)
    try:
        code, errors = attempt(shlex.join(words), capsys)
    except Went:
        return "" if not shown else "it went on"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    after = state(site.folder)
    if lost := [name for name, there in before.items() if after.get(name) != there and not name.startswith(("cache", "share"))]:
        return f"{lost} changed"
    remove(site, before, site.folder / "nothing")
    sentences = sentences_of(errors)
    if (code == 0 and not shown) or (known and errors == known):
        return ""
    # Without an answer, as the right line has none: the receipt is where this one says.
    if code == 3 and known and sentences[:1] == sentences_of(known)[:1]:
        return ""
    if code != 2 or len(sentences) != 1 or not sentences[0].startswith("quietmean: "):
        return f"exit code {code}: {errors}"
    if any(wrong in errors for wrong in ("Traceback", "Errno", "None", "pydantic", "input should")):
        return f"words of the program: {errors}"
    return "" if shown in errors else f"{shown!r} is not shown: {errors}"


def mistakes(seed: int, count: int) -> Iterator[tuple[Words, str]]:
    chance = random.Random(seed)
    lines = [shlex.split(LINES[command]) for command in COMMANDS]
    while count:
        mistake = chance.choice(MISTAKES)(chance.choice(lines), chance)
        if mistake is not None:
            count -= 1
            yield mistake


def test_a_hundred_at_random(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with nothing_begins():
        known = {command: refusal(shlex.split(line), capsys) for command, line in LINES.items()}
        # A key that the right line revoked would be in the way of lines about others.
        Distrusted().path.unlink(missing_ok=True)
        faults = {
            shlex.join(words): fault(site, words, shown, capsys, known[asked(words)]) for words, shown in mistakes(SEED, COUNT)
        }
    assert {line: wrong for line, wrong in faults.items() if wrong} == {}
