"""Parties as a person starts them: keygen, roster.toml, study.toml, join, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_lines import called, command
from support.json_documents import faults
from support.site_policy import BETWEEN_TWO, write_policy
from support.smallest_study import of_ages

STUDY = of_ages(colluding=0)


def join(name: str, folder: Path, study: str = "study.toml", roster: str = "roster.toml") -> subprocess.Popen[str]:
    arguments = ["join", study, "--roster", roster, "--data", f"{name}.csv", "--key", f"{name}.key", "--yes", "--json"]
    return command(folder, *arguments, "--store", f"{name}-{study}.store", "--receipt", f"{name}.receipt.json")


@pytest.fixture
def consortium(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Path:
    """Keys, data, study and roster of ada and bob; mallory has a key and an opinion."""
    write_policy(**BETWEEN_TWO)
    ports = dict(zip(("ada", "bob", "mallory"), free_ports(3), strict=True))
    entries = {
        name: called(tmp_path, "key", "new", "--key", f"{name}.key", "--name", name, "--address", f"127.0.0.1:{port}")
        for name, port in ports.items()
    }
    (tmp_path / "roster.toml").write_text(entries["ada"] + entries["bob"])
    (tmp_path / "forged.toml").write_text(entries["ada"] + entries["mallory"].replace('"mallory"', '"bob"'))
    (tmp_path / "study.toml").write_text(STUDY)
    hasty = STUDY.replace("start_timeout = 120.0", "start_timeout = 3.0")
    (tmp_path / "hasty.toml").write_text(hasty)
    (tmp_path / "edited.toml").write_text(hasty.replace("high = 100", "high = 120"))
    for name, ages in (("ada", range(20, 60)), ("bob", range(40, 80)), ("mallory", range(0, 40))):
        (tmp_path / f"{name}.csv").write_text("age\n" + "\n".join(map(str, ages)))
    return tmp_path


def port_of(folder: Path, name: str) -> int:
    lines = (folder / "roster.toml").read_text().splitlines()
    return int(lines[lines.index(f'name = "{name}"') + 1].split(":")[1].strip('"'))


def wait_until_listening(port: int) -> None:
    for _ in range(3000):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError(f"nobody listens on {port}")


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    result: dict[str, Any] = json.loads(output)
    return result, errors


def test_two_parties_agree_and_strangers_are_refused(consortium: Path) -> None:
    ada = join("ada", consortium)
    port = port_of(consortium, "ada")
    wait_until_listening(port)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)))
    forger = join("mallory", consortium, study="hasty.toml", roster="forged.toml")
    forged = forger.communicate(timeout=180)[1]
    editor = join("bob", consortium, study="edited.toml")
    edited = editor.communicate(timeout=180)[1]
    assert (forger.returncode, editor.returncode) == (3, 3)
    bob = join("bob", consortium)
    first, first_errors = finish(ada)
    second, second_errors = finish(bob)
    assert faults("result", first) == []
    assert first["estimate"] == second["estimate"]
    assert first["parties_counted"] == 2
    assert abs(first["estimate"] - 49.5) < 6 * first["standard_error"]
    assert first["certificate"]["adversary"] == "an outsider who sees what is published"
    assert "TLS" in first_errors, first_errors
    assert "study differs" in first_errors, first_errors
    assert "Traceback" not in first_errors + second_errors + forged + edited
    assert "is this key in its roster?" in forged, forged
    assert "study differs: columns.age.high" in edited, edited
    for name in ("ada", "bob"):
        receipt = json.loads((consortium / f"{name}.receipt.json").read_text())
        assert faults("receipt", receipt) == []
        assert receipt["result"]["epsilon"] == first["epsilon"]
        report = (consortium / f"{name}.report.html").read_text()
        # Of its own messages alone a party knows the number.
        assert f" by {name} alone" in report
        assert all(one in report for one in ("Who is left out?", "Nobody", "ada", "bob", receipt["origin"]["plan"]))
        assert "true mean" not in report
        officer = (consortium / f"{name}.privacy.html").read_text()
        assert all(one in officer for one in ("Guaranteed", "ada", "bob", "Budget: ε"))


@pytest.mark.slow
def test_a_key_outside_the_roster_is_refused_at_once(consortium: Path) -> None:
    process = join("mallory", consortium)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "roster" in errors


@pytest.mark.slow
def test_a_partner_who_never_comes_ends_with_his_name_and_exit_code_3(consortium: Path) -> None:
    (consortium / "study.toml").write_text(STUDY.replace("start_timeout = 120.0", "start_timeout = 2.0"))
    process = join("ada", consortium)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 3, errors
    assert "bob" in errors.splitlines()[-1]


@pytest.mark.slow
def test_killed_and_started_again_it_continues(consortium: Path) -> None:
    """Bob dies as soon as ada is there and comes back; the store of the dead process gives him the same noise and nonce."""
    bob = join("bob", consortium)
    wait_until_listening(port_of(consortium, "bob"))
    ada = join("ada", consortium)
    wait_until_listening(port_of(consortium, "ada"))
    bob.kill()
    bob.communicate(timeout=180)
    assert bob.returncode == -signal.SIGKILL, "he was done before he could be killed"
    again = join("bob", consortium)
    first, _ = finish(ada)
    second, _ = finish(again)
    assert first["estimate"] == second["estimate"]
    assert abs(first["estimate"] - 49.5) < 6 * first["standard_error"]


@pytest.mark.slow
def test_other_data_after_a_restart_are_refused(consortium: Path) -> None:
    bob = join("bob", consortium)
    wait_until_listening(port_of(consortium, "bob"))
    bob.kill()
    bob.communicate(timeout=180)
    (consortium / "bob.csv").write_text("age\n1\n2\n3\n")
    again = join("bob", consortium)
    _, errors = again.communicate(timeout=180)
    assert again.returncode == 2, errors
    assert "other data" in errors


@pytest.mark.slow
def test_started_again_after_the_end_it_shows_the_same_result(consortium: Path) -> None:
    """Nobody else is there any more, and the store knows other data from the same."""
    ada, bob = join("ada", consortium), join("bob", consortium)
    before, _ = finish(bob)
    finish(ada)
    receipt = json.loads((consortium / "bob.receipt.json").read_text())
    begun = time.monotonic()
    after, errors = finish(join("bob", consortium))
    assert time.monotonic() - begun < 60.0, "it waited for somebody"
    assert errors == "quietmean: this party's part is over: the result is from its store\n"
    assert {**after, "seconds": 0} == {**before, "seconds": 0}
    again = json.loads((consortium / "bob.receipt.json").read_text())
    for each in (receipt, again):
        del each["origin"]["finished"]
    # The site's audit log went on: started and ended again, after it was approved and begun before.
    heads = [each["origin"].pop("audit")["entries"] for each in (receipt, again)]
    assert heads[0] < heads[1]
    assert again == receipt
    (consortium / "bob.csv").write_text("age\n1\n2\n3\n")
    other = join("bob", consortium)
    _, errors = other.communicate(timeout=60)
    assert other.returncode == 2, errors
    assert "other data" in errors
    with contextlib.closing(sqlite3.connect(consortium / "bob-study.toml.store")) as database:
        assert database.execute("SELECT count(*) FROM fact WHERE name = 'seed'").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM state").fetchone() == (0,)
