"""Who types what errors of questions say comes to a question that is answered, and loses nothing on the way."""

from __future__ import annotations

import re

import pytest

from quietmean.core.errors import InputError
from quietmean.studies.agreement.study import StudyTerms

DOMAINS = {"LOW..HIGH": "0..100", "{A, B}": "{f, m}"}


@pytest.mark.parametrize(
    "question",
    [
        "linear-regression(bmi ~ age + sex)",
        "group-means(age, by=sex)",
        "crosstab(sex, smoker)",
        "survival(days, dead, by=arm)",
        "correlation(age, bmi, chol)",
        "rates(events, days, by=arm)",
    ],
)
def test_each_error_keeps_what_was_typed_before(question: str) -> None:
    seen: set[str] = set()
    while True:
        try:
            assert StudyTerms.parse({"ask": [question], "epsilon": 1.0, "delta": 1e-6}).workload.scales
            return
        except InputError as error:
            # As many as there are columns, and never the same twice.
            said = str(error)
            assert said not in seen
            assert len(seen) < 4
            seen.add(said)
            question = re.findall(r"[Ww]rite ([a-z-]+\(.*?\))(?=[,.]|$)", said)[0]
            for form, domain in DOMAINS.items():
                question = question.replace(form, domain)
