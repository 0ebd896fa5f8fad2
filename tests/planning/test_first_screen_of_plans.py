"""What ``plan`` prints first: one table of 80 columns, and of a study widths that agree with what they are said to need."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.cli.main import main
from quietmean.cli.screens import NEXT
from quietmean.statistics.tidy import terms_of
from quietmean.studies import StudyTerms
from quietmean.studies.outcome.about_intervals import ABOUT_THESE
from quietmean.studies.outcome.forecast import Forecast, noise_of_total
from quietmean.studies.outcome.needed import Needed

STUDY = """
[study]
name = "ages"
epsilon = 1.0
delta = 1e-6
accept_wide = true
[[column]]
name = "age"
low = 0.0
high = 110.0
"""
Shown = Callable[..., list[str]]


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    (tmp_path / "study.toml").write_text(STUDY)

    def lines(*options: str) -> list[str]:
        capsys.readouterr()
        main(["plan", *(str(tmp_path / option) if option == "study.toml" else option for option in options)])
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize(
    "options",
    [
        ("--parties", "20"),
        ("--parties", "12", "--dropouts", "0.1", "--dimension", "3", "--protocol", "cordp-dme"),
        ("--parties", "12", "--protocol", "cordp-dme", "--protocol", "local-dp"),
        ("--parties", "12", "--server", "curator", "--protocol", "central-dp", "--protocol", "cordp-dme"),
    ],
)
def test_protocols_are_one_table(shown: Shown, options: tuple[str, ...]) -> None:
    lines = shown(*options)
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    heading = next(index for index, line in enumerate(lines) if line.split()[:1] == ["protocol"])
    assert lines[heading].split() == ["protocol", "error", "needs", "trust"]
    rows = [row for row in lines[heading + 1 : lines.index("", heading)] if not row.startswith(" " * 4)]
    document = json.loads("\n".join(shown(*options, "--json")))
    errors = {row["protocol"]: row["mse"] for row in [*document["candidates"], *document.get("ways", [])] if "mse" in row}
    chosen = document["candidates"][document["chosen"]]
    assert [row.split()[1] for row in rows if row.startswith("*")] == [chosen["protocol"]]
    assert rows[-1].startswith("  trusted curator (compare)  ")
    for row in rows[:-1]:
        name, error = row.lstrip("* ").split()[:2]
        assert float(error) == pytest.approx(math.sqrt(errors[name]), rel=0.05)
    assert float(rows[-1].split()[-1]) == pytest.approx(math.sqrt(chosen["mse_central"]), rel=0.05)


def test_details_have_what_the_first_screen_leaves_out(shown: Shown) -> None:
    line = ("--parties", "12", "--protocol", "cordp-dme", "--protocol", "local-dp")
    first, details = shown(*line), shown(*line, "--details")
    # Where all else is said to be is no line of what has it.
    assert [line for line in first if "--details" not in line] == details[: len(first) - 1]
    document = json.loads("\n".join(shown(*line, "--json")))
    text = " ".join(" ".join(details[len(first) :]).split())
    candidate = document["candidates"][0]
    facts = [f"{candidate['messages_per_party']:.1f}", f"{candidate['bytes_per_party']:.0f}", f"{candidate['mse']:.4g}"]
    facts += [document["why"], document["domain"], "no values within the bounds give"]
    assert [fact for fact in facts if " ".join(fact.split()) not in text] == []


def test_a_study_says_its_interval_and_what_another_needs(shown: Shown) -> None:
    line = ("--study", "study.toml", "--parties", "12", "--records", "5000", "--width", "2")
    lines = shown(*line)
    assert len(lines) <= 12
    # A command is pasted as a whole.
    assert max(len(line) for line in lines if not line.startswith(NEXT)) <= 80
    text = " ".join(" ".join(lines).split())
    said = re.search(
        r"mean\(age\): 95 % interval \+-([\d.]+) \(if the standard deviation is 27.5: by default 25 % of the range\); "
        r"for a width of 2 \(\+-1\) you need ([\d,]+) records, or "
        r"epsilon ([\d.]+) with 5,000",
        text,
    )
    assert said is not None, text
    document = json.loads("\n".join(shown(*line, "--json")))
    (term,), (needed,) = document["expected"], document["needed"]
    assert float(said[1]) == pytest.approx(term["width_usual"] / 2, rel=0.01)
    assert int(said[2].replace(",", "")) == pytest.approx(needed["records"], rel=0.1)
    assert float(said[3]) == pytest.approx(needed["epsilon"], rel=0.01)
    details = " ".join(" ".join(shown(*line, "--details")).split())
    for fact in (
        "expected 95 % interval +-",
        "from the noise",
        "a party that lies can move mean(age)",
        "8 parties of this size",
    ):
        assert fact in details


@settings(deadline=None, max_examples=8)
@given(records=st.integers(40, 4000), width=st.sampled_from([2.0, 5.0, 12.0]), guessed=st.booleans())
def test_more_records_than_needed_are_never_wider_than_asked(records: int, width: float, guessed: bool) -> None:
    """As printed: the interval is within the width if, and only if, there are as many as it is said to need."""
    fields = {"name": "ages", "epsilon": 1.0, "delta": 1e-6, "accept_wide": True}
    column = {"name": "age", "low": 0, "high": 110} | ({"guess": [50, 12]} if guessed else {})
    study = StudyTerms.parse(fields | {"protocol": "local-dp", "column": [column]})
    plan = study.choice(4).plan
    forecast = Forecast(study, plan, records)
    (needed,), (term,) = forecast.needed(width, None), forecast.expected
    (line,) = forecast.lines([needed])
    if needed.records is None:
        assert "more than any number" in line
        return
    (enough,) = (int(number.replace(",", "")) for number in re.findall(r"you need ([\d,]+) records", line))
    (half,) = map(float, re.findall(r"interval \+-([\d.]+)", line))
    assert (enough <= records) == (term.usual_width <= width) == (half <= width / 2)
    # With as many it is so narrow.
    assert Forecast(study, plan, enough).expected[0].usual_width <= width * 1.01


@pytest.mark.parametrize("population", ["beyond", "these records"])
def test_a_plan_has_the_widths_that_answers_will_have(population: str) -> None:
    """Within a tenth of the intervals that answers of drawn studies quote, whatever the study is about."""
    asked = ["mean(age)", "proportion(smoker)", "variance(age)", "histogram(age, bins=4)"]
    fields = {
        "name": "ages",
        "epsilon": 2.0,
        "delta": 1e-6,
        "accept_wide": True,
        "protocol": "local-dp",
        "population": population,
    }
    guessed = [{"name": "age", "low": 0, "high": 110, "guess": [50, 12]}, {"name": "smoker", "boolean": True}]
    study = StudyTerms.parse(fields | {"ask": asked, "column": guessed})
    records, rng = 4000, np.random.default_rng(20261129)
    forecast = Forecast(study, study.choice(4).plan, records)
    noise, workload = noise_of_total(forecast.plan) / records, study.workload
    about = {"population": population} if workload.these_records else {}
    widths = []
    for _ in range(200):
        table = np.column_stack([np.clip(rng.normal(50, 12, records), 0, 110), rng.random(records) < 0.5])
        mean = workload.of_records(table).mean(axis=0) + noise * rng.standard_normal(workload.dimension)
        terms = [terms_of({**answer.to_json(), **about}) for answer in workload.decode(mean, noise, float(records))]
        quoted = [{term.term: term.population for term in own} for own in terms]
        widths.append([own[each.term][1] - own[each.term][0] for own, each in zip(quoted, forecast.expected, strict=True)])
    planned = [each.usual_width for each in forecast.expected]
    assert planned == pytest.approx(np.median(widths, axis=0), rel=0.1)
    assert (ABOUT_THESE in forecast.sentences()) == (population == "these records")
    assert all(("from the noise alone" in line) == (population == "these records") for line in forecast.lines())
    assert all(("these records alone" in text) == (population == "these records") for text in forecast.shortly())


def test_what_is_enough_is_not_rounded_beyond_what_there_is() -> None:
    needed = Needed("mean(age)", "", "width", 2.0, 5041, 12, 0.9, planned=5050)
    assert "5,050 records" in needed.clause
    assert "5,050 records" in needed.sentence
    assert "5,100 records" in Needed("mean(age)", "", "width", 2.0, 5051, 12, 1.1, planned=5050).clause
