"""Commands that people get wrong: one clear sentence with the remedy, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.node import secrecy
from support.mistakes import EXECUTION, write_files

MISTAKES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent.parent / "data" / "mistakes.toml").read_text("utf-8"))[
    "mistake"
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        write_files(made)
        main(["plan", "--parties", "4", "--protocol", "local-dp", "--out", "plan.json"])
        main(["study", "invite", "study.toml", "--key", "ada.key", "--out", "study.invitation"])
    return made


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What belongs to the user's own environment is not there."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("QUIETMEAN_PASSPHRASE_FILE", raising=False)
    for protection in ("forbid_tracing", "forbid_core_dumps"):
        monkeypatch.setattr(secrecy, protection, lambda: None)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and, without what is in it, every folder but the user's own."""
    found = [entry for entry in os.scandir(folder) if entry.name != "settings"]
    return {entry.name: Path(entry.path).read_bytes() if entry.is_file() else b"" for entry in found}


def test_there_are_at_least_112() -> None:
    assert len({mistake["line"] for mistake in MISTAKES}) >= 112


@pytest.mark.sampled(90)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake['line'][:70]} {mistake.get('execution', '')}")
def test_a_mistake_gets_one_sentence_with_the_remedy(
    mistake: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "execution" in mistake:
        (here / "changed.json").write_text(json.dumps(EXECUTION | mistake["execution"]))
    before = contents(here)
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(mistake["line"]))
    output = capsys.readouterr()
    assert stop.value.code == 2, output.err
    assert output.out == ""
    assert output.err.startswith("quietmean: ")
    assert output.err.count("\n") == 1
    for wrong in ("Traceback", "Errno", "input should be", "None", "tuple", "pydantic"):
        assert wrong not in output.err
    for words in mistake["says"]:
        assert words in output.err
    assert contents(here) == before
