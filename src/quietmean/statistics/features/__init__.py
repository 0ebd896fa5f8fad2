"""Features that several statistics have in common, each with the proof of its sensitivity in docs/proofs/statistics.md."""

from quietmean.statistics.features.block import ColumnBlock, Crossed
from quietmean.statistics.features.moments import Edge, Moments, Vertex, complete_edges, orders_three_and_four, vertices_of
from quietmean.statistics.features.prefixes import PrefixTable
from quietmean.statistics.features.table import Axis, CellIndicators

__all__ = [
    "Axis",
    "CellIndicators",
    "ColumnBlock",
    "Crossed",
    "Edge",
    "Moments",
    "PrefixTable",
    "Vertex",
    "complete_edges",
    "orders_three_and_four",
    "vertices_of",
]
