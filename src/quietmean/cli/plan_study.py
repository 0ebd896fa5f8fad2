"""``quietmean plan --study``: the plan that all parties of a study will make, and what its statistics can tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from quietmean.cli.console import out, print_json, print_lines, progress, warn
from quietmean.cli.options import StudyOptions
from quietmean.cli.screens import NEXT
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.readable import marked
from quietmean.protocols import resolve
from quietmean.protocols.target import budget_warnings
from quietmean.studies.agreement.any_study import AnyStudy, load_any
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party import agreed_terms
from quietmean.studies.party.planned import Wanted

# In place of the next step, where no answer is to be expected.
_HIDDEN = "Noise would most often hide all answers of this study. Ask for more records or a larger epsilon."


@dataclass(frozen=True)
class HowShown:
    """How much is shown: ``details``, all sentences; ``json``, one document."""

    details: bool = False
    json: bool = False


def plan_study(
    path: Path,
    options: StudyOptions,
    parties: int | None,
    plan_file: Output | None,
    *,
    protocol: str | None = None,
    no_privacy: bool = False,
    shown: HowShown = HowShown(),
) -> None:
    """Plan a sealed study, or one for the parties of a roster, or so many.

    ``protocol``: instead of what the study names, to see what it would cost.
    Raises :class:`InputError` for what cannot be planned, or was agreed on already.
    """
    wanted = Wanted(options.records, options.width, options.power)
    wanted.require_possible()
    study, count, sealed = _study_and_parties(path, options, parties)
    if isinstance(study, SessionStudy):
        study.require_model()
    if protocol is not None:
        name, protocol_options = resolve(protocol, study.options)
        study = study.model_copy(update={"protocol": name, "options": protocol_options})
    with progress("calibrating"):
        planned = wanted.plan(study, count, by_file=sealed is not None and sealed.by_file, no_privacy=no_privacy)
    for sentence in budget_warnings(planned.target, planned.records):
        warn(sentence)
    if planned.records is None:
        stated = ", or records = N in the study file" if isinstance(study, StudyTerms) else ""
        warn(f"how many records there are is not known, so no widths. Give --records N{stated}.")
    with progress("drawing studies"):
        document = planned.document()
    if plan_file is not None:
        plan_file.write_json(planned.plan.to_json())
    if shown.json:
        print_json(document)
        return
    print_lines([*planned.first_screen(details=shown.details)])
    if shown.details:
        out.print()
        print_lines([*planned.sentences()])
        out.print()
    hidden = [term.hopeless for term in planned.expected]
    print_lines(_end(bool(hidden) and all(hidden), path, options, sealed))


def _end(hidden: bool, path: Path, options: StudyOptions, sealed: Sealed | None) -> list[str]:
    """The last lines: what comes next, or that nothing is to be expected."""
    return marked("HIDDEN", _HIDDEN) if hidden else [f"{NEXT}{_after(path, options, sealed)}"]


def _after(path: Path, options: StudyOptions, sealed: Sealed | None) -> str:
    """What comes after the plan: parties are invited; those that are known look at what they would agree to."""
    study = quote(str(path))
    if sealed is None and options.roster is None:
        return f"study invite {study}"
    roster = "" if options.roster is None else f" --roster {quote(str(options.roster))}"
    return f"site contract {study}{roster}"


def _study_and_parties(path: Path, options: StudyOptions, parties: int | None) -> tuple[AnyStudy, int, Sealed | None]:
    """The study, how many parties it has, those of its seal or roster, or as many as are said; and the seal."""
    if options.roster is None and not is_signed_document(path):
        alone = load_any(path)
        if parties is None:
            raise InputError(f"{path} does not say who takes part. Give --parties N, --roster FILE, or a sealed study.")
        return alone, parties, None
    agreed = agreed_terms(path, options.roster)
    study, sealed = (agreed.terms, agreed) if isinstance(agreed, Sealed) else (agreed[0], None)
    count = agreed.admitted if isinstance(agreed, Sealed) else len(agreed[1])
    if parties not in (None, count):
        raise InputError(f"--parties {parties} cannot go with {count} parties that are known. Leave it out.")
    return study, count, sealed
