"""Where a site's data are, and how they are written: ``FILE`` or ``FILE#NAME=VALUE,NAME=VALUE``, and ``NAME.format.toml`` beside.

Instead of a file, a PostgreSQL database: ``postgresql://HOST/DATABASE``, or ``service=NAME`` of libpq's file of services.

What stands behind the # is about this site's file, so it belongs to the data and not to the study: ``visits.csv#decimal=comma``,
``visits.xlsx#sheet=2024``, ``clinic.sqlite#table=visits``, ``clinic.duckdb#query=visits.sql``. What is set each time
stands in ``visits.format.toml`` in the same folder; settings behind the # come first. How a file is read is fixed before any
of its rows is looked at: by these, else by its kind and its header.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from quietmean.core.cells import plain_name
from quietmean.core.codec import decode_toml
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_class
from quietmean.core.schema import nearest

_FIELDS = ("name", "codes", "factor")
# Of one person in a study of records, as in a study that adds up a person's rows.
_MOST_ROWS = 1000


@dataclass(frozen=True)
class ColumnMapping:
    """What a column of the study is at a site.

    ``name``: the site's, or nothing where it is that of the study. ``codes``: the texts as which cells are read.

    ``factor``: by which numbers are multiplied, so that they have the study's unit.
    """

    name: str = ""
    codes: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0


@dataclass(frozen=True)
class SiteMapping:
    """What the columns of a study are called and coded at a site.

    ``columns``: by their names in the study. ``person``: the site's column that says whose a row is, if any; ``date``: the one
    by which the first or the last of a person's rows is chosen. ``rows_per_person``: how many rows of one person have values in
    a study of records, which costs the person as many times as much; public; None: not said."""

    columns: Mapping[str, ColumnMapping] = field(default_factory=dict)
    person: str = ""
    date: str = ""
    rows_per_person: int | None = None

    @classmethod
    def parse(cls, raw: object, place: str) -> Self:
        """Read a site mapping from the table [mapping] of the file ``place``.

        Raises :class:`InputError` for anything else in it.
        """
        table = _table(raw, "mapping", place)
        _only(table, ("person", "date", "rows_per_person", "columns"), "mapping", place)
        for name, usual in (("person", "patient_id"), ("date", "visit_date")):
            if not isinstance(table.get(name, ""), str):
                raise InputError(f'[mapping] of {place} has a {name} that is not a name of a column. Write {name} = "{usual}".')
        person, date = (plain_name(table.get(name, "")) for name in ("person", "date"))
        columns = _table(table.get("columns", {}), "mapping.columns", place)
        read = {plain_name(name): _column(column, name, place) for name, column in columns.items()}
        return cls(read, person, date, _rows_per_person(table.get("rows_per_person"), f"rows_per_person in [mapping] of {place}"))

    def of(self, column: str) -> ColumnMapping:
        return self.columns.get(plain_name(column), _UNCHANGED)

    def names(self, column_names: Collection[str]) -> dict[str, str]:
        """The site's names of the named columns."""
        return {plain_name(name): self.of(name).name or plain_name(name) for name in column_names}


_UNCHANGED = ColumnMapping()


@python_class
@dataclass(frozen=True, eq=False)
class FrameOfPersons:
    """A data frame with the name of its column that tells persons apart, which nobody else sees.

    ``date``: the column by which the first or the last of a person's rows is chosen, where a study asks for one of them.
    ``rows_per_person``: how many rows of one person have values in a study of records, which costs the person as many times as
    much; public.
    """

    data: Any = field(repr=False)
    person: str = field(repr=False)
    date: str = field(default="", repr=False)
    rows_per_person: int | None = None

    @property
    def mapping(self) -> SiteMapping:
        most = _rows_per_person(self.rows_per_person, "rows_per_person of the data frame")
        return SiteMapping(person=plain_name(self.person), date=plain_name(self.date), rows_per_person=most)


def _rows_per_person(raw: object, name: str) -> int | None:
    """Read how many rows a person may have. Raises :class:`InputError` for no whole number from 1 to 1000."""
    if raw is None or (isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= _MOST_ROWS):
        return raw
    raise InputError(f"{name} is not a whole number from 1 to {_MOST_ROWS}. Write rows_per_person = 4")


