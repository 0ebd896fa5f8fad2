"""A study on this machine, whichever way its parties compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quietmean.core.assumptions import QueryStatement
from quietmean.planning.plan import Plan
from quietmean.statistics import Encoded
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome import local
from quietmean.studies.outcome.outcome import StudyRun


def execute(
    study: StudyTerms,
    plan: Plan,
    encoded: Sequence[Encoded],
    names: Sequence[str],
    query: QueryStatement,
    report: local.Report,
    *,
    processes: bool = False,
) -> StudyRun:
    """Run the parties in this process, or each as one of its own (``processes``), which a committee's contributors never are.

    Who drops out is drawn; ``query``: of the data's owner.

    Raises :class:`ProtocolFailure` without a result, :class:`ImpossibleResult` for one that cannot be.
    """
    if study.committee is not None:
        # What it needs takes long to import, and most studies do without.
        from quietmean.studies.outcome.opened_by_committee import run_with_committee

        run = run_with_committee(study, plan, encoded, names)
    else:
        kills = local.choose_kills(plan, study.dropouts)
        # The default is of parties on machines of their own.
        round_timeout = study.round_timeout if "round_timeout" in study.model_fields_set else None
        run = local.run_study(
            study, plan, encoded, names, kills=kills, round_timeout=round_timeout, report=report, processes=processes
        )
    return replace(run, outcome=replace(run.outcome, query=query))
