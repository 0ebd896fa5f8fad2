"""Public transforms of columns: differences, ratios, powers, logarithms and thresholds, as in ``log(crp)`` or ``bmi >= 30``.

A transform is a public function of one record. Its bounds follow from those of the columns in it where none are declared.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError, named
from quietmean.core.schema import nearest
from quietmean.statistics.names import NAMES_STAND, in_plain_words

# The range of an expression: its least and its largest value.
Range = tuple[float, float]

FUNCTIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
}
_OPERATORS: Final[dict[type[ast.operator], Callable[[Array, Array], Array]]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Array, Array], Mask]]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}


class NoBoundsError(InputError):
    """The bounds of a transform do not follow from those of its columns."""


@dataclass(frozen=True)
class Expression:
    """A text of columns, numbers and the known functions; names that are no plain words stand between backquotes.

    ``what``: what it is in sentences; ``form``: how to write one.
    """

    text: str

    what: ClassVar[str] = "transform"
    form: ClassVar[str] = "Write for example log(crp), discharge - admission, bmi^2 or bmi >= 30"
    most_characters: ClassVar[int] = 200

    def named_in(self, tree: ast.AST) -> tuple[str, ...]:
        """The columns in a part of it, in their order."""
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
        return tuple(dict.fromkeys(self._words.get(name, name) for name in names))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The columns in it, in their order. Raises :class:`InputError` where there is none."""
        names = self.named_in(self._tree)
        if not names:
            raise InputError(f"{self.what} {self.text!r} has no column in it. {self.form}.")
        return names

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions in it, known or not."""
        return tuple(re.findall(r"([^\W\d]\w*)\s*\(", self._plain[0]))

    @property
    def _words(self) -> dict[str, str]:
        """The names that stand between backquotes, by a plain word for each."""
        return self._plain[1]

    @cached_property
    def _plain(self) -> tuple[str, dict[str, str]]:
        return in_plain_words(self.text.strip(), {"^": "**"})

    @cached_property
    def _tree(self) -> ast.expr:
        if len(self.text) > self.most_characters:
            raise InputError(
                f"a {self.what} has {len(self.text)} characters: at most {self.most_characters}. Declare parts of it as columns."
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                tree = ast.parse(self._plain[0], mode="eval").body
        except (SyntaxError, ValueError, RuntimeError, MemoryError):
            raise self._unreadable from None
        self._check(tree)
        return tree

    @property
    def _unreadable(self) -> InputError:
        return InputError(f"{self.what} {self.text!r} cannot be read. {self.form}{NAMES_STAND}.")

    def _check(self, tree: ast.expr) -> None:
        self._check_number(tree)

    def _check_number(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return
            case ast.Name():
                return
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                self._check_number(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                self._check_number(left)
                self._check_number(right)
                if isinstance(op, ast.Pow) and _constant(right) is None:
                    raise InputError(f"{self.what} {self.text!r} has a power that is not a number. Write for example bmi^2.")
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
                if name not in FUNCTIONS:
                    functions = ", ".join(FUNCTIONS)
                    raise InputError(
                        f"{self.what} {self.text!r} has no function {name!r}{nearest(name, FUNCTIONS)}. "
                        f"Choose one of {functions}."
                    )
                self._check_number(argument)
            case _:
                raise self._unknown_part()

    def _unknown_part(self) -> InputError:
        return InputError(f"{self.what} {self.text!r} has a part that is not known. {self.form}{NAMES_STAND}.")

    def _value(self, node: ast.expr, columns: Mapping[str, Array]) -> Array:
        match node:
            case ast.Constant(value=int() | float() as value):
                return np.full(len(next(iter(columns.values()))), float(value))
            case ast.Name(id=name):
                return columns[self._words.get(name, name)]
            case ast.UnaryOp(op=op, operand=operand):
                inner = self._value(operand, columns)
                return -inner if isinstance(op, ast.USub) else inner
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](self._value(left, columns), self._value(right, columns))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return FUNCTIONS[name](self._value(argument, columns))
        raise self._unknown_part()


@dataclass(frozen=True)
class Transform(Expression):
    """An expression of columns; names that are no plain words stand between backquotes.

    Raises :class:`InputError` for anything but numbers, columns, + - * / ^, the known functions, and one comparison of two.
    """

    @property
    def compares(self) -> bool:
        """Is it a threshold, true or false for each record?"""
        return isinstance(self._tree, ast.Compare)

    def values(self, columns: Mapping[str, Array]) -> Array:
        """The values of the expression, from columns of (rows,) each; NaN where one is missing or it has none.

        A threshold is 0 or 1.
        """
        with np.errstate(all="ignore"):
            tree = self._tree
            if isinstance(tree, ast.Compare):
                left, right = self._value(tree.left, columns), self._value(tree.comparators[0], columns)
                truth = COMPARISONS[type(tree.ops[0])](left, right).astype(np.float64)
                truth[np.isnan(left + right)] = np.nan
                return truth
            return np.asarray(self._value(tree, columns), dtype=np.float64)

    def range(self, columns: Mapping[str, Range]) -> Range:
        """Between which bounds it lies if its columns lie in theirs: by interval arithmetic, which may be wider than need be.

        Raises :class:`InputError` where that gives none, such as the logarithm of what may be 0.
        """
        with np.errstate(all="ignore"):
            low, high = self._range(self._tree, columns)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise NoBoundsError(
                f"transform {self.text!r} has no bounds, for its columns may make it infinite or undefined. Declare them with "
                f"{named('bounds', 'LOW', 'HIGH', file='low and high')}."
            )
        return low, high

    def _check(self, tree: ast.expr) -> None:
        inside = [tree.left, *tree.comparators] if isinstance(tree, ast.Compare) else [tree]
        if isinstance(tree, ast.Compare) and (len(tree.ops) != 1 or type(tree.ops[0]) not in COMPARISONS):
            raise InputError(f"transform {self.text!r} compares in a way that is not known. Use one of < <= > >=, once.")
        for part in inside:
            self._check_number(part)

    def _range(self, node: ast.expr, columns: Mapping[str, Range]) -> Range:
        match node:
            case ast.Constant(value=int() | float() as value):
                return float(value), float(value)
            case ast.Name(id=name):
                return columns[self._words.get(name, name)]
            case ast.UnaryOp(op=op, operand=operand):
                low, high = self._range(operand, columns)
                return (-high, -low) if isinstance(op, ast.USub) else (low, high)
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(op, self._range(left, columns), self._range(right, columns))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                low, high = self._range(argument, columns)
                ends = FUNCTIONS[name](np.array([low, high]))
                return (0.0 if name == "abs" and low < 0 < high else float(ends.min())), float(ends.max())
        raise self._unknown_part()


def _constant(node: ast.expr) -> float | None:
    """The number that a node is, with its sign; None for any other."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -float(value)
        case ast.Constant(value=int() | float() as value):
            return float(value)
    return None


def _combined(op: ast.operator, left: Range, right: Range) -> Range:
    """All ends against each other: right for operations that are monotone in both, and even powers turn at 0."""
    if isinstance(op, ast.Div) and right[0] <= 0 <= right[1]:
        return -np.inf, np.inf
    lefts, rights = np.meshgrid(np.array(left), np.array(right))
    ends = _OPERATORS[type(op)](lefts, rights)
    low, high = float(ends.min()), float(ends.max())
    if isinstance(op, ast.Pow) and left[0] < 0 < left[1]:
        if right[0] < 0:
            return -np.inf, np.inf
        low = min(low, 0.0)
    return low, high
