"""Names of parties. People tell parties apart by them, so no two names of a roster may look alike, and none may change what a
screen shows of the text around it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from quietmean.core.errors import InputError

LONGEST_NAME = 40
# Scripts that Japanese, Korean and Chinese names mix.
_EAST_ASIAN = frozenset({"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
# Letters and marks that show nothing, although their category does not say so.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)
# Marks that many type for an apostrophe.
_APOSTROPHES = frozenset("'`\u00b4\u02bc\u2018\u2019\u201b\u2032")


def require_name(name: str) -> str:
    """The name, unchanged. Raises :class:`InputError` unless it is in the one spelling that a name may have.

    That is: 1 to 40 characters in Unicode's form NFC, letters of one script, no control, bidirectional, invisible or private
    characters, and no spaces but single ones between words.
    """
    reason = _objection(name)
    if reason:
        raise InputError(f"name {show_hidden(name)!r} {reason}")
    return name


def require_distinct(names: Iterable[str]) -> None:
    """Raises :class:`InputError` for two names that are equal but for capitals, width, dashes or apostrophes."""
    seen: dict[str, str] = {}
    for name in names:
        before = seen.setdefault(_folded(name), name)
        if before is not name and before != name:
            raise InputError(f"the names {before!r} and {name!r} differ in capitals or look alike: every party needs its own")


def show_hidden(text: str) -> str:
    """The text, cut to a name's length, with an escape for every character that a screen would not show as itself."""
    shown = "".join(sign if _is_shown(sign) else f"\\u{{{ord(sign):x}}}" for sign in text[:LONGEST_NAME])
    return shown if len(text) <= LONGEST_NAME else f"{shown}..."


def _objection(name: str) -> str:
    if not name:
        return "is empty: every party needs a name"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters: choose at most {LONGEST_NAME}"
    hidden = [sign for sign in name if not _is_shown(sign)]
    if hidden:
        return f"contains U+{ord(hidden[0]):04X}, which a screen does not show as itself: leave it out"
    if name != name.strip(" ") or "  " in name:
        return "has spaces at an end or two in a row: leave them out"
    if not unicodedata.is_normalized("NFC", name):
        return "is not in Unicode's form NFC: type it anew, with whole letters"
    scripts = sorted({script for sign in name if (script := _script(sign))})
    if len(scripts) > 1:
        return f"mixes letters of {' and '.join(scripts)}, which may look alike: use one script"
    if not any(unicodedata.category(sign)[0] in "LN" for sign in name):
        return "has neither letters nor digits: nobody could say it on the phone"
    return ""


def _is_shown(sign: str) -> bool:
    """False for controls, formats (all bidirectional ones), surrogates, private and unassigned ones, and odd spaces."""
    return sign == " " or not (unicodedata.category(sign)[0] in "CZ" or sign in _INVISIBLE)


def _script(sign: str) -> str:
    """The script of a letter, a digit or a mark, from its name in Unicode; empty where all scripts share it."""
    # Wide, raised and mathematical letters belong to the script of their plain form.
    plain = unicodedata.normalize("NFKC", sign)[0]
    if plain.isascii() and not plain.isalpha():
        return ""
    if unicodedata.category(plain)[0] not in "LN":
        return ""
    words = unicodedata.name(plain, "UNKNOWN").replace("-", " ").split(" ")
    first = words[1] if words[0] == "EXTENDED" else words[0]
    if first in _EAST_ASIAN:
        return "EAST ASIAN"
    return "" if first == "MODIFIER" else first


def _folded(name: str) -> str:
    wide = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join("-" if unicodedata.category(sign) == "Pd" else "'" if sign in _APOSTROPHES else sign for sign in wide)
