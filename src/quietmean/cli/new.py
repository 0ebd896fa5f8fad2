"""``quietmean new``: write a study file, from options or by questions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from quietmean.cli.columns import declared
from quietmean.cli.console import err, out, output, print_json, printable
from quietmean.cli.options import NO_OPTIONS, ProtocolOptions
from quietmean.core.domain import CountVisibility, Links, PrivacyUnit
from quietmean.core.errors import InputError


def command(
    *,
    name: str | None = None,
    column: list[str] | None = None,
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
    missing: str = "indicator",
    unit: PrivacyUnit = PrivacyUnit.RECORD,
    count: CountVisibility = CountVisibility.PUBLIC,
    most_records: int | None = None,
    epsilon: float | None = None,
    nats: float | None = None,
    delta: float = 1e-6,
    colluding: int | None = None,
    eavesdropping: str | None = None,
    dropouts: float = 0.0,
    protocol: str = "auto",
    minimum: int | None = None,
    start_by: str | None = None,
    transport: str = "connections",
    first_deadline: str | None = None,
    deadline_interval: float | None = None,
    poll: float | None = None,
    links: Links | None = None,
    options: Annotated[ProtocolOptions, Parameter(name="*")] = NO_OPTIONS,
    save: Annotated[Path, Parameter(name="--out")] = Path("study.toml"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write a study file. Without --column it asks, at a terminal, for what it needs.

    Parameters
    ----------
    name
        The study's name.
    column
        Column; repeat for several. Each is declared by one of those that follow.
    bounds
        LOW HIGH: public bounds of the column's numbers, in its units, chosen without looking at the data.
    levels
        A B ...: what can stand in the column before it; empty cells are a level of their own, missing.
    boolean
        The column before it is true or false (yes or no, 1 or 0).
    dates
        FIRST LAST: the column before it has dates, such as 2020-01-31, and these public bounds; it counts days since the first.
    made_from
        The column before it is a public transform of earlier ones, such as "log(crp)" or "bmi >= 30"; its bounds follow from
        theirs unless --bounds are given.
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
        What to compute of the columns, such as "mean(age)"; repeat for several. Default: the mean of every column, or the
        proportions of its levels.
    missing
        What stands for a cell without a number. indicator: nothing; centre: the middle of its bounds, and answers are flagged.
    unit
        What is protected: one record, or all of a party.
    count
        private: nobody learns how many records a party has, and a record that is there or not changes next to nothing.
    most_records
        With private counts: room for so many records of each party, a public number; default 20000.
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
        Fraction of the parties expected to leave for good.
    protocol
        The protocol; quietmean plan compares them. auto: packed secret sharing where its conditions hold, else the least
        predicted error among equals; chosen when the parties are known.
    minimum
        With how many parties it may start where not all come; default all. Needs --start-by.
    start_by
        When it starts with those who are there, such as 2027-03-01T09:00:00Z, or before that once all are. Without it all parties
        have to come.
    transport
        folder: messages are files in a folder that each site names for itself. connections: parties dial each other, or a relay.
    first_deadline
        Of a study through a folder: until when it waits for the start, such as 2027-03-01T12:00:00Z; default in two days.
    deadline_interval
        Of a study through a folder: each round ends so many seconds after the one before; default 86400, a day.
    poll
        Of a study through a folder: every party looks there at least every so many seconds; default 3600, an hour.
    links
        Which keys protect what the parties tell each other, where the study is sealed. hybrid: ML-KEM-768 and X25519 together,
        which invite takes where a study does not say; x25519: that alone, for members with an older version.
    save
        Where to write the study; a file that is there stays.
    json
        One JSON document on standard output.
    """
    from quietmean.protocols.eavesdropping import read_eavesdropping
    from quietmean.statistics import missing_rule, read_text
    from quietmean.studies import StudyTerms
    from quietmean.studies.agreement.study_file import is_study, study_text

    study_file = output(save, "the study", kind=is_study)
    if column:
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
        answers: dict[str, Any] = {"name": name or save.stem}
    elif sys.stdin.isatty():
        columns, answers = _ask_all(name, 1.0 if epsilon is None else epsilon, colluding)
    else:
        raise InputError("the study has no column: give at least one --column with --bounds, --levels or --boolean")
    statistics = [read_text(text) for text in statistic or ()]
    given: dict[str, Any] = {
        "unit": unit,
        "count": count,
        "most_records": most_records,
        **{name: value for name, value in (("epsilon", epsilon), ("nats", nats)) if value is not None},
        "delta": delta,
        "colluding": colluding,
        "eavesdropping": read_eavesdropping(eavesdropping),
        "dropouts": dropouts,
        "protocol": protocol,
    }
    given |= {"minimum": minimum, "start_by": start_by, "transport": transport}
    given |= {} if links is None else {"links": links}
    given |= _deadlines(transport == "folder", first_deadline, deadline_interval, poll)
    lists = {"column": columns, "statistic": statistics, "options": options.chosen()}
    text = study_text(StudyTerms.parse({**given, **lists, **answers}))
    study_file.write(text.encode())
    if json:
        print_json({"study": str(save)})
    else:
        out.print(f"{save} holds the study; quietmean invite {save} --key YOUR.key makes the invitation", markup=False)


def _deadlines(by_folder: bool, first: str | None, interval: float | None, poll: float | None) -> dict[str, Any]:
    """The field of a study through a folder. Raises :class:`InputError` where it is given to another."""
    given = {"first": first, "interval": interval, "poll": poll}
    if not by_folder:
        if any(value is not None for value in given.values()):
            raise InputError("--first-deadline, --deadline-interval and --poll go with --transport folder: leave them out")
        return {}
    soon = (datetime.now(UTC) + timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    usual = {"first": soon.isoformat(), "interval": 86400.0, "poll": 3600.0}
    return {"deadlines": usual | {name: value for name, value in given.items() if value is not None}}


def _ask_all(name: str | None, epsilon: float, colluding: int | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Columns, and the fields of [study] that were asked for."""
    answers: dict[str, Any] = {"name": name or _ask("name of the study", str, "study")}
    columns: list[dict[str, Any]] = []
    while column := _ask("column (empty: that was all)" if columns else "first column", str, ""):
        columns.append({"name": column, **_ask_column()})
    answers["epsilon"] = _ask("epsilon", float, epsilon)
    answers["colluding"] = _ask("parties that may pool what they see (empty: one in ten)", int, colluding)
    return columns, answers


def _ask_column() -> dict[str, Any]:
    from quietmean.statistics import INDICATOR

    kind = _ask("  numbers, levels or yes-no", _kind, "numbers")
    if kind == "yes-no":
        return {"boolean": True}
    if kind == "levels":
        return {"levels": _ask("  levels, separated by commas", lambda text: [one.strip() for one in text.split(",")], [])}
    bounds = {"low": _ask("  lowest value (public)", float), "high": _ask("  highest value (public)", float)}
    return bounds | {"missing": INDICATOR}


def _kind(text: str) -> str:
    if text not in ("numbers", "levels", "yes-no"):
        raise ValueError
    return text


def _ask(what: str, read: Callable[[str], Any], default: Any = ...) -> Any:
    """The answer to a question; asked again until it can be read."""
    shown = f" [{default}]" if default not in (..., "", None, []) else ""
    while True:
        err.print(f"{printable(what)}{shown}: ", end="", markup=False)
        text = input().strip()
        if not text and default is not ...:
            return default
        try:
            return read(text)
        except ValueError:
            err.print("  that cannot be read, try again")
