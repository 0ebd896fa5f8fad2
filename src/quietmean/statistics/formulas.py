"""Formulas in Wilkinson's notation, read by formulaic; what a statistic of fixed columns needs of them is written out as columns.

``bmi ~ age*smoker + log(crp)`` becomes ``bmi ~ age + smoker + `log(crp)` + `age:smoker` ``, with two more columns, each a public
transform of others. So a study file says what is released, and who takes part needs no reader of formulas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from keyword import iskeyword
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.statistics.columns import CENTRE, INDICATOR, Column, Columns
from quietmean.statistics.complete_records import Regression
from quietmean.statistics.names import in_plain_words, quoted, split, unquoted
from quietmean.statistics.registry import parse_statistic, read_text, registry, with_own_name
from quietmean.statistics.transforms import FUNCTIONS, NoBoundsError, Transform

_MOST_LETTERS, _MOST_TERMS, LARGEST_POWER = 2000, 200, 9
# What separates terms in a formula, and formulas from what is beside them: names with it stand between backquotes.
SEPARATORS = "~+,"
_WHOLE = re.compile(r"(I|C)\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Formula:
    """``outcome ~ terms``. Raises :class:`InputError` for any other text."""

    text: str

    def __post_init__(self) -> None:
        if len(self.text) > _MOST_LETTERS:
            raise InputError(f"the formula has {len(self.text)} letters. Write one of up to {_MOST_LETTERS}.")
        if len(self.sides) != 2 or not self.sides[1].strip():
            raise InputError(f"{self.text!r} is not a formula. Write outcome ~ term + term, for example ill ~ age + arm.")

    @cached_property
    def sides(self) -> list[str]:
        return split(self.text, "~")

    @property
    def outcome(self) -> str:
        """The name on the left."""
        return unquoted(self.sides[0])

    @cached_property
    def plain(self) -> tuple[str, dict[str, str]]:
        """The right side as formulaic can read it, and the names by the words for them there."""
        return in_plain_words(self.sides[1].strip())

    @cached_property
    def terms(self) -> list[Any]:
        """The terms of formulaic, in plain words, with the intercept."""
        formulaic = import_extra("formulaic", "models", "a formula of more than columns")
        if any(int(power) > LARGEST_POWER for power in re.findall(r"(?:\*\*|\^)\s*(\d{1,9})", self.plain[0])):
            raise InputError(f"{self.text!r} has a power above {LARGEST_POWER}. Write interactions out.")
        try:
            terms = list(formulaic.Formula(self.plain[0]))
        # Its parser has errors of many kinds.
        except Exception as error:
            raise InputError(f"{self.text!r} cannot be read ({type(error).__name__}). Write outcome ~ term + term.") from None
        if len(terms) > _MOST_TERMS or not all(hasattr(term, "factors") for term in terms):
            raise InputError(f"{self.text!r} has more than {_MOST_TERMS} terms, or several parts. Write outcome ~ term + term.")
        return terms

    def named(self, text: str) -> str:
        """A text in plain words with the names that these mean, and powers as people write them."""
        text = re.sub(r"\s*(\*\*|\^)\s*", "^", text)
        for word, name in reversed(self.plain[1].items()):
            text = text.replace(word, _backquoted(name))
        return text


def written_out(
    columns: Sequence[Column], statistics: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Column, ...], tuple[dict[str, Any], ...]]:
    """The columns with those that terms of regressions are besides, and the statistics with only columns in their formulas.

    Raises :class:`InputError` for a term that is not a column, nor a public transform of columns to a number.
    """
    declared = {column.name: column for column in columns}
    if len(declared) < len(columns):
        # Names that stand twice are refused with the columns.
        return tuple(columns), tuple(map(dict, statistics))
    written = tuple(_statistic_written(raw, declared) for raw in statistics)
    if len(declared) > len(columns):
        # What is asked of all columns is asked of those that were declared.
        written = tuple(_of_all(raw, tuple(column.name for column in columns)) for raw in written)
    return tuple(declared.values()), written


def _statistic_written(given: Mapping[str, Any], declared: dict[str, Column]) -> dict[str, Any]:
    raw = with_own_name(given)
    if isinstance(of := raw.get("of"), str):
        inner = read_text(of)
        changed = _statistic_written(inner, declared)
        is_own = changed == inner and of.lstrip().startswith(f"{inner['kind']}(")
        return raw if is_own else {**raw, "of": parse_statistic(changed).text}
    kind, formula = registry().get(str(raw.get("kind"))), raw.get("formula")
    if kind is None or not issubclass(kind, Regression) or not isinstance(formula, str) or _is_of_names(formula, declared):
        return raw
    return {**raw, "formula": _Writing(Formula(formula), declared, kind.name).out()}


def _is_of_names(formula: str, declared: Collection[str]) -> bool:
    """Whether it has nothing but names, declared or not: what is wrong with these, others say."""
    sides = split(formula, "~")
    names = [unquoted(name) for name in (sides[0], *split(sides[-1], "+"))]
    return len(sides) != 2 or all(name in declared or name.isidentifier() or not name for name in names)


def _of_all(raw: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    kind = registry().get(str(raw.get("kind")))
    if kind is None or not kind.takes_all or raw.get(kind.by_place[-1]):
        return raw
    return {**raw, kind.by_place[-1]: [name for name in names if name != raw.get("by")]}


@dataclass(frozen=True)
class _Writing:
    """The writing of one formula of the statistic ``asked``; ``declared`` grows by the columns that its terms are."""

    formula: Formula
    declared: dict[str, Column]
    asked: str

    def out(self) -> str:
        outcome = self._column([self.formula.sides[0].strip()])
        names = [quoted(name, SEPARATORS) for name in dict.fromkeys(self._names())]
        return f"{quoted(outcome, SEPARATORS)} ~ {' + '.join(names)}"

    def _names(self) -> list[str]:
        """The columns that the terms are, in their order."""
        # A column's name with other signs may stand without backquotes, such as x-ray.
        pieces = [piece.strip() for piece in split(self.formula.sides[1], "+")]
        quoted_pieces = [f"`{piece}`" if piece in self.declared and "`" not in piece else piece for piece in pieces]
        formula = Formula(f"{self.formula.sides[0].strip()} ~ {' + '.join(quoted_pieces)}")
        terms = [[formula.named(str(factor.expr)) for factor in term.factors] for term in formula.terms]
        if ["1"] not in terms:
            raise self._refused("no intercept", "Leave - 1 or + 0 out")
        return [self._column(factors) for factors in terms if factors != ["1"]]

    def _column(self, factors: Sequence[str]) -> str:
        """The name of the column that a term is, with its factors as texts; a new one is declared."""
        parts = [self._part(factor, len(factors) > 1) for factor in factors]
        name = unquoted(parts[0])
        if len(parts) == 1 and (name in self.declared or name.isidentifier()):
            return name
        term = ":".join(" ".join(unquoted(part).split()) for part in parts)
        if term not in self.declared:
            self.declared[term] = self._made(term, " * ".join(f"({part})" if len(parts) > 1 else part for part in parts))
        return term

    def _part(self, factor: str, several: bool) -> str:
        """The transform that a factor is: without I(...) or C(...) around it."""
        whole = _WHOLE.fullmatch(factor)
        part = whole[2].strip() if whole is not None else factor
        name = unquoted(part)
        column = self.declared.get(name)
        if whole is not None and whole[1] == "C" and (column is None or column.numeric):
            raise self._refused(factor, "Declare a column with levels, the first of which is the reference")
        if several and column is not None and column.levels:
            raise self._refused(f"an interaction of {name!r}, which has levels,", "Ask with where for each of its levels")
        return part

    def _made(self, name: str, origin: str) -> Column:
        transform = Transform(origin)
        unknown = next((function for function in transform.calls if function not in FUNCTIONS), None)
        if unknown is not None:
            raise self._refused(f"{unknown}(...)", f"Use one of {', '.join(FUNCTIONS)}")
        known = Columns(self.declared.values())
        sources = [known[source] for source in transform.sources]
        rule = CENTRE if all(source.fills_in for source in sources) else INDICATOR
        column = Column.model_validate({"name": name, "from": origin, "missing": rule})
        try:
            # Where its bounds follow from those of its columns.
            Columns([*self.declared.values(), column])
        except NoBoundsError:
            raise self._refused(name, f"Declare a column from {origin!r} with bounds of its own, and name that") from None
        return column

    def _refused(self, what: str, way: str) -> InputError:
        return InputError(f"{self.asked} cannot have {what} in {self.formula.text!r}. {way}, or fit a model by rounds.")


def _backquoted(name: str) -> str:
    return name if name.isidentifier() and not iskeyword(name) else f"`{name.replace('`', '``')}`"
