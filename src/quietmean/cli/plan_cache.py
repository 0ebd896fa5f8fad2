"""Answers of ``quietmean plan`` on disk, by what was asked and by the code that answers."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quietmean.core.codec import canonical_json, digest
from quietmean.core.errors import InputError
from quietmean.core.extensions import sources
from quietmean.core.folders import cache_folder
from quietmean.core.json_file import read_json
from quietmean.core.portability import replace_durably
from quietmean.protocols import registry

_MOST_FILES = 500


class PlanCache:
    """A directory of JSON files. Where it cannot be written, nothing is kept and no error is raised."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or cache_folder() / "plans"

    def find(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        # A question without a JSON form, such as an epsilon that is not a number, was never answered.
        with contextlib.suppress(OSError, InputError, ValueError):
            return read_json(self._path(question))
        return None

    def keep(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        path = self._path(question)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_durably(path, canonical_json(answer))
            for old in sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-_MOST_FILES]:
                old.unlink()

    def _path(self, question: Mapping[str, Any]) -> Path:
        return self._directory / f"{digest({'asked': question, 'code': _code()})}.json"


def _code() -> str:
    """Changes with any file of this package, and of what brings protocols to it."""
    package = Path(__file__).parent.parent
    others = [kind for kind in registry().values() if not kind.__module__.startswith(f"{package.name}.")]
    files = [*sorted(package.rglob("*.py")), *(file for kind in others for file in sources(kind))]
    state = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(state).encode()).hexdigest()
