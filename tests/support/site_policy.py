"""A site's policy in a file, where commands look for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quietmean.core.folders import configuration_folder

# What two parties who trust each other say, of whom nobody is asked.
BETWEEN_TWO: dict[str, Any] = {"least_colluding": 0, "unattended": True}


def write_policy(path: Path | None = None, /, *, budget: dict[str, Any] | None = None, **rules: Any) -> Path:
    """With the table [policy], and perhaps [budget]; by default in this user's folder for settings."""
    place = path or configuration_folder() / "policy.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    tables = {"policy": rules, **({} if budget is None else {"budget": budget})}
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        # What TOML and JSON write alike.
        lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in table.items()]
    place.write_text("\n".join(lines) + "\n")
    place.chmod(0o600)
    return place
