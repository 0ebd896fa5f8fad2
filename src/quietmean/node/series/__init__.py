"""Many executions of one plan by the same parties, agreed on once: the node of a session."""

from quietmean.node.series.party import RoundEnd, SeriesOver, SeriesProgress
from quietmean.node.series.series import Series

__all__ = ["RoundEnd", "Series", "SeriesOver", "SeriesProgress"]
