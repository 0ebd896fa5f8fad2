"""``quietmean study new``: write a study file, from options or by questions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from cyclopts import Parameter

from quietmean.cli.common import refuse_stray
from quietmean.cli.console import at_prompt, err, output, print_json, print_lines, printable, warn
from quietmean.cli.models import model_asked, refuse_for_models, write_model
from quietmean.cli.options import NO_OPTIONS, ProtocolOptions
from quietmean.cli.screens import NEXT, OR, THEN, rows, with_remark
from quietmean.cli.study_options import NO_TARGET_OPTIONS, CommitteeShape, TargetOptions
from quietmean.core.domain import Links, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import ShortFact, count_of, indented
from quietmean.planning.automatic import AUTO, MANY
from quietmean.protocols import configure
from quietmean.statistics import INDICATOR
from quietmean.statistics.models import asks_model
from quietmean.statistics.questions import named_in
from quietmean.statistics.registry import is_statistic
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.any_study import facts_of, is_study, study_text
from quietmean.studies.agreement.deadlines import require_ahead
from quietmean.studies.agreement.dictionary import Dictionary
from quietmean.studies.agreement.first_look import ProposedBounds
from quietmean.studies.outcome.feasible import require_in_general


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeetingOptions:
    """When a study starts, and how its parties reach each other.

    Parameters
    ----------
    minimum
        The least number of parties with which it may start. Default all. Needs --start-by.
    start_by
        When it starts with the parties that are connected, such as 2027-03-01T09:00:00Z. It starts earlier once all are.
        Without this, all parties must take part.
    transport
        connections: parties connect to each other, or to a relay. folder: messages are files in a shared folder; each site
        names its own path.
    first_deadline
        For a study through a folder: the latest start, such as 2027-03-01T12:00:00Z. Default in two days, or three days after
        --start-by.
    deadline_interval
        For a study through a folder: seconds from the end of one round to the end of the next. Default 86400, a day.
    poll
        For a study through a folder: the most seconds between two looks of a party into the folder. Default 3600, an hour.
    links
        Which keys protect messages between parties of a signed study. hybrid, the default: ML-KEM-768 and X25519 together.
        x25519: that alone, for members with an older version.
    """

    minimum: int | None = None
    start_by: str | None = None
    transport: str = "connections"
    first_deadline: str | None = None
    deadline_interval: float | None = None
    poll: float | None = None
    links: Links | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a study. Raises :class:`InputError` for options of a folder where there is none."""
        _require_time("--start-by", self.start_by)
        _require_time("--first-deadline", self.first_deadline)
        links = {} if self.links is None else {"links": self.links}
        start = {"minimum": self.minimum, "start_by": self.start_by, "transport": self.transport}
        return start | links | self._deadlines()

    def _deadlines(self) -> dict[str, Any]:
        """The field of a study through a folder. Raises :class:`InputError` where it is given to another."""
        deadlines = {"first": self.first_deadline, "interval": self.deadline_interval, "poll": self.poll}
        if self.transport != "folder":
            if any(value is not None for value in deadlines.values()):
                raise InputError("--first-deadline, --deadline-interval and --poll go with --transport folder. Leave them out.")
            return {}
        soon = (datetime.now(UTC) + timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
        if self.start_by is not None:
            # Room for the attempts to start, once an hour.
            soon = max(soon, datetime.fromisoformat(self.start_by) + timedelta(days=3))
        usual = {"first": soon.isoformat(), "interval": 86400.0, "poll": 3600.0}
        return {"deadlines": usual | {name: value for name, value in deadlines.items() if value is not None}}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommitteeOptions(CommitteeShape):
    """A committee whose members open the sum of what others contribute, in one message each.

    Parameters
    ----------
    contribute_by
        The last time for contributions, such as 2027-03-01T12:00:00Z. Members start then.
    grace
        How many seconds after --contribute-by the members list the contributions. Default 600.
    registrar
        Public key of the registrar, who makes the vouchers with quietmean study vouchers. Default: that of who invites.
    vouchers
        How many vouchers there are. Each admits one contribution, from a contributor without an entry.
    """

    contribute_by: str | None = None
    grace: float | None = None
    registrar: str | None = None
    vouchers: int | None = None

    @property
    def terms(self) -> dict[str, Any]:
        """When contributions come, and by whose vouchers. Raises :class:`InputError` for a committee without a time."""
        if self.contribute_by is None:
            raise InputError("a committee lists contributions at a time. Give --contribute-by, such as 2027-03-01T12:00:00Z.")
        _require_time("--contribute-by", self.contribute_by)
        return {name: getattr(self, name) for name in ("contribute_by", "grace", "registrar", "vouchers")}


def _require_time(option: str, text: str | None) -> None:
    """Raises :class:`InputError` for what is not a time that everybody understands alike."""
    with contextlib.suppress(ValueError):
        if text is None or datetime.fromisoformat(text).tzinfo is not None:
            return
    raise InputError(f"{option} is {text!r}. Give a time with its offset from UTC, such as 2027-03-01T09:00:00Z.")


def new_command(
    *ask: str,
    name: str | None = None,
    dictionary: Path | None = None,
    first_look: Path | None = None,
    target: TargetOptions = NO_TARGET_OPTIONS,
    meeting: MeetingOptions = MeetingOptions(),
    committee: CommitteeOptions = CommitteeOptions(),
    options: ProtocolOptions = NO_OPTIONS,
    no_privacy: bool = False,
    save: Annotated[Path, Parameter(name="--out")] = Path("study.toml"),
    json: bool = False,
) -> None:
    """Write a study file. Without a question it asks, at a terminal, for what it needs.

    Parameters
    ----------
    ask
        Questions with the domains of their columns, such as "mean(age in 0..110)".
    name
        The study's name.
    dictionary
        The data dictionary of a REDCap project. It declares the fields that questions name, or all that can be columns.
        STUDY.format.toml, beside the study, maps the codes of raw exports to levels.
    first_look
        The receipt of a first look. Columns that questions name without bounds have those that it proposes. Without --epsilon
        the study has what the look leaves.
    no_privacy
        Allow a study whose protocol protects nothing, such as gossip. Refused otherwise.
    save
        Where to write the study. An existing file stays as it is.
    json
        One JSON document on standard output.
    """
    refuse_stray(ask, is_statistic)
    study_file = output(save, "the study", kind=is_study, ends=(".toml",))
    if not (ask or dictionary) and not sys.stdin.isatty():
        raise InputError('nothing is asked. Write for example quietmean study new "mean(age in 0..110)".')
    if asks_model(ask):
        stated = {"dictionary": dictionary, "first_look": first_look, "no_privacy": no_privacy, **committee.given}
        refuse_for_models(stated)
        model = model_asked(ask, target, options.chosen())
        session = write_model(model, {**meeting.fields(), "name": name or save.stem}, study_file)
        if json:
            print_json({"study": str(save)})
            return
        print_lines([f"{save} holds session {session.name!r}.", *rows(facts_of(session)), *_next(save, session.minimum, None)])
        return
    listed = None if dictionary is None else _listed(dictionary, named_in(ask))
    committee = committee.shaped(options.of_committee())
    fields = committee.fields({**target.fields(), **meeting.fields(), "options": options.chosen()})
    if listed is not None:
        fields["column"] = list(listed.columns.values())
    look = None
    if first_look is not None:
        look = ProposedBounds.load(first_look)
        fields |= look.fields(fields, ask)
    typed = (
        {"name": name or save.stem}
        if ask or dictionary
        else _ask_all(name, 1.0 if target.epsilon is None else target.epsilon, target.colluding)
    )
    terms = StudyTerms.parse(fields | typed | ({"ask": ask} if ask else {}))
    require_ahead(terms.start_by, datetime.now(UTC))
    require_in_general(terms, no_privacy=no_privacy)
    text = study_text(terms, asks=True)
    study_file.write(text.encode())
    codes = listed.format_text if listed is not None else ""
    beside = save.with_suffix(".format.toml")
    if codes:
        output(beside, "the codes of raw exports").write(codes.encode())
    proposed = _proposed(terms, save)
    if json:
        more = {} if proposed is None else {"proposed": proposed}
        print_json({"study": str(save), **more, **({"format": str(beside)} if codes else {})})
        return
    lines = [f"{save} holds study {terms.name!r}.", *rows(facts_of(terms))]
    if look is not None and look.budget is not None and terms.nats is None:
        lines += rows([ShortFact("together", look.budget.beside(terms.epsilon))])
    if codes:
        lines += indented("Codes", f"{beside} has those of raw exports. Each site keeps it beside its data as NAME.format.toml.")
    if proposed is not None:
        lines += indented("Tip", proposed)
    agreed = terms.committee
    vouchers = 0 if agreed is None or agreed.vouchers is None else agreed.members + agreed.vouchers
    records = 0 if terms.unit == PrivacyUnit.PARTY else terms.records
    single = agreed is not None and agreed.largest_weight == 1 and agreed.vouchers
    here = [] if look is None else [f"{OR}run FILE --study {quote(str(save))} --parties N    all of it on one machine"]
    print_lines([*lines, *_next(save, vouchers or terms.minimum, records, single or 5000), *here])


def _next(path: Path, parties: int | None, records: float | None, such_as: int = 5000) -> list[str]:
    """First how precise it can be: an invitation comes after.

    ``records``: None where nobody knows how many there are; then as many as ``such_as`` are an example.
    """
    example = f" --records {such_as}" if records is None else ""
    plan = f"{NEXT}plan --study {quote(str(path))} --parties {parties or 20}{example}"
    made_up = [*["20 parties"] * (not parties), *[count_of(such_as, "record")] * (records is None)]
    lines = with_remark(plan, f"{' and '.join(made_up)} stand for your own numbers") if made_up else [plan]
    return [*lines, f"{THEN}study invite {quote(str(path))}"]


def _proposed(terms: StudyTerms, path: Path) -> str | None:
    """Where a committee could be thought of, before it is known how many parties come; None otherwise."""
    if terms.committee is not None:
        return None
    if terms.protocol != AUTO and terms.transport == "connections" and configure(terms.protocol, terms.options).traits.by_file:
        why = f"With {terms.protocol} a party can take part by one file. So it can with --committee 5 --contribute-by TIME "
        why += f"in place of --protocol {terms.protocol}."
    elif terms.protocol == AUTO and (terms.minimum or 0) > MANY:
        why = f"At least {terms.minimum} parties are seldom online together. Add --committee 5 --contribute-by TIME."
    else:
        return None
    return (
        f"{why} Five members whom you invite then open only the sum of all files. Its error is nearly that of one who sees all "
        f"records. To compare: quietmean plan --study {quote(str(path))} --parties N"
    )


def _listed(path: Path, names: Collection[str]) -> Dictionary:
    """The columns of a dictionary, those of these ``names`` or, where it has none of them, all; what is left out is said."""
    listed = Dictionary.load(path)
    if chosen := [name for name in listed.columns if name in names]:
        for name, why in listed.left_out.items():
            if name in names:
                warn(f"field {name!r} of {path} is not a column as it is, {why}. Its domain belongs in the question.")
        return listed.chosen(chosen)
    for name, why in listed.left_out.items():
        warn(f"field {name!r} of {path} is left out: {why}")
    return listed


def _ask_all(name: str | None, epsilon: float, colluding: int | None) -> dict[str, Any]:
    """The columns, and the fields of [study], that were asked for."""
    answers: dict[str, Any] = {"name": name or _ask("name of the study", str, "study")}
    # What is asked of columns is the usual: anything else is a question of its own.
    err.print("This asks for the mean of numbers, and for the proportion of each level.")
    err.print(f"For a table: Ctrl-C, then {_TABLE}")
    columns = [{"name": _ask("first column", _name), **_ask_column()}]
    while column := _ask("column (empty: that was all)", str, ""):
        columns.append({"name": column, **_ask_column()})
    answers["epsilon"] = _ask("epsilon (smaller: more private, and less precise)", float, epsilon)
    answers["colluding"] = _ask("parties that may collude, that is share all they see (empty: one in ten)", int, colluding)
    return answers | {"column": columns}


def _ask_column() -> dict[str, Any]:
    kind = _ask("  numbers, levels or yes-no", _kind, "numbers")
    if kind == "yes-no":
        return {"boolean": True}
    if kind == "levels":
        return {"levels": _ask("  levels, separated by commas", _levels)}
    bounds = {"low": _ask("  lowest value (public)", float), "high": _ask("  highest value (public)", float)}
    return bounds | {"missing": INDICATOR}


def _name(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _levels(text: str) -> list[str]:
    return [_name(level.strip()) for level in text.split(",")]


def _kind(text: str) -> str:
    if text not in ("numbers", "levels", "yes-no"):
        raise ValueError
    return text


# How to ask for more than means and proportions.
_TABLE = 'quietmean study new "crosstab(sex in {f, m}, ill in yes/no)"'
# What a good answer is.
_GOOD: dict[Callable[[str], Any], str] = {
    float: "Type a number, such as 0 or 1.5.",
    int: "Type a whole number, such as 2.",
    _name: "Type the name of a column, such as age.",
    _levels: "Type levels, such as f, m.",
    _kind: "Type numbers, levels or yes-no.",
}


def _ask(prompt: str, read: Callable[[str], Any], default: Any = ...) -> Any:
    """The answer to a question; asked again until it can be read."""
    shown = f" [{default}]" if default not in (..., "", None, []) else ""
    while True:
        err.print(f"{printable(prompt)}{shown}: ", end="")
        text = at_prompt(input).strip()
        if not text and default is not ...:
            return default
        try:
            return read(text)
        except ValueError:
            err.print(f"  {_GOOD.get(read, 'Try again.')}")
