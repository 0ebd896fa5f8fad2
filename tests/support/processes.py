"""Parties that are processes of this machine, for tests of one protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.party import PartyId, Vector
from quietmean.node import NodeResult
from quietmean.node.local import Kill, LocalOutcome, run_local
from quietmean.planning import Plan
from quietmean.studies.outcome import local

# Nobody who runs is late on a slow machine, and who is gone is missed soon.
_WAITS = {"round_timeout": 3.0, "gone_timeout": 0.5, "start_timeout": 300.0}


def run_processes(plan: Plan, values: Vector, folder: Path, kills: Sequence[Kill] = (), **more: Any) -> LocalOutcome:
    """Run a study in ``folder``/run; ``more``: what :func:`run_local` takes, in place of the usual waits."""
    return asyncio.run(run_local(plan, values, folder / "run", kills=list(kills), **_WAITS | more))


def as_processes(patch: pytest.MonkeyPatch, **how: Any) -> None:
    """From here on studies of this process run their parties as processes; ``how``: as :func:`run_local` takes it."""
    run_study, started = local.run_study, run_local
    patch.setattr(local, "run_study", lambda *given, **more: run_study(*given, **more | {"processes": True}))
    if how:
        patch.setattr(local, "run_local", lambda *given, **more: started(*given, **more | how))


def require_agreement(outcome: LocalOutcome, survivors: Iterable[PartyId]) -> NodeResult:
    """Require that these parties and no others have a result, all the same one; return it."""
    assert outcome.failures == {}
    assert sorted(outcome.results) == sorted(survivors)
    first = next(iter(outcome.results.values()))
    for result in outcome.results.values():
        np.testing.assert_array_equal(result.total_vector, first.total_vector)
        np.testing.assert_array_equal(result.execution.contributors(), first.execution.contributors())
    return first