def _column(raw: object, name: str, place: str) -> ColumnMapping:
    if isinstance(raw, str):
        return ColumnMapping(plain_name(raw))
    where = f"mapping.columns.{name}"
    table = _table(raw, where, place)
    _only(table, _FIELDS, where, place)
    codes, factor, called = table.get("codes", {}), table.get("factor", 1.0), table.get("name", "")
    if not isinstance(called, str):
        raise InputError(f'[{where}] of {place} has a name that is not a text. Write name = "ALTER".')
    if not (isinstance(codes, Mapping) and all(isinstance(code, str | int | float) for code in codes.values())):
        raise InputError(f'[{where}] of {place} has codes that are not valid. Write codes = {{ 1 = "f", 2 = "m", 9 = "" }}.')
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not math.isfinite(factor) or factor == 0:
        raise InputError(f"[{where}] of {place} has a factor that is 0 or not a number. Write factor = 0.4536.")
    texts = {plain_name(code): str(text).lower() if isinstance(text, bool) else str(text) for code, text in codes.items()}
    return ColumnMapping(plain_name(called), texts, float(factor))


def _table(raw: object, where: str, place: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InputError(f"{where} of {place} is not a table. Write [{where}], and below it what is said.")
    return raw


def _only(table: Mapping[str, Any], known: Collection[str], where: str, place: str) -> None:
    for name in table:
        if name not in known:
            raise InputError(f"[{where}] of {place} has {name!r}{nearest(name, known)}. Choose one of {', '.join(known)}.")


# The last one means any number of blanks and tabs.
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "blanks": " "}
# What a data frame is called instead of a file.
FRAME = Path("the data frame")
# Lines or rows in which the names of the columns are searched.
HEADING_LINES = 50
# What files with an object of JSON in each line are called.
_JSON_LINES = (".jsonl", ".ndjson")
# Schemes of addresses of PostgreSQL; a path has one slash where there were more.
_POSTGRESQL = re.compile(r"postgres(?:ql)?://?(?P<rest>.*)", re.DOTALL)
# Addresses of anything else, and what says a password in them or in a text for libpq; a drive has one letter.
_ADDRESS = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]+:)+/|[^/@]{2,}:[^@]*@|[^@]*:[^/@]+@|.*(?:password|passwd|pwd)\s*=", re.DOTALL | re.IGNORECASE
)
_SERVICE = re.compile(r"service=(?P<name>[^\s#&=?/]+)")
# The most lines of a record of several ones, where it is said that there are such, and where a number is said.
_USUAL_LINES, _MOST_LINES = 64, 4096
# The most bytes of a query, or of the settings of a file.
_LONGEST_TEXT = 2**20
# The settings of a file, and the values of those that have a choice.
_CHOICES: dict[str, tuple[str, ...]] = {
    "decimal": ("comma", "point"),
    "thousands": ("comma", "point", "none"),
    "delimiter": tuple(DELIMITERS),
    "dates": ("day-first", "month-first", "excel", "excel-1904", "sas", "stata", "spss", "unix"),
    "encoding": (),
    "multiline": (),
    "rownames": ("true", "false"),
    "skip": (),
    "sheet": (),
    "table": (),
    "query": (),
    "query_mixes_rows": ("true", "false"),
    "grouped": ("true", "false"),
    "format": (),
}


