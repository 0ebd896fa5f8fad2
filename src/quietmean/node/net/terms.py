"""The terms of a study, field by field, so that two parties that differ can learn in which field.

Parties exchange the names of fields and digests of their values, never values, and only with parties of the roster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from quietmean.core.codec import canonical_json
from quietmean.core.readable import some_of

FIELD_BYTES: Final = 8
MOST_FIELDS: Final = 2000
LONGEST_PATH: Final = 200
_SHOWN = 5


def term_digests(terms: Mapping[str, Any]) -> dict[str, bytes]:
    """Digests of all values in nested plain data, by their path, such as ``columns.systolic.high``. At most 2000, in order."""
    digests: dict[str, bytes] = {}
    for path, value in _flat(terms, ""):
        if len(digests) == MOST_FIELDS:
            break
        digests[path[:LONGEST_PATH]] = hashlib.sha256(canonical_json([path, value])).digest()[:FIELD_BYTES]
    return digests


def differing(mine: Mapping[str, bytes], theirs: Mapping[str, bytes], within: str = "") -> list[str]:
    """The paths below ``within`` whose values differ, in order; with "only here" or "only there" where one side has no such."""
    paths = [
        path if path in theirs else f"{path} (only here)"
        for path, value in mine.items()
        if path.startswith(within) and theirs.get(path) != value
    ]
    return paths + [f"{path} (only there)" for path in theirs if path.startswith(within) and path not in mine]


def listed(paths: list[str]) -> str:
    """The first paths, in words."""
    return some_of(paths, _SHOWN)


def difference(mine: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> str:
    """In which fields two parties differ, in words; empty if they do not tell. What follows from other fields is left out."""
    if not theirs:
        return ""
    paths = differing(mine, theirs)
    for derived in ("plan.", "sealed."):
        paths = [path for path in paths if not path.startswith(derived)] or paths
    return listed(paths)


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            # Tables of columns and parties are known by their names.
            name = item.get("name", index + 1)
            yield from _flat({key: value for key, value in item.items() if key != "name"} or {"name": name}, f"{path}.{name}")
            yield f"{path}.{name}.place", index
    else:
        yield path, value
