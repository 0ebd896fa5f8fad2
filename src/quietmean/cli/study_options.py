"""Options of a study: what is promised, its committee, and its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import Parameter

from quietmean.cli.options import OF_COMMITTEE
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of

if TYPE_CHECKING:
    from quietmean.protocols.committee_size import Committee


@dataclass(frozen=True, kw_only=True)
class PromiseOptions:
    """What a target says in every command.

    Parameters
    ----------
    epsilon
        Privacy target, together with delta. Default 1.
    delta
        Probability with which the epsilon guarantee may fail. Default 1e-6.
    nats
        Instead of epsilon and delta: release the exact mean, and bound what colluders learn of each number of a party, in nats.
        This is mutual information, an average over values: not differential privacy. Only for protocol adqsp and unit party.
    eavesdropping
        The adversary also reads messages between honest parties. Give the chance for each message, or all-after-first: all but
        those of the first round. For protocols such as inca.
    """

    epsilon: float | None = None
    delta: float | None = None
    nats: float | None = None
    eavesdropping: str | None = None

    def require_one_target(self) -> None:
        """Raises :class:`InputError` for a delta beside nats, which have none."""
        if self.nats is not None and self.delta is not None:
            raise InputError(f"delta {self.delta:g} cannot go with nats {self.nats:g}, which have none. Leave it out.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetOptions(PromiseOptions):
    """The privacy target of a study, and the protocol that reaches it.

    Parameters
    ----------
    unit
        What is protected: one record, all rows of one person, or all records of a party. For person, each site's data settings
        say which rows belong to one person.
    rows
        For unit person: which of a person's rows count. mean: all, with the weight of one row together. first or last: one row,
        by its date. A number k: at most k rows, with k times the noise; it needs --count private. Default mean.
    sites_per_person
        For unit person: the largest number of parties that one person is at. This is an assumption, and the noise grows with
        it. Default 1.
    count
        public: every party's number of records is known to all. private: nobody learns it, and one record more or less changes
        next to nothing.
    most_records
        With private counts: the largest number of records that a party may have. It is public. Default 20000.
    colluding
        How many parties may collude, that is share all that they see. Default one in ten, at least one.
    dropouts
        Fraction of the parties expected to leave and not return. run stops that many processes, each in a random round.
    protocol
        The protocol; quietmean plan compares them. auto: packed-sharing where its conditions hold, else the protocol without a
        server that has the least predicted error. It is chosen once the parties are known.
    """

    unit: PrivacyUnit = PrivacyUnit.RECORD
    rows: str | None = None
    sites_per_person: int | None = None
    count: CountVisibility = CountVisibility.PUBLIC
    most_records: int | None = None
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = "auto"

    def fields(self) -> dict[str, Any]:
        """The fields of a study. Raises :class:`InputError` for an eavesdropper that cannot be, and two targets."""
        from quietmean.protocols.target import read_eavesdropping

        self.require_one_target()
        rows = int(self.rows) if self.rows is not None and self.rows.isdecimal() else self.rows
        stated = {**vars(self), "rows": rows, "eavesdropping": read_eavesdropping(self.eavesdropping)}
        return {name: value for name, value in stated.items() if value is not None}


NO_TARGET_OPTIONS = TargetOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommitteeShape:
    """A committee whose members open the sum of what others contribute, in one message each.

    Parameters
    ----------
    committee
        How many members hold shares; all other parties only contribute a file. Nobody learns more than the result, unless more
        members collude than planned. quietmean help protocol committee lists its options for --with.
    """

    committee: int | None = None
    committee_colluding: Annotated[int | None, Parameter(parse=False)] = None
    committee_gone: Annotated[int | None, Parameter(parse=False)] = None
    committee_size: Annotated[str | None, Parameter(parse=False)] = None
    verified: Annotated[bool, Parameter(parse=False)] = False
    products: Annotated[bool, Parameter(parse=False)] = False

    def shaped(self, said: Mapping[str, Any]) -> Self:
        """The committee with what --with says of it."""
        return replace(self, **said)

    @property
    def shape(self) -> dict[str, Any]:
        """What is given of it but for the number of members, by its name in a study."""
        gone = self.committee_gone if self.committee_gone is not None else self.committee_colluding
        checked = {"verified": self.verified or None, "products": self.products or None}
        dimensions = {"colluding": self.committee_colluding, "gone": gone, "size": self.committee_size, **checked}
        return {name: value for name, value in dimensions.items() if value is not None}

    @property
    def chosen(self) -> Committee | None:
        """The committee; None where none is asked for. Raises :class:`InputError` for one that gives no result."""
        from quietmean.protocols.committee_size import Committee

        return None if self.committee is None else Committee.parse({"members": self.committee, **self.shape})

    @property
    def given(self) -> dict[str, Any]:
        """What is given of it, by option."""
        stated = {name.replace("_", "-"): value for name, value in vars(self).items() if value not in (None, False)}
        return {f"{'with ' if name in OF_COMMITTEE else ''}{name}": value for name, value in stated.items()}

    def require_asked(self) -> None:
        """Raises :class:`InputError` for options of a committee where there is none."""
        if self.committee is None and self.given:
            names = ", ".join(f"--{name}" for name in self.given)
            raise InputError(f"options {names} go with --committee MEMBERS. Give it, or leave them out.")

    @property
    def terms(self) -> dict[str, Any]:
        """When contributions come, and by whose vouchers: at once, as the committee is rehearsed on this machine."""
        return {"contribute_by": datetime.now(UTC).isoformat(timespec="seconds"), "grace": 0.0}

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a study, with ``minimum`` and ``largest_weight`` in its committee where it has one.

        Raises :class:`InputError` as :meth:`require_asked`.
        """
        self.require_asked()
        if self.committee is None:
            return fields
        options = dict(fields["options"])
        minimum, largest = fields.get("minimum"), options.pop("largest_weight", None)
        committee = self.shape | self.terms | {"members": self.committee, "minimum": minimum, "largest_weight": largest}
        stated = {name: value for name, value in committee.items() if value is not None}
        return fields | {"minimum": None, "options": options, "committee": stated}


