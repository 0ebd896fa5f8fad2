"""On 80 columns, as in a pipe, no word of a table is broken over lines: what has no room makes the line longer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quietmean.cli.answers import print_answers
from quietmean.cli.console import err, out, warn
from quietmean.cli.main import main
from quietmean.planning.candidates import general_protocols
from quietmean.studies.outcome.first_screen import first_screen

LONG = [f"diastolic_blood_pressure_at_the_visit_{number}_after_discharge" for number in (1, 2, 3)]
STUDY = '[study]\nname = "long"\n' + "".join(f'[[column]]\nname = "{name}"\nlow = 0\nhigh = 100\n' for name in LONG)


@pytest.fixture(autouse=True)
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for console in (out, err):
        monkeypatch.setattr(console, "_width", 80)
    Path("study.toml").write_text(STUDY)
    rows = "".join(f"{number + 0.123456789},12.3456789012345,99.123456789012\n" for number in range(30))
    Path("long.csv").write_text(",".join(LONG) + "\n" + rows)


def whole(text: str, *words: str) -> None:
    for word in words:
        assert word in text, (word, text)


def test_names_and_numbers_of_answers(capsys: pytest.CaptureFixture[str]) -> None:
    term: dict[str, Any] = {
        "terms": [""],
        "estimate": 123456.789,
        "standard_error": 12.3456,
        "interval_noise": [123432.0, 123481.0],
        "interval_population": [123000.0, 124000.0],
        "true_value": 123457.0,
        "kind": "mean",
        "flagged": [],
    }
    means = [term | {"name": f"mean({name})"} for name in LONG]
    document = {"statistics": means, "certificate": {"unit": "record"}}
    print_answers(document)
    whole(capsys.readouterr().out, *LONG, "123,457", "123,000", "124,000", "123,481", "private")
    for line in first_screen({"result": document}):
        out.print(line)
    whole(capsys.readouterr().out, *LONG, "123,457", "123,000", "124,000", "private")


def test_names_and_cells_of_a_preview(capsys: pytest.CaptureFixture[str]) -> None:
    main(["site", "data", "long.csv", "study.toml"])
    first = capsys.readouterr().out
    whole(first, *LONG, "numbers", "missing", "understood", "rows: --details")
    main(["site", "data", "long.csv", "study.toml", "--details"])
    whole(capsys.readouterr().out, *LONG, "numbers", "missing", "understood", "12.3456789012345", "99.123456789012")


@pytest.mark.parametrize("left_out", ["inca", ""])
def test_protocols_of_a_plan(left_out: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all, and of those that are named because their plans take no seconds."""
    named = [word for name in general_protocols() if left_out and name != left_out for word in ("--protocol", name)]
    question = ["plan", "--parties", "6", "--dimension", "100000", *named]
    main([*question, "--json"])
    document = json.loads(capsys.readouterr().out)
    candidates, bounded = document["candidates"], document.get("left_out", [])
    main(question)
    first = capsys.readouterr().out
    main([*question, "--details"])
    _, _, details = capsys.readouterr().out.partition("Next ")
    names = {row["protocol"] for row in [*candidates, *bounded]}
    words = {f"{row['bytes_per_party']:.0f}" for row in candidates}
    assert ("inca" in names) != bool(left_out)
    whole(first, *names, "protocol", "error", "needs", "trust")
    whole(details, *words, *names, "predicted", "messages", "protocol")


@pytest.mark.parametrize(("terminal", "text", "lines"), [(True, "a word " * 25, 3), (False, "a word " * 25, 1),
    (True, "Write quietmean run " + "a-path/" * 20, 1)])  # fmt: skip
def test_a_note_goes_on_below_at_a_terminal(terminal: bool, text: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("quietmean.cli.console.err", Console(file=said, force_terminal=terminal, width=80, soft_wrap=True))
    warn(text)
    printed = said.getvalue().splitlines()
    assert (len(printed), " ".join(said.getvalue().split())) == (lines, f"quietmean: {text.strip()}")
    assert lines == 1 or max(map(len, printed)) <= 80
