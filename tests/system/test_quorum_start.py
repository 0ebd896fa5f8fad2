"""A study that starts with those who are there: parties as a person starts them, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.extensions import can_report
from support.joining import NAMES, PAGE, Consortium
from support.json_documents import faults
from support.pages import commands
from support.relays import RelayProcess
from support.site_policy import write_policy


@pytest.fixture(params=["study", pytest.param("session", marks=pytest.mark.slow)])
def consortium(request: pytest.FixtureRequest, tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[Consortium]:
    write_policy(unattended=True)
    found = Consortium(tmp_path, free_ports(5), kind=request.param)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.slow
def test_four_start_where_the_fifth_never_comes(consortium: Consortium) -> None:
    there = NAMES[1:]
    consortium.budget(*there)
    # The first convener, ada, is the one that is missing.
    consortium.study(4.0)
    consortium.join(*there)
    results = consortium.results(*there)
    for name, result in zip(there, results, strict=True):
        assert result["not_in_at_start"] == ["ada"]
        receipt = json.loads((consortium.folder / f"{name}.receipt.json").read_text())
        if consortium.kind == "study":
            check_result(result)
            assert faults("receipt", receipt) == []
            assert receipt["origin"]["names"] == list(there)
            assert receipt["origin"]["start"]["members"] == [1, 2, 3, 4]
            assert receipt["origin"]["start"]["not_in_at_start"] == ["ada"]
            page = consortium.folder / f"{name}.report.html"
            assert page.exists() == can_report()
            assert not can_report() or f"by {name} alone" in page.read_text()
        else:
            assert receipt["start"]["members"] == list(there)
            assert receipt["rounds"]["counted"] == dict.fromkeys(there, 2)
        entry = consortium.account(name).entries[0]
        assert entry.settled
        assert 0 < consortium.account(name).charged_epsilon <= 2.0 + 1e-6
    # Once more from the store, without the others.
    consortium.join("eve")
    (again,) = consortium.results("eve")
    assert again["not_in_at_start"] == ["ada"]
    assert again.get("estimate") == results[-1].get("estimate")


def check_result(result: dict[str, Any]) -> None:
    """Of a study in which four are."""
    assert faults("result", result) == []
    assert (result["not_counted"], result["parties_counted"]) == ([], 4)
    assert any("ada took no part" in note for note in result["notes"])
    assert abs(result["estimate"] - 40) < 5 + 6 * result["standard_error"]


@pytest.mark.slow
def test_the_convener_starts_it_before_its_time(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(consortium.folder)
    monkeypatch.setenv("COLUMNS", "300")
    there = NAMES[:4]
    consortium.budget(*there)
    consortium.study(3600.0)

    def refused(name: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(start_of(name))
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert "no join with the store" in refused("ada")
    assert "bob is not the first coordinator of this study. Ask ada" in refused("bob")
    consortium.join(*there)
    waiting = time.monotonic() + 60
    while not all((consortium.folder / f"{name}.store").exists() for name in there):
        assert time.monotonic() < waiting
        time.sleep(0.1)
    time.sleep(2.0)
    assert all(process.poll() is None for process in consortium.processes.values())
    main(start_of("ada"))
    results = consortium.results(*there)
    assert all(result["not_in_at_start"] == ["eve"] for result in results)
    text = (consortium.folder / "study.toml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith(("start_by", "minimum"))]
    (consortium.folder / "study.toml").write_text("\n".join(kept))
    assert "this study has no start_by" in refused("ada")


def start_of(name: str) -> list[str]:
    """Ada's line of the page, by somebody."""
    (line,) = [one for one in commands(PAGE) if one.startswith("quietmean study start")]
    return shlex.split(line.replace("ada", name))[1:]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["study", "session"])
def test_four_start_at_a_relay_that_is_killed_while_they_wait(
    kind: str, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    write_policy(unattended=True)
    port, *ports = free_ports(6)
    with RelayProcess(port) as relay, contextlib.closing(Consortium(tmp_path, ports, relay.address, kind)) as consortium:
        there = NAMES[:4]
        consortium.budget(*there)
        consortium.study(12.0)
        consortium.join(*there)
        time.sleep(5.0)
        relay.kill()
        time.sleep(1.0)
        relay.start()
        results = consortium.results(*there)
        assert all(result["not_in_at_start"] == ["eve"] for result in results)


@pytest.mark.slow
def test_too_few_end_cleanly_and_nothing_is_charged(consortium: Consortium) -> None:
    there = NAMES[:3]
    consortium.budget(*there)
    consortium.study(1.0, start_timeout=8.0)
    consortium.join(*there)
    for name in there:
        code, _, errors = consortium.wait(name)
        assert code == 3, errors
        assert "Traceback" not in errors
        assert "did not start by its time with 4 parties or more. There were ada, bob, cyd" in errors
        assert "What was reserved in the ledger is given back" in errors
        account = consortium.account(name)
        assert account.charged_epsilon == 0
        assert account.entries[0].settled
        assert not (consortium.folder / f"{name}.receipt.json").exists()
    # The same again changes nothing: it gave up for good.
    consortium.join("ada")
    code, _, errors = consortium.wait("ada")
    assert (code, "takes no part in this study any more" in errors) == (3, True), errors
    assert consortium.account("ada").charged_epsilon == 0


# The times are those of an interpreter that starts: a copy has ended its first round by then.
@pytest.mark.usefixtures("executed")
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.6])
def test_killed_and_restarted_in_the_start(consortium: Consortium, seconds: float) -> None:
    """kill -9 some time after all but one are there, and the same command again: it takes part once, and so do all others."""
    consortium.budget(*NAMES)
    consortium.study(3600.0)
    consortium.join(*NAMES[:4])
    wait_for_stores(consortium, NAMES[:4])
    consortium.join("eve")
    wait_for_stores(consortium, ["eve"])
    time.sleep(seconds)
    consortium.processes["bob"].kill()
    consortium.processes["bob"].communicate()
    consortium.join("bob")
    results = consortium.results(*NAMES)
    for name, result in zip(NAMES, results, strict=True):
        assert result["not_in_at_start"] == []
        assert len(consortium.account(name).entries) == 1
        assert 0 < consortium.account(name).charged_epsilon <= 2.0 + 1e-6


@pytest.mark.slow
def test_who_is_killed_for_good_in_the_start_is_not_in_or_a_dropout(consortium: Consortium) -> None:
    consortium.budget(*NAMES)
    consortium.study(25.0, protocol="cordp-dme")
    consortium.join(*NAMES)
    wait_for_stores(consortium, NAMES)
    consortium.processes["ada"].kill()
    for name in NAMES[1:]:
        result = consortium.result(name)
        missing = {*result["not_in_at_start"], *result.get("not_counted", [])}
        assert missing <= {"ada"}
        if consortium.kind == "study":
            assert result["parties_counted"] + len(missing) == 5


def wait_for_stores(consortium: Consortium, names: Sequence[str]) -> None:
    """Until these parties have read their data and reserved their budget."""
    for _ in range(6000):
        if all((consortium.folder / f"{name}.store").exists() for name in names):
            return
        time.sleep(0.02)
    raise AssertionError("the parties did not begin")