NO_COMMITTEE = CommitteeShape()


# Options about the column before them, and how many values they take; None for all up to the next option.
ABOUT: dict[str, int | None] = {
    "--levels": None,
    "--boolean": 0,
    "--dates": 2,
    "--from": 1,
    "--missing-codes": None,
    "--scale": 1,
    "--whole": 0,
    "--edges": None,
}

# Separates the name of a column from its levels inside one argument; no user types it.
_BETWEEN = "\x1f"


def attach(tokens: Sequence[str]) -> list[str]:
    """The arguments of ``run`` and ``study new``, with the last --column in options that only follow one, as --levels A B."""
    if list(tokens[:1]) != ["run"] and list(tokens[:2]) != ["study", "new"]:
        return list(tokens)
    attached: list[str] = []
    column, index = "", 0
    while index < len(tokens):
        word = tokens[index]
        index += 1
        attached.append(word)
        if word == "--column" and index < len(tokens):
            column = tokens[index]
        elif word.startswith("--column="):
            column = word.partition("=")[2]
        elif word in ABOUT:
            values, limit = [column], ABOUT[word]
            while index < len(tokens) and not tokens[index].startswith("--") and (limit is None or len(values) <= limit):
                values.append(tokens[index])
                index += 1
            attached.append(_BETWEEN.join(values))
    return attached


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """What each column has, and what is asked of them.

    Parameters
    ----------
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
    missing
        What a cell without a number counts as. indicator: nothing; a statistic covers the values present, and their number is
        estimated too. centre: the middle of the bounds; answers with such cells are flagged.
    allocate
        How statistics share the budget. shares: each as it declares. widths: all intervals as narrow as possible, each relative
        to its sampling error.
    accept_wide
        Go on although the noise of a statistic is wider than its bounds.
    """

    bounds: list[tuple[float, float]] | None = None
    levels: list[str] | None = None
    boolean: list[str] | None = None
    dates: list[str] | None = None
    made_from: Annotated[list[str] | None, Parameter(name="--from")] = None
    missing_codes: list[str] | None = None
    scale: list[str] | None = None
    whole: list[str] | None = None
    edges: list[str] | None = None
    statistic: list[str] | None = None
    missing: str = "indicator"
    allocate: str = "shares"
    accept_wide: bool = False

    def fields(self, column: Sequence[str]) -> dict[str, Any]:
        """The fields of a study. Raises :class:`InputError` for what contradicts itself."""
        from quietmean.statistics import read_text

        return {
            "column": declared(column, self),
            "statistic": [read_text(text) for text in self.statistic or ()],
            "allocate": self.allocate,
            "accept_wide": self.accept_wide,
        }


