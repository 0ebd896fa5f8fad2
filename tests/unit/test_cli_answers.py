"""What commands print of answers: every kind of statistic, hidden or not, with and without the truth."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from quietmean.cli.answers import ResultScreen, print_answers
from quietmean.cli.common import execution_or_newest
from quietmean.core.errors import InputError
from quietmean.core.readable import UNKNOWN
from quietmean.core.tables import aligned
from quietmean.statistics import Column, Columns
from quietmean.statistics.models import asks_model
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import Term, terms_of
from quietmean.studies.outcome.about_intervals import about_intervals
from quietmean.studies.outcome.answer_lines import table_lines
from quietmean.studies.outcome.first_screen import first_screen
from quietmean.studies.outcome.hidden import what_is_hidden
from support.outcomes import EVERY_KIND, finished, records_of, truth_of


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no line is folded."""
    monkeypatch.setattr("quietmean.cli.answers.out", Console(width=240, soft_wrap=True, markup=False, highlight=False))


WRONG = re.compile(r"\bnan\b|\bNone\b|(?<![\d.e])-0(\.0+)?(?![\d.])|[−–]")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("noise", [0.01, 1.0, 60.0])
@pytest.mark.parametrize("texts", [EVERY_KIND, ("mean(x)", "mean(y)")], ids=["every kind", "means"])
def test_nothing_odd_is_printed(texts: tuple[str, ...], noise: float, local: bool, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = finished(*texts, noise=noise)
    document = outcome.to_json()
    if local:
        for entry, answer in zip(document["statistics"], truth_of(outcome), strict=True):
            entry["true_value"] = answer.estimates.by_term(answer.estimates.value)
    print_answers(document)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if WRONG.search(line)] == []
    assert [line for line in lines if len(line) > 80] == []
    assert any(line.endswith(("true (private)", " true")) or "; true (private) " in line for line in lines) == local
    if len(texts) == 2:
        assert [line.split()[0] for line in lines[1:3]] == ["mean(x)", "mean(y)"]
    # One line for many flags of a kind, and one for many terms that the noise hides.
    assert sum(line.startswith("roc(") and "hidden by the noise" in line for line in lines) == (noise == 60.0 and len(texts) > 2)
    assert sum(line.startswith("crosstab(") for line in lines) <= 6


def test_dates_and_tests_are_printed_as_people_read_them(capsys: pytest.CaptureFixture[str]) -> None:
    columns = Columns(
        [
            Column.model_validate({"name": "seen", "low": "2019-01-01", "high": "2023-12-31"}),
            Column(name="arm", levels=("a", "b")),
        ]
    )
    rng = np.random.default_rng(4)
    records = np.column_stack([rng.uniform(700, 800, 900), rng.integers(0, 2, 900)])
    outcome = finished("group-means(seen, by=arm)", columns=columns, records=records, noise=0.01)
    print_answers(outcome.to_json())
    lines = capsys.readouterr().out.splitlines()
    # The last day of an interval may be the one after.
    rows = "\n".join(lines)
    assert re.search(r"^  a +2021-0\d-\d\d +2021-0\d-\d\d to 2021-0\d-\d\d .* \S+ days$", rows, re.MULTILINE)
    assert re.search(r"^  difference\s+-?[\d.]+ ", rows, re.MULTILINE)
    assert any("Welch's t test: t = " in line for line in lines)


@pytest.mark.parametrize("length", [5, 40, 47, 48, 49, 60])
def test_where_all_the_rest_is_fits_the_screen_and_can_be_pasted(length: int, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"quietmean result {'x' * length}"
    outcome = finished("mean(x)")
    ResultScreen(json.loads(json.dumps(outcome.receipt(), default=str)), outcome.to_json(), command).show_more()
    first, *below = capsys.readouterr().out.splitlines()
    assert first.startswith(f"More      {command} --details")
    assert len(below) <= 1
    longest = max(len(line) for line in (first, *below))
    assert longest <= max(80, len(f"More      {command} --details"))
    assert "assumptions" in (below or [first])[0]


def test_what_noise_hides_comes_with_what_to_change() -> None:
    receipt = json.loads(json.dumps(finished("mean(x)", "linear-regression(y ~ x)", noise=60.0).receipt(), default=str))
    (hidden,) = [line for line in " ".join(" ".join(first_screen(receipt)).split()).split("! ") if line.startswith("HIDDEN")]
    assert "Ask with narrower bounds, more records or a larger epsilon (it protects less)." in hidden
    # The question as it is typed: with the bounds that the study stated.
    assert "Or try glm(y in 0..10 ~ x in 0..10, family=gaussian): its noise" in hidden


@pytest.mark.parametrize("text", EVERY_KIND)
def test_sentences_on_intervals_stand_where_one_is_shown(text: str) -> None:
    receipt = json.loads(json.dumps(finished(text, noise=60.0).receipt(), default=str))
    lines = first_screen(receipt)
    said = any(re.match(r"(The interval|Intervals) ", line) for line in lines)
    table = lines[: lines.index("")]
    assert not said or any(re.search(r"\S to \S", line) for line in table)


@pytest.mark.parametrize(
    ("text", "have"),
    [("linear-regression(y ~ x)", False), ("logistic-regression(yes ~ x)", False), ("linear-regression(y ~ arm)", True)],
)
def test_fewer_levels_are_proposed_where_there_are_some(text: str, have: bool) -> None:
    receipt = json.loads(json.dumps(finished(text, noise=60.0).receipt(), default=str))
    (hidden,) = [line for line in " ".join(first_screen(receipt)).split("! ") if line.startswith("HIDDEN")]
    assert ("fewer levels" in " ".join(hidden.split())) == have


@pytest.mark.parametrize(
    ("names", "number", "shown"),
    [
        (
            ("a", "bb"),
            "1",
            "estimate standard error of noise|a 1 1|bb 1 1",
        ),
        (("a" * 70, "bb"), "1", "standard|error|estimate of noise|" + "a" * 70 + "|1 1|bb 1 1"),
        (("a", "b"), "9" * 40, f"|a|  estimate {'9' * 40};|  standard error of noise {'9' * 40}|b"),
    ],
    ids=["one line", "names above", "numbers behind heads"],
)
def test_a_table_that_is_too_wide_is_stacked(names: tuple[str, ...], number: str, shown: str) -> None:
    rows = [["", "estimate", "standard error of noise"], *([name, number, number] for name in names)]
    made = aligned(rows)
    assert len(made) == len(rows)
    lines = [line for each in made for line in each]
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).startswith(" ".join(shown.replace("|", " ").split()))


