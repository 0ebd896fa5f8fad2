"""A party that takes part and is watched: what it sent in each place and its seed are in a folder beside its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from quietmean.node import local
from quietmean.node.storage import Store
from support import struck_ways
from support.proxy import BadNetwork, ProxyConditions

_RECORD = Store.record


def take_part(
    network: Mapping[str, Any] | None, cell: Sequence[Any], folder: str, name: str, what: str, also: Mapping[str, Any]
) -> list[float]:
    """As :func:`support.struck_ways.take_part`; ``network``: that of the parties of a local run, the fields of its conditions."""
    watched = Path(os.environ["QUIETMEAN_WATCH"])
    watched.mkdir(exist_ok=True)

    def record(self: Store, phase: Any, step: Any, *more: Any, **given: Any) -> Any:
        done = _RECORD(self, phase, step, *more, **given)
        parts = [(one.recipients, one.round, one.vector.tobytes(), one.weight, one.content) for one in step.send]
        content = hashlib.sha256(repr(parts).encode())
        with (watched / f"{name}.sent").open("a") as file:
            place = f"{name} {self.path.stem} {self.study} phase {int(phase)} round {step.state.round}"
            file.write(f"{place} {content.hexdigest()}\n")
        with (watched / f"{name}.secrets").open("a") as file:
            file.write(f"{name} {self.seed.secret.hex()}\n")
        return done

    with patch.object(Store, "record", record):
        if network is None:
            return struck_ways.take_part(cell, folder, name, what, also)
        with patch.object(local, "_straight", BadNetwork(ProxyConditions(**network)).between):
            return struck_ways.take_part(cell, folder, name, what, also)
