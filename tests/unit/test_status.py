"""Watching a node: its views, its status file, its events in words, and the comparison of parties before a start."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.cli import check_view, live
from quietmean.cli.console import bar_of, step_of
from quietmean.cli.main import main
from quietmean.cli.screens import MORE
from quietmean.core.errors import InputError, PeerError, ProtocolFailure
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.monitor import (
    AgreementWaits,
    AlreadyOver,
    Done,
    Event,
    Failed,
    FinalizationBegun,
    Late,
    Monitor,
    NodeView,
    Refusal,
    RoundBegun,
    Waiting,
    event_json,
    process_identity,
    read_status,
    status_path,
    write_status,
)
from quietmean.node.net import VERSION, AnswerFrame, Check, Heartbeat, Readiness, Traffic, Transfer, wire
from quietmean.node.phase import Phase
from quietmean.node.preflight import Agreed, PeerReadiness, Reply
from quietmean.node.storage import Store
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import Seed
from support.command_lines import fails
from support.refusals import raised, refused

UNTIL = "2090-01-01T12:00:00+00:00"
ROUND = RoundBegun(Phase.MIXING, 2, 5, ("bob", "eve"), UNTIL)
LATE = Late(Phase.MIXING, 2, ("eve",))


def watch(scenario: Callable[[Monitor], None], status: Path | None = None, pause: float = 0.0) -> list[NodeView]:
    """What ada's monitor shows during and after a scenario."""
    views: list[NodeView] = []

    async def run() -> None:
        with Monitor(
            0, ("ada", "bob", "eve"), {"study": "s"}, Traffic(7, 9), lambda event: None, views.append, status
        ) as watched:
            scenario(watched)
            await asyncio.sleep(pause)

    # How many views there are does not hang on how busy this machine is.
    run_virtually(run())
    return views


def transfer(round_: int) -> Transfer:
    return Transfer(0, 1, round_, 0.5, 4000, b"", 1)


def test_a_view_says_who_is_where() -> None:
    def scenario(watched: Monitor) -> None:
        watched.event(ROUND)
        watched.heard(1, (1, 3))
        watched.heard(1, (1, 2))
        watched.acknowledged(1, transfer(2), AnswerFrame(0, "ok", 1, 3))
        watched.acknowledged(2, transfer(2), AnswerFrame(0, "no", 1, 3))
        for _ in range(2):
            # A repeated transfer is one message.
            watched.arrived(1, transfer(2), AnswerFrame(0, "ok", 1, 2))
        watched.arrived(2, Heartbeat(0, 1, 1), AnswerFrame(0, "ok", 1, 2))
        watched.event(LATE)
        watched.event(Refusal("203.0.113.9", "TLS handshake failed"))

    view = watch(scenario)[-1]
    assert (view.state, view.phase, view.round, view.of, view.waiting_for) == ("finished", "mixing", 2, 5, ())
    bob, eve = view.peers
    assert (bob.phase, bob.round, bob.sent, bob.received, bob.late) == ("mixing", 3, True, True, 0)
    assert (eve.phase, eve.round, eve.sent, eve.received, eve.late) == ("mixing", 1, False, False, 1)
    assert (view.messages_sent, view.messages_received, view.bytes_sent, view.bytes_received) == (1, 1, 7, 9)
    assert view.late == ({"phase": "mixing", "round": 2, "names": ["eve"]},)
    assert (view.refusals, view.refused) == (1, ("203.0.113.9: TLS handshake failed",))


def test_views_come_a_few_times_a_second_however_much_happens() -> None:
    def scenario(watched: Monitor) -> None:
        for _ in range(1000):
            watched.heard(1, (1, 1))

    # The first, one for what happened, the last.
    assert len(watch(scenario, pause=0.3)) == 3
    assert len(watch(lambda watched: None, pause=1.2)) == 3


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (ProtocolFailure("bob never came"), "failed", "bob never came"),
        (ValueError("the value is 73.25"), "failed", "an unexpected ValueError"),
        (KeyboardInterrupt(), "stopped", "interrupted; the same command continues the study"),
    ],
)
def test_the_last_word_is_how_it_ended(error: BaseException, state: str, reason: str, tmp_path: Path) -> None:
    path = status_path(tmp_path / "my.store")

    def scenario(watched: Monitor) -> None:
        watched.event(ROUND)
        raise error

    raised(type(error), "", watch, scenario, path)
    status = read_status(path)
    assert (status["state"], status["reason"], status["alive"], status["study"]) == (state, reason, True, "s")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["my.store.status.json"]


