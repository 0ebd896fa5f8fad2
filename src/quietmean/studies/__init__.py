"""Studies: what several parties agree to compute, and how it is run, certified and recorded."""

from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome, conclude, gate_summary, save_impossible, save_refusal

__all__ = ["StudyOutcome", "StudyTerms", "conclude", "gate_summary", "save_impossible", "save_refusal"]
