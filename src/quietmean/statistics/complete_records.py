"""What statistics of complete records have in common: how their fields name columns, and the moments that they release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from quietmean.core.schema import parameter
from quietmean.statistics.around import Around
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.features import Moments, Vertex, vertices_of
from quietmean.statistics.fields import names_field, require_names, sides_of
from quietmean.statistics.known_levels import KnownLevels
from quietmean.statistics.moments_bound import MovedMoments
from quietmean.statistics.products import CentredMoments, moments_of, moved_products
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic

# The correlation of columns that is assumed where a statistic asks for it and the study states none.
_RELATION = 0.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfColumns(Statistic):
    """A statistic of two or more columns of numbers that play the same part."""

    by_place = ("columns",)
    expects = ("correlation",)
    takes_all = True

    columns: tuple[str, ...] = names_field("the columns, of numbers", "columns")

    def synthesize(self, scenario: SyntheticRecords) -> None:
        usual = _RELATION if self.asks_for_relations else 0.0
        correlation = scenario.expected("correlation")
        for first, second in pairwise(self.columns):
            scenario.correlate(second, [scenario.normal(first)], [usual if correlation is None else correlation])

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._moments(columns),)

    def _moments(self, columns: Columns) -> Moments:
        require_names(self.name, self.columns, 2)
        return moments_of(self._vertices(columns))

    def _vertices(self, columns: Columns) -> tuple[Vertex, ...]:
        return tuple(Vertex(columns.number(name)) for name in self.columns)

    def _terms(self, pairs: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """The names of pairs of columns, ``age:bmi``."""
        return tuple(f"{self.columns[i]}:{self.columns[j]}" for i, j in pairs)

    def _terms_with(self, column: Column, pairs: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """The terms of the pairs that this column is in."""
        return self._terms(pair for pair in pairs if column.name in [self.columns[index] for index in pair])

    def _moved(self, around: Around, columns: Columns) -> MovedMoments | None:
        """How far moments of the columns move, in their order."""
        return moved_products(around, self._moments(columns), self._vertices(columns))

    def _centred(self, released: Released, columns: Columns) -> CentredMoments | None:
        """The moments of the columns, in their order; None where noise hides whether any record is complete."""
        return CentredMoments.of(released, self._moments(columns), self._vertices(columns))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Regression(Statistic):
    """A regression of an outcome on columns.

    A column with levels has a vertex for each level but the first; levels that the noise hides are left out of the fit.
    """

    by_place = ("formula",)

    formula: str = parameter(help="outcome ~ column + column ...")

    @property
    def known_expectations(self) -> tuple[str, ...]:
        """Also what a covariate does, by its name: for one unit, or for each level against the first."""
        return (*super().known_expectations, *sides_of(self.formula)[1])

    @property
    def subject(self) -> str | None:
        return None

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._moments(columns),)

    @abstractmethod
    def _outcome(self, name: str, columns: Columns) -> Vertex:
        """Raises :class:`InputError` for a column that cannot be the outcome."""

    def _moments(self, columns: Columns) -> Moments:
        outcome, covariates = self._sides(columns)
        return moments_of((*covariates, outcome), heavy=outcome)

    def _sides(self, columns: Columns) -> tuple[Vertex, tuple[Vertex, ...]]:
        """The outcome and the covariates."""
        outcome, names = sides_of(self.formula)
        return self._outcome(outcome, columns), tuple(vertex for name in names for vertex in vertices_of(columns[name]))

    def _known(self, released: Released, columns: Columns) -> KnownLevels:
        """The covariates of which the noise leaves enough."""
        return KnownLevels.of(released, self._moments(columns), self._sides(columns)[1])

    def _centred(self, released: Released, columns: Columns, covariates: tuple[Vertex, ...]) -> CentredMoments | None:
        """The moments of the covariates, then the outcome; None where noise hides whether any record is complete."""
        outcome, _ = self._sides(columns)
        return CentredMoments.of(released, self._moments(columns), (*covariates, outcome))