def test_a_status_that_cannot_be_written_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    views = watch(lambda watched: watched.event(ROUND), tmp_path / "nowhere" / "status")
    assert views[-1].state == "finished"
    assert len(caplog.records) == 1


def test_another_process_with_the_same_number_is_not_the_node(tmp_path: Path) -> None:
    path = tmp_path / "status"
    write_status(path, {"state": "running"})
    assert read_status(path)["alive"] is True
    for change, alive in (({"process": "boot:1"}, False), ({"host": "elsewhere"}, None), ({"process": None}, None)):
        path.write_text(json.dumps(json.loads(path.read_text()) | process_identity(os.getpid()) | change))
        assert read_status(path)["alive"] is alive
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": 2**22 + 1}))
    assert read_status(path)["alive"] is False


def test_status_command_on_what_is_no_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(["site", "status"], capsys, "no node has run", "STORE, or --study")
    store = tmp_path / "my.store"
    for content, word in ((None, "does not exist"), ("{", "cannot be read"), ('{"pid": 1}', "not a status of this version")):
        if content is not None:
            status_path(store).write_text(content)
        fails(["site", "status", str(store)], capsys, word)
    write_status(status_path(store), {"state": "running"})
    fails(["site", "status", str(store)], capsys, "Restore it if it was edited")
    # Without a store: all of the working folder.
    fails(["site", "status"], capsys, "Restore it if it was edited")
    fails(["site", "status", str(store), "--study", "other.toml"], capsys, "either STORE or --study")
    fails(["site", "status", "--study", str(tmp_path / "other.toml")], capsys, "no node of")


def test_status_command_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "study-ada.store"

    def scenario(watched: Monitor) -> None:
        watched.event(ROUND)
        watched.event(LATE)
        watched.event(Refusal("eve", "study \x1b[31mdiffers"))

    watch(scenario, status_path(store))
    main(["site", "status", str(store)])
    output = capsys.readouterr().out
    for words in ("Study 's': ada has finished (process", "eve        not heard yet, late 1 time", "study ?[31mdiffers"):
        assert words in output, output
    assert MORE in output
    assert "exchange 2 of 5" not in output
    main(["site", "status", str(store), "--details"])
    assert set(output.splitlines()) - {MORE} < set((details := capsys.readouterr().out).splitlines())
    assert "ada, mixing: exchange 2 of 5" in details
    running = json.loads(status_path(store).read_text()) | {
        "state": "running",
        "waiting_for": ["bob"],
        "until": UNTIL,
        "process": "boot:1",
    }
    status_path(store).write_text(json.dumps(running))
    with pytest.raises(SystemExit) as stop:
        main(["site", "status", "--study", str(tmp_path / "study.toml")])
    assert stop.value.code == 3
    output = " ".join(capsys.readouterr().out.split())
    for words in (
        "waiting for bob until 2090-01-01 12:00",
        "ada has ended (no process).",
        "its process has ended without a word",
    ):
        assert words in output, output


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_are_lines_of_json_until_nobody_listens() -> None:
    file = io.StringIO()
    stream = live.EventStream(file)
    stream.party = "ada"
    stream.write(event_json(ROUND))
    stream.write({"event": "result", "epsilon": float("inf")})
    first, second = (json.loads(line) for line in file.getvalue().splitlines())
    assert first.items() >= {"party": "ada", "event": "round", "round": 2}.items()
    assert second["epsilon"] == "inf"

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    broken = live.EventStream(Gone())
    broken.write(event_json(ROUND))
    broken.write(event_json(ROUND))


