"""The last mean, kept while the round after it goes on: who comes back in that round makes the same vector from it again."""

from __future__ import annotations

import json
from pathlib import Path

from quietmean.core.portability import replace_durably
from quietmean.node.series.round_end import RoundEnd
from quietmean.node.session import NodeResult
from quietmean.planning import Plan


def keep_last(path: Path, end: RoundEnd) -> None:
    """All of it was released: nothing in the file is secret."""
    replace_durably(path, json.dumps({"number": end.number, "result": end.result.to_json()}).encode())


def kept_last(path: Path, plan: Plan) -> RoundEnd | None:
    """What is kept there, of a round with this plan; None where there is nothing."""
    if not path.exists():
        return None
    document = json.loads(path.read_bytes())
    return RoundEnd.of(document["number"], NodeResult.from_json(document["result"]), 0, plan)
