"""Private numbers of records: what is estimated, what is refused, and that nothing says how many records a party has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.statistics import Encoded
from quietmean.studies import StudyTerms
from quietmean.studies.party.policy import Policy, PolicyRules

Array = NDArray[np.float64]

ROOM = 3000
STUDY: dict[str, Any] = {
    "column": [
        {"name": "age", "low": 0, "high": 110},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "bmi", "low": 10, "high": 60, "missing": "indicator"},
    ],
    "statistic": [
        {"kind": "mean", "column": "age"},
        {"kind": "mean", "column": "bmi"},
        {"kind": "count", "column": "age"},
        {"kind": "count", "column": "bmi"},
        {"kind": "sum", "column": "age"},
        {"kind": "histogram", "column": "age", "bins": 5},
        {"kind": "quantiles", "column": "age", "bins": 16},
        {"kind": "proportion", "column": "sex", "level": "m"},
        {"kind": "linear-regression", "formula": "age ~ sex"},
        {"kind": "table-1", "columns": ["age", "bmi", "sex"]},
    ],
    "count": "private",
    "most_records": ROOM,
    "epsilon": 4.0,
}
SIZES = (0, 70, 150, 400, 900)


def study(**changes: Any) -> StudyTerms:
    return StudyTerms.parse({**STUDY, **changes})


def tables(sizes: tuple[int, ...] = SIZES) -> list[Array]:
    rng = np.random.default_rng(7)
    found = []
    for size in sizes:
        bmi = np.clip(rng.normal(27, 5, size), 10, 60)
        bmi[rng.random(size) < 0.1] = np.nan
        found.append(np.column_stack([np.clip(rng.normal(50, 15, size), 0, 110), rng.integers(0, 2, size), bmi]))
    return found


def encoded(terms: StudyTerms, parts: list[Array], step: float = 0.0) -> list[Encoded]:
    return [terms.workload.encode(part, step=step) for part in parts]


def test_without_noise_everything_is_that_of_the_records() -> None:
    terms, parts = study(), tables()
    plan = terms.plan(len(parts))
    found = encoded(terms, parts, plan.value_step)
    entered = [plan.admit(part.vector, part.weight) for part in found]
    for part, vector in zip(found, entered, strict=True):
        np.testing.assert_array_equal(part.vector, vector)
    total = sum(part.weight for part in found)
    answers = terms.workload.decode(np.sum(entered, axis=0) / total, 0.0, total, step=plan.value_step)
    values = {answer.statistic.text: answer.estimates for answer in answers}
    records = np.vstack(parts)
    ages, sexes, bmis = records.T
    assert answers[0].records == pytest.approx(len(records))
    assert values["mean(age)"].value[0] == pytest.approx(ages.mean())
    assert values["mean(bmi)"].value[0] == pytest.approx(np.nanmean(bmis), rel=1e-5)
    assert values["count(age)"].value[0] == pytest.approx(len(records))
    assert values["count(bmi)"].value[0] == pytest.approx(np.isfinite(bmis).sum())
    assert values["sum(age)"].value[0] == pytest.approx(ages.sum())
    np.testing.assert_allclose(values["histogram(age, bins=5)"].value[1:6], np.histogram(ages, 5, (0, 110))[0], atol=1e-6)
    assert values["proportion(sex, level=m)"].value[0] == pytest.approx(sexes.mean())
    slope = ages[sexes == 1].mean() - ages[sexes == 0].mean()
    assert values["linear-regression(age ~ sex, robust=false)"].value[1] == pytest.approx(slope)
    named = dict(zip(values["table-1(age, bmi, sex)"].terms, values["table-1(age, bmi, sex)"].value.tolist(), strict=True))
    assert named["all n"] == pytest.approx(len(records))
    assert named["all bmi missing"] == pytest.approx(np.isnan(bmis).mean(), rel=1e-5)


@pytest.mark.slow
def test_errors_of_the_noise_are_true() -> None:
    """2000 draws of the noise, seed 11: z-scores have the standard deviation 1, within six of its own standard errors; without
    the noise of the count in it, the mean's would have more."""
    kinds = [("mean", "age"), ("count", "age"), ("sum", "age"), ("proportion", "sex"), ("linear-regression", None)]
    statistics = [one for one in STUDY["statistic"] if (one["kind"], one.get("column")) in kinds]
    terms, parts = study(statistic=statistics), tables()
    found = encoded(terms, parts)
    total = sum(part.weight for part in found)
    exact = np.sum([part.vector for part in found], axis=0) / total
    noise = 4.0 * terms.workload.sensitivity / total
    rng = np.random.default_rng(11)
    truth = terms.workload.decode(exact, 0.0, total)
    asked = ("mean(age)", "count(age)", "sum(age)", "proportion(sex, level=m)", "linear-regression(age ~ sex, robust=false)")
    scores: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(2000):
        for answer, true in zip(
            terms.workload.decode(exact + rng.normal(0, noise, len(exact)), noise, total), truth, strict=True
        ):
            if answer.statistic.text in scores:
                one = answer.estimates
                scores[answer.statistic.text].append(float((one.value[-1] - true.estimates.value[-1]) / one.standard_error[-1]))
    for name, own in scores.items():
        assert abs(np.std(own) - 1) < 6 / np.sqrt(2 * 2000), name
        assert abs(np.mean(own)) < 6 / np.sqrt(2000), name


