"""Which weights a party may state: honest ones always; of others each kind is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import ProtocolFailure
from quietmean.planning.stated_weights import StatedWeights
from quietmean.protocols import Target
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party import Policy
from support.refusals import raised, refused
from support.site_policy import write_policy

NAMES = ("north", "south", "east")
RECORDS = Target(3, 1.0, 1e-6, unit=PrivacyUnit.RECORD)
PARTIES = replace(RECORDS, unit=PrivacyUnit.PARTY)
PRIVATE = replace(RECORDS, neighbouring=Neighbouring.ADD_REMOVE)


@pytest.mark.parametrize("target", [RECORDS, PARTIES, PRIVATE])
def test_honest_weights_are_taken(target: Target) -> None:
    # A site without a record is a party where their number is public.
    weights = np.array([0.0, 7.0, 2.0**40]) if target is RECORDS else np.ones(3)
    StatedWeights().refuse(target, weights, NAMES, 1.0)


@pytest.mark.parametrize(
    ("target", "weight"),
    [(target, weight) for target in (RECORDS, PARTIES, PRIVATE) for weight in (0.5, 1.5, -1.0, 1e300, 1e-300, np.nan, np.inf)]
    + [(PARTIES, 0.0), (PRIVATE, 0.0)],
)
def test_what_is_no_number_of_records_is_not(target: Target, weight: float) -> None:
    raised(ProtocolFailure, "did not start: south says", StatedWeights().refuse, target, np.array([1.0, weight, 1.0]), NAMES, 1.0)


def test_a_party_knows_its_own_records_before_anything_leaves() -> None:
    asked = {"column": [{"name": "age", "low": 0, "high": 100}], "records_per_party": [10, 100]}
    terms = StudyTerms.parse(asked)
    for records in (10, 100):
        terms.require_records(records)
    for records in (9, 101):
        refused(r"records_per_party: this party has .* records than the study allows, 10 to 100", terms.require_records, records)
    assert terms.share_of(3) == pytest.approx(100 / 120)
    assert StudyTerms.parse({**asked, "largest_share": 0.5}).share_of(3) == 0.5
    for wrong in ({"records_per_party": [100, 10]}, {"unit": "party"}, {"count": "private"}, {"largest_share": 0.0}):
        refused("", StudyTerms.parse, {**asked, **wrong})


def test_a_study_with_limits_is_another_study_and_one_without_stays_what_it_was() -> None:
    asked = {"column": [{"name": "age", "low": 0, "high": 100}], "protocol": "local-dp"}
    before, limited = StudyTerms.parse(asked), StudyTerms.parse({**asked, "records_per_party": [10, 100]})
    assert before.plan(3).digest != limited.plan(3).digest
    assert "records_per_party" not in before.tables()["study"]
    assert StudyTerms.from_tables(limited.tables(), "study").records_per_party == (10, 100)


def test_limits_of_a_policy() -> None:
    policy = Policy.load(write_policy(records=[10, 100], largest_share=0.5))
    policy.weights.refuse(RECORDS, np.array([10.0, 100.0, 90.0]), NAMES, 10.0)
    for weights in ((9.0, 50.0, 50.0), (101.0, 60.0, 60.0), (60.0, 29.0, 30.0)):
        with pytest.raises(ProtocolFailure, match=r"north says that it has .*allowed at this site"):
            policy.weights.refuse(RECORDS, np.array(weights), NAMES, 10.0)
    refused("the fewest first", Policy.load, write_policy(records=[100, 10]))
    # Said or not, what limits nothing is nothing: policies of before keep their digests.
    assert Policy.load(write_policy(largest_share=1.0)).digest == Policy.load(write_policy(trust_convener=True)).digest
    assert Policy.load(write_policy(largest_share=0.9)).digest != Policy.load(write_policy(trust_convener=True)).digest
