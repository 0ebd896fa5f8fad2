"""What was tried, as lines of JSON in the file that QUIETMEAN_TALLY names, for a page of figures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def tally(kind: str, figures: Mapping[str, Any]) -> None:
    """Add a line; nothing where no file is named. Processes that run side by side add to the same file."""
    if name := os.environ.get("QUIETMEAN_TALLY"):
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **figures}) + "\n")
