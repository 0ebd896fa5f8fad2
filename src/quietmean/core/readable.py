"""Numbers, p-values and reasons as people read them: the one place where printed output, tables and pages get them from.

An estimate has as many digits as two significant ones of its standard error leave; its interval has the same decimals. Texts
are typeset: a true minus sign, a dash for what is not known. :func:`for_terminal` makes them plain.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

UNKNOWN = "–"
# Shown for a number that noise hides and of which no bound is known.
HIDDEN = "hidden"
_LEAST_P = 0.001
# The most decimals, and the most digits that are rounded away.
_MOST_DECIMALS, _MOST_ROUNDED = 12, 15
# Digits of a number without an error, and of a bound.
_USUAL_DIGITS, _BOUND_DIGITS = 6, 3
# From here on decimals of an epsilon say nothing; from there on a number has more digits than people read.
_LARGE, _HUGE = 1e3, 1e15
_PLAIN = str.maketrans({"−": "-", "∞": "inf", "±": "+-"})


class Phrase(str):
    """A sentence, with the ``template`` and the ``values`` that it is made of: for who says it in another language."""

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, str]


def phrase(template: str, **values: str) -> Phrase:
    """Fill in a template. Values may be phrases. Without any the text is taken as it is: it may be a stranger's."""
    made = Phrase(template.format(**values) if values else template)
    made.template, made.values = template, values
    return made


def counted_phrase(count: int, one: str, many: str, **values: str) -> Phrase:
    """Fill in the template of ``one`` thing, or that of ``many`` with their count."""
    return phrase(one, **values) if count == 1 else phrase(many, count=f"{count:,}", **values)


def decimals_for(error: float) -> int:
    """How many decimals show two significant digits of a standard error; below 0 where it is above 100: tens, hundreds ..."""
    if not (error > 0 and math.isfinite(error)):
        return 4
    # Counted on the error as it is shown: 0.0996 is 0.10.
    exponent = int(f"{error:.1e}".partition("e")[2])
    return min(max(1 - exponent, -_MOST_ROUNDED), _MOST_DECIMALS)


def fixed(value: float, decimals: int, sign: bool = False) -> str:
    """A number with thousands separators and a true minus sign; an unknown one is a dash. Never a minus sign before zero."""
    if not math.isfinite(value):
        return not_finite(value)
    rounded = round(value, decimals) if decimals < 0 else value
    text = f"{rounded:{'+' if sign else ''},.{max(decimals, 0)}f}"
    if float(text.replace(",", "")) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def plain(value: float, digits: int = _USUAL_DIGITS) -> str:
    """A number as short as it can be: for bounds and targets."""
    if not math.isfinite(value):
        return not_finite(value)
    # No minus sign before zero.
    return f"{value + 0.0:,.{digits}g}".replace("-", "−")


def not_finite(value: float) -> str:
    return UNKNOWN if math.isnan(value) else "∞" if value > 0 else "−∞"


def number_text(value: float, error: float = 0.0) -> str:
    """A number to two significant digits of its standard error; 0 for one that is exact, infinite where nothing is known."""
    if math.isnan(value) or math.isnan(error) or math.isinf(error):
        return UNKNOWN
    return fixed(value, decimals_for(error)) if error > 0 else plain(value)


def percent_text(part: float) -> str:
    """A part of a whole in percent, to two significant digits, three from 99 on: "9.8 %", "99.6 %", "100 %"."""
    percent = 100 * part
    digits = 3 if 99 <= percent < 100 else 2
    return f"{plain(float(f'{percent:.{digits}g}'))} %"


def error_text(error: float) -> str:
    """A standard error, to two significant digits."""
    return number_text(error, error)


def either_side(half: str) -> str:
    """The text of half a 95 % interval, the one meaning of its sign: a standard error is named in words."""
    return f"±{half}"


def with_error(estimate: float, error: float) -> str:
    """An estimate and its standard error."""
    if math.isnan(estimate):
        return "not known, the noise hides it"
    decimals = decimals_for(error)
    return f"{fixed(estimate, decimals)} (standard error {fixed(error, decimals if error > 0 else 0)})"


def interval_text(ends: Sequence[float], error: float | None = None) -> str:
    """Both ends, with the decimals of the estimate whose standard ``error`` is given, else to two digits of half their distance.

    A dash where an end is not known.
    """
    low, high = ends
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    stated = error if error is not None and 0 < error < math.inf else (high - low) / 4
    if not 0 < stated < math.inf:
        return f"{plain(low)} to {plain(high)}"
    decimals = decimals_for(stated)
    return f"{fixed(low, decimals)} to {fixed(high, decimals)}"


