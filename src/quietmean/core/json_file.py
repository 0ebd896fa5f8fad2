"""A JSON object from a file that a person names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError, reason_of
from quietmean.core.file_kinds import FileKind, kind_of_file, kind_of_json, refuse_other

T = TypeVar("T")


def read_json(path: Path, *kinds: FileKind) -> dict[str, Any]:
    """A JSON object from a file. Raises :class:`InputError` if the file is missing, cannot be read, or holds something else, as
    where it is known to be of another kind than these."""

    def unreadable(reason: str) -> InputError:
        refuse_other(kind_of_file(path) if kinds else None, f"file {path}", *kinds)
        return InputError(f"file {path} cannot be read as JSON ({reason}): give a file that quietmean wrote")

    document = read_as(path, object, unreadable)
    if not isinstance(document, dict):
        raise InputError(f"file {path} holds no JSON object: give a file that quietmean wrote")
    if kinds:
        refuse_other(kind_of_json(document), f"file {path}", *kinds)
    return document


def read_as(path: Path, kind: type[T], unreadable: Callable[[str], InputError]) -> T:
    """What a file of JSON holds, of this ``kind``. Raises :class:`InputError` if it is missing, else ``unreadable``."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist: check the path") from None
    except OSError as error:
        raise unreadable(reason_of(error)) from None
    return decode_json(raw, kind, unreadable)
