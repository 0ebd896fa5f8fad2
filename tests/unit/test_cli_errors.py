"""Every mistake of a user: one sentence on standard error that names the value and the remedy, exit code 2, no traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.console import print_not_counted
from quietmean.cli.main import main
from quietmean.cli.run import new_folder
from quietmean.core.errors import StorageError

TABLE = "clinic,age,weight,name\n" + "".join(f"c{row % 3},{20 + row},{60 + row}.5,x\n" for row in range(12))
RUN = ["run", "--column", "age", "--bounds", "0", "100", "--parties", "4"]


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    output = capsys.readouterr()
    assert stop.value.code == code, output.err
    assert output.out == ""
    assert output.err.count("\n") == 1, f"more than one line: {output.err}"
    assert "Traceback" not in output.err
    for word in words:
        assert word in output.err, f"{word!r} is missing in: {output.err}"
    return output.err


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--epsilon", "0"], ["epsilon is 0", "> 0"]),
        (["--epsilon", "-1"], ["epsilon is -1"]),
        (["--epsilon", "nan"], ["epsilon is nan"]),
        (["--delta", "1"], ["delta is 1", "0 < delta < 1"]),
        (["--delta", "0"], ["delta is 0"]),
        (["--rounds", "0"], ["rounds is 0"]),
        (["--protocol", "inca", "--neighbours", "4"], ["neighbours is 4", "1..3"]),
        (["--protocol", "inca", "--neighbours", "0"], ["neighbours is 0"]),
        (["--schedule", "sideways"], ["'sideways'", "permutation"]),
        (["--protocol", "magic"], ["'magic'", "inca"]),
        (["--colluding", "4"], ["4 of 4 parties colluding"]),
        (["--dropouts", "1"], ["dropouts of 1"]),
        (["--round-timeout", "0"], ["round_timeout"]),
        (["--unit", "galaxy"], ["galaxy"]),
    ],
)
def test_impossible_targets(extra: list[str], words: list[str], table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails([*RUN, "--data", str(table), *extra], capsys, *words)


def test_one_party(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails([*RUN[:-1], "1", "--data", str(table)], capsys, "1 party", "at least 2")


def test_more_parties_than_rows(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails([*RUN[:-1], "13", "--data", str(table)], capsys, "12 rows", "13 parties")


def test_missing_column(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--data", str(table), "--column", "height", "--bounds", "0", "1", "--parties", "3"]
    fails(arguments, capsys, "'height'", "4 columns")


@pytest.mark.parametrize("rule", ["drop", "refuse"])
def test_rows_are_not_left_out(rule: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails([*RUN, "--data", str(table), "--missing", rule], capsys, f"'{rule}'", "would publish", "indicator")


def test_unreadable_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails([*RUN, "--data", str(tmp_path / "none.csv")], capsys, "none.csv", "does not exist")
    noise = tmp_path / "noise.parquet"
    noise.write_bytes(b"\x00\xff not a table \xfe" * 10)
    fails([*RUN, "--data", str(noise)], capsys, "noise.parquet", "cannot be read")
    fails([*RUN, "--data", str(tmp_path)], capsys, "cannot be read")


def test_bounds(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["run", "--data", str(table), "--parties", "3", "--column", "age"]
    fails([*data, "--bounds", "100", "0"], capsys, "100 0", "--bounds LOW HIGH")
    fails([*data, "--bounds", "5", "5"], capsys, "5 5")
    fails([*data, "--bounds", "0", "inf"], capsys, "inf")
    fails([*data, "--column", "weight", "--bounds", "0", "100"], capsys, "2 columns", "1 bounds")


def test_parties_or_party_column(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--data", str(table), "--column", "age", "--bounds", "0", "100"]
    fails(arguments, capsys, "--parties", "--party-column")
    fails([*arguments, "--party-column", "nobody"], capsys, "'nobody'")


def test_existing_folder_is_not_overwritten(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails([*RUN, "--data", str(table), "--out", str(tmp_path)], capsys, "exists already")


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quietmean.cli.run.time.strftime", lambda form: "quietmean-run-20200101-000000")
    with new_folder(None) as first, new_folder(None) as second, new_folder(None) as third:
        assert len({first, second, third}) == 3
        assert first.name == "quietmean-run-20200101-000000"
        (second / "receipt.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == [second.name]


def execution(**changes: Any) -> dict[str, Any]:
    base = {
        "protocol": "inca",
        "parties": 3,
        "rounds": 2,
        "neighbours": [[[1], [2], [0]], [[2], [0], [1]]],
        "online": [[True] * 3] * 3,
        "injection": "incremental",
        "sigma_star": 1.0,
        "sigma_delta": 1.0,
        "sensitivity": 1.0,
    }
    return {**base, **changes}


C, Z = [0.5, 0.25, 0.25], [[1, 0], [-1, 1], [0, -1]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": "magic"}, ["'magic'", "inca"]),
        ({"parties": 0}, ["parties is 0"]),
        ({"rounds": 0}, ["rounds is 0"]),
        ({"rounds": 3}, ["neighbours has 2 rounds"]),
        ({"rounds": "many"}, ["'rounds'", "whole number"]),
        ({"neighbours": [[[1], [2], [3]], [[2], [0], [1]]]}, ["outside 0..2"]),
        ({"neighbours": [[[0], [2], [0]], [[2], [0], [1]]]}, ["its own neighbour"]),
        ({"neighbours": [[[1, 1], [2], [0]], [[2], [0], [1]]]}, ["same neighbour twice"]),
        ({"neighbours": [[[1], [2]], [[2], [0], [1]]]}, ["2 parties, not 3"]),
        ({"neighbours": 7}, ["'neighbours'"]),
        ({"online": [[True] * 3] * 2}, ["online must have 3 rows"]),
        ({"online": [[False] * 3] * 3}, ["round 0"]),
        ({"sigma_star": -1.0}, ["sigma_star is -1"]),
        ({"sigma_delta": None}, ["'sigma_delta'", "a number"]),
        ({"sensitivity": 0.0}, ["sensitivity is 0"]),
        ({"injection": "late"}, ["'late'", "incremental"]),
        ({"injection": {"c": [0.5, 0.5], "Z": Z}}, ["3 portions"]),
        ({"injection": {"c": [0.5, 0.5, 0.5], "Z": Z}}, ["c sums to 1.5"]),
        ({"injection": {"c": C, "Z": [[1, 0], [-1, 1], [0, 0]]}}, ["column 1 of Z sums to 1"]),
        ({"injection": {"c": C, "Z": [[1, 1], [-1, -1], [0, 0]]}}, ["singular"]),
        ({"injection": {"c": C, "Z": [[1, 0], [-1, 1], [0, "x"]]}}, ["not an array of numbers"]),
        ({"injection": {"c": C, "Z": [[1], [-1]]}}, ["Z has shape"]),
        ({"weights": [1.0, -1.0, 1.0]}, ["weights"]),
        ({"lost": [[1, 0, 2]]}, ["not in the schedule"]),
    ],
)
def test_bad_execution_files(
    changes: dict[str, Any], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(execution(**changes)))
    fails(["certify", str(path), "--corrupt", "0"], capsys, *words)


def test_missing_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = execution()
    del document["sigma_star"]
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(document))
    fails(["certify", str(path), "--corrupt", "0"], capsys, "'sigma_star' is missing")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--corrupt", "0,9"], ["corrupt party 9", "0..2"]),
        (["--corrupt", "a"], ["'a'", "0,4,7"]),
        (["--corrupt", "0", "--delta", "2"], ["delta is 2"]),
        (["--corrupt", "0", "--epsilon", "-3"], ["epsilon is -3"]),
        (["--corrupt", "0", "--prior-sd", "0"], ["prior-sd is 0"]),
        (["--colluding", "3"], ["3 of 3 parties"]),
        (["--observe-fraction", "1.5"], ["1.5"]),
        (["--observed", "nowhere.json"], ["nowhere.json"]),
    ],
)
def test_bad_adversaries(extra: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(execution()))
    fails(["certify", str(path), *extra], capsys, *words)


def test_files_that_are_no_executions_or_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.json"
    for content in ("", "[1, 2]", "{", "\xff"):
        path.write_text(content, encoding="latin-1")
        fails(["certify", str(path)], capsys, "file.json")
        fails(["simulate", str(path)], capsys, "file.json")
    path.write_text("{}")
    fails(["certify", str(path)], capsys, "'protocol' is missing")
    fails(["simulate", str(path)], capsys, "not a plan")


def test_unknown_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search("--help", fails(["fly"], capsys))
    fails(["keygen", "--colour", "red"], capsys, "--colour")


def test_keygen_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "me.key"
    main(["keygen", "--key", str(key)])
    capsys.readouterr()
    fails(["keygen", "--key", str(key)], capsys, "me.key", "exists")


def join_files(folder: Path, port: int) -> list[str]:
    """A roster of two with the first one's key at hand; returns the arguments of join."""
    from quietmean.node.net import Identity

    lines = []
    for number, name in enumerate(("ada", "bob")):
        identity = Identity.generate()
        identity.save(folder / f"{name}.key")
        lines.append(f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{port + number}"\nkey = "{identity.public_key}"\n')
    (folder / "roster.toml").write_text("\n".join(lines))
    (folder / "study.toml").write_text('[study]\nprotocol = "local-dp"\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n')
    (folder / "data.csv").write_text(TABLE)
    arguments = ["join", "study.toml", "--roster", "roster.toml", "--data", "data.csv", "--key", "ada.key", "--no-ledger"]
    return [str(folder / part) if part.endswith((".toml", ".csv", ".key")) else part for part in arguments]


def test_join_with_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        fails(join_files(tmp_path, port), capsys, str(port))


def test_join_with_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = join_files(tmp_path, 45000)
    study = tmp_path / "study.toml"
    good = study.read_text()
    for content, word in [
        (good.replace("local-dp", "magic"), "'magic'"),
        (good + 'colour = "red"\n', "colour"),
        (good.replace("low = 0\n", ""), "low"),
        (good.replace("[study]", "[studies]"), "[studies]"),
        ("[study\n", "study.toml"),
        (good.replace('protocol = "local-dp"', "epsilon = -1"), "epsilon is -1"),
    ]:
        study.write_text(content)
        fails(arguments, capsys, word)
    study.write_text(good)
    (tmp_path / "ada.key").write_text("not a key")
    fails(arguments, capsys, "ada.key")


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quietmean.studies.outcome.local.run_study", lambda *arguments, **more: pytest.fail("the study ran"))
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "out")
    fails([*RUN, "--data", str(table), "--out", out], capsys, f"folder {out} cannot be made (Not a directory)", "--out")


def test_a_failed_run_leaves_no_empty_folder(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    fails([*RUN, "--data", str(table), "--out", str(out), "--epsilon", "0"], capsys, "epsilon is 0")
    fails(
        ["run", "--column", "length", "--bounds", "0", "1", "--parties", "4", "--data", str(table), "--out", str(out)],
        capsys,
        "length",
    )
    assert not out.exists()


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
        (errno.ENOSPC, StorageError.exit_code, "no space beside /data/of/a/study: make room, then run the same command again"),
        (errno.EMFILE, 2, "/data/of/a/study: too many open files: raise the limit of open files (ulimit -n)"),
        (errno.EACCES, 2, "/data/of/a/study: permission denied: check the path and your rights"),
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
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code
    assert capsys.readouterr().err.strip() == f"quietmean: {said}"


def test_whose_records_are_not_counted_is_told_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_not_counted({"not_counted": ["clinic [1]", "clinic 2"]})
    print_not_counted({"not_counted": []})
    assert capsys.readouterr().out == "without the records of clinic [1], clinic 2\n"
