"""What kind of document a file is, and whose document of which study, from the origin that its receipt states.

Anyone who is given another kind learns both by name, and the command that takes it.

A JSON object of a wanted kind is read here, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from quietmean.core.codec import decode_json, decode_toml, digest
from quietmean.core.errors import InputError, in_sentences, reason_of

# The format of the receipt of a party's part in a session.
SESSION_RECEIPT = "quietmean-session-receipt-1"
# Letters of a release's name.
_LONGEST = 60


@cache
def package_version() -> str:
    """The release that runs."""
    try:
        return version("quietmean")
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def naming_release(raw: Mapping[str, Any]) -> Iterator[None]:
    """For who reads a receipt: raises :class:`InputError` with the release that wrote it, where that is another one than this."""
    origin = raw.get("origin")
    release = origin.get("quietmean") if isinstance(origin, Mapping) else None
    try:
        yield
    except InputError as error:
        if isinstance(release, str) and release[:_LONGEST] != package_version():
            raise InputError(
                in_sentences(error, f"Version {release[:_LONGEST]} of quietmean wrote it, and this is {package_version()}")
            ) from None
        raise


def study_and_party(origin: Mapping[str, Any] | None) -> str:
    """A digest of study, parties, and who of them wrote the document; empty where the origin does not say.

    It is the same when a party goes on after a crash, when contributions are added up again, and for all who began.
    """
    if origin is None:
        return ""
    start, sealed, names, party = (origin.get(name) for name in ("start", "sealed", "names", "party"))
    among = start.get("roster") if isinstance(start, Mapping) else origin.get("roster", origin.get("session"))
    if among is None:
        return ""
    own = names[party] if isinstance(names, list | tuple) and isinstance(party, int) and party < len(names) else None
    seal = sealed.get("digest") if isinstance(sealed, Mapping) else None
    return digest({"study": origin.get("study"), "among": among, "party": own, "sealed": seal})


# Bytes that are looked at.
_LARGEST = 256 * 2**20
_SQLITE = b"SQLite format 3\0"
# Where SQLite keeps the number of the application whose file it is.
_APPLICATION = slice(68, 72)
LEDGER_APPLICATION = 0x514D4C47


class FileKind(Enum):
    """A kind of file by its name in sentences, and the command that takes one, with {} for the file; "" where none does."""

    STUDY = "a study file", "quietmean study invite {}"
    SESSION = "a session file", "quietmean study invite {}"
    INVITATION = "an invitation", "quietmean accept {}"
    ENTRY = "an entry", "quietmean study seal INVITATION {}"
    SEALED = "a sealed study", "quietmean join {}"
    CONTRIBUTION = "a contribution", "quietmean study combine STUDY {}"
    COMMITTEE_CONTRIBUTION = "a contribution to a committee", "quietmean join STUDY --contributions FOLDER"
    SUMS = "sums of a committee", "quietmean result STUDY {}"
    APPROVAL = "an approval", "quietmean join STUDY --approval {}"
    # It goes beside its key, and no option names it.
    VOUCHER = "a voucher", ""
    DROP_RECEIPT = "a drop's receipt", "quietmean result STUDY SUMS --receipt {}"
    DROP_LOG = "a member's log of a drop", "quietmean result STUDY SUMS {}"
    # It goes beside its page, and no option names it.
    SIGNED_PAGE = "a coordinator's signature of a page", ""
    REVOCATION = "a revocation", "quietmean key revoke {}"
    STUDY_KEYS = "a party's keys for one study", ""
    KEY = "a private key", "quietmean join STUDY --key {}"
    ROSTER = "a roster", "quietmean join STUDY --roster {}"
    POLICY = "a policy", "quietmean check STUDY --policy {}"
    PLAN = "a plan", "quietmean simulate {}"
    RECEIPT = "a receipt", "quietmean verify receipt {}"
    SESSION_RECEIPT = "a receipt of a session", "quietmean verify receipt {}"
    RESULT = "a result", ""
    STATUS = "a node's status", "quietmean site status STORE"
    FLOWER = "an agreement of Flower's clients", "quietmean site contract {}"
    STORE = "a store", "quietmean site status {}"
    LEDGER = "a ledger", "quietmean site budget --ledger {}"
    AUDIT = "an audit log", "quietmean site audit --log {}"
    MESSAGE = "a message of a study through a folder", "quietmean join STUDY --folder FOLDER"
    PAGE = "a page for a browser", ""
    MODEL = "a model", ""
    DATA = "a table of data", "quietmean run --data {}"

    @property
    def words(self) -> str:
        """The name of the kind in sentences."""
        return self.value[0]

    def advice(self, name: str) -> str:
        """Which command takes the file of this name, as the end of a sentence."""
        return f" Give it to: {self.value[1].format(shlex.quote(name))}" if self.value[1] else ""


# A field that says the protocol is in each receipt and execution file, and one of these.
_OF_RECEIPTS = {"certify", "origin", "parties", "inputs", "weights", "pairs"}
# Of documents that say their format, which ends with a number.
_FORMATS = {
    "quietmean invitation": FileKind.INVITATION,
    "quietmean entry": FileKind.ENTRY,
    "quietmean seal": FileKind.SEALED,
    "quietmean contribution": FileKind.CONTRIBUTION,
    "quietmean committee contribution": FileKind.COMMITTEE_CONTRIBUTION,
    "quietmean approval": FileKind.APPROVAL,
    "quietmean committee voucher": FileKind.VOUCHER,
    "quietmean committee receipt": FileKind.DROP_RECEIPT,
    "quietmean committee log": FileKind.DROP_LOG,
    "quietmean committee page": FileKind.SIGNED_PAGE,
    "quietmean revocation": FileKind.REVOCATION,
    "quietmean study keys": FileKind.STUDY_KEYS,
    "quietmean plan": FileKind.PLAN,
    "quietmean flower": FileKind.FLOWER,
    "quietmean status": FileKind.STATUS,
    SESSION_RECEIPT.rstrip("-0123456789").replace("-", " "): FileKind.SESSION_RECEIPT,
}
# A document as one line of text, or the beginning of its format.
_FORMAT = re.compile(r"\s*(quietmean[ -][a-z -]+?)[ -]\d+(?:\.|$)")
_TABLES = {
    "study": FileKind.STUDY,
    "statistic": FileKind.STUDY,
    "session": FileKind.SESSION,
    "party": FileKind.ROSTER,
    "policy": FileKind.POLICY,
    "budget": FileKind.POLICY,
    "audit": FileKind.POLICY,
}
_ZIP = b"PK\x03\x04"
_ARRAYS = re.compile(rb"\.npy")
# Bytes of a ZIP archive in which the name of its first file is.
_NAMED = 256
_BEGINNINGS = {
    b'{"entry":': FileKind.AUDIT,
    b"qmcommi": FileKind.COMMITTEE_CONTRIBUTION,
    b"qmfile": FileKind.MESSAGE,
    **dict.fromkeys((b"PAR1", b"$FL", b"<stata_dta>", b"ARROW1", b"FEA1", b"HEADER RECORD*******LIB"), FileKind.DATA),
}


def refuse_other(kind: FileKind | None, name: str, *wanted: FileKind) -> None:
    """Raises :class:`InputError` for a file of another known ``kind`` than is wanted; of one that is not known, others judge.

    The sentence names the first of those that are wanted.
    """
    if kind is not None and kind not in wanted:
        advice = kind.advice(name.removeprefix("file ")) or f" Give {wanted[0].words}."
        if (kind, wanted[0]) == (FileKind.PAGE, FileKind.DATA):
            advice = " Open it and save its table as CSV."
        raise InputError(f"{name} holds {kind.words}, not {wanted[0].words}.{advice}")


def require_kind_of_store(path: Path | None) -> None:
    """Raises :class:`InputError` for another file in the place of a store, by its bytes alone; a folder has the keys of a study.

    A process that was killed as it began leaves an empty file, one without a table, or one whose tables are in a log beside it.
    """
    if path is None or not path.is_file() or any(path.with_name(path.name + log).exists() for log in ("-wal", "-journal")):
        return
    with path.open("rb") as file:
        begun = file.read(_LARGEST)
    if not begun or (begun.startswith(_SQLITE) and b"CREATE TABLE" not in begun):
        return
    kind = kind_of_content(begun)
    refuse_other(kind, f"file {path}", FileKind.STORE)
    if kind is None:
        raise InputError(f"{path} is not a store. Name the one of join, which usually is STUDY-PARTY.store.")


def require_program(path: Path) -> None:
    """Raises :class:`InputError` for a program that is not there, or is one of our documents. Its lines may look like a table."""
    if not path.is_file():
        raise InputError(f"program {path} is not a file. Check the path.")
    if (kind := kind_of_file(path)) not in (None, FileKind.DATA):
        raise InputError(f"file {path} holds {kind.words}, not a program.{kind.advice(str(path))}")


def kind_of_file(path: Path) -> FileKind | None:
    """The kind of a file; None where it is not known or cannot be read, and for a pipe or device, which may have no end."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            # No more room than the file is large.
            content = file.read(min(path.stat().st_size, _LARGEST))
    except (OSError, ValueError):
        return None
    return kind_of_content(content)


