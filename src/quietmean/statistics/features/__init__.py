"""Features that several statistics have in common, each with the proof of its sensitivity in docs/mathematics.md."""

from quietmean.statistics.features.block import ColumnBlock
from quietmean.statistics.features.crossed import Crossed
from quietmean.statistics.features.moments import Edge, Moments, Vertex, complete_edges, vertices_of
from quietmean.statistics.features.prefixes import PrefixTable
from quietmean.statistics.features.table import Axis, Table

__all__ = ["Axis", "ColumnBlock", "Crossed", "Edge", "Moments", "PrefixTable", "Table", "Vertex", "complete_edges", "vertices_of"]
