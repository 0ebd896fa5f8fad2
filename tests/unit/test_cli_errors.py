"""Mistakes of a user that no line of tests/data/mistakes.toml holds: one sentence that names the value and the remedy."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from quietmean.cli.console import print_not_counted
from quietmean.cli.run import new_folder
from quietmean.core.errors import StorageError
from support.command_lines import fails
from support.mistakes import EXECUTION, write_files

TABLE = "clinic,age,weight,name\n" + "".join(f"c{row % 3},{20 + row},{60 + row}.5,x\n" for row in range(12))
RUN = ["run", "mean(age in 0..100)", "--parties", "4"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quietmean.cli.run.time.strftime", lambda form: "quietmean-run-20200101-000000")
    with new_folder(None) as first, new_folder(None) as second, new_folder(None) as third:
        assert len({first, second, third}) == 3
        assert first.name == "quietmean-run-20200101-000000"
        (second / "receipt.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == [second.name]


def test_execution_files_that_lack_a_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "execution.json"
    without = {key: value for key, value in EXECUTION.items() if key != "sigma_star"}
    for document, words in (
        (EXECUTION | {"sigma_delta": None}, ["'sigma_delta'", "a number"]),
        (without, ["'sigma_star' is missing"]),
    ):
        path.write_text(json.dumps(document))
        fails(["verify", "receipt", str(path), "--corrupt", "0"], capsys, *words)


def test_join_with_port_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        roster = Path("roster.toml")
        roster.write_text(roster.read_text().replace("45111", port))
        given = "join study.toml --roster roster.toml --data patients.csv --key ada.key --no-ledger"
        fails(given.split(), capsys, port)


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quietmean.studies.outcome.local.run_study", lambda *arguments, **more: pytest.fail("the study ran"))
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "out")
    fails([*RUN, "--data", str(table), "--out", out], capsys, f"folder {out} cannot be made (Not a directory)", "--out")


@pytest.mark.slow
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_whoever_reads_the_output_may_stop(extra: list[str]) -> None:
    """quietmean plan ... | head -1"""
    command = [sys.executable, "-m", "quietmean.cli.main", "plan", "--parties", "4", "--protocol", "local-dp", *extra]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(command, check=False, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENOSPC, StorageError.exit_code, "no space beside /data/of/a/study. Make room, then run the same command again."),
        (errno.EMFILE, 2, "/data/of/a/study: too many open files. Raise the limit of open files (ulimit -n)."),
        (errno.EACCES, 2, "/data/of/a/study: permission denied. Check the path and your access rights."),
    ],
)
def test_what_the_system_refuses_is_one_sentence(
    number: int,
    code: int,
    said: str,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(number, os.strerror(number), "/data/of/a/study")

    monkeypatch.setattr("quietmean.cli.run.parties_of_table", full)
    arguments = [*RUN, "--data", str(table), "--out", str(tmp_path / "out")]
    assert fails(arguments, capsys, code=code).strip() == f"quietmean: {said}"


def test_whose_records_are_not_counted_is_told_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_not_counted({"not_counted": ["clinic [1]", "clinic 2"]})
    print_not_counted({"not_counted": []})
    assert capsys.readouterr().out == "without the records of clinic [1], clinic 2\n"
