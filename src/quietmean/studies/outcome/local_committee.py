"""A study with a committee on this machine, in one process: real files, keys and members' machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quietmean.node.local import LocalOutcome
from quietmean.node.rehearsal import rehearse
from quietmean.planning.plan import Plan
from quietmean.randomness import BitStream, Seed
from quietmean.statistics import Encoded
from quietmean.studies.agreement.contribution import sharing_of
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.local import choose_dropouts, run_of
from quietmean.studies.outcome.opened_by_committee import outcome_of
from quietmean.studies.outcome.run import StudyRun


def run_with_committee(study: StudyTerms, plan: Plan, encoded: Sequence[Encoded], names: Sequence[str]) -> StudyRun:
    """Contributors with these ``encoded`` values each make one file, and the members of the plan's committee open one sum.

    The files of the fraction of contributors that the study lets drop out, rounded down, never come: those are ``killed``. Raises
    :class:`ImpossibleResult` for a sum that cannot be, and :class:`ProtocolFailure` if too few come.
    """
    parameters = sharing_of(plan).parameters(plan.target.parties)
    absent = sorted(choose_dropouts(plan, study.dropouts, BitStream(Seed.from_os())))
    came = [place for place in range(len(encoded)) if place not in absent]
    admitted = [plan.admit(part.vector, part.weight) for part in encoded]
    rehearsal = rehearse(
        parameters,
        np.array([admitted[place].vector for place in came]),
        [admitted[place].weight for place in came],
        statement=plan.input_domain.statement if parameters.verified else None,
    )
    counted = {came[number]: admitted[came[number]].weight for number in rehearsal.counted}
    outcome = outcome_of(plan, study.workload, rehearsal.checked, counted)
    seconds = sum(rehearsal.seconds)
    network = LocalOutcome({}, {}, tuple(absent), seconds, rehearsal.messages, rehearsal.bytes_sent)
    return run_of(study, plan, encoded, names, outcome, network)
