"""Names in texts that people write: one with other signs than letters, digits and _ stands between backquotes, `systolic bp`.

A backquote inside of such a name is written twice. Levels and dates stand between other quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Fields of statistics whose text has a grammar of its own: names in it keep their backquotes until it is read.
READ_LATER = ("where", "formula", "of")
# The rule, at the end of a sentence about a text that cannot be read.
NAMES_STAND = ". Put a name that is not a plain word between backquotes, as in `systolic bp`"
_TOKEN = re.compile(
    r"""(?P<name>`(?:[^`]|``)+`)|(?P<text>(?<!\w)'[^']*'|(?<!\w)"[^"]*")|(?P<word>(?:[^\W\d]|[^\x00-\x7f\s])(?:\w|[^\x00-\x7f\s])*)|(?P<number>\d\w*)|(?P<sign>.)""",
    re.DOTALL,
)
_FIELD = re.compile(r"[\w-]+")
# Letters, digits and _, which no separator is and no grammar takes for something else.
_PLAIN_WORD = re.compile(r"[^\W\d]\w*", re.ASCII)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# What would be read as the begin of something else: quotes, the name of a field, and the domain of a column.
_SPECIAL = re.compile(r"""[`"]|(?<!\w)'|^\s*[\w-]+\s*=|\sin\s+(?:[-+.\d{(\[]|(?:yes/no)\b)|^\s|\s$|^$""")


def field_of(part: str) -> str | None:
    """The name before =; a statistic within another one has names of its own, and a name between backquotes is a value."""
    name, equals, _ = (word.strip() for word in part.partition("="))
    return name if equals and _FIELD.fullmatch(name) else None


def names_of(text: str) -> set[str]:
    """The words of a text, and its names between backquotes."""
    return {unquoted(match[0]) for match in _TOKEN.finditer(text) if match["name"] or match["word"]}


def split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators, each of one sign, that are outside of quotes and brackets; " " is any blanks."""
    parts, depth = [""], 0
    for kind, token, closed in _in_brackets(text):
        depth += closed
        is_separator = token.isspace() if separator == " " else token == separator
        if depth == 0 and kind == "sign" and is_separator:
            parts.append("")
        else:
            parts[-1] += token
    return [part for part in parts if part] if separator == " " else parts


def cut(text: str, word: str) -> list[tuple[str, str]]:
    """What stands before and behind each such word that is outside of quotes and brackets, with blanks around it."""
    tokens, depth, places = list(_in_brackets(text)), 0, []
    for place, (kind, token, change) in enumerate(tokens):
        depth += change
        around = [tokens[beside][1] for beside in (place - 1, place + 1) if 0 <= beside < len(tokens)]
        if kind == "word" and token == word and depth == 0 and len(around) == 2 and all(map(str.isspace, around)):
            places.append(place)
    texts = [token for _, token, _ in tokens]
    return [("".join(texts[:place]).strip(), "".join(texts[place + 1 :]).strip()) for place in places]


def one_blank(text: str) -> str:
    """The text with one blank where several signs are blank outside of quotes, and with none around it."""
    words = [" " if match[0].isspace() else match[0] for match in _TOKEN.finditer(text.strip())]
    return "".join(word for place, word in enumerate(words) if word != " " or words[place - 1] != " ")


def in_brackets(text: str, change: Callable[[str, str], str]) -> str:
    """The text with what ``change`` makes of the inside of each of its outermost brackets, which it is given with the first."""
    parts, depth, inside, opened = [""], 0, "", ""
    for _, token, closed in _in_brackets(text):
        depth += closed
        if closed == 1 and depth == 1:
            parts.append(token)
            inside, opened = "", token
        elif closed == -1 and depth == 0:
            parts += [change(opened, inside), token]
        elif depth:
            inside += token
        else:
            parts.append(token)
    return "".join(parts)


def unquoted(text: str) -> str:
    """The name or level that a text is: what stands between its quotes, or the text itself without blanks around it."""
    stripped = text.strip()
    match = _TOKEN.fullmatch(stripped)
    if match is None or not (match["name"] or match["text"]):
        return stripped
    return stripped[1:-1].replace("``", "`") if match["name"] else stripped[1:-1]


def quoted(name: str, separators: str = ",~") -> str:
    """A name as :func:`unquoted` reads it between such separators: between backquotes only where it needs them."""
    if not name:
        return "''"
    if _PLAIN_WORD.fullmatch(name):
        return name
    brackets = [sign for sign in name if sign in "()[]{}"]
    is_open = len(brackets) != sum(abs(change) for _, _, change in _in_brackets(name))
    special = _SPECIAL.search(name) or is_open or any(split(name, separator) != [name] for separator in separators)
    return f"`{name.replace('`', '``')}`" if special else name


def in_plain_words(text: str, signs: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The text as Python's parser and formulaic's can read it, and the names by the words for them in it.

    ``signs``: what replaces single signs outside of quotes.
    """
    stem = "name_"
    while stem in text:
        stem += "_"
    words: dict[str, str] = {}
    parts = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        # Python takes letters that look alike for one (NFKC).
        if match["name"] or (match["word"] and not token.isascii()):
            token = words.setdefault(unquoted(token), f"{stem}{len(words)}_")
        elif match["text"]:
            token = repr(token[1:-1])
        elif match["sign"]:
            token = (signs or {}).get(token, token)
        parts.append(token)
    return "".join(parts), {word: name for name, word in words.items()}


def _in_brackets(text: str) -> Iterator[tuple[str, str, int]]:
    """Tokens by kind, and how much each changes the depth in brackets; one that nothing closes opens nothing."""
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]
    opened: list[int] = []
    changes = [0] * len(tokens)
    for place, (kind, token) in enumerate(tokens):
        if kind == "sign" and token in _CLOSING:
            opened.append(place)
        elif kind == "sign" and token in _CLOSING.values():
            # Of brackets that cross, the outer ones count.
            same = [begin for begin in opened if _CLOSING[tokens[begin][1]] == token]
            if same:
                changes[same[-1]], changes[place] = 1, -1
                opened = [begin for begin in opened if begin < same[-1]]
    for (kind, token), change in zip(tokens, changes, strict=True):
        yield kind, token, change


def brief(value: Any, key: str) -> str:
    """A field as short as it can be read back from."""
    if isinstance(value, list):
        return " ".join(quoted(item, ",~ ") if isinstance(item, str) else brief(item, key) for item in value)
    if isinstance(value, str):
        return value if key in READ_LATER else quoted(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
