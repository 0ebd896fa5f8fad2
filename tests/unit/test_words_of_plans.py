"""What the screens of plans and local runs say means one thing, and is said only where it is so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.statistics.printed import truth_text
from quietmean.statistics.scenario import effects_in
from quietmean.statistics.tidy import terms_of
from support.every_kind import all_statistics

SAY = '[study]\nname = "x"\nepsilon = 1.0\nask = [{}]\n'
Shown = Callable[..., str]


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    def plan(question: str, *options: str) -> str:
        file = tmp_path / "study.toml"
        file.write_text(SAY.format(f'"{question}"'))
        main(["plan", "--study", str(file), "--parties", "6", *options])
        # The folder has the name of the test, and so its words.
        return " ".join(capsys.readouterr().out.replace(str(file), file.name).split())

    return plan


@pytest.mark.parametrize("expect", ["", ", expect=missing 0.1"])
def test_no_power_is_said_where_no_effect_is_expected(expect: str, shown: Shown) -> None:
    question = f"crosstab(sex in {{f, m}}, ill in yes/no{expect})"
    assert "power" not in shown(question, "--records", "5000")
    asked = shown(question, "--records", "5000", "--power", "0.8")
    assert "no power, as no effect is stated. Say what you expect, such as expect=odds-ratio NUMBER" in asked
    assert "any number of records" not in asked


def test_an_expected_effect_has_a_power(shown: Shown) -> None:
    said = shown("crosstab(sex in {f, m}, ill in yes/no, expect=odds-ratio 1.5)", "--records", "5000", "--power", "0.8")
    assert "power 99 %" in said or "power 100 %" in said
    assert "for a power of 80 % you need" in said


def test_every_kind_that_expects_an_effect_names_it_first() -> None:
    assert effects_in(("missing", "mean", "sd", "odds-ratio")) == ["odds-ratio"]
    compared = {one.name for one in all_statistics() if effects_in(one.known_expectations)}
    assert {"crosstab", "group-means", "rates", "logistic-regression", "survival", "mann-whitney"} <= compared


def test_more_promises_what_comes(shown: Shown) -> None:
    assert "More: --details. Plan" in shown("mean(age in 0..110)")
    assert "More: --details (ranges, noise, liars)" in shown("mean(age in 0..110)", "--records", "5000")
    assert "guaranteed, against any 1 of 6 parties." in shown("mean(age in 0..110)")


@pytest.mark.parametrize(
    ("question", "covers"),
    [
        ("mean(age in 0..110)", "They cover sampling and noise."),
        ("count(age in 0..110)", "They cover the noise alone."),
    ],
)
def test_intervals_cover_what_stands_beside_them(question: str, covers: str, shown: Shown) -> None:
    said = shown(question, "--records", "5000")
    assert covers in said
    assert ("from the noise alone" in said) == ("alone" in covers)


@pytest.mark.parametrize(("truth", "text"), [(103.0000001, "103"), (0.0, "0"), (102.7, "102.7")])
def test_a_true_number_of_records_is_whole_where_it_is(truth: float, text: str) -> None:
    document = {
        "name": "count(age)", "kind": "count", "terms": [""], "estimate": 106.0, "standard_error": 4.0,
        "interval_noise": [98.0, 114.0], "n": 106.0, "n_standard_error": 4.0, "true_value": truth, "flagged": [],
    }  # fmt: skip
    (term,) = terms_of(document)
    assert truth_text(term) == text


@pytest.mark.parametrize("size", [1e-6, 0.0184, 0.51, 1.36061, 0.999, 56.2, 12_345.6, 3e9])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("interval", [[None, None], [-1e3, 1e3]])
def test_a_true_value_beside_a_hidden_one_has_digits_of_its_own(size: float, sign: int, interval: list[float | None]) -> None:
    document = {
        "name": "mean(age)", "kind": "mean", "terms": [""], "estimate": None, "standard_error": None,
        "interval_noise": interval, "n": 106.0, "n_standard_error": 4.0, "true_value": sign * size, "flagged": [],
    }  # fmt: skip
    (term,) = terms_of(document)
    text = truth_text(term).replace(",", "")
    assert float(text) == pytest.approx(sign * size, rel=0.05)
    assert len(text.strip("-").replace(".", "").strip("0")) <= max(4, len(str(round(size))))
