"""A party of a real run is killed for good where values are passed on: its part is in the result, and answers say so."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.node.local import Kill
from quietmean.studies.outcome.local import run_study
from support.leaving import LEAVER, PASSING_ON, RECORDS, flagged, studied


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PASSING_ON)
def test_a_party_that_is_killed(protocol: str) -> None:
    """Processes of a real run, one of which is gone for good after a round; by chance (1 in 256) all lost the same part then."""
    study, plan = studied(protocol, "mean(age)", "sum(age)")
    encoded = [study.workload.encode(np.full((int(size), 1), 50.0), step=plan.value_step) for size in RECORDS]
    kills = [Kill(LEAVER, 2)]
    found = run_study(study, plan, encoded, "abcde", kills=kills, round_timeout=5.0, report=lambda kind, about: None)
    assert found.killed == (LEAVER,)
    execution = found.outcome.execution
    assert not execution.trace.finished[LEAVER]
    assert list(flagged(found.outcome)) == [bool(execution.in_part)] * 2
    assert LEAVER in execution.in_part or np.ptp(execution.parts) == 0.0
    mean, total = (answer.estimates.value.item() for answer in found.truth or ())
    assert mean == pytest.approx(50.0, rel=1e-6)
    assert total == pytest.approx(50.0 * float(execution.parts @ np.array(RECORDS, dtype=np.float64)), rel=1e-6)
