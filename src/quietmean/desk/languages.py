"""The languages of the pages. A sentence that a language lacks is shown in English.

What is signed, the contract's own lines, is never translated: all parties agree to the same text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_SENTENCES = Path(__file__).with_name("sentences.toml")
ENGLISH = "en"
CODES = (ENGLISH, "de", "fr")


@dataclass(frozen=True)
class Language:
    """``code``: as HTML has it. ``sentences``: of English ones, with the same %(names)s in them."""

    code: str
    sentences: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __hash__(self) -> int:
        return hash(self.code)

    def sentence(self, english: str) -> str:
        """The sentence in this language."""
        return self.sentences.get(english, english)


@cache
def language_of(code: str) -> Language:
    """The language of a code in :data:`CODES`."""
    translations = tomllib.loads(_SENTENCES.read_text(encoding="utf-8"))
    return Language(code, {english: here[code] for english, here in translations.items() if code != ENGLISH})


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
