"""Studies and executions from which a party leaves for good, and how much of it counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.statistics import read_text
from quietmean.studies import StudyOutcome
from quietmean.studies.agreement.study import StudyTerms

PARTIES, LEAVER = 5, 2
RECORDS = np.array([30.0, 10.0, 60.0, 40.0, 20.0])
PASSING_ON = ("gossip", "inca", "muffliato")


def leaving(plan: Plan, party: int, last: int) -> ExecutionTrace:
    """``party`` is there for so many rounds, and never again."""
    online = np.ones((plan.protocol.rounds + 1, plan.target.parties), dtype=np.bool_)
    online[last + 1 :, party] = False
    return ExecutionTrace(online)


@cache
def studied(protocol: str, *statistics: str) -> tuple[StudyTerms, Plan]:
    column = {"name": "age", "low": 0, "high": 100}
    asked = {"column": [column], "statistic": [read_text(text) for text in statistics]}
    study = StudyTerms.parse(
        {
            "name": "ages",
            "epsilon": 6.0,
            "protocol": protocol,
            "dropouts": 1 / PARTIES,
            "colluding": 0,
            "options": {"rounds": 4} if protocol in ("gossip", "inca") else {},
            **asked,
        }
    )
    return study, study.plan(PARTIES, no_privacy=protocol == "gossip")


def flagged(outcome: StudyOutcome) -> Iterator[bool]:
    for answer in outcome.answers:
        yield "in-part" in [flag.code for flag in answer.estimates.flags]
