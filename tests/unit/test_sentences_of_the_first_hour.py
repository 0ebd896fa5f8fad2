"""What a newcomer is told is so: of a number that somebody chose, a mistyped key, another one's key, a start in the past."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from quietmean.cli.console import Progress
from quietmean.cli.main import main
from quietmean.cli.run import _watch
from quietmean.core.assumptions import any_coalition
from quietmean.core.outage import room_beside
from quietmean.node import Identity
from quietmean.node.monitor.events import AgreementWaits, RoundBegun, Stalled, event_json
from quietmean.node.phase import Phase
from support.command_lines import fails
from support.meeting import meet

NEW = ["study", "new", "--name", "ages", "mean(age in 0..100)", "--minimum", "2", "--out"]


def test_no_sentence_says_that_a_number_was_not_chosen() -> None:
    """Who computed a certificate does not know whether somebody typed the number that is taken otherwise."""
    for size, parties in ((1, 5), (2, 20)):
        text = any_coalition(size, parties).text
        assert "The usual number is one party in ten." in text
        assert "default" not in text
    assert "The usual number" not in any_coalition(2, 5).text


def test_a_mistyped_key_and_one_of_somebody_else_are_no_lost_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meeting = meet(tmp_path)
    sealed = tmp_path / "ages.sealed"
    sealed.write_bytes(meeting.seal().signed.to_file())
    meeting.identities["south"].save(tmp_path / "south.key")
    Identity.generate().save(tmp_path / "own.key")
    Identity.generate().save(tmp_path / "locked.key", b"open sesame")
    for key, words in (
        ("souht.key", "souht.key does not exist. Name the one with which you accepted"),
        ("own.key", "own.key is the key of nobody in this study. Name the one with which you accepted"),
        # It is not opened only for a better sentence.
        ("locked.key", "If they are lost, ask for a new invitation"),
    ):
        said = fails(["verify", "words", str(sealed), "--key", str(tmp_path / key)], capsys)
        assert words in said
        assert ("new invitation" in said) == (key == "locked.key")
    # Without the keys of the study, its party reads what to do.
    meeting.keys["south"].path.unlink()
    assert "a new invitation" in fails(["verify", "words", str(sealed), "--key", str(tmp_path / "south.key")], capsys)


@pytest.mark.parametrize(
    "line", ["verify words", "site contract", "check --data ages.csv", "join --data ages.csv", "send --data ages.csv"]
)
def test_no_command_takes_a_mistyped_key_for_a_missing_one(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second key would be a second party: who accepted is asked for the name of the file, not for a new key."""
    sealed = tmp_path / "ages.sealed"
    sealed.write_bytes(meet(tmp_path).seal().signed.to_file())
    Identity.generate().save(tmp_path / "own.key")
    command, *more = line.split(" --data ")
    given = [word for value in more for word in ("--data", value)]
    for key, words in (("souht.key", "souht.key does not exist. "), ("own.key", "key of nobody in this study. Name the one")):
        said = fails([*command.split(), str(sealed), *given, "--key", str(tmp_path / key)], capsys)
        assert words in said
        assert "roster" not in said
        assert ". Make one" not in said


