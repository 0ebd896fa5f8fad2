"""Studies: what several parties agree to compute, and how it is run, certified and recorded."""

from quietmean.studies.agreement.study import Study
from quietmean.studies.outcome.outcome import StudyOutcome, conclude, gate_summary, save_impossible, save_refusal

__all__ = ["Study", "StudyOutcome", "conclude", "gate_summary", "save_impossible", "save_refusal"]
