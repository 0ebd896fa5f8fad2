"""The text of a study file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from quietmean.core.codec import decode_toml
from quietmean.core.errors import InputError
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.session_study import SessionStudy


def study_text(study: AnyStudy) -> str:
    """A study file or session file in TOML that :func:`load_any` reads as this one, with every default written out."""
    tables = study.tables()
    if isinstance(study, SessionStudy):
        return "\n".join(["[session]", *_lines(tables["session"])]) + "\n"
    general = dict(tables["study"])
    options = general.pop("options", {})
    parts = ["[study]", *_lines(general)]
    if options:
        parts += ["", "[study.options]", *_lines(options)]
    for name in ("column", "statistic"):
        for table in tables[name]:
            parts += ["", f"[[{name}]]", *_lines(table)]
    return "\n".join(parts) + "\n"


def is_study(content: bytes) -> bool:
    """Whether a file holds a study in TOML, whatever it asks."""
    try:
        tables = decode_toml(content, InputError)
    except InputError:
        return False
    return "column" in tables and not set(tables) - {"study", "column", "statistic"}


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _value(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isinf(value) or math.isnan(value):
            return str(value)
        case int() | float():
            return repr(value)
        case Mapping():
            return "{" + ", ".join(_lines(value)) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            # A JSON string is a valid TOML basic string; DEL is the one control character that JSON leaves as it is.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
