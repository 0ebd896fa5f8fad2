"""What a site reads of bounds that a first look proposed."""

from __future__ import annotations

from quietmean.studies.agreement.any_study import bounds_of
from quietmean.studies.agreement.study import StudyTerms


def test_a_site_reads_whose_bounds_they_are() -> None:
    raw = {"ask": ["mean(age in 0..110)"], "epsilon": 1.0, "delta": 1e-6}
    looked = raw | {"first_look": {"digest": "0123456789abcdef", "edited": ["age"]}}
    (fact,) = bounds_of(StudyTerms.parse(looked))
    assert (fact.key, str(fact.text)) == ("bounds", "proposed by a first look (01234567); edited by hand: age")
    assert bounds_of(StudyTerms.parse(raw)) == []
