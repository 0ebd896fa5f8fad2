"""The whole study of examples/actg175.py, of which docs/measurements/actg175.md has a run: one budget, beside pooled data."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.programs import module_of

pytestmark = pytest.mark.slow

# No difference of fifteen is farther, but once in ten thousand studies.
FARTHEST = 4.5
actg175 = module_of("examples", "actg175")


def distance(private: Any, pooled: Any) -> float:
    """In standard errors of what the private interval has more than the pooled one, at least a third of the pooled one's."""
    errors = [math.log(one.high / one.low) / 3.92 for one in (private, pooled)]
    return abs(math.log(private.value / pooled.value)) / math.sqrt(max(errors[0] ** 2 - errors[1] ** 2, (errors[1] / 3) ** 2))


def test_one_budget_and_the_answers_of_pooled_data(actg175: ModuleType, tmp_path: Path) -> None:
    assert math.isclose(sum(actg175.PARTS.values()), 1)
    paper = actg175.main(tmp_path)
    assert 0.9 * actg175.EPSILON < paper.epsilon <= actg175.EPSILON * (1 + 1e-9)
    assert paper.study.execution.parties == actg175.SITES
    pairs = [*paper.odds.values(), *paper.hazards.values(), *paper.subgroups.values()]
    assert [len(paper.odds), len(paper.hazards), len(paper.subgroups)] == [5, 3, 7]
    known = [pair for pair in pairs if not math.isnan(pair[0].value)]
    assert len(known) >= len(pairs) - 2
    for private, pooled in known:
        assert distance(private, pooled) < FARTHEST
        assert math.log(private.high / private.low) < 4 * math.log(pooled.high / pooled.low)
    # What the trial showed.
    assert paper.hazards[actg175.ARM][0].high < 1
    assert paper.subgroups["all patients"][0].high < 1
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"report.html", "table-1.html", "terms.csv", "subgroups.png", "paper.md"}
    text = (tmp_path / "paper.md").read_text(encoding="utf-8")
    assert all(f"| {row}" in text for row in ("age, mean (SD)", "sex, n (%)", "symptoms = yes, n (%)"))
    # Risks are of the event, not of the arm: 0.21 with the combination, 0.34 without.
    ratio = actg175.ratios_of(paper.study.outcome.answers[1].estimates)["risk-ratio"]
    assert distance(ratio, actg175.Estimate(0.622, 0.540, 0.716)) < FARTHEST
    assert len((tmp_path / "terms.csv").read_text(encoding="utf-8").splitlines()) == 16


def test_an_answer_of_another_arm_is_far_from_the_pooled_one(actg175: ModuleType) -> None:
    table = actg175.patients()
    turned = table.assign(arm=table["arm"].map({"zidovudine": "combination", "combination": "zidovudine"}))
    own, other = actg175.pooled_hazards(table)[actg175.ARM], actg175.pooled_hazards(turned)[actg175.ARM]
    wider = actg175.Estimate(other.value, other.low / 1.2, other.high * 1.2)
    assert distance(wider, own) > FARTHEST
