"""A plan that forecasts hidden answers says so, and leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from quietmean.cli.main import main


@pytest.mark.parametrize(
    ("question", "epsilon", "hidden"), [("a in yes/no ~ b in 0..10", 0.05, True), ("a in yes/no ~ b in 0..10", 20, False)]
)
def test_a_plan_whose_answers_are_hidden_has_no_next_step(
    question: str, epsilon: float, hidden: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        f'[study]\nname = "s"\nepsilon = {epsilon}\ndelta = 1e-6\nrecords = 900\naccept_wide = true\n'
        f'protocol = "local-dp"\ncolluding = 0\nask = ["logistic-regression({question})"]\n'
    )
    main(["plan", "--study", str(study), "--parties", "3"])
    last = capsys.readouterr().out
    assert ("! HIDDEN" in last) == hidden
    assert ("study invite" in last) != hidden
