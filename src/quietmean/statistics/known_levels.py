"""Levels that enough records have for the noise: the others leave models and tests, whose answers are as if nobody had declared
them.

Which levels stay depends on how many have them, never on how they go with anything else: under the hypothesis that they go with
nothing, tests of what stays keep their level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.influence_bounds import Around
from quietmean.statistics.intervals import HALF_A_RECORD, Flag, least_count, most_of
from quietmean.statistics.statistic import Released

LEFT_OUT = "level-left-out"


@dataclass(frozen=True, eq=False)
class KnownMargins:
    """The rows and the columns of a table that enough records have, by their indices.

    ``hidden_rows``, ``hidden_columns``: those that the noise hides, each with a number that its count is below.
    """

    rows: list[int]
    columns: list[int]
    hidden_rows: dict[int, int] = field(default_factory=dict)
    hidden_columns: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Array, noise: Array, records: float = math.inf) -> KnownMargins:
        """The known rows and columns of counts (rows, columns) of at most ``records``, with noise of covariance (cells, cells).

        A row or column that is left out counts in no sum of another.
        """
        shape = table.shape
        kept = [list(range(size)) for size in shape]
        hidden: list[dict[int, int]] = [{}, {}]
        while True:
            inside = np.zeros(shape)
            inside[np.ix_(*kept)] = 1.0
            lost = False
            for axis in (0, 1):
                for level in list(kept[axis]):
                    weights = np.zeros(shape)
                    weights[(level, slice(None)) if axis == 0 else (slice(None), level)] = 1.0
                    weights *= inside
                    count = float((weights * table).sum())
                    error = math.sqrt(max(float(weights.ravel() @ noise @ weights.ravel()), 0.0))
                    if is_hidden(count, error):
                        kept[axis].remove(level)
                        hidden[axis][level] = most_of(count, error, records)
                        lost = True
            if not lost:
                return cls(kept[0], kept[1], hidden[0], hidden[1])

    def within(self, table: Array, noise: Array) -> tuple[Array, Array]:
        """The counts that are left, and the covariance of their noise."""
        places = np.arange(table.size).reshape(table.shape)[np.ix_(self.rows, self.columns)]
        return table[np.ix_(self.rows, self.columns)], noise[np.ix_(places.ravel(), places.ravel())]


def is_hidden(count: float, error: float, least: float = HALF_A_RECORD) -> bool:
    """Does the noise hide whether anybody is counted, or is nobody? ``least``: as of :class:`Released`."""
    return count <= least_count(LEAST_PRESENT, error, least)


def levels_stay(around: Around, feature: Moments, declared: Sequence[Vertex]) -> bool:
    """Are the covariates of a model all of these, whichever of the results ``around`` it is?"""
    unit = np.eye(feature.size)
    alone = {other: unit[1 + index] for index, (constant, other) in enumerate(feature.edges) if constant is None}
    for column in dict.fromkeys(vertex.column for vertex in declared if vertex.level is not None):
        readers = [(unit[0] + alone[vertex]) / 2 for vertex in declared if vertex.column == column]
        levels = np.array([unit[0] - np.sum(readers, axis=0), *readers])
        parts = around.values(feature, levels)
        if parts is None:
            return False
        least = parts - around.moved(feature, levels)
        hidden = np.maximum(LEAST_PRESENT * around.noise(feature, levels), HALF_A_RECORD / around.shift.records)
        if (least <= hidden).any():
            return False
    return True


@dataclass(frozen=True, eq=False)
class KnownLevels:
    """The ``covariates`` that a model can have, and what is said of the others.

    For a column with levels, the vertices of those that enough records have, against the first of these.
    """

    covariates: tuple[Vertex, ...]
    flags: tuple[Flag, ...]

    @classmethod
    def of(cls, released: Released, feature: Moments, declared: Sequence[Vertex]) -> KnownLevels:
        quantities, noise = released.mean(feature), released.covariance(feature)
        unit = np.eye(feature.size)
        alone = {other: unit[1 + index] for index, (constant, other) in enumerate(feature.edges) if constant is None}
        kept: list[Vertex] = []
        flags: list[Flag] = []
        for column in dict.fromkeys(vertex.column for vertex in declared):
            own = [vertex for vertex in declared if vertex.column == column]
            if column.numeric:
                kept += own
                continue
            # A level is 1 or -1 over the complete records; a record with none of these levels has the first.
            readers = [(unit[0] + alone[vertex]) / 2 for vertex in own]
            readers.insert(0, unit[0] - np.sum(readers, axis=0))
            counts = [
                (
                    float(reader @ quantities) * released.weight,
                    math.sqrt(max(float(reader @ noise @ reader), 0.0)) * released.weight,
                )
                for reader in readers
            ]
            visible = [index for index, count in enumerate(counts) if not is_hidden(*count, released.least)]
            stay = [own[index - 1] for index in visible[1:]]
            kept += stay
            names = tuple(vertex.name for vertex in own)
            for index, level in enumerate(column.categories):
                if index in visible:
                    continue
                upper = most_of(*counts[index], released.weight)
                prefix = f"{column.name}: fewer than {upper:,.0f} records have the level {level}"
                if index:
                    flags.append(Flag(LEFT_OUT, f"{prefix}, too few for the noise: no coefficient", (names[index - 1],), upper))
                elif stay:
                    others = f"coefficients are against {column.categories[visible[0]]}"
                    flags.append(Flag(LEFT_OUT, f"{prefix}, which others are compared with: {others}", names, upper))
                else:
                    flags.append(Flag(LEFT_OUT, f"{prefix}, which others are compared with: no coefficient", names, upper))
        return cls(tuple(kept), tuple(flags))

    def completed(self, estimates: Estimates, terms: Sequence[str]) -> Estimates:
        """The estimates of all ``terms``, where nothing is known about those that were left out."""
        return replace(estimates.completed(terms), flags=(*estimates.flags, *self.flags))
