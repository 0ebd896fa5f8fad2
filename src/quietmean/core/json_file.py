"""A JSON object from a file that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quietmean.core.errors import InputError, reason_of


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises :class:`InputError` if the file is missing, cannot be read, or holds something else."""
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist: check the path") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"file {path} cannot be read as JSON ({reason_of(error)}): give a file that quietmean wrote") from None
    if not isinstance(raw, dict):
        raise InputError(f"file {path} holds no JSON object: give a file that quietmean wrote")
    return raw
