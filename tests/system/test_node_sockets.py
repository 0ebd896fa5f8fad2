"""Whole studies over real TLS in one event loop, with and without uninvited guests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import Links
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Vector
from quietmean.node import Identity, LinkKeys, NodeResult, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, run_party
from quietmean.node.net import (
    VERSION,
    AnswerFrame,
    AnyRequest,
    Credentials,
    Endpoint,
    Heartbeat,
    Limits,
    Listener,
    Log,
    Payload,
    Refused,
    Transfer,
)
from quietmean.node.net.stream import read_frame
from quietmean.node.net.tls import OTHER_LEAF
from quietmean.node.net.wire import Differs, Hello, Welcome, encode_frame
from quietmean.node.session.logs import PartyLog, encode_log
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.protocols.result_broadcast import ResultBroadcast


def make_plan(parties: int, rounds: int = 4, dimension: int = 2, **more: Any) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=dimension)
    # Without independent noise the estimate is the exact mean; the cancelling noise must cancel.
    return Plan(target, IncA(rounds=rounds, sigma_star=0.0, sigma_delta=0.7), **more)


@dataclass
class Study:
    """Settings of all parties, on sockets that listen already."""

    directory: Path
    plan: Plan
    sockets: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        parties = self.plan.target.parties
        self.identities = [Identity.generate() for _ in range(parties)]
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(parties)]
        self.values: Vector = np.arange(parties * self.plan.target.dimension, dtype=np.float64).reshape(parties, -1) / 40
        self.roster = Roster(
            tuple(
                RosterEntry(f"party-{party}", ("127.0.0.1", self.port(party)), identity.public_key)
                for party, identity in enumerate(self.identities)
            )
        )

    def port(self, party: int) -> int:
        return int(self.sockets[party].getsockname()[1])

    def settings(self, party: int, **more: Any) -> NodeSettings:
        # Nobody is late on a slow machine either: late ones are probed, and what is in flight at the end is nobody's traffic.
        usual: dict[str, Any] = {"waits": Waits(120.0, 120.0), "transport": self.sockets[party]}
        usual |= {"brought": PlannedValue(self.plan, self.plan.admit(self.values[party]))}
        return NodeSettings(
            identity=self.identities[party], roster=self.roster, store=self.directory / f"{party}.store", **(usual | more)
        )

    def close(self) -> None:
        for listening in self.sockets:
            listening.close()


def run_all(settings: Sequence[NodeSettings], guest: Callable[[], Awaitable[None]] | None = None) -> list[NodeResult]:
    """All nodes at once; a guest comes before the last one, without which nothing starts."""

    async def run() -> list[NodeResult]:
        first = [asyncio.create_task(run_party(one)) for one in settings[:-1]]
        await asyncio.sleep(0.1)
        if guest is not None:
            await guest()
        return list(await asyncio.gather(*first, run_party(settings[-1])))

    return asyncio.run(run())


def with_enough_time(attempt: Callable[[float], str], told: str) -> None:
    """``attempt`` is given a time-out, and more of it on a slow machine, until it ends with what is to be told."""
    for seconds in (1.0, 5.0, 25.0):
        outcome = attempt(seconds)
        if told in outcome:
            return
    raise AssertionError(f"{told!r} is not in {outcome!r}")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("links", list(Links))
@pytest.mark.parametrize("parties", [2, 5])
def test_everybody_gets_the_mean(tmp_path: Path, parties: int, links: Links) -> None:
    study = Study(tmp_path, make_plan(parties))
    results = run_all([study.settings(party, keys=LinkKeys(links)) for party in range(parties)])
    for result in results:
        np.testing.assert_allclose(result.mean, study.values.mean(axis=0), rtol=1e-12)
        np.testing.assert_array_equal(result.total_vector, results[0].total_vector)
        assert result.heard == tuple(range(parties))
        assert result.execution.trace.online.all()
        assert result.execution.trace.lost is None
        assert result.transfers == 4 + parties - 1
        assert (result.late, result.refusals, result.counted_twice) == ((), (), ())
        assert result.execution.to_json() == results[0].execution.to_json()
        assert NodeResult.from_json(result.to_json()).execution.to_json() == result.execution.to_json()
    assert len({result.public_seed for result in results}) == 1
    assert sum(result.bytes_sent for result in results) == sum(result.bytes_received for result in results)


def test_weights_and_push_sum(tmp_path: Path) -> None:
    study = Study(tmp_path, make_plan(3, dissemination=ResultBroadcast("push-sum", rounds=25)))
    weights = [1.0, 2.0, 3.0]
    results = run_all(
        [
            study.settings(party, brought=PlannedValue(study.plan, study.plan.admit(study.values[party], weights[party])))
            for party in range(3)
        ]
    )
    for result in results:
        np.testing.assert_allclose(result.mean, study.values.sum(axis=0) / 6, rtol=1e-4)
        np.testing.assert_array_equal(result.execution.weights, weights)


@pytest.mark.parametrize("hidden", [0, 2])
def test_a_party_that_nobody_can_dial_takes_part(tmp_path: Path, hidden: int) -> None:
    """Behind a router without an open port: its address in the roster leads nowhere, and it listens elsewhere."""
    study = Study(tmp_path, make_plan(3))
    elsewhere = socket.create_server(("127.0.0.1", 0))
    here = elsewhere.getsockname()[:2]
    elsewhere.close()
    study.sockets[hidden].close()
    results = run_all([study.settings(party, **({"transport": here} if party == hidden else {})) for party in range(3)])
    for result in results:
        np.testing.assert_allclose(result.mean, study.values.mean(axis=0), rtol=1e-12)
        assert result.heard == (0, 1, 2)
        assert result.refusals == ()


def test_a_finished_party_finds_its_result_again(tmp_path: Path) -> None:
    study = Study(tmp_path, make_plan(2))
    before = run_all([study.settings(party) for party in range(2)])
    again = asyncio.run(run_party(study.settings(0, transport=None, waits=Waits(0.2, 120.0))))
    np.testing.assert_array_equal(again.total_vector, before[0].total_vector)
    assert again.public_seed == before[0].public_seed


async def try_to_join(study: Study, identity: Identity, hello: Hello, leaf: str | None = None) -> str:
    """What party 0 says to somebody: the reason of its refusal, or how the connection broke. ``leaf``: the study in its leaf."""
    context = Credentials(identity, study.roster, leaf or study.settings(0).study).client(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", study.port(0), ssl=context, server_hostname="")
    try:
        writer.write(encode_frame(hello))
        frame, _, _ = await read_frame(reader, Limits.before_welcome())
        return frame.reason if isinstance(frame, Refused | Differs) else type(frame).__name__
    except (OSError, EOFError) as error:
        return type(error).__name__
    finally:
        writer.transport.abort()
        await asyncio.sleep(0.05)


def refused_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "quietmean.node"]


def run_with_guest(study: Study, caplog: pytest.LogCaptureFixture, guest: Callable[[], Awaitable[None]]) -> list[str]:
    """The log lines of a study that goes well in spite of the guest."""
    caplog.set_level(logging.WARNING)
    results = run_all([study.settings(party) for party in range(3)], guest)
    for result in results:
        np.testing.assert_allclose(result.mean, study.values.mean(axis=0), rtol=1e-12)
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    return refused_lines(caplog)


def test_a_stranger_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = Study(tmp_path, make_plan(3))

    async def guest() -> None:
        answer = await try_to_join(study, Identity.generate(), Hello(VERSION, 1, study.settings(0).study))
        assert "Error" in answer

    (line,) = run_with_guest(study, caplog, guest)
    assert line.startswith("refused 127.0.0.1:")
    assert "TLS handshake failed (certificate verify failed)" in line


@pytest.mark.parametrize(
    ("version", "party", "same_study", "reason"),
    [
        (VERSION, 1, False, "study differs"),
        (VERSION, 2, True, "claims to be party 2"),
        (VERSION + 1, 1, True, "version differs"),
    ],
)
def test_a_wrong_greeting_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int, party: int, same_study: bool, reason: str
) -> None:
    study = Study(tmp_path, make_plan(3))

    async def guest() -> None:
        digest = study.settings(0).study if same_study else "0" * 64
        assert reason in await try_to_join(study, study.identities[1], Hello(version, party, digest))

    (line,) = run_with_guest(study, caplog, guest)
    assert line.startswith("refused party-1: ")
    assert reason in line


def test_a_leaf_of_another_study_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its key was stolen from the process of another study of the same party."""
    study = Study(tmp_path, make_plan(3))

    async def guest() -> None:
        hello = Hello(VERSION, 1, study.settings(0).study)
        assert await try_to_join(study, study.identities[1], hello, "0" * 64) == OTHER_LEAF

    (line,) = run_with_guest(study, caplog, guest)
    assert line == f"refused party-1: {OTHER_LEAF}"