def hidden_term(name: str, kind: str, term: str, flag: str = "") -> Term:
    unknown: Any = dict.fromkeys(("estimate", "error", "noise_error", "statistic", "p_value", "n"), math.nan)
    ends: Any = dict.fromkeys(("population", "noise"), (math.nan, math.nan))
    return Term(name, kind, "", term, flags=(flag,), label=term, **unknown, **ends)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("small-cell", ""), "so 1 ratio is not known: t (a, b) 0. The noise hides 1 of the 9 values: t (a, b) 1. Ask for"),
        (("small-cell", "small-cell"), "A count is too small for this noise, so 2 ratios are not known: t (a, b) 0 and 1. Ask"),
        (("", ""), "The noise hides 2 of the 9 values: t (a, b) 0 and 1. Ask"),
    ],
)
def test_what_is_hidden_says_why(flags: tuple[str, ...], said: str) -> None:
    terms = [hidden_term("t (a, b)", "crosstab", f"{at}", flag) for at, flag in enumerate(flags)]
    text = what_is_hidden(terms, 9)
    assert said in text
    assert text.endswith("Asking again costs privacy again.")


def test_tests_stand_below_their_own_statistic() -> None:
    receipt = json.loads(json.dumps(finished("group-means(x, by=yes)", "crosstab(yes, other)", "mean(y)").receipt(), default=str))
    lines = first_screen(receipt)
    assert max(map(len, lines)) <= 80
    place = {text: next(at for at, line in enumerate(lines) if line.strip().startswith(text)) for text in (
        "group-means(x, yes)", "Welch's t test", "crosstab(yes, other)", "Pearson's chi-squared test", "mean(y)"
    )}  # fmt: skip
    assert list(place.values()) == sorted(place.values())


def test_without_noise_a_part_that_nobody_is_in_is_0_and_no_unknown() -> None:
    """As a run on one machine shows it: with rounding alone."""
    outcome = finished("table-1(by=yes)")
    table = records_of()
    (answer,) = outcome.workload.decode(outcome.workload.of_records(table).mean(axis=0), 1e-9, float(len(table)))
    estimates = answer.estimates
    missing = [at for at, term in enumerate(estimates.terms) if term.endswith("missing")]
    assert len(missing) > 4
    assert np.isfinite(estimates.value[missing]).all()
    assert not any(flag.code == "few" for flag in estimates.flags)


