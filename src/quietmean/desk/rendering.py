"""How pages are made: templates in the reader's language, and what strangers wrote in them, shown as it is.

A sentence that a language lacks is shown in English. What is signed, the contract's own lines, is never translated: all parties
agree to the same text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.errors import InputError
from quietmean.core.readable import plain
from quietmean.report.words import TEMPLATES, moment, rounded_down, rounded_up
from quietmean.report.words import templates as report_templates

if TYPE_CHECKING:
    from jinja2 import Environment

_SENTENCES = Path(__file__).with_name("sentences.toml")
ENGLISH = "en"
CODES = (ENGLISH, "de", "fr")


@dataclass(frozen=True)
class Language:
    """A language of the pages.

    ``code``: as HTML has it. ``sentences``: by their names; one that is not here is its own English.
    """

    code: str
    sentences: Mapping[str, str] = field(default_factory=dict, compare=False)

    def sentence(self, name: str) -> str:
        """The sentence in this language."""
        return self.sentences.get(name, name)


@cache
def language_of(code: str) -> Language:
    """The language of a code in :data:`CODES`."""
    table = tomllib.loads(_SENTENCES.read_text(encoding="utf-8"))
    return Language(code, {name: each.get(code, each.get(ENGLISH, name)) for name, each in table.items()})


def preferred(accepted: str) -> Language:
    """The language of a reader whose browser sends this Accept-Language; English where none of ours is in it."""
    weights: dict[str, float] = {}
    for part in accepted.split(","):
        tag, _, parameter = part.strip().partition(";")
        code = tag.strip().lower().partition("-")[0]
        weight = _weight(parameter.strip())
        if code in CODES and weight > weights.get(code, 0.0):
            weights[code] = weight
    # The first of equal ones, as browsers list them by preference.
    return language_of(max(weights, key=lambda code: weights[code], default=ENGLISH))


def _weight(parameter: str) -> float:
    if not parameter.startswith("q="):
        return 1.0
    try:
        return float(parameter.removeprefix("q="))
    except ValueError:
        return 0.0


_TEMPLATES = Path(__file__).parent / "templates"


@cache
def templates(language: Language) -> Environment:
    """All templates, whose sentences are in this language; every text in them is shown by :func:`shown`."""
    from jinja2 import FileSystemLoader
    from markupsafe import Markup

    environment = report_templates().overlay(
        loader=FileSystemLoader([_TEMPLATES, TEMPLATES]), extensions=["jinja2.ext.do"], finalize=_of_strangers
    )

    def sentence(name: str, /, **values: Any) -> Markup:
        ours = Markup(language.sentence(name))  # noqa: S704 - of our own table
        return ours % {key: _of_strangers(value) for key, value in values.items()}

    environment.globals |= {"_": sentence, "language": language}
    environment.filters |= {
        "shown": shown,
        "moment": lambda value: moment(value) if isinstance(value, str) else value,
        "plain": plain,
        "rounded_up": rounded_up,
        "rounded_down": rounded_down,
        "shown_lines": lambda text: Markup("\n").join(map(shown, text.splitlines())),
    }
    return environment


def _of_strangers(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return shown(value) if type(value) is str else value


def shown(text: object) -> str:
    """A stranger's text: characters that are not printed, or change the direction of writing, are shown by their code points."""
    return "".join(
        character
        if character.isprintable()
        else f"\N{LEFT WHITE SQUARE BRACKET}U+{ord(character):04X}\N{RIGHT WHITE SQUARE BRACKET}"
        for character in str(text)
    )


WRONG_WORDS = "These are not the words of the study: compare them with another party, and type what you compared."
NO_ACCOUNT = "Type what the ledger calls the data set."
NO_DAY = "This is not a date: write it as 2030-12-31."
# All of them, for who translates.
SENTENCES = (WRONG_WORDS, NO_ACCOUNT, NO_DAY)


class FormMistakes(InputError):
    """The error for a form with fields that are not as they should be.

    ``mistakes``: a sentence for each field that is not as it should be.
    """

    def __init__(self, mistakes: Mapping[str, str]) -> None:
        super().__init__(" ".join(mistakes.values()))
        self.mistakes = dict(mistakes)


@dataclass
class Form:
    """Reads the ``fields`` of a form, and gathers what is wrong with them."""

    fields: Mapping[str, str]
    mistakes: dict[str, str] = field(default_factory=dict)

    def require(self, name: str, holds: bool, sentence: str) -> None:
        if not holds:
            self.mistakes[name] = sentence

    def text(self, name: str, sentence: str) -> str:
        """What is typed, without spaces around it; a mistake where that is nothing."""
        typed = self.fields.get(name, "").strip()
        self.require(name, bool(typed), sentence)
        return typed

    def day(self, name: str, sentence: str) -> date:
        """A day; a mistake where it is none."""
        try:
            return date.fromisoformat(self.fields.get(name, ""))
        except ValueError:
            self.mistakes[name] = sentence
            return date.min

    def require_right(self) -> None:
        """Raises :class:`FormMistakes` if something was wrong."""
        if self.mistakes:
            raise FormMistakes(self.mistakes)
