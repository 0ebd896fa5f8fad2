"""A JSON object from a file that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError, reason_of


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises :class:`InputError` if the file is missing, cannot be read, or holds something else."""

    def unreadable(reason: str) -> InputError:
        return InputError(f"file {path} cannot be read as JSON ({reason}): give a file that quietmean wrote")

    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist: check the path") from None
    except OSError as error:
        raise unreadable(reason_of(error)) from None
    document = decode_json(raw, object, unreadable)
    if not isinstance(document, dict):
        raise InputError(f"file {path} holds no JSON object: give a file that quietmean wrote")
    return document