NO_COLUMN_OPTIONS = ColumnOptions()


def declared(column: Sequence[str], options: ColumnOptions) -> list[dict[str, Any]]:
    """The tables [[column]] that options mean; None of what was not given.

    Bounds belong to the columns without another declaration, in their order;
    those of transforms may be left out, all together. Raises :class:`InputError`
    unless every column has exactly one of bounds, levels, boolean and dates, or is a transform.
    """
    from quietmean.statistics import missing_rule

    missing = missing_rule(options.missing)
    tables: dict[str, dict[str, Any]] = {}
    bounds = options.bounds or ()
    for text in options.levels or ():
        name, *values = text.split(_BETWEEN)
        _declare(tables, column, name, {"levels": values}, "--levels A B")
    for name in options.boolean or ():
        _declare(tables, column, name, {"boolean": True}, "--boolean")
    for text in options.dates or ():
        name, *days = text.split(_BETWEEN)
        if len(days) != 2:
            raise InputError(f"--dates of column {name!r} has {count_of(len(days), 'day')}. Give the first and the last one.")
        _declare(tables, column, name, {"low": days[0], "high": days[1], "missing": missing}, "--dates FIRST LAST")
    made = dict(_named(column, options.made_from or (), "--from EXPRESSION"))
    numbers = [name for name in column if name not in tables]
    plain = [name for name in numbers if name not in made]
    bounded = plain if len(bounds) == len(plain) else numbers
    if len(bounds) > len(plain) and len(column) == 1 and tables:
        raise InputError(f"column {column[0]!r} has --bounds and another declaration. Leave one of them out.")
    if len(bounds) != len(bounded):
        others = " (or --levels A B or --boolean or --dates or --from)" if not bounds or tables else ""
        if len(bounds) > len(plain) and tables:
            others += ", and none for what has --levels, --boolean or --dates"
        raise InputError(
            f"{count_of(len(plain), 'column has', 'columns have')} {len(bounds)} bounds. Give --bounds LOW HIGH "
            f"once for each --column{others}."
        )
    for name, (low, high) in zip(bounded, bounds, strict=True):
        tables[name] = {"low": low, "high": high, "missing": missing}
    for name, texts in made.items():
        tables[name] = {"missing": missing, **tables.get(name, {}), "from": " ".join(texts)}
    for name, texts in _named(column, options.missing_codes or (), "--missing-codes A B"):
        tables[name]["missing_codes"] = texts
    for name, texts in _named(column, options.scale or (), "--scale SCALE"):
        tables[name]["scale"] = " ".join(texts)
    for name in options.whole or ():
        if name not in column:
            raise InputError("--whole follows no --column. Write it behind the column that it is about.")
        tables[name]["whole"] = True
    for name, texts in _named(column, options.edges or (), "--edges A B"):
        tables[name]["edges"] = [_edge(name, text) for text in texts]
    return [{"name": name, **tables[name]} for name in column]


def _edge(name: str, text: str) -> float | str:
    """A number, or a day as it is written. Raises :class:`InputError` for what is neither."""
    with suppress(ValueError):
        return float(text)
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat()
    raise InputError(f"--edges of column {name!r} has {text!r}. Give rising numbers, such as --edges 0 10 100.")


def _named(columns: Sequence[str], texts: Sequence[str], flag: str) -> list[tuple[str, list[str]]]:
    """The column and the values of each option."""
    values_of_columns = []
    for text in texts:
        name, *values = text.split(_BETWEEN)
        if name not in columns or not values:
            raise InputError(f"{flag} follows no --column or has no value. Write it behind the column that it is about.")
        values_of_columns.append((name, values))
    return values_of_columns


def _declare(
    tables: dict[str, dict[str, Any]], columns: Sequence[str], name: str, declaration: dict[str, Any], flag: str
) -> None:
    if name not in columns:
        raise InputError(f"{flag} follows no --column. Write it behind the column that it is about.")
    if name in tables:
        raise InputError(f"column {name!r} is declared twice. Give it either --levels, --boolean or --dates, once.")
    tables[name] = declaration
