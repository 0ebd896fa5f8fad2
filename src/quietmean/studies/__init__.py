"""Studies: what a consortium agrees on, run, certified and written down."""

from quietmean.studies.outcome import StudyOutcome, conclude
from quietmean.studies.study import Study

__all__ = ["Study", "StudyOutcome", "conclude"]
