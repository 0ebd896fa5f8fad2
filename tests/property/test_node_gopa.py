"""GOPA without a collector between nodes under faults: the record says exactly which noise is in the result.

Own noise is off and pair noise is large. Then the total is that of the values that the record counts, up to rounding, if by the
record all pair noise cancels, and far from it if some is left over: whoever died, at whatever moment, and whatever was lost.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.planning import Plan, Target
from quietmean.protocols.gopa import GOPA
from quietmean.protocols.gopa.party import PeerOutcome
from support.fault_plans import fault_plans
from support.faults import run_with_faults

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
LEAST = 1
NOISE = 1e4


def holds_under_faults(examples: int) -> tuple[int, int, int]:
    """How many results had all noise cancelled, how many not, and how many fewer values than parties."""
    cancelled = left = fewer = 0

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        nonlocal cancelled, left, fewer
        parties = data.draw(st.integers(3, 5))
        faults = data.draw(fault_plans(parties))
        target = Target(parties=parties, epsilon=1.0, delta=1e-6)
        plan = Plan(target, GOPA(sigma_star=0.0, sigma_delta=NOISE, partners=parties - 1, least_partners=LEAST))
        values = (1 + np.sin(np.arange(float(parties))).reshape(-1, 1)) / 2
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            outcome = run_with_faults(plan, values, faults, Path(directory))
        for result in outcome.results.values():
            execution = result.execution
            counted = execution.contributors()
            published = set(np.flatnonzero(counted).tolist())
            # With whom a party shared noise that published and then told nothing, is not on record.
            if set(result.heard) != published or published & set(result.silent):
                continue
            happened = PeerOutcome.of(LEAST, execution.schedule, execution.trace)
            error = float(np.abs(result.total_vector - values[counted].sum(axis=0)).max())
            # With noise of 1e4 a term is this small once in a million.
            assert (error < 1e-2) == (happened.left_over == 0), (faults, execution.to_json(), error)
            cancelled += happened.left_over == 0
            left += happened.left_over > 0
            fewer += not counted.all()

    holds()
    print(f"{examples} fault plans: {cancelled} results without noise, {left} with noise, {fewer} of fewer values than parties")
    return cancelled, left, fewer


def test_the_record_says_which_noise_is_in_the_result() -> None:
    cancelled, _, _ = holds_under_faults(10)
    assert cancelled


@pytest.mark.slow
def test_the_record_says_which_noise_is_in_the_result_in_many_stories() -> None:
    assert all(holds_under_faults(400))