@pytest.mark.parametrize(
    ("event", "document"),
    [
        (
            AgreementWaits(("bob",), UNTIL),
            {"event": "agreement", "phase": "agreement", "waiting_for": ["bob"], "until": UNTIL, "past": False},
        ),
        (ROUND, {"event": "round", "phase": "mixing", "round": 2, "of": 5, "waiting_for": ["bob", "eve"], "until": UNTIL}),
        (
            Waiting(Phase.MIXING, 2, ("eve",), UNTIL),
            {"event": "waiting", "phase": "mixing", "round": 2, "waiting_for": ["eve"], "until": UNTIL},
        ),
        (LATE, {"event": "late", "phase": "mixing", "round": 2, "names": ["eve"]}),
        (Refusal("eve", "study differs"), {"event": "refused", "peer": "eve", "reason": "study differs"}),
        (
            FinalizationBegun(("bob", "eve"), UNTIL),
            {"event": "closing", "phase": "closing", "waiting_for": ["bob", "eve"], "until": UNTIL},
        ),
        (AlreadyOver(), {"event": "over", "phase": "closing", "waiting_for": []}),
        (Failed("bob never came", 3), {"event": "error", "message": "bob never came", "exit_code": 3}),
        (Done(), {"event": "done"}),
    ],
)
def test_what_programs_read_of_an_event(event: Event, document: dict[str, Any]) -> None:
    assert json.dumps(event_json(event)) == json.dumps(document)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = live.NodeDisplay(None, lines=True, stream=None)
    waiting, closing = Waiting(Phase.MIXING, 2, ("eve",), UNTIL), Waiting(Phase.FINALIZATION, 0, ("eve",), UNTIL)
    for event in (ROUND, replace(ROUND, round=3), waiting, waiting, replace(waiting, waiting_for=("bob",)), LATE, closing):
        shown.report(event)
    assert capsys.readouterr().err.splitlines() == [
        "quietmean: [2/4] mixing: exchange 2 of 5, with bob, eve",
        "quietmean: [2/4] mixing, exchange 2, waiting for eve until 2090-01-01 12:00",
        "quietmean: [2/4] mixing, exchange 2, waiting for bob until 2090-01-01 12:00",
        "quietmean: [2/4] mixing, exchange 2: went on without eve",
        "quietmean: [4/4] closing, waiting for eve until 2090-01-01 12:00",
    ]


def test_it_is_safe_to_switch_off_only_where_all_have_answered(capsys: pytest.CaptureFixture[str]) -> None:
    shown = live.NodeDisplay(None, lines=True, stream=None)
    shown.report(Waiting(Phase.FINALIZATION, 0, ("eve",), UNTIL))
    shown.over([2])
    assert "switch off" not in capsys.readouterr().err
    shown.over([])
    assert capsys.readouterr().err == "quietmean: [4/4] all is sent and answered: safe to switch off\n"


def test_every_phase_has_a_step_and_a_bar_only_where_the_end_is_known() -> None:
    steps = [step_of(phase.label) for phase in Phase]
    assert steps == sorted(steps)
    assert all(step.endswith("/4] ") for step in steps)
    assert step_of(None) == step_of("ready") == ""
    assert bar_of(2, 5) == " [####......]"
    assert (bar_of(5, 5), bar_of(9, 5)) == (f" [{'#' * 10}]",) * 2
    assert bar_of(3, 0) == bar_of(None, 5) == ""


def test_a_failure_is_an_event_too(tmp_path: Path) -> None:
    file = tmp_path / "events"
    with pytest.raises(ProtocolFailure), live.display(file):
        raise ProtocolFailure("bob never came")
    (event,) = (json.loads(line) for line in file.read_text().splitlines())
    assert event.items() >= {"event": "failed", "message": "bob never came", "exit_code": 3}.items()
    with pytest.raises(InputError, match="events cannot be written"), live.display(tmp_path):
        pass


@pytest.mark.parametrize("height", [1, 2, 50])
def test_the_screen_shows_first_who_is_waited_for(height: int) -> None:
    from rich.console import Console

    view = watch(lambda watched: watched.event(replace(ROUND, waiting_for=("eve",))))[-1]
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(live.screen(replace(view, waiting_for=("eve",)), height))
    text = console.export_text()
    assert "ada, mixing: exchange 2 of 5" in text
    assert text.splitlines()[2].split() == ["eve", "never"]
    assert ("bob" in text) == (height > 1)
    assert ("and 1 more" in text) == (height == 1)


# --- before the start ------------------------------------------------------------------------------------------------


def make_agreed(**more: Any) -> Agreed:
    return Agreed(**({"roster": b"r" * 32, "study": b"s" * 32, "plan": b"p" * 32, "release": "0.1.0"} | more))


def progress(readiness: Readiness, offset: float = 0.0, round_trip: float = 0.01) -> PeerReadiness:
    return PeerReadiness(1, make_agreed(), reply=Reply(readiness, round_trip, offset))


