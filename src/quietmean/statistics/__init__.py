"""From means to statistics: encode records as bounded vectors, decode the mean of vectors."""

from quietmean.statistics.means import ColumnMeans, Encoded
from quietmean.statistics.table import read_columns

__all__ = ["ColumnMeans", "Encoded", "read_columns"]
