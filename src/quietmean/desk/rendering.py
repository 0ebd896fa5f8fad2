"""How pages are made: templates in the reader's language, and what strangers wrote in them, shown as it is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.readable import plain
from quietmean.desk.languages import Language
from quietmean.report.rendering import TEMPLATES
from quietmean.report.rendering import templates as report_templates
from quietmean.report.words import moment, rounded_down, rounded_up

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"


@cache
def templates(language: Language) -> Environment:
    """All templates, whose sentences are in this language; every text in them is shown by :func:`shown`."""
    from jinja2 import FileSystemLoader
    from markupsafe import Markup

    environment = report_templates()
    environment.extend(newstyle_gettext=True)
    environment.policies["ext.i18n.trimmed"] = True
    environment = environment.overlay(
        loader=FileSystemLoader([_TEMPLATES, TEMPLATES]),
        extensions=["jinja2.ext.i18n", "jinja2.ext.do"],
        finalize=_of_strangers,
    )

    def sentence(english: str, /, **values: Any) -> Markup:
        ours = Markup(language.sentence(english))  # noqa: S704 - of our own table
        return ours % {name: _of_strangers(value) for name, value in values.items()}

    environment.globals |= {"gettext": sentence, "language": language}
    environment.filters |= {
        "shown": shown,
        "moment": lambda value: moment(value) if isinstance(value, str) else value,
        "plain": plain,
        "rounded_up": rounded_up,
        "rounded_down": rounded_down,
        "day": lambda value: value.strftime("%Y-%m-%d %H:%M UTC"),
        "shown_lines": lambda text: Markup("\n").join(map(shown, text.splitlines())),
    }
    return environment


def _of_strangers(value: Any) -> Any:
    return shown(value) if type(value) is str else value


def shown(text: object) -> str:
    """A stranger's text: characters that are not printed, or change the direction of writing, are shown by their code points."""
    return "".join(
        character
        if character.isprintable()
        else f"\N{LEFT WHITE SQUARE BRACKET}U+{ord(character):04X}\N{RIGHT WHITE SQUARE BRACKET}"
        for character in str(text)
    )