def p_text(p_value: float) -> str:
    """A p-value as journals print it: "0.034", "< 0.001"."""
    if not 0 <= p_value <= 1:
        return UNKNOWN
    return f"< {_LEAST_P:g}" if p_value < _LEAST_P else f"{p_value:.3f}"


def p_phrase(p_value: float) -> str:
    """A p-value in a sentence: "p = 0.034", "p < 0.001"."""
    shown = p_text(p_value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def degrees_text(degrees: Sequence[float]) -> str:
    """Degrees of freedom: "df 4,112", of an F "df 2 and 57.3"; nothing where they are endless or not known."""
    texts = [fixed(degree, 0) if degree >= 100 else plain(degree, 3) for degree in degrees if math.isfinite(degree)]
    return f"df {' and '.join(texts)}" if texts else ""


def outcome_text(name: str, symbol: str, statistic: float, degrees: Sequence[float], p_value: float) -> str:
    """A test in one line: "Welch's t test: t = 0.22, df 4,112, p = 0.830"."""
    parts = [f"{symbol or 'statistic'} = {fixed(statistic, 2)}", degrees_text(degrees), p_phrase(p_value)]
    return f"{name}: {', '.join(part for part in parts if part)}"


def bound_text(most: float | None) -> str:
    """The most that something can be: rounded up. None: not known."""
    if most is None:
        return "a number that is not known"
    if math.isinf(most):
        return "infinitely much"
    if most <= 0:
        return "0"
    rounded = bound_of(most)
    return f"{rounded:,.0f}" if _LARGE <= rounded < _HUGE else f"{rounded:.{_BOUND_DIGITS}g}"


def bound_of(most: float) -> float:
    """The number that :func:`bound_text` has of a positive one."""
    unit = 10.0 ** (math.floor(math.log10(most)) - _BOUND_DIGITS + 1)
    return math.ceil(most / unit * (1 - 1e-12)) * unit


def least_text(least: float) -> str:
    """The least that a positive number can be: rounded down, "at least 0.206"."""
    unit = 10.0 ** (math.floor(math.log10(least)) - _BOUND_DIGITS + 1)
    return f"at least {math.floor(least / unit * (1 + 1e-12)) * unit:.{_BOUND_DIGITS}g}"


def _endless_or_rounded(epsilon: float) -> str:
    """An epsilon too large for decimals: "inf", or few digits rounded up."""
    return "inf" if math.isinf(epsilon) else bound_text(epsilon)


def epsilon_text(epsilon: float) -> str:
    """Rounded up: privacy is never overstated."""
    if epsilon >= _LARGE:
        return _endless_or_rounded(epsilon)
    return f"{math.ceil(epsilon * 1e4 - 1e-9) / 1e4:.4f}"


def epsilon_shown(epsilon: float) -> str:
    """An epsilon on a first screen: two decimals, below 0.1 two significant digits, rounded up as :func:`epsilon_text`."""
    if epsilon <= 0:
        return "0"
    if epsilon >= _LARGE:
        return _endless_or_rounded(epsilon)
    decimals = min(max(2, 1 - math.floor(math.log10(epsilon))), _MOST_DECIMALS)
    unit = 10.0**decimals
    return f"{math.ceil(epsilon * unit - 1e-9) / unit:.{decimals}f}"


def delta_shown(delta: float, below: float | None = None) -> str:
    """A delta as people write it: "1e-6"; where it is only known what it is ``below``, "< 1e-12"."""
    if below is not None:
        return f"< {delta_shown(below)}"
    return re.sub(r"e([+-])0+(?=\d)", r"e\1", f"{delta:g}")


def a_coordinate(coordinates: int | None) -> str:
    """Return what a figure in nats is of: one of the ``coordinates`` of a party's value, which holds its part of all answers."""
    return "a coordinate" if coordinates is None else f"a coordinate (a party's value has {coordinates})"


def nats_promised(nats: float, coordinates: int | None, enforced_by: str) -> str:
    """What is promised before the start of a target in nats, and who sees to it."""
    return (
        f"guaranteed before the start: at most {epsilon_text(nats)} nats {a_coordinate(coordinates)}; enforced by {enforced_by}"
    )


def nats_text(nats: float, revealed: float, prior_sd: float, coordinates: int | None, upper: bool) -> str:
    """Mutual information and the share ``revealed`` of a value's variance, both rounded up."""
    shown, share = epsilon_text(nats), epsilon_text(revealed)
    at_most = "at most " if upper else ""
    return (
        f"{at_most}{shown} nats {a_coordinate(coordinates)}, which explain {at_most}{share} of the variance of a normal value of "
        f"standard deviation {prior_sd:g}"
    )


def some_of(texts: Sequence[str], most: int) -> str:
    """The first ``most`` texts in one line, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def count_of(count: int, singular: str, many: str = "") -> str:
    """A number of things in words: "1 row" or "2,000 rows"; ``many``: the plural that is not ``singular`` with an s."""
    return f"{count:,} {singular if count == 1 else many or f'{singular}s'}"


def for_terminal(text: str) -> str:
    """The text of a number, or a sentence with some, in characters that every terminal has."""
    return "unknown" if text == UNKNOWN else text.translate(_PLAIN)


def counted_text(parties: int, in_part: int) -> str:
    """How many parties are in a mean, and how many of these with a part of what they have: "5 parties, 2 in part"."""
    return f"{parties} parties" + (f", {in_part} in part" if in_part else "")


# So many names of those with one reason.
_NAMED = 3


def listed(names: Collection[str]) -> str:
    """All names, or the first of many and how many more there are."""
    shown = list(names)
    if len(shown) <= _NAMED + 1:
        return ", ".join(shown)
    return some_of(shown, _NAMED)


def grouped(reasons: Mapping[str, str], kind: Callable[[str], str] = str) -> str:
    """``reasons`` by name. Those of one ``kind`` count as the same, of which the first is said."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(kind(reason), []).append(name)
    return "; ".join(f"{listed(names)}: {reasons[names[0]]}" for names in groups.values())


def but_for_names(names: Collection[str]) -> Callable[[str], str]:
    """A kind for :func:`grouped`: what is left of a reason without the names in it, and without how many they are."""
    any_name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    lists = re.compile(rf"(?:{any_name})(?:, (?:{any_name}))*(?: and \d+ more)?")
    return lambda reason: lists.sub("...", reason)


@dataclass(frozen=True)
class Fact:
    """A figure that people read. Who shows it may shorten the ``sentence``, and writes no figure of its own.

    ``error``: a standard error in the units of ``value``, or what the figure is: "exact", or an "upper bound".
    ``condition``: against whom, or under what, it holds.
    """

    key: str
    value: float
    error: float | str
    condition: str
    sentence: str


def chained(said: Iterable[str], between: str = "; ") -> str:
    """Make one phrase of several, with what stands between them; empty without any."""
    first, *others = [one for one in said if one] or [""]
    for one in others:
        first = phrase(f"{{first}}{between}{{next}}", first=first, next=one)
    return first


@dataclass(frozen=True)
class ShortFact:
    """One thing in a few words, for the first screen."""

    key: str
    text: str

    @property
    def word(self) -> Phrase:
        """The key, for who says it in another language."""
        return phrase(self.key)


_T = TypeVar("_T")


@dataclass(frozen=True)
class AlwaysFact(Generic[_T]):
    """What a first screen shows wherever it holds. ``key``: a word; ``always``: does it hold; ``text``: for people."""

    key: str
    always: Callable[[_T], object]
    text: Callable[[_T], str]


def facts_that_hold(facts: Iterable[AlwaysFact[_T]], subject: _T) -> list[ShortFact]:
    """Say of a ``subject``, such as a study's end, each of these facts that holds of it."""
    return [ShortFact(fact.key, fact.text(subject)) for fact in facts if fact.always(subject)]


# Columns of a screen, and where the text of a line begins that has a label, or a mark for what must not be missed.
SCREEN, _LABEL, _MARK = 80, 10, 14


def indented(label: str, text: str, indent: int = _LABEL) -> list[str]:
    """The lines of a ``text`` behind its ``label``, of 80 columns at most but for words that are longer."""
    lines = wrapped(printable(text), SCREEN - indent) or [""]
    return [f"{start.ljust(indent)}{line}".rstrip() for start, line in zip((label, *[""] * len(lines)), lines, strict=False)]


# What belongs to the number before it, or to the one behind, stays on its line.
_TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=\d) (?=of \d)|(?<=\d of) (?=\d)|(?<=\w) (?== [-\d])|(?<= =) (?=[-\d])")
_JOINT = "\0"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The lines of a text; no word is broken, and no number is parted from what it counts. Lines below begin with ``indent``."""
    lines = textwrap.wrap(
        _TOGETHER.sub(_JOINT, text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_JOINT, " ") for line in lines]


def marked(key: str, text: str) -> list[str]:
    """The lines of what must not be missed: "! AWAY       west is not in the answer (19 of 20 are)."."""
    return indented(f"! {key} ", text, _MARK)


def printable(text: str) -> str:
    """A peer's text, safe for one line of a log."""
    return "".join(character if character.isprintable() else "?" for character in text)
