"""From means to statistics: encode records as bounded vectors, decode the mean of vectors."""

from quietmean.queries.means import ColumnMeans, Encoded
from quietmean.queries.table import read_columns

__all__ = ["ColumnMeans", "Encoded", "read_columns"]
