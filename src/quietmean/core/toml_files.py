"""Files of settings that people write: tables in TOML, read into models, and what is said of those that are not right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from quietmean.core.codec import decode_toml
from quietmean.core.errors import InputError, reason_of
from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
from quietmean.core.schema import nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def read_tables(path: Path, subject: str, *kinds: FileKind) -> dict[str, Any]:
    """The tables of a file, ``subject`` in sentences. Raises :class:`InputError` for one that is missing or cannot be read, or
    that is known to be of another kind than these."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, subject, error) from None
    return decode_tables(content, path, subject, *kinds)


def decode_tables(content: bytes, path: Path, subject: str, *kinds: FileKind) -> dict[str, Any]:
    """Return the tables of what was read already."""
    if kinds:
        refuse_other(kind_of_content(content), f"file {path}", *kinds)
    return decode_toml(content, lambda reason: InputError(f"{subject} {path} cannot be read ({reason}). Correct it."))


# The command that writes a file of a kind.
_WRITTEN_BY = {"study file": "quietmean study new"}


def unreadable(path: Path, subject: str, error: OSError) -> InputError:
    """Why it cannot be read."""
    if isinstance(error, FileNotFoundError):
        written = _WRITTEN_BY.get(subject)
        return InputError(f"{subject} {path} does not exist. Check the path{f', or write one: {written}' if written else '.'}")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{subject} {path} is a folder. Name the file.")
    return InputError(f"{subject} {path} cannot be read ({reason_of(error)}). Correct it.")


# What a field must be, by the first word of the kind of its fault. What stands there is not shown: it may be a file of data.
_MUST_BE = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text between quotation marks",
    "tuple": "a list between [ and ]",
    "dict": "a table",
    "mapping": "a table",
}
# Fields that are times.
_TIMES = (("start_by",), ("deadlines", "first"), ("committee", "contribute_by"))


def fault(detail: ErrorDetails, root: type[BaseModel], tables: Mapping[str, type[BaseModel]] = {}) -> str:
    """A wrong field in words: where it is, what it must be, and for an unknown one the nearest that is known.

    ``root``: the model of the file, ``tables``: those of its tables.
    """
    place, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    text = ".".join(map(str, place))
    if kind == "missing":
        return f"{text} is missing"
    if place in _TIMES:
        return f"{text} must be a time with its offset from UTC, for example 2027-03-01T09:00:00Z"
    if kind == "enum" and "expected" in context:
        return f"{text} must be {context['expected'].replace(chr(39), chr(34))}"
    for bound, words in (("ge", "at least"), ("gt", "more than")):
        if kind.startswith("greater_than") and bound in context:
            return f"{text} must be {words} {context[bound]:g}"
    if kind != "extra_forbidden":
        must = _MUST_BE.get(kind.split("_")[0])
        return f"{text}: {detail['msg'].lower()}" if must is None else f"{text} must be {must}"
    table = tables.get(str(place[0]), root) if len(place) > 1 else root
    field_names = [field.alias or name for name, field in table.model_fields.items()]
    homes = [f'"{name}"' for name, other in tables.items() if other is not table and place[-1] in other.model_fields]
    return f"{text} is unknown{f' here: it belongs under {homes[0]}' if homes else nearest(str(place[-1]), field_names)}"