def test_garbage_on_the_port_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = Study(tmp_path, make_plan(3))

    async def guest() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", study.port(0))
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(range(256)) * 10)
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        finally:
            writer.transport.abort()
            await asyncio.sleep(0.05)

    (line,) = run_with_guest(study, caplog, guest)
    assert line.startswith("refused 127.0.0.1:")
    assert "TLS handshake failed (" in line


def test_old_tls_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = Study(tmp_path, make_plan(3))

    async def guest() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", study.port(0), ssl=context, server_hostname="")

    (line,) = run_with_guest(study, caplog, guest)
    assert "unsupported protocol" in line


async def failures(settings: Sequence[NodeSettings]) -> list[str]:
    """Why studies did not start."""
    outcomes = await asyncio.gather(*map(run_party, settings), return_exceptions=True)
    assert all(isinstance(outcome, ProtocolFailure) for outcome in outcomes), outcomes
    return [str(outcome) for outcome in outcomes]


@pytest.mark.parametrize("party", [0, 1])
def test_another_plan_does_not_start(tmp_path: Path, party: int) -> None:
    def attempt(seconds: float) -> str:
        directory = tmp_path / f"{seconds}"
        directory.mkdir()
        study = Study(directory, make_plan(2))
        longer = make_plan(2, rounds=5)
        other = study.settings(1, waits=Waits(120.0, seconds), brought=PlannedValue(longer, longer.admit(study.values[1])))
        return asyncio.run(failures([study.settings(0, waits=Waits(120.0, seconds)), other]))[party]

    with_enough_time(attempt, f"party-{1 - party}: peer refused: study differs")


