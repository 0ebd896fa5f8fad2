"""Files of settings that people write: tables in TOML, read into models, and what is said of those that are not right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from quietmean.core.codec import decode_toml
from quietmean.core.errors import InputError, reason_of
from quietmean.core.schema import nearest

Place = tuple[int | str, ...]


def read_tables(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file, ``what`` in sentences. Raises :class:`InputError` for one that is missing or cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, what, error) from None
    return decode_tables(content, path, what)


def decode_tables(content: bytes, path: Path, what: str) -> dict[str, Any]:
    """The same of what was read already."""
    return decode_toml(content, lambda reason: InputError(f"{what} {path} cannot be read ({reason}): mend it"))


def unreadable(path: Path, what: str, error: OSError) -> InputError:
    """Why it cannot be read."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{what} {path} does not exist: check the path")
    return InputError(f"{what} {path} cannot be read ({reason_of(error)}): mend it")


def fault(place: Place, kind: str, message: str, root: type[BaseModel], tables: Mapping[str, type[BaseModel]] = {}) -> str:
    """A wrong field in words, with the nearest that is known for an unknown one.

    ``place``, ``kind``, ``message``: as pydantic has them. ``root``: the model of the file, ``tables``: those of its tables.
    """
    text = ".".join(map(str, place))
    if kind != "extra_forbidden":
        return f"{text}: {message.lower()}"
    table = tables.get(str(place[0]), root) if len(place) > 1 else root
    field_names = [field.alias or name for name, field in table.model_fields.items()]
    return f"{text} is unknown{nearest(str(place[-1]), field_names)}"
