"""``quietmean plan --study``: the plan that all parties of a study will make, and what its statistics can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import out, print_json, progress, warn
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.readable import epsilon_text
from quietmean.core.schema import MOST

if TYPE_CHECKING:
    from quietmean.planning.plan import Plan
    from quietmean.studies.agreement.deadlines import Deadlines


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """A study to plan, and what is known or wanted of it.

    Parameters
    ----------
    study
        Plan this study instead of a target, and tell the expected widths of its intervals; refused if noise hides all. A sealed
        study, or a study file with --roster or --parties.
    roster
        Names, addresses and public keys of all parties of a study that is not sealed.
    records
        With --study: how many records all parties have together, as far as is public.
    width
        With --study: also say how many records or parties, or which epsilon, make the interval of each statistic's first answer
        no wider than this.
    power
        With --study: also say what gives each statistic's test this power at the 5 % level, such as 0.8, where the study's
        expect is true.
    """

    study: Path | None = None
    roster: Path | None = None
    records: int | None = None
    width: float | None = None
    power: float | None = None

    def require_possible(self) -> None:
        """Raises :class:`InputError` for what no study reaches."""
        if self.width is not None and not 0 < self.width < math.inf:
            raise InputError(f"width {self.width:g} is none that an interval can have: give --width a finite number above 0")
        if self.power is not None and not 0 < self.power < 1:
            raise InputError(
                f"power {self.power:g} is no chance of seeing an effect: give --power a number between 0 and 1, such as 0.8"
            )
        if self.records is not None and not 1 <= self.records <= MOST:
            raise InputError(f"records is {self.records}: give --records how many all parties have together, 1 to {MOST:g}")

    def require_study(self) -> None:
        """Raises :class:`InputError` for what says nothing where there is no study."""
        for pair in (("width", "power"), ("roster", "records")):
            if any(getattr(self, name) is not None for name in pair):
                options = " and ".join(f"--{name}" for name in pair)
                raise InputError(f"{options} say nothing without a study: give --study FILE too, or leave them out")


def plan_study(
    path: Path,
    options: StudyOptions,
    parties: int | None,
    plan_file: Output | None,
    *,
    protocol: str | None = None,
    no_privacy: bool = False,
    json: bool = False,
) -> None:
    """Plan a sealed study, or one for the parties of a roster, or so many.

    ``protocol``: instead of what the study names, to see what it would cost.
    Raises :class:`InputError` for what cannot be planned, or was agreed on already.
    """
    options.require_possible()
    from quietmean.planning.automatic import AUTO
    from quietmean.planning.explain import where_more_is_promised
    from quietmean.planning.ways import propose
    from quietmean.protocols import resolve
    from quietmean.protocols.target import budget_warnings
    from quietmean.statistics.expectation import STUDIES
    from quietmean.studies import StudyTerms
    from quietmean.studies.agreement.any_study import require_study
    from quietmean.studies.agreement.signed import is_signed_document
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.outcome.influence import StudyInfluence
    from quietmean.studies.party import agreed_files
    from quietmean.studies.party.committee_words import CommitteeWords

    if parties is None or options.roster is not None or is_signed_document(path):
        asked, members, sealed = agreed_files(path, options.roster)
        study = require_study(asked)
        count = len(members) if sealed is None else sealed.admitted
        if parties not in (None, count):
            raise InputError(f"--parties {parties} stands beside {count} parties that are known: leave it out")
    else:
        study, count = StudyTerms.load(path), parties
    if protocol is not None:
        name, protocol_options = resolve(protocol, study.options)
        study = study.model_copy(update={"protocol": name, "options": protocol_options})
    units = study.public_records(count, options.records)
    with progress("calibrating"):
        choice = study.choice(count, no_privacy=no_privacy)
    plan = choice.plan
    for sentence in budget_warnings(plan.target, units):
        warn(sentence)
    if units is None:
        warn("how many records there are is not known, so no widths: give --records N, or records = N in the study file")
        sentences, expected, needed = [], [], []
    else:
        forecast = Forecast(study, plan, units, STUDIES)
        with progress("drawing studies"):
            if options.width is None and options.power is None:
                forecast.require_hope()
            sentences, expected = forecast.sentences(), forecast.to_json()
            needed = forecast.needed(options.width, options.power)
    # Who names a protocol by file asks for one message of each party.
    one_message = study.protocol != AUTO and plan.protocol.by_file
    proposed = propose(plan, one_message=one_message) if one_message or study.protocol == AUTO else None
    influence = StudyInfluence.of_study(study, plan, options.records)
    if plan_file is not None:
        plan_file.write_json(plan.to_json())
    if json:
        moved = {"influence": None if influence is None else influence.to_json()}
        more = {} if proposed is None else {"proposed": proposed}
        print_json(_document(plan) | {"expected": expected, "needed": [remedy.to_json() for remedy in needed]} | moved | more)
        return
    if first := plan.above_target or plan.nats_kept:
        for sentence in (first, *where_more_is_promised(plan, plan.domain)):
            out.print(sentence, markup=False)
    target = plan.target
    out.print(
        f"{plan.protocol.name} for {target.parties} parties: epsilon a priori {epsilon_text(plan.epsilon_a_priori)} at delta "
        f"{target.delta:g}; plan {plan.digest[:12]}",
        markup=False,
    )
    if study.committee is not None:
        words = CommitteeWords(study.committee, None, study.workload)
        out.print(f"against {words.against}; {words.otherwise}; {words.liars}", markup=False)
        if words.checked:
            out.print(f"checks: {words.checked}", markup=False)
        if words.admits:
            out.print(f"admits: {words.admits}", markup=False)
    if study.deadlines is not None:
        out.print(_in_folder(study.deadlines, choice.plans), markup=False)
    for sentence in [*([] if proposed is None else [proposed]), *sentences, *(remedy.sentence for remedy in needed)]:
        out.print(sentence, markup=False)
    if influence is not None:
        out.print(f"one party can move {'; '.join(influence.sentences())}", markup=False)


def _in_folder(deadlines: Deadlines, plans: Sequence[Plan]) -> str:
    """How long a study through a folder may take."""
    from quietmean.studies.agreement.deadlines import in_hours, in_words

    rounds = len(deadlines.timetable(plans).waits) - 1
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
