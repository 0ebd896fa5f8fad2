"""A site's policy in a file, where commands look for it; and studies in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quietmean.core.folders import configuration_folder

# What two parties who trust each other say, of whom nobody is asked.
BETWEEN_TWO: dict[str, Any] = {"least_colluding": 0, "unattended": True}


def write_policy(
    path: Path | None = None,
    /,
    *,
    budget: dict[str, Any] | None = None,
    columns: Sequence[Mapping[str, Any]] = (),
    audit: Mapping[str, Any] | None = None,
    **rules: Any,
) -> Path:
    """With the table [policy], perhaps [budget] and [[column]]; by default in this user's folder for settings."""
    place = path or configuration_folder() / "policy.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {"policy": rules, "column": columns}
    more = {name: table for name, table in (("budget", budget), ("audit", audit)) if table is not None}
    place.write_text(toml({**tables, **more}))
    place.chmod(0o600)
    return place


def toml(tables: Mapping[str, Any]) -> str:
    """A file of tables, and of lists of tables."""
    lines = []
    for name, given in tables.items():
        several = not isinstance(given, Mapping)
        for table in given if several else [given]:
            lines.append(f"[[{name}]]" if several else f"[{name}]")
            lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list | tuple) else f'"{value}"'
