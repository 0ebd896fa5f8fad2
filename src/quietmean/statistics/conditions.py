"""Which records a statistic is of: public conditions such as ``age >= 50 and sex == 'f'``.

A condition is a public function of one record. Where a missing value leaves open whether it holds, it does not.
"""

from __future__ import annotations

import ast
import datetime
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError, named
from quietmean.core.schema import nearest
from quietmean.statistics.columns import NO, YES, Column, Columns, domain_alone
from quietmean.statistics.statistic import Records, presence_of, raw
from quietmean.statistics.transforms import COMPARISONS, Expression

_EQUALS: Final[dict[type[ast.cmpop], Callable[[Array, Array], Mask]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
# Bounds of a column, as a question has them.
_DOMAIN = re.compile(r"(`[^`]+`|[^\W\d][\w-]*)\s+in\s+([^\s.]\S*?)\s*\.\.\s*([^\s)]+)")
# Is a value one of several, or none of them?
_MEMBER = (ast.In, ast.NotIn)


@dataclass(frozen=True)
class RowCondition(Expression):
    """Comparisons of numbers, dates and levels, joined by ``and``, ``or``, ``not``; levels and dates stand between quotes.

    ``==``, ``!=``, ``in (...)`` and ``not in (...)`` are for numbers and levels, ``<``, ``<=``, ``>``, ``>=`` for numbers and
    dates; a boolean column is a condition by itself. Raises :class:`InputError` for anything else.
    """

    what: ClassVar[str] = "condition"
    form: ClassVar[str] = "Write for example age >= 50 and sex == 'f', with levels between quotes"
    most_characters: ClassVar[int] = 300

    @property
    def _unreadable(self) -> InputError:
        domain = _DOMAIN.search(self.text)
        if domain is None:
            return super()._unreadable
        name, low, high = domain.groups()
        return InputError(
            f"{self.what} {self.text!r} has bounds, which do not belong there. Write {name} >= {low} and {name} <= {high}. "
            f"{domain_alone(name)}, with its own bounds."
        )

    def require_of(self, columns: Columns) -> None:
        """Raises :class:`InputError` for a condition that is none of these columns."""
        lacking = self.without(columns.names)
        if lacking[1:]:
            names = " and ".join(repr(name) for name, _ in lacking)
            raise InputError(f"{self.what} {self.text!r} has {names}, which are not declared columns.{_beside(lacking)}")
        for name, form in lacking:
            near = nearest(name, columns.names)
            raise InputError(
                f"{self.what} {self.text!r} has {name!r}, which is not a declared column{near}. Choose one of "
                f"{', '.join(columns.names)}, with levels between quotes. {domain_alone(name, form)} if it is another column."
            )
        self._truth(self._tree, {column.name: column for column in columns}, None)

    def without(self, known: Collection[str]) -> list[tuple[str, str]]:
        """The columns in it that are not ``known``, each with the form that it needs as it stands there."""
        forms = dict.fromkeys((name for name in self.sources if name not in known), "yes/no")
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Compare):
                texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
                in_order = any(type(op) in COMPARISONS for op in node.ops)
                form = ("FIRST..LAST" if in_order else "{A, B}") if texts else "LOW..HIGH"
                forms |= dict.fromkeys((name for name in self.named_in(node) if name in forms), form)
        return [*forms.items()]

    def holds(self, columns: Columns, records: Records) -> Mask:
        """Whether it holds for each record, (rows,)."""
        truth = self._truth(self._tree, {column.name: column for column in columns}, records)
        inside: Mask = truth == 1
        return inside

    def _check(self, tree: ast.expr) -> None:
        """What the texts, levels and numbers in it are is for the columns to say."""

    def _truth(self, node: ast.expr, columns: Mapping[str, Column], records: Records | None) -> Array:
        """1 where it is true, 0 where false, NaN where that is open, (rows,); without records it is checked only."""
        match node:
            case ast.BoolOp(op=op, values=parts):
                decisive = 0.0 if isinstance(op, ast.And) else 1.0
                each = np.stack([self._truth(part, columns, records) for part in parts])
                decided: Array = np.where((each == decisive).any(axis=0), decisive, each.sum(axis=0) * 0 + 1 - decisive)
                return decided
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return 1 - self._truth(operand, columns, records)
            case ast.Name() if (column := self._column(node, columns)) is not None and column.boolean:
                return np.zeros(0) if records is None else records[column.name]
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = list(pairwise([left, *others]))
                each = np.stack([self._pair(*pair, op, columns, records) for pair, op in zip(sides, ops, strict=True)])
                # As ``and`` has it.
                every: Array = np.where((each == 0).any(axis=0), 0.0, each.sum(axis=0) * 0 + 1)
                return every
        raise self._unknown_part()

    def _pair(
        self, left: ast.expr, right: ast.expr, op: ast.cmpop, columns: Mapping[str, Column], records: Records | None
    ) -> Array:
        """Read one comparison of a column with a value."""
        if isinstance(op, _MEMBER):
            if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
                raise self._refused("has no values in brackets after in. Write for example stage in ('II', 'III').")
            each = np.stack([self._pair(left, element, ast.Eq(), columns, records) for element in right.elts])
            one_of: Array = each.max(axis=0)
            return 1 - one_of if isinstance(op, ast.NotIn) else one_of
        for one, other in ((left, right), (right, left)):
            column = self._column(one, columns)
            if column is not None and (not column.numeric or (column.since and isinstance(other, ast.Constant))):
                return self._of_column(column, one is left, other, op, records)
        values = [self._numbers(side, columns, records) for side in (left, right)]
        days = {columns[name].since for side in (left, right) for name in self.named_in(side)} - {""}
        if len(days) > 1:
            raise self._refused("compares dates since different days. Give all of them the same day since.")
        compare = COMPARISONS.get(type(op), _EQUALS.get(type(op)))
        if compare is None:
            raise self._refused("compares in a way that is not known. Use one of < <= > >= == != in.")
        return _open_where_missing(compare(*values), values[0] + values[1])

    def _of_column(self, column: Column, first: bool, other: ast.expr, op: ast.cmpop, records: Records | None) -> Array:
        """A column with levels, or dates, against a constant; ``first``: the column stands before it."""
        constant = other.value if isinstance(other, ast.Constant) else None
        if column.numeric:
            constant_value, values = self._day(column, constant), np.zeros(0) if records is None else records[raw(column.name)]
        elif type(op) in _EQUALS:
            constant_value, values = self._level(column, constant), np.zeros(0) if records is None else records[column.name]
        else:
            raise self._refused(f"has an order of {column.name}, whose levels have none. Use == != or in.")
        compare = COMPARISONS.get(type(op), _EQUALS.get(type(op)))
        if compare is None:
            raise self._refused("compares in a way that is not known. Use one of < <= > >= == != in.")
        against = np.full(len(values), constant_value)
        return _open_where_missing(compare(values, against) if first else compare(against, values), values)

    def _numbers(self, node: ast.expr, columns: Mapping[str, Column], records: Records | None) -> Array:
        """An expression of numbers, (rows,)."""
        self._check_number(node)
        for name in self.named_in(node):
            if columns[name].levels:
                levels = ", ".join(columns[name].categories)
                raise self._refused(f"computes with {name}, which has levels. Compare it with one of {levels} between quotes.")
        values = {
            name: np.zeros(0) if records is None else records[raw(name) if column.numeric else name]
            for name, column in columns.items()
        }
        with np.errstate(all="ignore"):
            return self._value(node, values)

    def _column(self, node: ast.expr, columns: Mapping[str, Column]) -> Column | None:
        """The column that a node names, and nothing else."""
        return columns[self._words.get(node.id, node.id)] if isinstance(node, ast.Name) else None

    def _level(self, column: Column, constant: Any) -> float:
        if isinstance(constant, bool) and column.boolean:
            constant = YES if constant else NO
        text = f"{constant:g}" if isinstance(constant, int | float) else constant
        if text not in column.categories:
            shown = "something else" if constant is None else repr(constant)
            raise self._refused(
                f"compares {column.name} with {shown}: it has the levels {', '.join(column.categories)}, written between quotes"
            )
        return float(column.categories.index(text))

    def _day(self, column: Column, constant: Any) -> float:
        if isinstance(constant, int | float) and not isinstance(constant, bool):
            return float(constant)
        try:
            return float((datetime.date.fromisoformat(constant) - datetime.date.fromisoformat(column.since)).days)
        except (TypeError, ValueError):
            raise self._refused(
                f"compares the date {column.name} with {constant!r}. Write days as 'YEAR-MONTH-DAY' between quotes."
            ) from None

    def _refused(self, why: str) -> InputError:
        return InputError(f"{self.what} {self.text!r} {why}")


def _open_where_missing(truth: Mask, missing: Array) -> Array:
    """0 or 1, NaN where a value is missing."""
    return np.where(np.isnan(missing), np.nan, truth.astype(np.float64))


def to_add(condition: str, known: Collection[str]) -> str:
    """What to do for the columns of a condition that are not ``known``; "" where it has none, or cannot be read."""
    with suppress(InputError):
        return _beside(RowCondition(condition).without(known)).strip() if condition else ""
    return ""


def _beside(columns: Sequence[tuple[str, str]]) -> str:
    each = "each as " if columns[1:] else "as "
    texts = " and ".join(f'"{name} in {form}"' for name, form in columns)
    return f" For the condition add {texts} {each}{named('alone', file='a text of its own in ask')}." if columns else ""


def by_columns(columns: Columns, records: Array) -> Records:
    """Records, (rows, columns), as features and conditions take them: by column, clamped, with what counts in place of missing
    values (NaN) and where they are."""
    found: dict[str, Array] = {}
    for index, column in enumerate(columns):
        values = records[:, index]
        if column.numeric:
            found[column.name] = np.clip(np.where(np.isnan(values), column.centre, values), column.low, column.high)
            found[raw(column.name)] = values
        else:
            levels = np.arange(len(column.categories))
            found[column.name] = values = np.where(np.isin(values, levels), values, np.nan)
        found[presence_of(column.name)] = (~np.isnan(values)).astype(np.float64)
    return found