def test_no_weight_and_no_agreement_depends_on_the_records() -> None:
    terms = study()
    plans = [terms.plan(5) for _ in range(2)]
    assert plans[0].digest == plans[1].digest
    assert plans[0].target.neighbouring == Neighbouring.ADD_REMOVE
    for sizes in (SIZES, (1, 1, 2, 3, 2999)):
        assert [part.weight for part in encoded(terms, tables(sizes))] == [ROOM] * 5
    # More records than there is room for: told to their owner, and nothing is refused.
    (many,) = encoded(terms, tables((ROOM + 5,)))
    assert (many.weight, many.beyond) == (ROOM, 5)
    assert np.isfinite(plans[0].admit(many.vector, many.weight)).all()


def noise_of_a_cell(study: StudyTerms) -> float:
    """Variance in the units of a record's encoding."""
    protocol = study.plan(5).protocol
    assert isinstance(protocol, PackedSharing)
    return protocol.party_variance / next(iter(study.workload.scales.values())) ** 2


def test_the_relation_is_said_wherever_figures_are() -> None:
    plan = study().plan(5)
    said = " ".join(str(one) for one in plan.assumptions)
    assert "one record that is there or not" in said
    assert "replaced" not in said
    public = StudyTerms.parse({name: value for name, value in STUDY.items() if name not in ("count", "most_records")}).plan(5)
    assert "one record that is there or not" not in " ".join(str(one) for one in public.assumptions)
    assert public.digest != plan.digest
    # Half the noise of two tables: the length of a record in a table is 1, the distance of two sqrt(2).
    tables_only = {"statistic": [{"kind": "histogram", "column": "age"}]}
    private, known = study(**tables_only), StudyTerms.parse({**tables_only, "column": STUDY["column"], "epsilon": 4.0})
    noise = [noise_of_a_cell(one) for one in (private, known)]
    assert noise[0] / noise[1] == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"unit": "party"}, "the unit is party, where each party counts once: choose unit record"),
        ({"count": "public"}, "most_records says nothing where counts are public"),
        ({"count": "hidden"}, 'count must be "public" or "private"'),
        ({"most_records": 0}, "most_records must be at least 1"),
        ({"protocol": "secagg"}, "counts are private: name another, such as packed-sharing"),
        ({"protocol": "packed-sharing", "most_records": 1 << 20}, "option largest_weight=1048576 or more"),
    ],
)
def test_refusals(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        study(**changes).plan(10)
    assert sentence in str(error.value)


def test_a_rule_on_numbers_of_records_does_not_tell_them() -> None:
    strict = Policy(rules=PolicyRules(smallest_records=20))
    for records in (3, 300):
        with pytest.raises(InputError, match="smallest_records: the study keeps numbers of records private"):
            strict.refuse_records(records, CountVisibility.PRIVATE)
        with pytest.raises(InputError, match="smallest_records: the study keeps numbers of records private"):
            strict.refuse_records(records, CountVisibility.PUBLIC, PrivacyUnit.PARTY)
    strict.refuse_records(300, CountVisibility.PUBLIC)
    with pytest.raises(InputError, match="fewer than 20 records"):
        strict.refuse_records(3, CountVisibility.PUBLIC)
