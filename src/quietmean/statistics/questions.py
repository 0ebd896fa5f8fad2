"""Questions with the domains of their columns: ``mean(age in 0..110)``; or a domain alone, for several: ``sex in {f, m}``.

``NAME in LOW..HIGH`` has numbers or days, ``NAME in {A, B}`` levels, ``NAME in yes/no`` is true or false. Behind it stands in
square brackets what else a study file says of a column: ``visits in 0..30 [whole, missing_codes=-9 unknown]``. A transform of
columns may stand where a column does, ``mean(log(crp in 0.1..500))``, or has a name of its own, with anything behind it that a
column has: ``stay = discharge - admission in 0..60 [whole]``, ``cost = days * price [scale=log]``.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest
from quietmean.statistics.columns import ANY_NUMBER, CENTRE, INDICATOR, TRUTH, Column, Columns, UndeclaredColumn
from quietmean.statistics.conditions import to_add
from quietmean.statistics.dates import is_number
from quietmean.statistics.kinds.first_look import FirstLook
from quietmean.statistics.models import MODELS
from quietmean.statistics.names import cut, field_of, in_brackets, names_of, one_blank, quoted, split, unquoted
from quietmean.statistics.registry import is_kind, is_statistic, parse_statistic, read_text
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.transforms import Transform

_FORMS = "LOW..HIGH, {A, B} or yes/no"
_DOMAIN = re.compile(r"(?P<domain>\{.*\}|[^\[\]{}]*?)\s*(?:\[(?P<more>.*)\])?", re.DOTALL)
_RANGE = re.compile(r"\S+?\s*\.\.\s*[^\s.]\S*|\S+?\s*\.\.\s*\.\d\S*")
# What is a domain, or is meant as one: a name may have the word in, too.
_MEANT = re.compile(r"[-+.\d{(\[]|[^\s{}\[\]]+\s*(?:\.\.|…)", re.DOTALL)
_TRUTHS = {f"{one}/{other}" for a, b in (TRUTH.values(), reversed(TRUTH.values())) for one in a for other in b}
OF_NUMBERS, _OF_TEXTS = ("edges", "guess"), ("missing_codes",)
_SAID_ALONE = ("whole", "other")
_MORE = (*_SAID_ALONE, "scale", *OF_NUMBERS, *_OF_TEXTS, "missing", "since")
# What an expression is made of beside names between backquotes, with something that a name has not.
_EXPRESSION = re.compile(r"(?=[^`]*[-+*/^<>(]|`)(?:[\w\s.+\-*/^()<>=]|`(?:[^`]|``)+`)+")
# What makes an equals sign behind it one of a comparison.
_COMPARED = ("<", ">", "!")
# A column's name with hyphens, as it may stand without backquotes.
_WITH_HYPHENS = re.compile(r"\w+(?:-\w+)+")


def read_questions(
    texts: Iterable[str | Mapping[str, Any]], columns: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tables [[column]] and [[statistic]] that texts mean, beside ``columns`` that are declared already.

    A table may stand in place of a text. Raises :class:`InputError` for what cannot be read, and for two domains of one column.
    """
    reader = _Reader({str(column.get("name")): dict(column) for column in columns})
    statistics = [raw for text in texts if (raw := reader.read(text)) is not None]
    for raw in statistics:
        reader.derive(raw)
        reader.open(raw)
    declared = [*reader.ordered()]
    # Of a model, its own program says which columns it needs.
    if not declared and statistics and statistics[0]["kind"] not in MODELS:
        asked = parse_statistic(statistics[0])
        with asked_in(asked):
            asked.features(Columns([Column(name="", boolean=True)]))
        raise InputError(
            f"{asked.text} is about all columns, and no column is declared. Declare each, such as "
            f"{asked.name}(age in 0..110, sex in {{f, m}})."
        )
    return declared, statistics