@pytest.mark.parametrize("party", [0, 1])
def test_who_is_missing_is_named(tmp_path: Path, party: int) -> None:
    def attempt(seconds: float) -> str:
        directory = tmp_path / f"{seconds}"
        directory.mkdir()
        study = Study(directory, make_plan(3))
        study.sockets[2].close()
        return asyncio.run(failures([study.settings(each, waits=Waits(120.0, seconds)) for each in range(2)]))[party]

    with_enough_time(attempt, "for want of party-2: nobody listens at its address")


def test_port_in_use(tmp_path: Path) -> None:
    study = Study(tmp_path, make_plan(2))
    try:
        with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1"):
            asyncio.run(run_party(study.settings(0, transport=None)))
    finally:
        study.close()


def test_other_data_after_a_restart(tmp_path: Path) -> None:
    study = Study(tmp_path, make_plan(2))
    with pytest.raises(ProtocolFailure, match="party-1"):
        asyncio.run(run_party(study.settings(0, waits=Waits(120.0, 0.2))))
    study.close()
    changed = study.settings(0, brought=PlannedValue(study.plan, study.plan.admit(study.values[0] + 1)))
    with pytest.raises(InputError, match="started with other data"):
        asyncio.run(run_party(changed))


def test_settings_are_checked(tmp_path: Path) -> None:
    study = Study(tmp_path, make_plan(2))
    study.close()
    three = PlannedValue(make_plan(3), make_plan(3).admit(study.values[0]))
    with pytest.raises(InputError, match="the plan is for 3"):
        study.settings(0, brought=three)
    with pytest.raises(InputError, match="the plan is for 2 coordinates"):
        study.plan.admit(np.zeros(3))
    with pytest.raises(InputError, match="weight is 0"):
        study.plan.admit(np.zeros(2), 0.0)
    with pytest.raises(InputError, match="round time-out is 0"):
        Waits(round=0.0)
    secret = study.settings(1)
    assert str(study.values[1]) not in repr(secret)


