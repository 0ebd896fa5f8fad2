"""What the real machines of a case said, as a plain document: written once, compared ever after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from golden.changes import outcomes
from golden.rounds import Recorded, message_text, release_text, run_rounds, state_digest

FOLDER = Path(__file__).parent
EXPECTED = ("messages", "releases", "states", "states_by_round", "bad")


def load(folder: str) -> dict[str, Any]:
    """All documents of a folder by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((FOLDER / folder).glob("*.json"))}


def recorded(case: dict[str, Any]) -> Recorded:
    """The machines of a case, run anew."""
    return run_rounds(case["execution"], np.array(case["values"]), case["seed"], case["refusing"])


def expectations(case: dict[str, Any]) -> dict[str, Any]:
    """What is compared to the last bit, or, of machines that use the platform's functions, releases as numbers alone."""
    found = recorded(case)
    if not case["exact"]:
        releases = {str(party): _numbers(step.release) for party, step in enumerate(found.last) if step.release is not None}
        return {"messages": len(found.messages), "releases": releases, "states": [], "states_by_round": [], "bad": []}
    on_grid = bool(case["execution"].get("grid"))
    return {
        "messages": [message_text(message) for message in found.messages],
        "releases": {str(party): release_text(step) for party, step in enumerate(found.last) if step.release is not None},
        "states": [state_digest(step) for step in found.last],
        "states_by_round": list(found.states),
        "bad": list(outcomes(found, case["bad_rounds"], on_grid)),
    }


def _numbers(release: Any) -> list[float]:
    return [float(release.weight), *release.vector.tolist()]