def named_in(texts: Iterable[str]) -> set[str]:
    """The names of columns in texts, with other words that stand where one could, such as functions."""

    def bare(opened: str, inside: str) -> str:
        return "" if opened in "{[" else in_brackets(inside, bare)

    found: set[str] = set()
    for text in texts:
        parts = split(text.strip().partition("(")[2][:-1], ",") if _is_asked(text) else [text]
        for part in parts:
            name = field_of(part)
            found |= names_of(in_brackets(part if name is None else part.partition("=")[2], bare))
    return found


@contextmanager
def asked_in(
    statistic: Statistic, columns: Sequence[Column] = (), declared: Callable[[], Mapping[str, str]] = dict
) -> Iterator[None]:
    """All columns that nothing is said of are named in the question that needs them, and where their domains stand there.

    ``columns``: what is declared; ``declared``: their texts with domains, which stay in the question as it is to be typed.
    """
    try:
        yield
    except UndeclaredColumn as undeclared:
        lacking = {error.name: error for error in _all_lacking(statistic, columns, undeclared)}
        domains, names, replaced = declared(), dict[str, str](), set[str]()
        for error in lacking.values():
            name = error.name
            if is_transform(name):
                name = next((source for source in Transform(name).sources if source not in undeclared.known), name)
            left, *wrong = name.split(" in ")
            if wrong:
                raise _no_domain(name, left) from None
            names[error.name] = name

        def filled(value: str) -> str:
            error = lacking.get(unquoted(value))
            if error is None or names[error.name] in replaced:
                return domains.get(unquoted(value), value)
            name = names[error.name]
            replaced.add(name)
            return re.sub(rf"(?<![\w`]){re.escape(as_name(name))}(?![\w`])", lambda _: f"{as_name(name)} in {error.form}", value)

        asked = changed(statistic.text, filled)
        first, *others = {names[error.name]: error.lacks for error in lacking.values()}.items()
        if first[0] not in replaced:
            raise UndeclaredColumn(first[0], undeclared.known, first[1]) from None
        found = tuple(each for each in others if each[0] in replaced)
        besides = to_add(statistic.where, {*undeclared.known, *names.values()})
        raise UndeclaredColumn(first[0], undeclared.known, first[1], asked, found, besides) from None


def _all_lacking(statistic: Statistic, columns: Sequence[Column], first: UndeclaredColumn) -> list[UndeclaredColumn]:
    """The errors of all columns that a statistic needs and nothing is said of: with each, the next is looked for."""
    lacking = [first]
    with suppress(InputError):
        while True:
            try:
                statistic.features(Columns([*columns, *(error.possible for error in lacking)]))
                break
            except UndeclaredColumn as another:
                if another.name in {error.name for error in lacking}:
                    break
                lacking.append(another)
    return lacking