@dataclass(frozen=True)
class Location:
    """A file and the settings of how it is read. Raises :class:`InputError` for impossible ones.

    ``database``: instead of a file, the address of a PostgreSQL database, without a password; ``path`` is its name then.
    ``mapping``: what columns and cells are called here, which nobody else is to see. ``codes``: tables that are public, with the
    columns of their key, of which no two rows have the same.
    """

    path: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    database: str = ""
    mapping: SiteMapping = field(default_factory=SiteMapping, repr=False)
    codes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, source: Path | str) -> Location:
        """Make a location from ``FILE#NAME=VALUE,...``; a file whose own name has a # is taken as it is.

        Raises :class:`InputError` for impossible settings, and for an address with a password in it, which is not shown.
        """
        text = str(source)
        if (address := _address_of(text)) is not None:
            address, _, said = address.partition("#")
            path, beside = Path(_name_of_database(address)), None
        else:
            head = _file_in(text)
            path, said, address = Path(head), text[len(head) + 1 :], ""
            beside = path
        settings, mapping, codes = _with_format_file(_settings_of(said, path.name) if said else {}, beside)
        return cls(path, settings, address, mapping, codes)

    def __post_init__(self) -> None:
        for name, value in self.settings.items():
            choices = _CHOICES.get(name)
            if choices is None:
                raise InputError(
                    f"#{name}= is not known for {self.path.name}{nearest(name, _CHOICES)}. Choose one of "
                    f"{', '.join(f'#{choice}=' for choice in _CHOICES)}."
                )
            if choices and value not in choices:
                raise InputError(
                    f"#{name}={value} of {self.path.name} is not known{nearest(value, choices)}. Use {' or '.join(choices)}."
                )
        if self.settings.get("thousands", "none") == self.settings.get("decimal", ""):
            raise InputError(f"the same mark is said of {self.path.name} for decimals and for thousands. Choose two.")
        multiline = self.settings.get("multiline", "false")
        if multiline not in ("true", "false") and not (multiline.isdecimal() and 1 < int(multiline[:9]) <= _MOST_LINES):
            raise InputError(
                f"#multiline={multiline} of {self.path.name} is not known. Use true, false, or the most lines of a record."
            )
        skip = self.settings.get("skip", "0")
        if not skip.isdecimal():
            raise InputError(
                f"#skip={skip} of {self.path.name} is not a number. Say how many lines are above the names of the columns."
            )

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"the database {self.path.name}" if self.database else self.path.name

    @property
    def is_frame(self) -> bool:
        """Is it a data frame, of which no settings are said?"""
        return self.path == FRAME

    @property
    def query(self) -> str | None:
        """The file with the query, if one is said."""
        return self.settings.get("query")

    @property
    def mixes_rows(self) -> bool:
        """Does its owner declare that a query or view lets rows decide about others?"""
        return self.settings.get("query_mixes_rows") == "true"

    @property
    def counts_groups(self) -> bool:
        """Is the database to count groups of equal rows, instead of handing over the rows?"""
        return self.settings.get("grouped") == "true"

    @property
    def most_lines(self) -> int:
        """How many lines a record of a text may have; 0 where it ends with its line."""
        multiline = self.settings.get("multiline", "false")
        return int({"true": _USUAL_LINES, "false": 0}.get(multiline, multiline))

    @property
    def has_json_lines(self) -> bool:
        """Has each of its lines an object of JSON, as its name says?"""
        return Path(_unpacked_name(self.path)).suffix.lower() in _JSON_LINES

    @property
    def format_file(self) -> Path | None:
        """The file of settings: the one that is named, else the one beside the data, which may not be there."""
        named = self.settings.get("format")
        return Path(named) if named is not None else None if self.database else _beside(self.path)

    @property
    def skip(self) -> int:
        return int(self.settings.get("skip", "0"))

    def only(self, kind: str, allowed: Collection[str]) -> None:
        """Raises :class:`InputError` for a setting that has no meaning for this ``kind`` of source."""
        for name in self.settings:
            if name not in {*allowed, "decimal", "thousands", "dates", "query", "query_mixes_rows", "format"}:
                raise InputError(f"#{name}= has no meaning for {self.name}, which is {kind}. Leave it out.")


def _file_in(text: str) -> str:
    """Return the file in ``FILE#NAME=VALUE,...``, whose own name may have a #: the first that is there."""
    if "#" not in text or Path(text).exists():
        return text
    parts = text.split("#")
    heads = ["#".join(parts[:count]) for count in range(1, len(parts))]
    return next((head for head in heads if Path(head).exists()), heads[0])


