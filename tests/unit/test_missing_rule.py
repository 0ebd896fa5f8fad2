"""What is made today leaves missing cells out; what documents of before do not say keeps its meaning, and answers say so."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.codec import digest
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Answer, Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party import Contract, Signatory

OLD = """
[study]
name = "sealed before"
epsilon = 2.0
delta = 1e-6

[[column]]
name = "age"
low = 20
high = 95

[[column]]
name = "bmi"
low = 10
high = 60

[[column]]
name = "ill"
boolean = true

[[column]]
name = "ratio"
from = "bmi / age"
low = 0
high = 3

[[statistic]]
kind = "mean"
column = "age"

[[statistic]]
kind = "mean"
column = "ratio"

[[statistic]]
kind = "linear-regression"
formula = "bmi ~ age + ill"

[[statistic]]
kind = "group-means"
column = "bmi"
by = "ill"
"""
NOTHING = np.nan
RECORDS = np.array(
    [[30, 25, 0, 0.8], [NOTHING, 40, 1, NOTHING], [60, NOTHING, NOTHING, NOTHING], [120, 5, 1, 0.1], [NOTHING] * 4], dtype=float
)


def study_of(text: str) -> StudyTerms:
    return StudyTerms.from_tables(tomllib.loads(text), "study.toml")


def noiseless(columns: Columns, text: str, records: np.ndarray) -> Answer:
    workload = Workload(columns, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    (answer,) = workload.decode(workload.of_records(records).mean(axis=0), 1e-12, float(len(records)))
    return answer


def test_a_document_of_before_keeps_its_digests_and_its_coordinates() -> None:
    """Computed by the version that knew no other rule, but for groups: these are joint since, and alike under both rules."""
    study = study_of(OLD)
    assert digest(study.context()) == "b9a4b50871c025c26ac82f442d93d4f8170014b198ca8422eadfb88290b13ab8"
    # Rounded as far as machines agree.
    vectors = study.workload.of_records(RECORDS)
    assert vectors.shape == (5, 29)
    before, now = (
        hashlib.sha256((np.round(part, 9) + 0.0).astype("<f8").tobytes()).hexdigest() for part in (vectors[:, :19], vectors)
    )
    assert before == "6f3f539e077f3e8e5f39231f2f4ed70c951d0979e3ec159a1d6168bbdb07f3bc"
    assert now == "194b2c557e75e97c39d6a7b3b5cc2799d5a635de39f6b6ed92df19f67d2199e8"
    assert [column.missing for column in study.columns if column.numeric] == ["centre"] * 3
    assert study.columns[0].describe() == {"name": "age", "low": 20.0, "high": 95.0}


def test_a_policy_of_before_keeps_its_digest(tmp_path: Path) -> None:
    from quietmean.studies.party import Policy

    path = tmp_path / "policy.toml"
    path.write_text('[[column]]\nname = "age"\nlow = 20\nhigh = 95\n')
    path.chmod(0o600)
    assert Policy.load(path).columns[0].describe() == {"name": "age", "low": 20.0, "high": 95.0}


@pytest.mark.parametrize("rule", ["indicator", "centre"])
def test_a_column_that_is_written_is_read_back(rule: str) -> None:
    column = Column(name="age", low=20, high=95, missing=rule)
    study = StudyTerms.parse({"column": [column.describe()]})
    assert study.columns == (column,)
    assert study_of(f'[[column]]\nname = "age"\nlow = 20\nhigh = 95\nmissing = "{rule}"\n').columns == (column,)


def test_whoever_makes_a_study_makes_one_that_leaves_missing_cells_out(tmp_path: Path) -> None:
    """Bounds, dates, transforms; a tuple and a column from Python; a command with a question."""
    asked = StudyTerms.parse({"ask": ["age in 20..95", "day in 2020-01-01..2021-01-01", "log = log(age)"]})
    from_python = qm.Study({"age": (20, 95), "bmi": Column(name="bmi", low=10, high=60)}, epsilon=1.0, delta=1e-6)
    main(["study", "new", "mean(age in 20..95)", "--out", str(tmp_path / "study.toml")])
    by_command = StudyTerms.load(tmp_path / "study.toml")
    columns = [*asked.columns, *from_python.terms.columns, *by_command.columns]
    assert [column.missing for column in columns] == ["indicator"] * 6
    assert 'ask = [\n  "mean(age in 20..95)",\n]' in (tmp_path / "study.toml").read_text()
    study = StudyTerms.load(tmp_path / "study.toml")
    (tmp_path / "tables.toml").write_text(study_text(study))
    assert 'missing = "indicator"' in (tmp_path / "tables.toml").read_text()
    assert StudyTerms.load(tmp_path / "tables.toml").context() == study.context()


def test_filled_in_is_flagged_wherever_it_matters_and_nowhere_else() -> None:
    columns = Columns(
        [
            Column(name="age", low=20, high=95, missing="centre"),
            Column(name="bmi", low=10, high=60),
            Column(name="ill", boolean=True),
        ]
    )
    rng = np.random.default_rng(1)
    records = np.column_stack([rng.uniform(20, 95, 300), rng.uniform(10, 60, 300), rng.random(300) < 0.4])
    touched = {
        "mean(age)": (),
        "variance(age)": (),
        "sum(age)": (),
        "count(age)": (),
        "correlation(age, bmi)": ("age:bmi",),
        "covariance(age, bmi)": ("age:age", "age:bmi"),
        "linear-regression(bmi ~ age + ill)": (),
        "logistic-regression(ill ~ age)": (),
        "rates(ill, age0)": (),
        "table-1(age, bmi)": ("all age mean", "all age sd"),
    }
    for text, terms in touched.items():
        known = Columns([*columns, Column(name="age0", low=0, high=95, missing="centre")])
        held = np.column_stack([records, records[:, 0]])
        flags = [flag for flag in noiseless(known, text, held).estimates.flags if flag.code == "filled-in"]
        assert [flag.terms for flag in flags] == [terms], text
    for text in ("mean(bmi)", "group-means(age, by=ill)", "quantiles(age)", "histogram(age)", "table-1(age, by=ill)"):
        assert not [flag for flag in noiseless(columns, text, records).estimates.flags if flag.code == "filled-in"], text


def test_who_is_asked_to_agree_is_told_what_stands_for_missing_cells() -> None:
    study = study_of(OLD)
    parties = tuple(Signatory(name, str(place) * 64) for place, name in enumerate("abcde"))
    contract = Contract(study, parties, 0, choice=study.choice(5))
    # bmi is filled in for the regression.
    assert contract.to_json()["imputed"] == ["age", "ratio", "bmi"]
    told = dict(contract.lines())["of"]
    assert told.count("a missing cell counts as the middle of the bounds") == 3
    assert "age (20 to 95; a missing cell counts as the middle of the bounds)" in told
    today = study_of(OLD.replace("high =", 'missing = "indicator"\nhigh ='))
    contract = Contract(today, parties, 0, choice=today.choice(5))
    assert contract.to_json()["imputed"] == []
    assert "missing cells" not in dict(contract.lines())["of"]