@dataclass
class _Reader:
    """Collects columns, in the order in which texts name them; ``declared``: what is said of each."""

    declared: dict[str, dict[str, Any]]
    # The domains as they were written, for sentences.
    said: dict[str, str] = field(default_factory=dict)
    # Names of transforms with something said of them, and those that stand where a column does.
    named: dict[str, str] = field(default_factory=dict)

    def read(self, text: str | Mapping[str, Any]) -> dict[str, Any] | None:
        """The statistic that a text asks for; None of one that only declares."""
        if not isinstance(text, str):
            return dict(text)
        _require_closed(text.strip())
        name, *origin = split(text, "=")
        if origin and origin[0] and name.strip() and not name.rstrip().endswith(_COMPARED):
            left, domain = _sides("=".join(origin).strip())
            left, more = (left, "") if domain else _with_more(left)
            self._declare(unquoted(name), domain or more, self._inside(left))
            return None
        if not _is_asked(text):
            left, domain = _sides(text)
            if domain:
                self._operand(text)
                return None
        return read_text(changed(text, self._operand))

    def _operand(self, text: str) -> str:
        left, domain = _sides(text)
        left = self._inside(left)
        if domain:
            name = unquoted(left)
            origin = left if is_transform(left) else ""
            self._declare(one_blank(left) if origin else name, domain, origin)
        return left

    def _inside(self, text: str) -> str:
        """Text without the domains that stand in its brackets; one that held nothing else goes with them."""
        if not any(cut(inside, "in") for inside in _insides(text)):
            return text
        bare = in_brackets(text, lambda opened, inside: inside if opened != "(" else _each_part(inside, self._operand))
        return re.sub(r"(?<![\w`)])\(\s*([^\W\d]\w*)\s*\)", r"\1", bare)

    def _declare(self, name: str, domain: str, origin: str) -> None:
        table = _table(name, domain, is_transform=bool(origin))
        table |= {"from": one_blank(origin)} if origin else {}
        text = one_blank(domain)
        if (before := self.declared.get(name)) is not None and before != {"name": name, **table}:
            others = f"in {self.said[name]} and in {text}" if self.said.get(name) else "here and elsewhere"
            raise InputError(f"column {name!r} is declared twice, {others}. Keep one of them.")
        self.declared.setdefault(name, {"name": name, **table})
        self.said.setdefault(name, text)

    def derive(self, raw: dict[str, Any]) -> None:
        """Declare the transforms that stand in a statistic where columns do, by their own text."""
        for key, value in raw.items():
            if key in ("kind", "where", "formula", "of"):
                continue
            if isinstance(value, str):
                raw[key] = self._derived(value)
            elif isinstance(value, list):
                raw[key] = [self._derived(each) if isinstance(each, str) else each for each in value]

    def open(self, raw: Mapping[str, Any]) -> None:
        """Declare the column of a first look that has no domain, as that is what is asked for: any number."""
        name = raw.get("column")
        if raw.get("kind") == FirstLook.name and isinstance(name, str):
            self.declared.setdefault(name, {"name": name, "low": -ANY_NUMBER, "high": ANY_NUMBER, "missing": INDICATOR})

    def _derived(self, text: str) -> str:
        name = one_blank(text)
        if text in self.declared or name in self.declared or not is_transform(text, self.declared):
            return name if name in self.declared else text
        self.declared[name] = {"name": name, "from": name}
        return name

    def ordered(self) -> Iterator[dict[str, Any]]:
        """All tables, each transform behind the columns that it is made of, with the rule for missing cells that these have."""
        done: dict[str, dict[str, Any]] = {}
        waiting = dict(self.declared)
        made = {name: transform for name, table in waiting.items() if (transform := _transform_of(table)) is not None}
        sources = {name: {*made[name].sources} - {name} if name in made else set() for name in waiting}
        while waiting:
            # Of transforms in a circle, which are refused with the columns, the first.
            name = next((name for name in waiting if not sources[name] & waiting.keys()), next(iter(waiting)))
            table = waiting.pop(name)
            if name in made and "missing" not in table and not made[name].compares:
                fills_in = all(done.get(source, {}).get("missing") == CENTRE for source in sources[name])
                table = {**table, "missing": CENTRE if fills_in else INDICATOR}
            done[name] = table
        return iter(done.values())


def _require_closed(text: str) -> None:
    """Raises :class:`InputError` for what begins as a question and does not end with its bracket, or goes on with another."""
    if "(" not in text or set("`'\"") & set(text) or not is_kind(text.partition("(")[0].strip()):
        return
    depths = [*accumulate((letter == "(") - (letter == ")") for letter in text)]
    if depths[-1] > 0:
        raise InputError(f"{text!r} has a bracket that is not closed. Write {text}{')' * depths[-1]}.")
    end = depths.index(0, text.index("(")) + 1
    first, more = text[:end], text[end:].strip()
    if more.startswith(",") and "(" in more:
        raise InputError(f"{text!r} is more than one question. Write each as a text of its own, such as {first}.")
    if more:
        raise InputError(f"{text!r} goes on behind its bracket. Write all within it, as in mean(age in 0..110).")


def _is_asked(text: str) -> bool:
    """Is it a statistic with its values in brackets?"""
    return is_statistic(text) and not cut(text, "in")


