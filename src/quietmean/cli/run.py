"""``quietmean run`` and ``quietmean demo``: all parties on this machine, in one process or each in one of its own."""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.answers import Pages, ResultScreen, effort_text, next_step, no_answer_shown
from quietmean.cli.common import RUN, refuse_stray
from quietmean.cli.console import (
    Progress,
    bar_of,
    choice_document,
    err,
    out,
    output,
    print_json,
    progress,
    step_of,
    tell_notes,
    tell_owner,
    warn,
)
from quietmean.cli.models import model_asked, refuse_for_models, run_model
from quietmean.cli.options import NO_OPTIONS, ProtocolOptions
from quietmean.cli.screens import NEXT
from quietmean.cli.study_options import NO_COMMITTEE, NO_TARGET_OPTIONS, CommitteeShape, TargetOptions
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.extensions import import_extra
from quietmean.core.file_kinds import package_version
from quietmean.core.outage import refuse_outage
from quietmean.node.monitor import now, place_of, sentence, wait_of
from quietmean.protocols.target import budget_warnings
from quietmean.statistics.coding import what_did_not_fit
from quietmean.statistics.columns import UndeclaredColumn
from quietmean.statistics.models import asks_model
from quietmean.statistics.registry import is_kind, is_statistic
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data import account_name
from quietmean.studies.data.preview import holds_texts
from quietmean.studies.data.sources import parties_of_table, query_of_data
from quietmean.studies.outcome.feasible import feasible
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.here import execute
from quietmean.studies.outcome.outcome import without_answer

if TYPE_CHECKING:
    from quietmean.planning import Plan
    from quietmean.protocols import Target


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RehearsalOptions:
    """What they answer, who the parties are, and how long they wait.

    Parameters
    ----------
    study
        Instead of questions: the study file that says all of it, as after a first look.
    parties
        Number of parties.
    party_column
        Instead of --parties: the column that names the party of each row.
    round_timeout
        With --processes: seconds that a round waits for parties that do not answer. Default: 10, or 0.1 for each party if that
        is more; longer on a slow machine.
    no_privacy
        Allow a protocol that protects nothing, such as gossip. Refused otherwise.
    processes
        Make each party a process of its own with a throw-away key, that talks to the others by TLS 1.3: slower by far.
    a_priori_above_target
        Allow a run whose cost is known only afterwards: no guarantee keeps it within the target. Refused otherwise.
    """

    study: Path | None = None
    parties: int | None = None
    party_column: str | None = None
    round_timeout: float | None = None
    processes: bool = False
    no_privacy: bool = False
    a_priori_above_target: bool = False


