"""What people type into forms: every mistake is named beside its field, all of them at once, and what they typed stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from quietmean.core.errors import InputError

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