def _insides(text: str) -> list[str]:
    found: list[str] = []

    def kept(opened: str, inside: str) -> str:
        found.append(inside)
        return inside

    in_brackets(text, kept)
    return found


def _each_part(text: str, change: Callable[[str], str]) -> str:
    return ", ".join(_part(part.strip(), change) for part in split(text, ","))


def changed(text: str, change: Callable[[str], str]) -> str:
    """The text of a statistic with each value changed that can be a column."""
    if not is_statistic(text):
        return text
    kind, _, values = text.strip().partition("(")
    return f"{kind}({_each_part(values[:-1], change)})"


def _part(part: str, change: Callable[[str], str]) -> str:
    name = field_of(part)
    if name == "where":
        return part
    value = part.partition("=")[2].strip() if name is not None else part
    if name == "of":
        return f"of={changed(value, change)}"
    sides = split(value, "~")
    value = " ~ ".join(_each_term(side, change) for side in sides).strip() if len(sides) == 2 else change(value)
    return value if name is None else f"{name}={value}"


def _each_term(side: str, change: Callable[[str], str], signs: str = "+*:") -> str:
    """A side of a formula with each term changed, also those that are multiplied."""
    if not signs or "**" in side:
        return change(side.strip())
    return f" {signs[0]} ".join(_each_term(part, change, signs[1:]) for part in split(side, signs[0]))


def _sides(text: str) -> tuple[str, str]:
    """What a domain is said of, and the domain; "" where none is. Raises :class:`InputError` for what is meant as one."""
    found = [(left, domain) for left, domain in cut(text, "in") if _MEANT.match(domain) or _forms_of(domain)]
    if not found:
        return text.strip(), ""
    left, domain = found[0]
    if not left or _forms_of(domain) is None:
        raise _no_domain(text.strip(), left)
    return left, domain


def _no_domain(text: str, left: str) -> InputError:
    return InputError(f"{text!r} has no domain behind in: it is one of {_FORMS}. Write {_example(left)}.")


def _with_more(left: str) -> tuple[str, str]:
    """A transform without a domain, and the square brackets at its end with what is said of it besides; "" without any."""
    ends: list[str] = []

    def kept(opened: str, inside: str) -> str:
        ends.append(f"{opened}{inside}]" if opened == "[" else "")
        return inside

    in_brackets(left, kept)
    more = ends[-1] if ends and ends[-1] and left.endswith("]") else ""
    return (left.removesuffix(more).strip(), more) if more else (left, "")


def _example(left: str) -> str:
    name = left or "age"
    return f"{name} in 0..100, {name} in {{a, b}} or {name} in yes/no"


def _forms_of(domain: str) -> tuple[str, str] | None:
    """A domain and what stands in square brackets behind it; None where it is of none of the forms."""
    match = _DOMAIN.fullmatch(domain.strip())
    if match is None or not match["domain"]:
        return None
    text = match["domain"]
    is_form = text[0] == "{" or _RANGE.fullmatch(text) or text.lower() in _TRUTHS
    return (text, match["more"] or "") if is_form else None


def _table(name: str, domain: str, *, is_transform: bool = False) -> dict[str, Any]:
    """What a domain means in a study file. Raises :class:`InputError` for one that is impossible."""
    if is_transform and domain[:1] in ("", "["):
        return _said_besides(name, domain[1:-1])
    form = _forms_of(domain)
    text, more = form or ("", "")
    if text.startswith("{"):
        levels = [unquoted(level) for level in split(text[1:-1], ",")]
        if "" in levels:
            raise InputError(f"{name} in {text} has an empty level. Write {name} in {{A, B}}; empty cells are missing anyway.")
        table: dict[str, Any] = {"levels": levels}
    elif text.lower() in _TRUTHS:
        table = {"boolean": True}
    else:
        low, high = (_end(name, text, end) for end in text.split("..", 1))
        _require_rising(name, low, high)
        table = {"low": low, "high": high, **({} if is_transform else {"missing": INDICATOR})}
    return table | _said_besides(name, more)


