"""A study on this machine, whichever way its parties compute."""

from __future__ import annotations

from collections.abc import Sequence

from quietmean.planning.plan import Plan
from quietmean.statistics import Encoded
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome import local


def execute(study: StudyTerms, plan: Plan, encoded: Sequence[Encoded], report: local.Report) -> local.LocalStudy:
    """Among real processes; with a committee in this one. Who drops out is drawn.

    Raises :class:`ProtocolFailure` without a result, :class:`ImpossibleResult` for one that cannot be.
    """
    if study.committee is not None:
        # What it needs takes long to import, and most studies do without.
        from quietmean.studies.outcome.local_committee import run_with_committee

        return run_with_committee(plan, study.workload, encoded, dropouts=study.dropouts)
    kills = local.choose_kills(plan, study.dropouts)
    # The default is of parties on machines of their own.
    round_timeout = study.round_timeout if "round_timeout" in study.model_fields_set else None
    return local.run_study(plan, study.workload, encoded, kills=kills, round_timeout=round_timeout, report=report)
