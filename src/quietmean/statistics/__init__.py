"""Statistics: encode records as one bounded vector, decode the mean of vectors.

Those of other distributions register by the entry point group ``quietmean.statistics``.
"""

from quietmean.statistics.answers import Answer, column_means, combined
from quietmean.statistics.coding import Encoded, what_did_not_fit
from quietmean.statistics.columns import INDICATOR, Column, Columns, DeclaredColumn
from quietmean.statistics.delta_method import CellCounts, OfCells, SmoothTerm
from quietmean.statistics.estimate import Estimate, Flag, HypothesisTest, t_test
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock, PrefixTable
from quietmean.statistics.influence_bounds import Around, TermReading
from quietmean.statistics.paired_columns import OfPair
from quietmean.statistics.registry import get_statistic, parse_statistic, read_text, registry
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import (
    Feature,
    Records,
    Released,
    Statistic,
    presence_of,
    raw,
    require_records,
)
from quietmean.statistics.workload import Workload

__all__ = [
    "INDICATOR",
    "Answer",
    "Around",
    "Axis",
    "CellCounts",
    "CellIndicators",
    "Column",
    "ColumnBlock",
    "Columns",
    "DeclaredColumn",
    "Encoded",
    "Estimate",
    "Estimates",
    "Feature",
    "Flag",
    "HypothesisTest",
    "OfCells",
    "OfPair",
    "PrefixTable",
    "Records",
    "Released",
    "SmoothTerm",
    "Statistic",
    "SyntheticRecords",
    "TermReading",
    "Workload",
    "column_means",
    "combined",
    "get_statistic",
    "parse_statistic",
    "presence_of",
    "raw",
    "read_text",
    "registry",
    "require_records",
    "t_test",
    "what_did_not_fit",
]
