"""Studies: what several parties agree to compute, and how it is run, certified and recorded."""

from quietmean.studies.outcome import StudyOutcome, conclude, gate_summary, save_impossible, save_refusal
from quietmean.studies.study import Study

__all__ = ["Study", "StudyOutcome", "conclude", "gate_summary", "save_impossible", "save_refusal"]