def test_a_run_is_named_by_its_folder_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, name in enumerate(("quietmean-run-1", "quietmean-run-2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "receipt.json").touch()
        os.utime(tmp_path / name / "receipt.json", (place, place))
    first, newest = (tmp_path / name / "receipt.json" for name in ("quietmean-run-1", "quietmean-run-2"))
    assert execution_or_newest(first) == execution_or_newest(first.parent) == first
    assert execution_or_newest(tmp_path) == newest
    assert "newest run here" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no run in it"):
        execution_or_newest(tmp_path / "empty")


@pytest.mark.parametrize(
    ("asked", "instead"),
    [
        ("linear-regression(affairs ~ age + log(crp))", "glm(affairs ~ age + log(crp), family=gaussian)"),
        ("linear-regression(bmi ~ age, robust=true)", "glm(bmi ~ age, family=gaussian)"),
        ("logistic-regression(ill ~ age)", "glm(ill ~ age, family=binomial)"),
        ("linear-regression(bmi ~ age, where=sex == 'f')", "glm(bmi ~ age, family=gaussian, where=sex == 'f')"),
        ("linear-regression(bmi ~ age, weight=w)", ""),
        ("mean(age)", ""),
    ],
)
def test_a_hidden_regression_says_which_model_has_noise_at_the_scale_of_the_data(asked: str, instead: str) -> None:
    """None does that takes no weights: it would be of other records."""
    text = what_is_hidden([hidden_term(asked, asked.partition("(")[0], "age")], 2)
    assert (f"Or try {instead}: its noise grows with the spread of the data, not with the bounds." in text) == bool(instead)
    assert ("glm(" in text) == bool(instead)
    if instead:
        # It is a question as it stands.
        assert asks_model([instead])


def lines_of(*asked: str, noise: float = 1.0) -> list[str]:
    return list(table_lines(finished(*asked, noise=noise).to_json()["statistics"], "records"))


def test_a_table_1_is_printed_as_in_a_paper() -> None:
    lines = lines_of("table-1(y, other, by=yes)", noise=0.01)
    (heads,) = (line for line in lines if "(n " in line)
    assert re.search(r" yes no \(n = [\d,]+\) +yes yes \(n = [\d,]+\) +p +SMD$", heads), heads
    (shares,) = (line for line in lines if line.startswith("    other = yes, n (%)"))
    assert len(re.findall(r"\d+ \(\d[\d.]*\)", shares)) == 2, shares
    assert lines[-1] == "    SMD (standardised mean difference): yes yes minus no"


@pytest.mark.parametrize("asked", ["survival(y, yes, bins=16)", "cdf(y, bins=16)", "quantiles(y, 0.2 0.4 0.6, bins=8)"])
def test_a_curve_has_few_points_and_its_last_one(asked: str) -> None:
    every = [term.label for document in finished(asked, noise=0.01).to_json()["statistics"] for term in terms_of(document)]
    curve = [label for label in every if re.fullmatch(r"(.* )?-?\d[\d.]*", label)]
    lines = lines_of(asked, noise=0.01)
    named = [label for label in curve if any(line.startswith(f"    {label}  ") for line in lines)]
    assert named[-1] == curve[-1]
    assert len(named) == len(curve) if len(curve) <= 6 else 4 <= len(named) <= 6
    told = [line for line in lines if line.endswith("--details")]
    left = len(every) - sum(any(line.startswith(f"    {label}  ") for line in lines) for label in every)
    assert told == ([f"    and {left} more terms: --details"] if left else [])


def test_curves_of_arms_share_the_points_and_say_once_of_how_many_records_each_is() -> None:
    asked = "survival(y, yes, by=arm, bins=16)"
    lines = lines_of(asked, noise=0.01)
    (document,) = finished(asked, noise=0.01).to_json()["statistics"]
    terms = terms_of(document)
    arms = [arm for arm in ("a", "b") if any(line.startswith(f"    {arm} ") for line in lines)]
    assert len(arms) == 2
    for arm in arms:
        known = [term for term in terms if term.group == arm and not math.isnan(term.estimate)]
        points = [term.label for term in known if re.fullmatch(r"[\d.]+", term.own)]
        named = [label for label in points if any(line.startswith(f"    {label}  ") for line in lines)]
        assert len(named) == 3 < len(points)
        assert named[-1] == points[-1]
        assert any(line.startswith(f"    median {arm}  ") for line in lines)
        assert not any(f"quartile {arm}" in line for line in lines)
    assert "records" not in lines[0]
    (told,) = [line for line in lines if line.startswith("    records: ")]
    assert re.findall(r"about [\d,]+ \(\S+\) in (\w+)", told)[:2] == arms


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0])
def test_how_much_wider_noise_makes_intervals_is_by_their_errors(noise: float) -> None:
    """Of a sum of independent errors: the error with noise over that of sampling alone."""
    (document,) = finished("crosstab(arm, yes)", noise=noise).to_json()["statistics"]
    terms = [term for term in terms_of(document) if math.isfinite(term.population[1]) and shown(term).interval != UNKNOWN]
    wider = [100 * (term.error / math.sqrt(term.error**2 - term.noise_error**2) - 1) for term in terms]
    low, high = (f"{min(each, 900):.0f}" for each in (min(wider), max(wider)))
    (said,) = about_intervals(terms)
    assert said.endswith(f", which makes them {low if low == high else f'{low} to {high}'} % wider."), (said, wider)


def test_many_numbers_with_an_upper_end_alone_are_one_line() -> None:
    (document,) = finished("crosstab(cause, arm)", noise=1.0).to_json()["statistics"]
    ends = [term.upper for term in terms_of(document) if term.upper is not None]
    assert len(ends) > 3
    few = [line for line in lines_of("crosstab(cause, arm)") if re.search(r" < \d+( |$)", line)]
    assert [" ".join(line.split()[:7]) for line in few] == [f"each of {len(ends)} more counts < {max(ends):,.0f}"]
    # Where they are of missing values alone, the line says so.
    (document,) = finished("crosstab(cause, yes)", noise=0.3).to_json()["statistics"]
    labels = [term.label for term in terms_of(document) if term.upper is not None]
    assert all("missing" in label for label in labels)
    (told,) = [line for line in table_lines([document], "records") if "each of" in line]
    assert told.startswith(f"    each of {len(labels)} with a missing value ")