def test_what_differs_is_named() -> None:
    assert progress(make_agreed().readiness()).problems == ()
    cases: list[tuple[Readiness, list[str]]] = [
        (make_agreed(plan=b"q" * 32).readiness(), ["other plan of the same study"]),
        (make_agreed(study=b"t" * 32, plan=b"q" * 32).readiness(), ["other study"]),
        (make_agreed(roster=b"t" * 32).readiness(), ["other roster"]),
        (
            msgspec.structs.replace(make_agreed(release="9\n").readiness(), version=VERSION + 1),
            ["other version: 9? there, 0.1.0 here"],
        ),
    ]
    for readiness, words in cases:
        problems = progress(readiness).problems
        assert [problem.startswith(word) for problem, word in zip(problems, words, strict=True)] == [True] * len(words), problems


def test_ready_is_who_agrees_and_reaches_us_or_has_joined() -> None:
    agreed = make_agreed()
    checking = progress(agreed.readiness())
    assert checking.agrees
    assert not checking.ready
    checking.asks_us = True
    assert checking.ready
    assert progress(agreed.readiness((1, 3))).ready
    assert not PeerReadiness(1, agreed).agrees


def test_on_a_narrow_terminal_a_reason_is_a_sentence_under_the_table() -> None:
    """Beside a long address the last column has room for a word a line."""
    from rich.console import Console

    places = {"ada": "relay.example.hospital.org", "bob": "bob.radiology.hospital.org"}
    entries = [RosterEntry(name, (host, 7443), Identity.generate().public_key) for name, host in places.items()]
    why = "the relay closed the connection, or cannot be reached: is it there, and is the way open?"
    other = progress(make_agreed(study=b"t" * 32).readiness())
    console = Console(file=io.StringIO(), width=80, record=True)
    for peer in (PeerReadiness(1, make_agreed(), trouble=why), other):
        console.print(check_view._standings(Roster(tuple(entries)), [peer]))
    lines = console.export_text().splitlines()
    assert " ".join(line.strip() for line in lines).count(f"bob at bob.radiology.hospital.org:7443: {why}") == 1
    assert [line for line in lines if ": other study" in line]
    # No word of the table is broken either.
    assert {"unknown", "0.1.0", "version"} <= {word for line in lines for word in line.split()}
    assert all(len(line) > 40 for line in lines if line.startswith("bob at "))


def test_a_clock_is_wrong_only_beyond_what_the_round_trip_hides() -> None:
    readiness = make_agreed().readiness()
    for offset, round_trip, differs in ((4.9, 0.0, False), (-5.2, 0.1, True), (5.2, 1.0, False), (3600.0, 1.0, True)):
        reply = progress(readiness, offset, round_trip).reply
        assert reply is not None
        assert reply.clock_differs is differs


def test_the_frames_of_a_check_may_gain_fields_and_others_may_not() -> None:
    def with_more(frame: wire.AnyFrame) -> bytes:
        return msgspec.msgpack.encode([*msgspec.msgpack.decode(msgspec.msgpack.encode(frame)), 1])

    readiness = make_agreed().readiness((2, 5))
    for frame in (Check(VERSION), readiness):
        assert wire.decode_header(with_more(frame)) == frame
        assert len(wire.encode_frame(frame)) < wire.HELLO_LIMIT
    raised(PeerError, "", wire.decode_header, with_more(wire.Hello(VERSION, 1, "study")))


def test_a_store_is_looked_at_and_never_made(tmp_path: Path) -> None:
    identities = [Identity.generate() for _ in range(2)]
    entries = [RosterEntry(f"p{i}", ("127.0.0.1", 7000 + i), identity.public_key) for i, identity in enumerate(identities)]
    target = Target(parties=2, epsilon=1.0, delta=1e-6, dimension=1)
    plan = Plan(target, IncA(rounds=2, sigma_star=1.0, sigma_delta=0.5))
    path = tmp_path / "my.store"
    settings = NodeSettings(
        identity=identities[0],
        roster=Roster(tuple(entries)),
        brought=PlannedValue(plan, plan.admit(np.array([0.25]))),
        store=path,
    )
    assert not settings.store_exists()
    path.touch()
    assert not settings.store_exists()
    assert path.stat().st_size == 0

    def crash() -> Seed:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        # A process that died between making the tables and drawing its seed.
        Store.open(path, settings.study, settings.brought.vector, 1.0, crash)
    assert not settings.store_exists()
    settings.open_store().close()
    assert settings.store_exists()
    refused("other data", replace(settings, brought=PlannedValue(plan, plan.admit(np.array([0.5])))).store_exists)