def kind_of_content(content: bytes) -> FileKind | None:
    """The kind of what a file holds."""
    if content.startswith(_SQLITE):
        application = int.from_bytes(content[_APPLICATION], "big")
        tables = b"CREATE TABLE fact" in content and b"CREATE TABLE inbox" in content
        return FileKind.LEDGER if application == LEDGER_APPLICATION else FileKind.STORE if tables else FileKind.DATA
    for start, kind in _BEGINNINGS.items():
        if content.startswith(start):
            return kind
    if content.startswith(_ZIP):
        # A model is a file of NumPy's arrays, and a workbook is one of XML.
        return FileKind.MODEL if _ARRAYS.search(content[:_NAMED]) else FileKind.DATA
    if b"PRIVATE KEY-----" in content[:200]:
        return FileKind.KEY
    if b"quietmean committee" in content[:64] and not content[:1].isascii():
        return FileKind.SUMS
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return _kind_of_text(text)


def _kind_of_text(text: str) -> FileKind | None:
    start = text.lstrip()[:200]
    if start.startswith("{"):
        with suppress(InputError):
            return kind_of_json(decode_json(text, dict[str, Any], InputError))
        return None
    if (line := _FORMAT.match(start)) is not None:
        return _FORMATS.get(line[1].replace("-", " "))
    if start[:15].lower().startswith(("<!doctype html", "<html")):
        return FileKind.PAGE
    with suppress(InputError):
        return kind_of_tables(decode_toml(text, InputError))
    lines = [line for line in text.split("\n", 3)[:3] if line.strip()]
    for separator in ",;\t|":
        cells = {line.count(separator) for line in lines[:2]}
        if len(lines) > 1 and len(cells) == 1 and cells != {0}:
            return FileKind.DATA
    return None


