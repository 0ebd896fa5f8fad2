"""``quietmean run``: all parties as real processes on this machine."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.answers import print_answers
from quietmean.cli.columns import declared
from quietmean.cli.console import (
    Progress,
    choice_document,
    out,
    print_choice,
    print_json,
    print_not_counted,
    print_privacy,
    progress,
    tell_notes,
    tell_owner,
    warn,
)
from quietmean.cli.options import NO_OPTIONS, ProtocolOptions
from quietmean.cli.pages import Pages
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError, ProtocolFailure

if TYPE_CHECKING:
    from quietmean.planning import Plan
    from quietmean.studies.agreement.study import StudyTerms
    from quietmean.studies.outcome.local import LocalStudy


def command(
    *,
    data: Path,
    column: list[str],
    bounds: list[tuple[float, float]] | None = None,
    levels: list[str] | None = None,
    boolean: list[str] | None = None,
    dates: list[str] | None = None,
    made_from: Annotated[list[str] | None, Parameter(name="--from")] = None,
    missing_codes: list[str] | None = None,
    scale: list[str] | None = None,
    whole: list[str] | None = None,
    edges: list[str] | None = None,
    statistic: list[str] | None = None,
    parties: int | None = None,
    party_column: str | None = None,
    protocol: str = "auto",
    epsilon: float | None = None,
    nats: float | None = None,
    delta: float = 1e-6,
    colluding: int | None = None,
    eavesdropping: str | None = None,
    dropouts: float = 0.0,
    options: Annotated[ProtocolOptions, Parameter(name="*")] = NO_OPTIONS,
    unit: PrivacyUnit = PrivacyUnit.RECORD,
    count: CountVisibility = CountVisibility.PUBLIC,
    most_records: int | None = None,
    missing: str = "indicator",
    allocate: str = "shares",
    accept_wide: Annotated[bool, Parameter(negative="")] = False,
    round_timeout: float = 3.0,
    out: Path | None = None,
    no_privacy: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compute private means or other statistics of columns of a table between real processes on this machine.

    Every party is a process of its own with throw-away keys; they communicate by TLS 1.3 over loopback.

    Parameters
    ----------
    data
        CSV, Excel, Parquet, SQLite or DuckDB file (docs/how-to/data.md). Its rows are split
        evenly over the parties, or by --party-column.
    column
        Column; repeat for several. Each is declared by one of the three that follow.
    bounds
        LOW HIGH: public bounds of the column's numbers, in its units, chosen without looking at the data.
    levels
        A B ...: what can stand in the column before it; empty cells are a level of their own, missing.
    boolean
        The column before it is true or false (yes or no, 1 or 0).
    dates
        FIRST LAST: the column before it has dates, such as 2020-01-31, and these public bounds; it counts days since the first.
    made_from
        The column before it is a public transform of earlier ones, such as "log(crp)", "discharge - admission", "bmi^2" or
        "bmi >= 30"; its bounds follow from theirs unless --bounds are given.
    missing_codes
        A B ...: cells of the column before it that mean missing, such as -9 or unknown.
    scale
        How the column before it is cut into bins: linear, log (equal factors, for costs or concentrations) or log-odds (for
        probabilities). Default: linear.
    whole
        The column before it has whole numbers only, such as days or visits: one a bin where bins allow it.
    edges
        A B ...: the column before it is cut exactly here.
    statistic
        What to compute of the columns, such as "mean(age)" or "crosstab(sex, smoker)"; repeat for several. Default: the mean of
        every column, or the proportions of its levels.
    parties
        Number of parties.
    party_column
        Column that says which party a row belongs to, instead of --parties.
    protocol
        The protocol to run; quietmean plan compares them. auto: packed secret sharing where its conditions hold, else the least
        predicted error among equals.
    epsilon
        Privacy target, together with delta; default 1.
    nats
        Instead of epsilon: the exact mean, of which colluders learn so much of a party's value at most. Mutual information, an
        average over values and no differential privacy; of protocol adqsp, for unit party.
    delta
        Probability with which the epsilon guarantee may fail.
    colluding
        How many parties may pool what they see; default one in ten, at least one.
    eavesdropping
        The adversary also reads messages between honest parties: each with this chance, or all-after-first, which leaves those of
        the first round private. Of protocols such as inca.
    dropouts
        Fraction of the parties whose process is killed in a random round and not started again.
    unit
        What is protected: one record, or all of a party.
    count
        private: nobody learns how many records a party has, and a record that is there or not changes next to nothing.
    most_records
        With private counts: room for so many records of each party, a public number; default 20000.
    missing
        What stands for a cell without a number. indicator: nothing, statistics are those of the present values, whose number is
        estimated too; centre: the middle of its bounds, and every answer that has such cells in it is flagged.
    allocate
        How statistics divide the budget. shares: as each declares; widths: so that intervals, each relative to its sampling
        error, are as narrow as they can be together.
    accept_wide
        Go on although noise hides all that the bounds of a statistic do not tell.
    round_timeout
        Seconds that a round waits for parties that do not answer.
    out
        New folder for the receipt, the report and the page for who answers for the data; default quietmean-run-DATE-TIME.
    no_privacy
        Run a protocol that protects nothing, such as gossip; refused otherwise.
    json
        One JSON document on standard output.
    """
    from quietmean.protocols.eavesdropping import read_eavesdropping
    from quietmean.statistics import missing_rule, read_text
    from quietmean.studies.agreement.study import StudyTerms
    from quietmean.studies.data import account_name

    columns = declared(
        column,
        bounds,
        levels,
        boolean,
        missing_rule(missing),
        dates=dates,
        origins=made_from,
        codes=missing_codes,
        scales=scale,
        whole=whole,
        edges=edges,
    )
    study = StudyTerms.parse(
        {
            "name": account_name(data),
            "column": columns,
            "statistic": [read_text(text) for text in statistic or ()],
            "unit": unit,
            "count": count,
            "most_records": most_records,
            "allocate": allocate,
            "accept_wide": accept_wide,
            **{name: value for name, value in (("epsilon", epsilon), ("nats", nats)) if value is not None},
            "delta": delta,
            "colluding": colluding,
            "eavesdropping": read_eavesdropping(eavesdropping),
            "dropouts": dropouts,
            "protocol": protocol,
            "options": options.chosen(),
            "round_timeout": round_timeout,
        }
    )
    with _new_folder(out) as folder:
        run_local_study(study, data, parties, party_column, folder, no_privacy, json)


