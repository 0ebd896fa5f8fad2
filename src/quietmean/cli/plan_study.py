"""``quietmean plan --study``: the plan that all parties of a study will make, and what its statistics can tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import out, print_json, progress, warn
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.readable import epsilon_text

if TYPE_CHECKING:
    from quietmean.planning.plan import Plan
    from quietmean.studies.agreement.deadlines import Deadlines


def plan_study(
    path: Path,
    roster: Path | None,
    parties: int | None,
    records: int | None,
    plan_file: Output | None,
    no_privacy: bool,
    json: bool,
    *,
    protocol: str | None = None,
    width: float | None = None,
    power: float | None = None,
) -> None:
    """Plan a sealed study, or one for the parties of a roster, or so many; ``records`` in all, if the study does not say.

    ``protocol``: instead of what the study names, to see what it would cost. ``width``, ``power``: what is wanted of headlines.
    Raises :class:`InputError` for what cannot be planned, or was agreed on already.
    """
    from quietmean.protocols import resolve
    from quietmean.protocols.target import budget_warnings
    from quietmean.statistics.expectation import STUDIES
    from quietmean.studies import StudyTerms
    from quietmean.studies.agreement.any_study import require_study
    from quietmean.studies.agreement.signed import is_signed_document
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.party import agreed_files

    if parties is None or roster is not None or is_signed_document(path):
        asked, members, _ = agreed_files(path, roster)
        study = require_study(asked)
        if parties not in (None, len(members)):
            raise InputError(f"--parties {parties} stands beside {len(members)} parties that are known: leave it out")
        count = len(members)
    else:
        study, count = StudyTerms.load(path), parties
    if protocol is not None:
        name, options = resolve(protocol, study.options)
        study = study.model_copy(update={"protocol": name, "options": options})
    units = study.public_records(count, records)
    with progress("calibrating"):
        plan = study.plan(count, no_privacy=no_privacy)
    for sentence in budget_warnings(plan.target, units):
        warn(sentence)
    if units is None:
        warn("how many records there are is not known, so no widths: give --records N, or records = N in the study file")
        sentences, expected, needed = [], [], []
    else:
        forecast = Forecast(study, plan, units, STUDIES)
        with progress("drawing studies"):
            if width is None and power is None:
                forecast.require_hope()
            sentences, expected = forecast.sentences(), forecast.to_json()
            needed = forecast.needed(width, power)
    if plan_file is not None:
        plan_file.write_json(plan.to_json())
    if json:
        print_json(_document(plan) | {"expected": expected, "needed": [one.to_json() for one in needed]})
        return
    if first := plan.above_target or plan.nats_kept:
        out.print(first, markup=False)
    target = plan.target
    out.print(
        f"{plan.protocol.name} for {target.parties} parties: epsilon a priori {epsilon_text(plan.epsilon_a_priori)} at delta "
        f"{target.delta:g}; plan {plan.digest[:12]}",
        markup=False,
    )
    if study.deadlines is not None:
        out.print(_in_folder(study.deadlines, plan), markup=False)
    for sentence in [*sentences, *(one.sentence for one in needed)]:
        out.print(sentence, markup=False)


def _in_folder(deadlines: Deadlines, plan: Plan) -> str:
    """How long a study through a folder may take."""
    from quietmean.studies.agreement.deadlines import in_hours, in_words

    rounds = len(deadlines.timetable(plan).waits) - 1
    return (
        f"through a folder: {rounds} rounds of at most {in_hours(deadlines.interval)} after the start, for which it waits until "
        f"{in_words(deadlines.first)}; {in_hours(rounds * deadlines.interval)} in all at the most"
    )


def _document(plan: Plan) -> dict[str, Any]:
    return {
        "target": plan.target.describe(),
        "protocol": plan.protocol.name,
        "prediction": dict(plan.prediction),
        "epsilon_a_priori": plan.epsilon_a_priori,
        "digest": plan.digest,
    }
