"""How pages are made: templates in the reader's language, and what strangers wrote in them, shown as it is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.readable import plain
from quietmean.desk.languages import Language
from quietmean.report.words import moment, rounded_down, rounded_up

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"


@cache
def templates(language: Language) -> Environment:
    """All templates, whose sentences are in this language."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(_TEMPLATES), PackageLoader("quietmean.report")]),
        extensions=["jinja2.ext.i18n"],
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["ext.i18n.trimmed"] = True
    install = environment.install_gettext_callables  # type: ignore[attr-defined]
    install(language.sentence, lambda one, many, n: language.sentence(one if n == 1 else many), newstyle=True)
    environment.globals["language"] = language
    environment.filters |= {
        "shown": shown,
        "moment": _moment,
        "plain": plain,
        "rounded_up": rounded_up,
        "rounded_down": rounded_down,
    }
    environment.filters["day"] = lambda value: value.strftime("%Y-%m-%d %H:%M UTC")
    environment.filters["shown_lines"] = lambda text: "\n".join(map(shown, text.splitlines()))
    return environment


def _moment(value: Any) -> Any:
    """Return a time as a text to be read; anything but text stays."""
    return moment(value) if isinstance(value, str) else value


def shown(text: object) -> str:
    """A stranger's text: characters that are not printed, or change the direction of writing, are shown by their code points."""
    return "".join(
        character
        if character.isprintable()
        else f"\N{LEFT WHITE SQUARE BRACKET}U+{ord(character):04X}\N{RIGHT WHITE SQUARE BRACKET}"
        for character in str(text)
    )