@contextmanager
def _new_folder(out: Path | None) -> Iterator[Path]:
    """The folder is made before anything runs, so that no result is lost for want of it; left empty, it goes again.

    Raises :class:`InputError` if ``out`` exists or the folder cannot be made.
    """
    try:
        folder = _folder_of_now() if out is None else _made(out)
    except FileExistsError:
        raise InputError(f"folder {out} exists already: name a new one with --out, nothing is overwritten") from None
    except OSError as error:
        raise InputError(f"folder {error.filename} cannot be made ({error.strerror}): name another one with --out") from None
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _folder_of_now() -> Path:
    """Named by the time, with a number behind it where another run has begun in the same second."""
    start = time.strftime("quietmean-run-%Y%m%d-%H%M%S")
    names = itertools.chain([start], (f"{start}-{others}" for others in itertools.count(2)))
    while True:
        with suppress(FileExistsError):
            return _made(Path(next(names)))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def run_local_study(
    study: StudyTerms, data: Path, parties: int | None, party_column: str | None, folder: Path, no_privacy: bool, json: bool
) -> None:
    from quietmean.planning.gate import GateRefused
    from quietmean.planning.possible import ImpossibleResult
    from quietmean.protocols.target import budget_warnings
    from quietmean.studies import save_impossible, save_refusal
    from quietmean.studies.data.sources import parties_of_table
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.outcome.local import choose_kills, run_study

    notes: list[str] = []
    names, parts = parties_of_table(data, study.workload.columns, parties, party_column, notes.append)
    target = study.target(len(parts))
    for sentence in budget_warnings(target, sum(len(part) for part in parts)):
        warn(sentence)
    begun = time.monotonic()
    with progress("calibrating the noise"):
        choice = study.choice(len(parts), no_privacy=no_privacy)
    plan = choice.plan
    if plan.above_target is not None:
        warn(plan.above_target)
    forecast = Forecast(study, plan, float(len(parts) if study.unit == PrivacyUnit.PARTY else sum(len(part) for part in parts)))
    forecast.require_hope()
    encoded = [study.workload.encode(part, step=plan.value_step) for part in parts]
    tell_notes(notes)
    tell_owner(encoded)
    kills = choose_kills(plan, study.dropouts)
    with progress(f"starting {target.parties} processes") as line:
        watch = _watch(line, target.parties)
        try:
            local = run_study(plan, study.workload, encoded, kills=kills, round_timeout=study.round_timeout, report=watch)
        except GateRefused as error:
            save_refusal(folder / "receipt.json", plan.target, error.record)
            raise ProtocolFailure(f"{error}; receipt {folder / 'receipt.json'}") from None
        except ImpossibleResult as error:
            save_impossible(folder / "receipt.json", plan.target, error.execution, error, _origin(plan, names))
            raise ProtocolFailure(f"{error}; receipt {folder / 'receipt.json'}") from None
    seconds = time.monotonic() - begun
    origin = _origin(plan, names)
    local.outcome.save_receipt(folder / "receipt.json", origin)
    pages = Pages(folder / "receipt.json", folder / "report.html", folder / "privacy.html")
    document = {
        **_document(local, pages, seconds),
        **choice_document(choice),
        "not_counted": local.outcome.missing(names),
        "expected": forecast.to_json(),
    }
    # The answer first: it is paid for, and pages only show it.
    if json:
        print_json(document)
    else:
        _show(study, local, document)
    network = local.network
    pages.write(
        study.name,
        local.outcome,
        names=names,
        origin=origin,
        tell=not json,
        truth=local.truth,
        messages=network.messages,
        bytes=network.bytes_sent,
        seconds=network.seconds,
        killed=[names[party] for party in network.killed],
    )