def kind_of_tables(raw: Mapping[str, Any]) -> FileKind | None:
    """The kind of a file of TOML by its tables."""
    kinds = {_TABLES[name] for name, table in raw.items() if name in _TABLES and isinstance(table, dict | list)}
    # Columns are declared in several.
    return next(iter(kinds)) if len(kinds) == 1 else None


def kind_of_json(raw: Mapping[str, Any]) -> FileKind | None:
    """The kind of a JSON document by its format, or by the fields that only it has."""
    form = raw.get("format")
    if isinstance(form, str) and (match := _FORMAT.match(form)) is not None:
        return _FORMATS.get(match[1].replace("-", " "))
    if "statistics" in raw and "epsilon_a_priori" in raw:
        return FileKind.RESULT
    if isinstance(raw.get("protocol"), str) and _OF_RECEIPTS & set(raw):
        return FileKind.RECEIPT
    return None


T = TypeVar("T")


def read_json(path: Path, *kinds: FileKind) -> dict[str, Any]:
    """A JSON object from a file. Raises :class:`InputError` if the file is missing, cannot be read, or holds something else, as
    where it is known to be of another kind than these."""

    def unreadable(reason: str) -> InputError:
        refuse_other(kind_of_file(path) if kinds else None, f"file {path}", *kinds)
        if kinds:
            return InputError(f"file {path} is not {kinds[0].words} ({reason}). Give the file as quietmean wrote it.")
        return InputError(f"file {path} cannot be read as JSON ({reason}). Give a file that quietmean wrote.")

    document = read_as(path, object, unreadable)
    if not isinstance(document, dict):
        raise InputError(f"file {path} holds no JSON object. Give a file that quietmean wrote.")
    if kinds:
        refuse_other(kind_of_json(document), f"file {path}", *kinds)
    return document


def read_as(path: Path, kind: type[T], unreadable: Callable[[str], InputError]) -> T:
    """What a file of JSON holds, of this ``kind``. Raises :class:`InputError` if it is missing, else ``unreadable``."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist. Check the path.") from None
    except OSError as error:
        raise unreadable(reason_of(error)) from None
    return decode_json(raw, kind, unreadable)