def test_nobody_is_invited_to_a_start_in_the_past(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, key = tmp_path / "study.toml", tmp_path / "north.key"
    said = fails([*NEW, str(study), "--start-by", "2020-01-01T00:00:00Z"], capsys)
    assert "start_by is 2020-01-01 00:00 UTC, which has passed" in said
    assert not study.exists()
    study.write_text('[study]\nminimum = 2\nstart_by = "2020-01-01T00:00:00Z"\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n')
    Identity.generate().save(key)
    said = fails(["study", "invite", str(study), "--key", str(key), "--out", str(tmp_path / "study.invitation")], capsys)
    assert "which has passed" in said
    assert not (tmp_path / "study.invitation").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.slow
def test_an_output_that_is_full_or_closed_is_no_defect() -> None:
    """As a shell gives it: > /dev/full, and >&-."""
    plan = [sys.executable, "-m", "quietmean", "plan", "--parties", "5", "--epsilon", "1", "--protocol", "local-dp"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(plan, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=dict(os.environ))
    assert done.returncode in (2, 75)
    assert "defect" not in done.stderr
    assert done.stderr.count("\n") == 1
    closed = subprocess.run(["/bin/sh", "-c", '"$@" >&-', "sh", *plan], stderr=subprocess.PIPE, text=True, check=False)
    assert "defect" not in closed.stderr
    assert "Traceback" not in closed.stderr


def test_a_machine_whose_processes_cannot_reach_each_other_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a container or namespace of which nobody brought the loopback interface up: parties waited for minutes."""

    def unreachable(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("quietmean.node.local.socket.create_connection", unreachable)
    table = tmp_path / "ages.csv"
    table.write_text("age\n40\n50\n60\n")
    line = f"run --data {table} 'mean(age in 0..110)' --parties 3 --epsilon 8 --protocol local-dp --accept-wide --processes"
    said = fails([*shlex.split(line), "--out", str(tmp_path / "out")], capsys)
    assert "127.0.0.1, which is unreachable (Network is unreachable). Bring the loopback interface up" in said


def test_what_a_study_on_one_machine_waits_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Each event that may last minutes: a start for want of others, a round, a disk that takes nothing."""
    shown: list[str] = []
    report = _watch(cast(Progress, SimpleNamespace(say=shown.append)), 3)
    stalled = Stalled("no space beside a.store. Make room, the study goes on.")
    for event in (
        AgreementWaits(("b", "c"), "2090-01-01T12:00:00+00:00"),
        RoundBegun(Phase.MIXING, 1, 2, ("b",), "2090-01-01T12:00:00+00:00"),
        stalled,
        stalled,
    ):
        report("a", event_json(event))
    assert shown == [
        f"[1/4] 3 parties, {Phase.AGREEMENT.label}, a waits for b, c until 2090-01-01 12:00",
        "[2/4] 3 parties, mixing: exchange 1 of 2 [#####.....], a waits for b until 2090-01-01 12:00",
    ]
    assert capsys.readouterr().err == "quietmean: a: no space beside a.store. Make room, the study goes on.\n"


def test_a_disk_of_all_parties_is_said_once_with_room_and_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each of five parties waits for it; what is missing is computed, and the time is this machine's."""
    room = room_beside(tmp_path / "a.store", 10**18)
    report = _watch(cast(Progress, SimpleNamespace(say=print)), 5)
    for name in "abcde":
        reason = f"no space beside run/{name}.store. Make room, the study goes on."
        report(name, event_json(Stalled(reason, room, f"2026-11-28T16:40:0{ord(name) % 5}+00:00")))
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"quietmean: a: no space beside run/a\.store. Make room, the study goes on\. "
        r"\d+\.\d MB are free there, and \d+\.\d MB or more are missing\. This party waits until [-: \d]+\.",
        line,
    )
    assert "missing" not in room_beside(tmp_path / "a.store", 1)


@pytest.mark.parametrize(("asked", "goes_on"), [("join", True), ("send", True), ("run", False), ("serve relay", False)])
def test_only_what_goes_on_is_said_to_go_on(
    asked: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quietmean.cli.main.refuse_fractions", interrupt)
    said = fails(asked, capsys, code=130)
    assert "interrupted" in said
    assert ("the same command continues" in said) == goes_on


@pytest.mark.parametrize(
    ("listen", "dialled"),
    [("0.0.0.0:7443", "HOST"), ("[::]:7443", "HOST"), (":7443", "HOST"), ("127.0.0.1:7443", "127.0.0.1")],
)
def test_a_relay_names_an_address_that_parties_can_dial(
    listen: str, dialled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def only_ready(server: object, ready: Callable[[], None]) -> None:
        ready()

    monkeypatch.setattr("quietmean.cli.servers.serve", only_ready)
    monkeypatch.setattr("quietmean.cli.servers.open_entrance", lambda address: None)
    (tmp_path / "keys.txt").write_text(f"{Identity.generate().public_key}\n")
    main(["serve", "relay", "--listen", listen, "--admit", str(tmp_path / "keys.txt")])
    assert f"the address of its parties is relay:{dialled}:7443" in capsys.readouterr().out
