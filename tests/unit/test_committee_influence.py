"""How far one contributor to a committee can move a result: by its part of the weight where contributions are checked."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.planning.influence import Checked, planned_influence
from quietmean.planning.plan import Plan
from quietmean.protocols.committee.design import encode
from quietmean.protocols.committee.layout import layout_of
from quietmean.randomness import Seed
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.contribution import sharing_of
from quietmean.studies.outcome.influence import StudyInfluence

COLUMNS = [{"name": "pay", "low": 0.0, "high": 1000.0}]
CONTRIBUTORS, RECORDS = 10, 1000.0


def study(*, verified: bool) -> StudyTerms:
    committee = {"members": 5, "contribute_by": "2027-03-01T12:00:00Z", "verified": verified, "largest_weight": 100}
    asked = [{"kind": "mean", "column": "pay"}]
    return StudyTerms.parse({"name": "wages", "unit": "record", "column": COLUMNS, "statistic": asked, "committee": committee})


def plan_of(*, verified: bool) -> Plan:
    return study(verified=verified).plan(CONTRIBUTORS)


def test_one_contributor_moves_each_number_by_its_own_range_and_no_more() -> None:
    plan = plan_of(verified=True)
    parameters = sharing_of(plan).parameters(CONTRIBUTORS)
    influence = planned_influence(plan, RECORDS)
    assert influence is not None
    assert influence.checked == Checked.EACH_CONTRIBUTION
    # All that members let in of a tenth of all records, whichever bits are set.
    layout = layout_of(parameters, plan.input_domain.statement, 100.0)
    reach = layout.spans[: layout.dimension] * parameters.step
    assert (influence.total >= reach).all()
    assert influence.total == pytest.approx(reach, rel=0.01)
    # What an honest contributor deals is among it.
    low, high = plan.input_domain.coordinate_bounds
    for value in (low, high, (low + high) / 2):
        numbers = encode(parameters, 100 * value, 100.0, Seed.public("any"))
        assert ((numbers >= layout.lows) & (numbers <= layout.lows + layout.spans)).all()


def test_what_is_not_checked_may_be_anything_that_the_result_may_be() -> None:
    checked, unchecked = (planned_influence(plan_of(verified=verified), RECORDS) for verified in (True, False))
    assert checked is not None
    assert unchecked is not None
    assert unchecked.checked == Checked.RESULT
    assert (unchecked.mean > 5 * checked.mean).all()
    assert np.isfinite(checked.mean).all()


def test_it_is_told() -> None:
    terms = study(verified=True)
    told = StudyInfluence.planned(terms.workload, terms.plan(CONTRIBUTORS), RECORDS)
    assert told is not None
    assert told.checked == Checked.EACH_CONTRIBUTION
    assert any("each contribution is checked against the bounds, though nobody learns it" in one for one in told.sentences())
    assert told.to_json()["checked"] == "each contribution"