def test_a_bad_vector_from_a_party_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = Study(tmp_path, make_plan(3))

    async def guest() -> None:
        context = Credentials(study.identities[1], study.roster, study.settings(0).study).client(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", study.port(0), ssl=context, server_hostname="")
        try:
            writer.write(encode_frame(Hello(VERSION, 1, study.settings(0).study)))
            writer.write(encode_frame(Transfer(0, 1, 1, 0.5, 1000, b"", 2), 16) + np.array([0.0, np.nan]).tobytes())
            welcome, _, _ = await read_frame(reader, Limits.before_welcome())
            assert isinstance(welcome, Welcome)
            with pytest.raises((OSError, EOFError)):
                await read_frame(reader, Limits.before_welcome())
        finally:
            writer.transport.abort()
            await asyncio.sleep(0.05)

    (line,) = run_with_guest(study, caplog, guest)
    assert line == "refused party-1: it sent a vector with an entry that is not finite"


def test_nobody_can_be_past_what_has_not_begun(tmp_path: Path) -> None:
    """A party's key tells that it is done before the study begins: the others wait for the party all the same."""
    study = Study(tmp_path, make_plan(3))
    limits = Limits.of_study(3, 4, 2)

    async def guest() -> None:
        context = Credentials(study.identities[2], study.roster, study.settings(0).study).client(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", study.port(0), ssl=context, server_hostname="")
        try:
            writer.write(encode_frame(Hello(VERSION, 2, study.settings(0).study)))
            await read_frame(reader, Limits.before_welcome())
            log = encode_log(PartyLog((1, 2, 3, 4), (), (), (0, 1, 2)))
            writer.write(encode_frame(Log(1), len(log)) + log + encode_frame(Heartbeat(2, 3, 0)))
            answers = [(await read_frame(reader, limits))[0] for _ in range(2)]
            assert [isinstance(answer, AnswerFrame) and answer.status for answer in answers] == ["no", "ok"]
        finally:
            writer.transport.abort()

    results = run_all([study.settings(party) for party in range(3)], guest)
    for result in results:
        np.testing.assert_allclose(result.mean, study.values.mean(axis=0), rtol=1e-12)
        assert result.heard == (0, 1, 2)
        assert result.execution.trace.online.all()


def test_idle_strangers_are_cut_off(tmp_path: Path) -> None:
    with_enough_time(lambda seconds: idle_strangers(tmp_path, seconds / 5), "no greeting came (it took too long)")


def idle_strangers(tmp_path: Path, handshake_seconds: float) -> str:
    """What is told of one that is silent from the beginning and one that is silent after TLS."""
    study = Study(tmp_path, make_plan(2))
    refusals: list[str] = []

    async def unasked(party: int, request: AnyRequest, payload: Payload) -> AnswerFrame:
        raise AssertionError("nobody is let in")

    async def run() -> None:
        endpoint = Endpoint(
            party=0,
            roster=study.roster,
            study=study.settings(0).study,
            credentials=Credentials(study.identities[0], study.roster, study.settings(0).study),
            limits=Limits.of_study(2, 4, 2),
            refusal=lambda who, reason: refusals.append(reason),
            heard=lambda party, position: None,
        )
        listener = Listener(endpoint, study.sockets[0], unasked, lambda: (0, 0), handshake_seconds=handshake_seconds)
        listener.start()
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", study.port(0))
        context = Credentials(study.identities[1], study.roster, study.settings(0).study).client(0)
        writers = [silent]
        with contextlib.suppress(OSError):
            # Where the machine is too slow for TLS in so short a time, the second one is cut off earlier.
            _, mute = await asyncio.open_connection("127.0.0.1", study.port(0), ssl=context, server_hostname="")
            writers.append(mute)
        async with asyncio.timeout(60.0):
            assert await silent_reader.read() == b""
            while len(refusals) < 2:
                await asyncio.sleep(0.05)
        for writer in writers:
            writer.transport.abort()
        await listener.close()

    asyncio.run(run())
    study.close()
    assert len(refusals) == 2
    assert "TLS handshake failed (it took too long)" in refusals
    return ", ".join(refusals)
