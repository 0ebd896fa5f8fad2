"""The last mean, kept while the round after it goes on: who comes back in that round makes the same vector from it again.

A line of JSON, then the sum in 8 bytes a coordinate, little-endian: as text it would take several times its size in memory. Files
of before have the sum in the JSON.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from quietmean.core.portability import replacing
from quietmean.node.series.record import RoundEnd
from quietmean.node.session import NodeResult
from quietmean.planning import Plan

_NUMBERS = np.dtype("<f8")


def keep_last(path: Path, end: RoundEnd) -> None:
    """All of it was released: nothing in the file is secret."""
    bare = replace(end.result, total_vector=np.zeros(0))
    with replacing(path) as file:
        file.write(json.dumps({"number": end.number, "result": bare.to_json()}).encode() + b"\n")
        file.write(np.ascontiguousarray(end.result.total_vector, dtype=_NUMBERS).data)


def kept_last(path: Path, plan: Plan) -> RoundEnd | None:
    """What is kept there, of a round with this plan; None where there is nothing."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        document = json.loads(file.readline())
        numbers = np.fromfile(file, dtype=_NUMBERS)
    result = NodeResult.from_json(document["result"])
    if len(numbers):
        result = replace(result, total_vector=numbers.astype(np.float64, copy=False))
    return RoundEnd.of(document["number"], result, 0, plan)
