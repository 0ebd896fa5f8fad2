"""Formulas in Wilkinson's notation, read by formulaic, of which only what cannot run a program is let through.

Everything that other programs compute from data for a term (knots, orthogonal polynomials, centres) is computed here from a
public sample of the columns' bounds and levels, so that no term depends on a record.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np
from scipy.stats import qmc

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.schema import nearest
from quietmean.statistics import Column, Columns
from quietmean.statistics.formulas import LARGEST_POWER, Formula
from quietmean.statistics.names import NAMES_STAND

# What a formula may call: transforms of formulaic that have no side effects and read nothing but columns.
ALLOWED = ("C", "I", "bs", "center", "cr", "cs", "exp", "log", "log10", "log2", "poly", "scale", "sqrt")
_PLAIN = (ast.Expression, ast.Constant, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd, ast.BinOp, ast.List, ast.Tuple)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
# The public sample: so many points, a tenth of them at each end of a column's bounds.
_POINTS, _BEYOND, _MOST_CORNERS = 1024, 0.1, 2048


@dataclass(frozen=True, eq=False)
class FormulaTerms:
    """The right side of a ``formula`` over public ``columns``, and what it makes of records.

    Raises :class:`InputError` for what is not a formula, calls what it must not, or names a column that is not declared.
    """

    formula: str
    columns: Columns

    def __post_init__(self) -> None:
        for term in self._written.terms:
            for factor in term.factors:
                self._require_harmless(str(factor.expr))

    @cached_property
    def _written(self) -> Formula:
        return Formula(self.formula)

    @property
    def outcome(self) -> str:
        """What stands on the left."""
        return self._written.outcome

    def _name(self, word: str) -> str:
        """The name that a plain word means."""
        return self._written.plain[1].get(word, word)

    def _require_harmless(self, plain: str) -> None:
        """Raises :class:`InputError` unless it is a sum or product of columns, numbers and calls of what is allowed."""
        expression = self._written.named(plain)
        try:
            parsed = ast.parse(plain.strip(), mode="eval")
        # Also what is too deep for it.
        except Exception:
            raise InputError(f"{expression!r} in the formula cannot be read. Use columns, numbers and {_called()}.") from None
        called = {id(node.func) for node in ast.walk(parsed) if isinstance(node, ast.Call)}
        for node in ast.walk(parsed):
            if id(node) in called:
                if not (isinstance(node, ast.Name) and node.id in ALLOWED):
                    raise InputError(f"{expression!r} in the formula calls what it must not. Use {_called()}.")
            elif isinstance(node, ast.Name):
                if (name := self._name(node.id)) not in self.columns.names:
                    near, declared = nearest(name, self.columns.names), ", ".join(self.columns.names)
                    raise InputError(f"column {name!r} in the formula is not declared{near}. Choose one of {declared}.")
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _is_small(node.right):
                raise InputError(
                    f"{expression!r} in the formula has a power that is not a number up to {LARGEST_POWER}. Write one."
                )
            elif not isinstance(node, (*_PLAIN, *_OPERATORS, ast.Call, ast.keyword)):
                raise InputError(
                    f"{expression!r} in the formula does more than it may. Use columns, numbers and {_called()}{NAMES_STAND}."
                )

    @cached_property
    def used(self) -> tuple[str, ...]:
        """The columns on the right, in the order in which they are declared."""
        names = {
            self._name(node.id)
            for term in self._written.terms
            for factor in term.factors
            for node in ast.walk(ast.parse(str(factor.expr).strip(), mode="eval"))
            if isinstance(node, ast.Name)
        }
        return tuple(name for name in self.columns.names if name in names)

    @cached_property
    def _spec(self) -> Any:
        """FormulaTerms with everything that they keep, from the public sample."""
        formulaic = import_extra("formulaic", "models", "a model with a formula")
        with np.errstate(all="ignore"):
            try:
                matrix = formulaic.Formula(self._written.plain[0]).get_model_matrix(
                    self._frame(self._sample), context={"sqrt": np.sqrt}, na_action="ignore"
                )
            except Exception as error:
                raise InputError(
                    f"the formula {self.formula!r} does not fit the columns ({type(error).__name__}). Write levels "
                    "by themselves or as C(...), numbers also in functions."
                ) from None
        return matrix.model_spec

    @property
    def names(self) -> tuple[str, ...]:
        """The scales of all columns of the design."""
        return tuple(self._written.named(str(name)) for name in self._spec.column_names)

    @property
    def groups(self) -> dict[str, Sequence[int]]:
        """The places of the columns of each term, by its name."""
        return {
            self._written.named(str(term)): list(range(*place.indices(len(self.names))))
            for term, place in self._spec.term_slices.items()
        }

    def design(self, records: Mapping[str, Array]) -> Array:
        """DesignRows (N, p) of complete records by column: numbers are cut at their bounds, levels are places."""
        count = len(next(iter(records.values()))) if records else 0
        if not count:
            return np.zeros((0, len(self.names)))
        with np.errstate(all="ignore"):
            matrix = self._spec.get_model_matrix(self._frame(records), context={"sqrt": np.sqrt}, na_action="ignore")
        rows: Array = np.asarray(matrix, dtype=np.float64)
        return rows

    @cached_property
    def public(self) -> Array:
        """The design (points, p) at public points that fill the bounds and have all levels.

        Raises :class:`InputError` where a term is not a number for some values within the bounds.
        """
        rows = self.design(self._sample)
        if not np.isfinite(rows).all():
            wrong = self.names[int(np.isfinite(rows).all(axis=0).argmin())]
            raise InputError(
                f"{wrong} is not a finite number everywhere within the bounds of its columns. Choose bounds within which it is."
            )
        return rows

    @property
    def levels_of_public(self) -> dict[str, Mask]:
        """Which public points have a level, (points,), by what messages call it."""
        return {
            f"{name} = {level}": self._sample[name] == place
            for name in self.used
            for place, level in enumerate(self.columns[name].categories)
        }

    @cached_property
    def _sample(self) -> dict[str, Array]:
        """Public values by column, (points,): low-discrepancy points, so that all parties have the same."""
        names = self.used
        if not names:
            return {self.columns.names[0]: np.zeros(1)}
        unit = np.vstack([qmc.Sobol(len(names), scramble=False).random(_POINTS), self._corners(names)])
        sample = {}
        for place, name in enumerate(names):
            column, points = self.columns[name], unit[:, place]
            if column.numeric:
                stretched = np.clip(points * (1 + 2 * _BEYOND) - _BEYOND, 0.0, 1.0)
                sample[name] = column.low + column.width * stretched
            else:
                sample[name] = np.minimum(np.floor(points * len(column.categories)), len(column.categories) - 1)
        return sample

    def _corners(self, names: Sequence[str]) -> Array:
        """All combinations of the ends of bounds, some places between, and levels, in [0, 1): terms are longest near some.

        Fewer where there are very many.
        """
        numbers = sum(self.columns[name].numeric for name in names)
        places = (0.0, 0.25, 0.5, 0.75, 1 - 1e-9) if numbers < 4 else (0.0, 0.5, 1 - 1e-9) if numbers < 6 else (0.0, 1 - 1e-9)
        sides = list[Sequence[float]]()
        for name in names:
            count = len(self.columns[name].categories)
            sides.append(places if not count else [(place + 0.5) / count for place in range(count)])
        return np.array(list(islice(product(*sides), _MOST_CORNERS)))

    def _frame(self, values: Mapping[str, Array]) -> Any:
        pandas = import_extra("pandas", "models", "a model with a formula")
        count = len(next(iter(values.values())))
        words = {name: word for word, name in self._written.plain[1].items()}
        cells = {words.get(name, name): _cells(self.columns[name], values[name]) for name in values}
        return pandas.DataFrame(cells, index=range(count))


def _cells(column: Column, values: Array) -> Any:
    pandas = import_extra("pandas", "models", "a model with a formula")
    if column.levels:
        return pandas.Categorical.from_codes(values.astype(np.int64), categories=list(column.categories))
    return values if column.boolean else np.clip(values, column.low, column.high)


def _is_small(power: ast.expr) -> bool:
    return isinstance(power, ast.Constant) and isinstance(power.value, int | float) and abs(power.value) <= LARGEST_POWER


def _called() -> str:
    return ", ".join(f"{name}(...)" for name in ALLOWED)


_STEPS = 250
# The least eigenvalue of the terms' correlations over the public sample, below which they are one term too many.
_COLLINEAR = 1e-8
# How much longer terms may be between the public points.
_BETWEEN = 1.005
# What is rounding in values of 0 and 1.
_NONE = 1e-6
_ALL = "all records"


@dataclass(frozen=True, eq=False)
class Level:
    """Records of one level of a column: the ``coefficients`` of the rows, (p,), with which these have 1 and the others 0, and the
    ``terms`` that depend on them."""

    name: str
    coefficients: Array
    terms: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ModelDesign:
    """The rows of ``terms`` in the unit ball. Raises :class:`InputError` for terms that are collinear whatever the data are."""

    terms: FormulaTerms

    @property
    def names(self) -> tuple[str, ...]:
        return self.terms.names

    @property
    def size(self) -> int:
        return len(self.names)

    @cached_property
    def scaling(self) -> Array:
        """T, (p, p): coefficients of the terms are T' times those of the rows."""
        public = self.terms.public
        lengths = np.sqrt(np.mean(public**2, axis=0))
        if (lengths == 0).any():
            raise InputError(f"the term {self.names[int(lengths.argmin())]} is 0 for all values within the bounds. Leave it out.")
        scaled = public / lengths
        values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
        if values[0] < _COLLINEAR:
            part = np.abs(vectors[:, 0])
            some = ", ".join(self.names[place] for place in np.argsort(-part)[:3] if part[place] > 0.05)
            raise InputError(f"Some terms are always a sum of the others ({some}). Leave one of them out.")
        weights = np.full(len(scaled), 1 / len(scaled))
        for _ in range(_STEPS):
            variances = _variances(scaled, weights)
            weights *= variances / len(values)
        information = (scaled * weights[:, None]).T @ scaled
        root = np.linalg.inv(np.linalg.cholesky(information))
        scaling: Array = root / np.sqrt(_variances(scaled, weights).max()) / lengths / _BETWEEN
        return scaling

    @property
    def constant(self) -> Array | None:
        """The coefficients of the rows with which every record has 1, (p,); None where the terms have no intercept."""
        return next((level.coefficients for level in self.levels if level.name == _ALL), None)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The part of all records, and of each level of a column, those that the terms can tell from the others."""
        there = {_ALL: np.ones(len(self.terms.public)), **self.terms.levels_of_public}
        values = np.column_stack(list(there.values())).astype(np.float64)
        public = self.terms.public @ self.scaling.T
        rows = np.linalg.solve(public.T @ public, public.T @ values).T
        matched = np.abs(public @ rows.T - values).max(axis=0) <= _NONE
        terms = np.abs(rows @ self.scaling) > _NONE
        return tuple(
            Level(name, np.asarray(own), tuple(np.array(self.names)[depends].tolist()))
            for name, own, depends, tells in zip(there, rows, terms, matched.tolist(), strict=True)
            if tells
        )

    def rows(self, records: Mapping[str, Array]) -> Array:
        """The rows of the design (N, p), of complete records by column; longer ones than 1, which rounding alone makes,
        are shortened."""
        rows = self.terms.design(records) @ self.scaling.T
        inside: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        return inside


def _variances(rows: Array, weights: Array) -> Array:
    information: Array = (rows * weights[:, None]).T @ rows
    variances: Array = ((rows @ np.linalg.inv(information)) * rows).sum(axis=1)
    return variances
