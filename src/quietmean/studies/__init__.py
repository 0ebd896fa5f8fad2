"""Studies: what several parties agree to compute, and how it is run, certified and recorded."""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.studies.agreement.study import StudyTerms
    from quietmean.studies.outcome.outcome import StudyOutcome, conclude, gate_summary
else:
    _OUTCOME = ("StudyOutcome", "conclude", "gate_summary")
    __getattr__ = importer(
        __name__, {"StudyTerms": "studies.agreement.study", **dict.fromkeys(_OUTCOME, "studies.outcome.outcome")}
    )

__all__ = ["StudyOutcome", "StudyTerms", "conclude", "gate_summary"]