def _watch(line: Progress, parties: int) -> Callable[[str, dict[str, Any]], None]:
    """Turns the parties' events into one line: the slowest phase that anybody reports."""

    def report(name: str, event: dict[str, Any]) -> None:
        if event["event"] == "round":
            waiting = event.get("waiting_for") or []
            late = f", {name} waits for {', '.join(waiting[:3])}" if waiting else ""
            line.say(f"{parties} processes, {event['phase']}: round {event['round']} of {event['of']}{late}")

    return report


def _document(local: LocalStudy, pages: Pages, seconds: float) -> dict[str, Any]:
    from quietmean.statistics import column_means

    truth = {name: float(one.value[0]) for name, one in column_means(local.truth).items()}
    document = local.outcome.to_json()
    for entry, answer in zip(document["statistics"], local.truth, strict=True):
        entry["true_value"] = answer.estimates.by_term(answer.estimates.value)
    return {
        **document,
        "true_mean": local.outcome.by_column(truth),
        "killed": list(local.network.killed),
        "messages": local.network.messages,
        "bytes": local.network.bytes_sent,
        "seconds": round(seconds, 3),
        "receipt": str(pages.receipt),
        **pages.to_json(),
    }


def _origin(plan: Plan, names: Sequence[str]) -> dict[str, Any]:
    """The origin in the receipt: which software and plan this run belongs to, and when it ended."""
    from quietmean.node.monitor import now
    from quietmean.node.preflight import package_version

    return {"quietmean": package_version(), "plan": plan.digest, "names": list(names), "finished": now()}


def _show(study: StudyTerms, local: LocalStudy, document: dict[str, Any]) -> None:
    outcome = local.outcome
    print_answers(outcome.answers, document)
    out.print()
    print_choice(document)
    print_privacy(document, study)
    print_not_counted(document)
    killed = f", {len(local.network.killed)} killed on the way" if local.network.killed else ""
    out.print(
        f"{document['parties_counted']} of {len(outcome.execution.weights)} parties counted{killed}; "
        f"{document['messages']} messages, {document['bytes'] / 1000:.0f} kB, {math.ceil(document['seconds'] * 10) / 10} s"
    )
    out.print(f"receipt {document['receipt']}", markup=False)
