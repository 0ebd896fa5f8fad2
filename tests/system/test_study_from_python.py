"""A study in a few lines of Python: real processes, any data frame, the same numbers as the command line says."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import quietmean as qm
from quietmean.protocols.execution import Execution
from quietmean.statistics.tidy import TERM_COLUMNS
from quietmean.studies.agreement.study import StudyTerms as StudyTerms
from support.json_documents import faults

COLUMNS: dict[str, Any] = {"age": (0, 110), "sex": ["f", "m"], "smoker": bool}
# For mistakes that types would find.
MADE: Any = qm.Study
COST: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6}


def people(count: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], count)
    return {
        "age": rng.normal(50, 10, count).round(1),
        "sex": sex,
        "smoker": rng.random(count) < 0.3,
        "site": np.arange(count) % 4,
    }


@pytest.fixture(scope="module")
def result() -> Any:
    study = qm.Study(COLUMNS, ["mean(age)", "proportion(smoker)", "crosstab(sex, smoker)"], **COST)
    return study.run(pl.DataFrame(people(2000)), party_column="site")


def test_it_answers_with_errors_and_what_it_cost(result: Any) -> None:
    truth = people(2000)
    mean = result["mean(age)"]
    # Six standard errors of the noise.
    assert abs(mean.value[0] - truth["age"].mean()) < 6 * mean.standard_error[0]
    assert 0 < result.epsilon <= result.epsilon_a_priori <= 8.0 * (1 + 1e-9)
    assert result.certificate.max_epsilon == result.epsilon
    assert result.missing == []
    assert result.names == ("0", "1", "2", "3")
    frame = result.to_frame()
    assert frame.columns == list(TERM_COLUMNS)
    assert set(frame["name"]) == {"mean(age)", "proportion(smoker)", "crosstab(sex, smoker)"}
    assert "mean(age)" in result._repr_html_()
    assert "epsilon" in repr(result)
    with pytest.raises(qm.InputError, match=r"'mean\(agee\)' was not asked for \(did you mean 'mean\(age\)'\?\)"):
        result["mean(agee)"]


def test_its_receipt_is_certified_to_the_same_numbers(result: Any, tmp_path: Path) -> None:
    result.save_receipt(tmp_path / "receipt.json")
    execution = qm.Execution.load(tmp_path / "receipt.json")
    assert isinstance(execution, qm.Execution)
    assert execution.privacy(1e-6).coalitions(result.certificate.size).max_epsilon == result.epsilon
    assert faults("answer", result.to_json()["statistics"][0]) == []
    result.save_report(tmp_path / "report.html")
    page = html.unescape((tmp_path / "report.html").read_text())
    assert "mean(age)" in page
    assert "crosstab(sex, smoker)" in page


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_kind_of_frame_one_for_each_party(make: Any) -> None:
    frames = [make(people(300, seed)) for seed in range(3)]
    study = qm.Study({"age": (0, 110)}, epsilon=8.0, delta=1e-6)
    found = study.run(frames)["mean(age)"]
    truth = np.concatenate([people(300, seed)["age"] for seed in range(3)]).mean()
    assert abs(found.value[0] - truth) < 6 * found.standard_error[0]


def test_what_does_not_fit_is_told_to_the_owner() -> None:
    data = people(600) | {"age": np.where(np.arange(600) < 7, 500.0, 50.0)}
    study = qm.Study({"age": (0, 110)}, **COST)
    with pytest.warns(UserWarning, match=r"7 values lie outside their bounds.*for you only"):
        study.run(pd.DataFrame(data), parties=3)


def test_the_file_is_the_study(tmp_path: Path) -> None:
    study = qm.Study(COLUMNS, ["mean(age)"], colluding=3, **COST)
    study.save(tmp_path / "study.toml")
    assert qm.Study.load(tmp_path / "study.toml") == study
    assert StudyTerms.load(tmp_path / "study.toml").colluding == 3
    assert study.plan(10).plan.target.colluding == 3
    # The same again is the same file; nothing else takes its place.
    study.save(tmp_path / "study.toml")
    with pytest.raises(qm.InputError, match="exists already"):
        qm.Study(COLUMNS, ["mean(age)"], colluding=2, **COST).save(tmp_path / "study.toml")
    assert qm.Study.load(tmp_path / "study.toml") == study


def test_a_committee_opens_what_others_hand_in(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"committee": qm.Committee(members=4), "contribute_by": "2027-03-01T12:00:00Z"}
    study = qm.Study({"age": (0, 110)}, **COST, **asked)
    study.save(tmp_path / "study.toml")
    assert qm.Study.load(tmp_path / "study.toml") == study
    assert study.terms.committee is not None
    assert study.terms.committee.committee == asked["committee"]
    result = study.run(pd.DataFrame(people(400)), party_column="site")
    mean = result["mean(age)"]
    assert abs(mean.value[0] - 50) < 6 * mean.standard_error[0] + 2
    assert result.missing == []
    assert result.epsilon_a_priori <= 8.0
    assert result.messages > 4
    for half in ("committee", "contribute_by"):
        with pytest.raises(qm.InputError, match="Give committee and contribute_by together"):
            qm.Study({"age": (0, 110)}, **COST, **{half: asked[half]})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: MADE(COLUMNS, epsilonn=1, delta=1e-6), r"no keyword 'epsilonn' \(did you mean 'epsilon'\?\)"),
        (lambda: MADE({"age": 5}, **COST), r"column 'age' is not declared. Give \(low, high\)"),
        (lambda: MADE({"age": (110, 0)}, **COST), "two finite numbers in rising order"),
        (lambda: MADE(COLUMNS, ["meen(age)"], **COST), "did you mean 'mean'"),
        (lambda: MADE(COLUMNS, ["mean(agee)"], **COST), "agee"),
        (lambda: MADE(COLUMNS, **COST | {"delta": 2.0}), "delta"),
        (lambda: MADE(COLUMNS, **COST).run([pd.DataFrame(people(9))]), "at least 2 tables"),
        (lambda: MADE(COLUMNS, **COST).run(pd.DataFrame(people(9))), "who holds which rows"),
        (lambda: MADE(COLUMNS, **COST).run(pd.DataFrame({"age": [1]}), parties=2), "'sex'"),
        (lambda: MADE(COLUMNS, **COST).run(7, parties=2), "Data of type int are not a table"),
        (lambda: MADE(COLUMNS, **COST).run(pd.DataFrame(people(9)), parti=2), "did you mean 'parties'"),
    ],
)
def test_mistakes_are_one_sentence(wrong: Any, words: str) -> None:
    with pytest.raises(qm.InputError, match=words):
        wrong()


def test_where_counts_are_private_nothing_says_how_many_records_a_party_has(tmp_path: Path) -> None:
    """Real processes: the number of records is an estimate; receipt, report and certificate name the relation and no number."""
    parts = [{name: values[place::3][: 311 + 97 * place] for name, values in people(2000).items()} for place in range(3)]
    study = qm.Study(COLUMNS, ["mean(age)", "crosstab(sex, smoker)"], count="private", most_records=1000, **COST)
    found = study.run([pl.DataFrame(part) for part in parts])
    records = [len(part["age"]) for part in parts]
    document = found.to_json()
    (mean, table) = document["statistics"]
    assert mean["records"] == table["records"]
    # Six standard errors of the noise: that of the count is at most that of a cell, times the root of their number.
    assert abs(mean["records"] - sum(records)) < 6 * table["standard_error"]["f:no"] * 3
    assert document["certificate"]["neighbouring"] == "add-remove"
    assert "addition or removal of one record" in document["certificate"]["guarantee"]
    found.save_receipt(tmp_path / "receipt.json")
    found.save_report(tmp_path / "report.html")
    loaded = qm.Execution.load(tmp_path / "receipt.json")
    assert isinstance(loaded, Execution)
    assert str(loaded.neighbouring) == "add-remove"
    assert loaded.privacy(1e-6).coalitions(1).max_epsilon == document["epsilon"]
    page = html.unescape((tmp_path / "report.html").read_text())
    assert "how many records each has is private" in page
    written = (tmp_path / "receipt.json").read_text() + page
    for count in records:
        assert f">{count}<" not in written
        assert f": {count}," not in written