def is_plain(path: Path) -> bool:
    """Is it a file, and no pipe, socket or device, of which nobody knows when it ends? Raises :class:`OSError` for none."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    # The system refuses such a name, as with a null byte.
    except ValueError:
        raise FileNotFoundError from None


def short_bytes(path: Path) -> bytes:
    """The content of a short file that a person wrote. Raises :class:`OSError` for a longer one, and for no plain file."""
    if not is_plain(path):
        raise OSError
    with path.open("rb") as file:
        raw = file.read(_LONGEST_TEXT + 1)
    if len(raw) > _LONGEST_TEXT:
        raise OSError
    return raw


def _beside(path: Path) -> Path:
    """``visits.format.toml`` beside ``visits.csv`` or ``visits.csv.gz``."""
    return path.with_name(f"{_stem(path)}.format.toml")


def account_name(source: Path | str) -> str:
    """The name of the file without its endings: what an account for these data is called."""
    location = Location.of(source)
    return location.path.name if location.database else _stem(location.path)


def _stem(path: Path) -> str:
    return Path(_unpacked_name(path)).stem


def _unpacked_name(path: Path) -> str:
    return path.stem if path.suffix.lower() == ".gz" else path.name


def _address_of(text: str) -> str | None:
    """The address of a PostgreSQL database with what is said of it, if that is what a source is.

    Raises :class:`InputError` if it has a password.
    """
    service = _SERVICE.match(text)
    if service is not None and text[service.end() :][:1] in ("", "#"):
        return f"postgresql://?{text}"
    matched = _POSTGRESQL.fullmatch(text)
    if (matched is None and not _ADDRESS.match(text)) or Path(text).exists() or Path(text.partition("#")[0]).exists():
        return None
    if matched is None:
        raise InputError(
            "The data's address is not a file and not postgresql://HOST/DATABASE. It is not shown, as it may "
            "hold a password. Give one of the two."
        )
    user, _, _ = matched["rest"].rpartition("@")
    if ":" in user or "password=" in unquote(matched["rest"]).lower():
        raise InputError(
            "the address of the database has a password, which other programs of this machine can see. Leave it out, and keep "
            "it where libpq looks, in ~/.pgpass, a file of services or PGPASSWORD."
        )
    return f"postgresql://{matched['rest']}"


def _name_of_database(address: str) -> str:
    """The name of a database, without host and user: the database, or the service."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "postgresql"
    service = parse_qs(parts.query).get("service", [""])[0]
    return unquote(parts.path.strip("/")).replace("/", "_") or service or "postgresql"


# Settings, what columns are called, and the keys of codes.
_Said: TypeAlias = tuple[dict[str, str], SiteMapping, Mapping[str, tuple[str, ...]]]


def _with_format_file(settings: dict[str, str], path: Path | None) -> _Said:
    """The settings with those of a file, where one is named or stands beside; what stands behind the # comes first."""
    named = settings.get("format")
    if named is not None:
        beside = Path(named)
    elif path is not None and path.name:
        beside = _beside(path)
    else:
        return settings, SiteMapping(), {}
    in_file, mapping, codes = _in_format_file(beside, must_be=named is not None)
    return in_file | settings, mapping, codes


def _in_format_file(beside: Path, must_be: bool) -> _Said:
    """What it says, nothing where there is none. Raises :class:`InputError` where it cannot be read."""
    unreadable = InputError(
        f'{beside.name} cannot be read. Write lines such as decimal = "comma", as quietmean site data proposes them.'
    )
    try:
        raw = decode_toml(short_bytes(beside), lambda reason: unreadable)
    except (FileNotFoundError, NotADirectoryError):
        if must_be:
            raise InputError(f"file {beside} does not exist, and #format= names it. Check the path.") from None
        return {}, SiteMapping(), {}
    except OSError:
        raise unreadable from None
    mapping = SiteMapping.parse(raw.pop("mapping", {}), beside.name)
    codes = _codes(raw.pop("codes", {}), beside.name)
    wrong = [name for name, value in raw.items() if not isinstance(value, str | int)]
    if wrong:
        raise InputError(
            f"{wrong[0]} of {beside.name} is not a text, number or truth value. Write for example {wrong[0]} = 'comma'."
        )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in raw.items()}, mapping, codes


def _codes(raw: object, place: str) -> dict[str, tuple[str, ...]]:
    """Read the table [codes] of a file of settings. Raises :class:`InputError` for anything but names of columns."""
    usual = 'concept = ["concept_id"]'
    if not isinstance(raw, Mapping):
        raise InputError(f"codes of {place} is not a table. Write [codes], and below it {usual}")
    codes = {str(name): [key] if isinstance(key, str) else key for name, key in raw.items()}
    for name, key in codes.items():
        if not (isinstance(key, list) and key and all(isinstance(column, str) and column.strip() for column in key)):
            raise InputError(f"{name} in [codes] of {place} does not name the columns of its key. Write for example {usual}")
    return {name: tuple(map(plain_name, key)) for name, key in codes.items()}


def _settings_of(text: str, name: str) -> dict[str, str]:
    settings = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise InputError(
                f"#{text} behind {name} cannot be read. Write #NAME=VALUE, such as #decimal=comma, with commas between."
            )
        settings[key.strip()] = value.strip()
    return settings