def _end(name: str, domain: str, text: str) -> float | str:
    end = _number_or_day(text.strip())
    if end is None:
        raise InputError(
            f"{as_name(name)} in {domain} has {text.strip()!r}, which is neither a number nor a day. Write {as_name(name)} in "
            f"0..100 for numbers, {as_name(name)} in 2020-01-01..2024-12-31 for days or {as_name(name)} in {{A, B}} for levels."
        )
    if isinstance(end, float) and not math.isfinite(end):
        raise InputError(f"{as_name(name)} in {domain} has an end that is not finite. Write {as_name(name)} in 0..100.")
    return end


def _number_or_day(text: str) -> float | str | None:
    with suppress(ValueError):
        return float(text) if is_number(text) else datetime.date.fromisoformat(text).isoformat()
    return None


def _require_rising(name: str, low: float | str, high: float | str) -> None:
    if isinstance(low, str) != isinstance(high, str):
        raise InputError(f"{as_name(name)} has a number and a day as its bounds. Write two numbers or two days.")
    if low > high if isinstance(low, str) and isinstance(high, str) else float(low) > float(high):
        wrong, right = f"{short_number(low)}..{short_number(high)}", f"{short_number(high)}..{short_number(low)}"
        raise InputError(f"{as_name(name)} in {wrong} has its bounds reversed. Write {as_name(name)} in {right}.")
    if low == high:
        same = f"{as_name(name)} in {short_number(low)}..{short_number(high)}"
        raise InputError(f"{same} has one bound twice. Write two different ones, as in {as_name(name)} in 0..100.")


def _said_besides(name: str, text: str) -> dict[str, Any]:
    """What stands in square brackets, by its key in a study file. Raises :class:`InputError` for a key that is not known."""
    table: dict[str, Any] = {}
    for part in split(text, ","):
        if not part.strip():
            continue
        key, equals, value = (word.strip() for word in part.partition("="))
        key = key.replace("-", "_")
        if key not in _MORE or (bool(equals) == (key in _SAID_ALONE)):
            listed = ", ".join(each if each in _SAID_ALONE else f"{each}=..." for each in _MORE)
            raise InputError(f"column {name!r} has {part.strip()!r} in square brackets{nearest(key, _MORE)}. Write {listed}.")
        values = [unquoted(each) for each in split(value, " ")]
        if key in OF_NUMBERS:
            table[key] = [_number_or_day(each) for each in values]
            if None in table[key]:
                wrong = values[table[key].index(None)]
                raise InputError(
                    f"column {name!r} has {wrong!r} in {key}, which is neither a number nor a day. Write {key}=0 10 100."
                )
        else:
            table[key] = values if key in _OF_TEXTS else True if key in _SAID_ALONE else unquoted(value)
    return table


def as_name(name: str) -> str:
    """A name as it stands before a domain: one that could be an expression between backquotes."""
    plain = not is_transform(name) and not name.endswith(_COMPARED)
    return quoted(name, ",~+=") if plain or "`" in name else f"`{name}`"


def is_transform(text: str, known: Mapping[str, Any] | None = None) -> bool:
    """Is it an expression of columns, and of known ones where these are given, rather than a name?"""
    stripped = text.strip()
    if unquoted(text) != stripped or _WITH_HYPHENS.fullmatch(stripped) or not _EXPRESSION.fullmatch(stripped):
        return False
    try:
        transform = Transform(text)
        sources = transform.sources
        _ = transform.compares
    except InputError:
        return False
    return sources != (stripped,) and (known is None or all(source in known for source in sources))


def _transform_of(table: Mapping[str, Any]) -> Transform | None:
    """What a column is made of; None where it is of nothing, or of what cannot be read, which is refused with the columns."""
    with suppress(InputError):
        origin = table.get("from")
        transform = Transform(origin) if origin and isinstance(origin, str) else None
        return transform if transform is None or transform.sources else None
    return None


def short_number(value: float | str) -> str:
    """A number as short as it can be read back from."""
    if isinstance(value, str):
        return value
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)