def run_command(
    data: str | Path,
    *ask: str,
    target: TargetOptions = NO_TARGET_OPTIONS,
    committee: CommitteeShape = NO_COMMITTEE,
    options: ProtocolOptions = NO_OPTIONS,
    rehearsal: RehearsalOptions = RehearsalOptions(),
    out: Path | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Compute private means or other statistics of columns of a table between parties that are all on this machine.

    The parties run the real protocol with real noise, in one process or by --processes each in one of its own. With --committee
    parties hand in one file each instead, and that committee's members open the sum, all in one process.

    Parameters
    ----------
    data
        A file, or a database such as postgresql://HOST/DATABASE (docs/analyse/data.md). The parties share its rows evenly, or
        as --party-column says.
    ask
        Questions with the domains of their columns, such as "mean(age in 0..110)" "crosstab(sex in {f, m}, ill in yes/no)".
        Other columns are not read.
    out
        New folder for the receipt, the report and the privacy page. Default quietmean-run-DATE-TIME.
    details
        Also show what is assumed, notes, and what other adversaries learn.
    json
        One JSON document on standard output.
    """
    if (is_statistic(str(data)) or is_kind(str(data))) and not Path(data).exists():
        raise InputError(f"{str(data)!r} stands where the file belongs. Write quietmean run FILE {shlex.quote(str(data))}.")
    refuse_stray(ask, is_statistic)
    committee = committee.shaped(options.of_committee())
    try:
        if asks_model(ask):
            refuse_for_models({**vars(rehearsal), **committee.given}, "parties", "party_column")
            model = model_asked(ask, target, options.chosen())
            with new_folder(out) as folder:
                run_model(model, data, rehearsal.parties, rehearsal.party_column, folder, details=details, json=json)
            return
        waits = {} if rehearsal.round_timeout is None else {"round_timeout": rehearsal.round_timeout}
        if rehearsal.study is not None:
            given = {name: value for name, value in target.fields().items() if value != NO_TARGET_OPTIONS.fields().get(name)}
            refuse_beside_study({**given, **options.given, **committee.given}, ask)
            study = StudyTerms.load(rehearsal.study).model_copy(update=waits)
        else:
            fields = committee.fields({**target.fields(), "options": options.chosen()})
            study = StudyTerms.parse({"name": account_name(data), "ask": ask, **fields, **waits})
    except UndeclaredColumn as undeclared:
        raise undeclared.of_texts(partial(holds_texts, data)) from None
    with no_answer_shown(), new_folder(out) as folder:
        run_local_study(study, data, rehearsal, folder, details=details, json=json)


def refuse_beside_study(options: Mapping[str, Any], ask: Sequence[str]) -> None:
    """Raises :class:`InputError` for options, and questions, that a study file says itself."""
    if ask:
        raise InputError(f"question {ask[0]!r} cannot go with --study, which says what is asked. Leave it out.")
    if options:
        raise InputError(f"--{next(iter(options)).replace('_', '-')} cannot go with --study, which says it. Leave it out.")


@contextmanager
def new_folder(out: Path | None) -> Iterator[Path]:
    """The folder is made before anything runs, so that no result is lost for want of it; left empty, it goes again.

    Raises :class:`InputError` if ``out`` exists or the folder cannot be made.
    """
    try:
        folder = _folder_of_now() if out is None else _made(out)
    except FileExistsError:
        raise InputError(f"folder {out} exists already. Name a new one with --out, nothing is overwritten.") from None
    except OSError as error:
        refuse_outage(error, Path(error.filename))
        raise InputError(f"folder {error.filename} cannot be made ({error.strerror}). Name another one with --out.") from None
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _folder_of_now() -> Path:
    """Named by the time, with a number behind it where another run has begun in the same second."""
    start = time.strftime(f"{RUN}%Y%m%d-%H%M%S")
    names = itertools.chain([start], (f"{start}-{others}" for others in itertools.count(2)))
    while True:
        with suppress(FileExistsError):
            return _made(Path(next(names)))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def run_local_study(
    study: StudyTerms, data: str | Path, rehearsal: RehearsalOptions, folder: Path, *, details: bool = False, json: bool = False
) -> None:
    notes: list[str] = []
    names, parts = parties_of_table(
        data, study.workload.columns, rehearsal.parties, rehearsal.party_column, notes.append, study.persons
    )
    query = query_of_data(data, study.workload.columns, study.unit)
    target = study.target(len(parts))
    units = sum(study.workload.units_in(part) for part in parts)
    counted = float(len(parts) if study.unit == PrivacyUnit.PARTY else units)
    for text in budget_warnings(target, units):
        warn(text)
    begun = time.monotonic()
    with progress("calibrating the noise"):
        choice = feasible(study, len(parts), no_privacy=rehearsal.no_privacy, units=counted)
    plan = choice.plan
    plan.require_target_kept(rehearsal.a_priori_above_target)
    if plan.above_target is not None:
        warn(plan.above_target)
    forecast = Forecast(study, plan, counted)
    encoded = [study.workload.encode(part, step=plan.value_step) for part in parts]
    tell_notes(notes)
    # Without JSON the result's own screen says it.
    if json:
        tell_owner(encoded)
    with progress(_what_starts(target)) as line:
        try:
            report = _watch(line, target.parties)
            run = execute(study, plan, encoded, names, query, report, processes=rehearsal.processes)
        except ProtocolFailure as error:
            raise without_answer(error, folder / "receipt.json", plan, "in no ledger", _origin(plan, names)) from None
    seconds = time.monotonic() - begun
    remark = {"notes": [run.remark]} if run.remark else {}
    run = replace(run, origin={**_origin(plan, names), **query.to_json(), **remark}, receipt=folder / "receipt.json")
    pages = Pages(folder / "receipt.json", folder / "report.html", folder / "privacy.html")
    run.outcome.save_receipt(pages.receipt, run.origin)
    document = {**run.document(), "seconds": round(seconds, 3), **pages.to_json(), **choice_document(choice)}
    # The answer first: it is paid for, and pages only show it.
    if json:
        print_json(document | {"expected": forecast.to_json()})
        pages.write(run)
        return
    gone = f"{len(run.killed)} {'killed on the way' if study.committee is None else 'never contributed'}"
    # Both take the newest run of this folder by default.
    named = "" if folder.name.startswith(RUN) and folder.parent == Path() else f" {shlex.quote(str(pages.receipt))}"
    screen = ResultScreen(
        run.outcome.receipt(run.origin),
        document,
        f"quietmean result{named}",
        details,
        what_did_not_fit(encoded),
        effort_text(document, f", {gone}" if run.killed else "", f" by {run.sent_by}" if run.killed else ""),
    )
    screen.show()
    if run.killed:
        count = len({*run.killed} - {*document["without"]})
        out.print(f"{'Dropouts':10}{gone}, as asked{f'. {count} of them had sent enough to count' if count else ''}.")
    if made := pages.write(run):
        out.print(", ".join([f"Report    {made[0]} (private)", *(page.name for page in made[1:])]))
    out.print(f"{NEXT}{next_step(document, str(pages.receipt), named.strip())}")
    screen.show_more()


def _what_starts(target: Target) -> str:
    if target.committee is None:
        return f"starting {target.parties} parties"
    return f"{target.parties} contributors hand in files to a committee of {target.committee.members}"


def _watch(line: Progress, parties: int) -> Callable[[str, dict[str, Any]], None]:
    """Turns the parties' events into one line: the slowest phase that anybody reports. What the machine refuses is said once."""
    said: set[str] = set()

    def report(name: str, event: dict[str, Any]) -> None:
        if event["event"] in ("agreement", "round"):
            at = f"{place_of(event)}{bar_of(event.get('round'), event.get('of'))}{wait_of(event, name)}"
            line.say(f"{step_of(event['phase'])}{parties} parties, {at}")
        elif event["event"] == "stalled":
            # All have one disk: the first one says so for all.
            reason = re.sub(rf"(?<!\w){re.escape(name)}\.(?=\w)", "", event["reason"])
            if reason not in said:
                warn(f"{name}: {sentence(event)}")
            said.add(reason)

    return report


def _origin(plan: Plan, names: Sequence[str]) -> dict[str, Any]:
    """The origin in the receipt: which software and plan this run belongs to, and when it ended."""
    return {"quietmean": package_version(), "plan": plan.digest, "names": list(names), "finished": now()}


_QUESTION = (
    "'mean(age in 0..110)' 'mean(bmi in 10..60)' 'mean(blood_pressure in 40..180)' 'mean(glucose in 40..200)' "
    "--party-column clinic --epsilon 2 --delta 1e-6 --dropouts 0.1 --processes"
)


def demo_command(
    study: Path | None = None,
    /,
    *,
    number: int | None = None,
    out: Annotated[Path, Parameter(name="--out")] = Path("quietmean-demo"),
    details: bool = False,
) -> None:
    """Compute four private means of 442 real patients of 20 clinics, each a process of its own; two are killed on the way.

    The patients are those of a diabetes study (Efron, Hastie, Johnstone and Tibshirani 2004): age in years, bmi in kg/m2, mean
    arterial blood pressure in mmHg, blood glucose in mg/dl. The clinics are made up, of 8 to 36 patients each. The command that
    it runs is shown: change it, and run it again.

    With a study file, it rehearses that survey by link instead: page, drop, vouchers, members and result, with new keys. Made-up
    people answer, and no browser is needed.

    Parameters
    ----------
    study
        The study file of a survey with vouchers.
    number
        How many made-up people answer it. Default: 30, or as many as have vouchers.
    out
        New folder for the data, the receipt and the pages.
    details
        Also show what is assumed, notes, and what other adversaries learn.
    """
    from quietmean.cli.main import main

    if study is None and number is not None:
        raise InputError("--number says how many answer a survey. Name its study file, or leave it out.")
    with new_folder(out):
        if study is None:
            data = out / "patients.csv"
            output(data, "the data", "--out", ends=(".csv",)).write(patients())
            run = ["run", str(data), *shlex.split(_QUESTION)]
        else:
            run = ["result", *_rehearsed(study, number, out)]
    run += ["--out", str(out / "run"), *["--details"] * details]
    err.print("$ " + shlex.join(["quietmean", *run]), soft_wrap=True)
    main(run)


# Who answer a rehearsed survey, unless it has fewer vouchers.
_PEOPLE = 30


def _rehearsed(study: Path, number: int | None, out: Path) -> list[str]:
    """A rehearsed survey: its sealed study, and the files from which anybody opens its result."""
    for module in ("starlette", "uvicorn"):
        import_extra(module, "desk", "a drop")
    from quietmean.cli.rehearsal import RehearsedSurvey

    terms = StudyTerms.load(study)
    vouchers = None if terms.committee is None else terms.committee.vouchers
    people = min(_PEOPLE, vouchers or _PEOPLE) if number is None else number
    with TemporaryDirectory() as secrets:
        files = RehearsedSurvey(terms, people, out, Path(secrets)).run()
    return [str(out / "study.sealed"), *map(str, files)]


def patients() -> bytes:
    """A CSV file with one row a patient, and the clinic that holds it."""
    return files("quietmean.cli").joinpath("patients.csv").read_bytes()
