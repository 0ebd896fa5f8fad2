"""Rounds of a session over a star whose server may lie: real clients with real folders, and no Flower."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Step, Vector
from quietmean.flower import FlowerAgreement, Home, StarParty, workflow
from quietmean.flower.sealing import AskHello, BeginRequest, Deliver, Finish, read_answer, read_request, write
from quietmean.flower.site import AGREEMENT, SESSION
from quietmean.planning.influence import planned_influence
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.party import PackedSharingParty
from quietmean.protocols.packed_sharing.spec import largest_sum
from quietmean.sessions import SessionAccount
from support.flower_star import FIRST_NODE, Lie, Star, in_one_process, make_homes
from support.liars import HEADS, lie_of

PARTIES, DIMENSION, ROUNDS = 10, 6, 3
Forward = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
Deliveries = dict[int, Deliver]


@pytest.fixture
def values() -> Vector:
    found = np.random.default_rng(3).normal(size=(PARTIES, DIMENSION))
    return np.asarray(found / (2 * np.linalg.norm(found, axis=1)[:, None]), dtype=np.float64)


@pytest.fixture
def agreement(tmp_path: Path) -> FlowerAgreement:
    return make_homes(tmp_path, PARTIES, ROUNDS, DIMENSION)


def test_rounds_with_one_gone_in_each_are_those_of_one_process(
    tmp_path: Path, agreement: FlowerAgreement, values: Vector
) -> None:
    star = Star(tmp_path, values)
    relay = star.relay(agreement)
    # Two of them are drawn, and may be the same.
    gone = [4, int(agreement.schedule(2).recipients(3, leader(agreement, 2))[0]), leader(agreement, 3)]
    for round_, away in enumerate(gone, 1):
        star.away = {away}
        found = relay.mean(round_)
        assert found.missing == (away,)
        assert found.weight == PARTIES - 1
        assert np.array_equal(found.mean, in_one_process(tmp_path, agreement, values, round_, {away}))
    # Who was away did not begin that round, and has not paid for it.
    accounts = [SessionAccount(agreement.terms, Home(tmp_path / str(party)).account).begun for party in range(PARTIES)]
    assert accounts == [ROUNDS - gone.count(party) for party in range(PARTIES)]
    with pytest.raises(ProtocolFailure, match="round 4 cannot begin"):
        relay.mean(4)


@pytest.mark.parametrize(("running", "dead"), [(0, 0), (3, 0), (3, 1), (0, 2)])
def test_a_run_whose_clients_do_not_come_ends_after_its_time(
    tmp_path: Path,
    agreement: FlowerAgreement,
    values: Vector,
    running: int,
    dead: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some of their SuperNodes do not run, or died after they had come, or none came: it ends at its time, and says how many are
    there and how many have to be. Nodes come one after the other, the dead first, and keep nobody waiting."""
    star, now = Star(tmp_path, values, away=set(range(dead))), [0.0]
    begun: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(workflow, "time", clock)
    sent: dict[str, bytes] = {}

    def send(mean: workflow.SealedMean, requests: Mapping[int, bytes], begins: bool) -> dict[str, int]:
        begun.extend(requests)
        sent.update({f"to {node}": raw for node, raw in requests.items()})
        return {f"to {node}": node for node in requests}

    def received(mean: workflow.SealedMean, asked: dict[str, int]) -> Mapping[int, bytes]:
        answers = star.honest({node: sent[message] for message, node in asked.items()})
        for node in answers:
            del asked[f"to {node}"]
        return answers

    monkeypatch.setattr(workflow.SealedMean, "_send", send)
    monkeypatch.setattr(workflow.SealedMean, "_received", received)
    grid = SimpleNamespace(get_node_ids=lambda: star.nodes[: min(int(1 + now[0]), running + dead)])
    said = (
        rf"{running} of 10 clients are there after 20 s, and the agreement plans for 9 or more. See whether their SuperNodes run"
    )
    with caplog.at_level("INFO", "flwr"), pytest.raises(ProtocolFailure, match=said):
        workflow.SealedMean(grid, agreement).wait(20.0)
    assert now[0] == 20
    assert begun == star.nodes[: running + dead]
    assert (
        caplog.messages
        == [f"{there} of 10 clients are there" for there in range(running + 1)][1 if running and not dead else 0 :]
    )


def leader(agreement: FlowerAgreement, round_: int) -> int:
    """Who proposes first in a round."""
    return int(np.nonzero(agreement.schedule(round_).out_degree[2])[0][0])


def test_a_client_that_leaves_in_the_middle_is_counted_if_it_dealt(
    tmp_path: Path, agreement: FlowerAgreement, values: Vector
) -> None:
    star = Star(tmp_path, values)

    def leaves(requests: Mapping[int, bytes], begins: bool, forward: Forward) -> Mapping[int, bytes]:
        if any(isinstance(read_request(raw), Deliver) and read_request(raw).step == 3 for raw in requests.values()):  # type: ignore[union-attr]
            star.away = {5}
        return forward(requests)

    star.lie = leaves
    found = star.relay(agreement).mean(1)
    assert found.missing == (5,)
    assert found.weight == PARTIES
    assert np.array_equal(found.mean, in_one_process(tmp_path, agreement, values, 1, set()))


def test_the_server_sees_no_value_and_no_seed(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    star = Star(tmp_path, values)
    star.relay(agreement).mean(1)
    seen = b"".join(star.seen)
    for party, value in enumerate(values):
        stored = msgspec.msgpack.decode((tmp_path / str(party) / SESSION).read_bytes())
        assert stored["seed"] not in seen
        for one in value:
            assert np.float64(one).tobytes() not in seen
            assert repr(float(one)).encode() not in seen
        # Two numbers beside each other: the four bytes of one are somewhere in a megabyte of ciphertext, in one run of a hundred.
        for first in range(len(value) - 1):
            assert value[first : first + 2].astype(np.float32).tobytes() not in seen
    # Nothing private of a round that is over stays on disk but the seed of the session.
    assert all(not stored.get(name) for name in ("value", "state"))


def test_a_frame_that_is_not_sealed_would_be_found(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    """The search above can fail: what clients keep on disk during a round holds their values."""
    star = Star(tmp_path, values)
    relay = star.relay(agreement)
    star.lie = lambda requests, begins, forward: forward(requests) if begins else {}
    with pytest.raises(ProtocolFailure, match="no result"):
        relay.mean(1)
    stored = (tmp_path / "0" / SESSION).read_bytes()
    assert b"value" in stored
    assert any(len(found) == 8 * DIMENSION for found in [msgspec.msgpack.decode(stored)["value"]])


def deliveries(lie: Callable[[Deliveries], Deliveries]) -> Lie:
    """A server that is honest but for what it delivers."""

    def exchange(requests: Mapping[int, bytes], begins: bool, forward: Forward) -> Mapping[int, bytes]:
        read = {node - FIRST_NODE: read_request(raw) for node, raw in requests.items()}
        told = {party: one for party, one in read.items() if isinstance(one, Deliver)}
        if told:
            requests = {FIRST_NODE + party: write(one) for party, one in lie(told).items()}
        return forward(requests)

    return exchange


def with_frames(one: Deliver, frames: dict[int, bytes]) -> Deliver:
    return msgspec.structs.replace(one, frames=frames)


class Replays:
    """Frames of the first step again in every later one."""

    def __init__(self) -> None:
        self.first: dict[int, dict[int, bytes]] = {}

    def __call__(self, told: Deliveries) -> Deliveries:
        for party, one in told.items():
            self.first.setdefault(party, one.frames)
        return {party: with_frames(one, one.frames if one.step == 1 else self.first[party]) for party, one in told.items()}


def cross_wired(told: Deliveries) -> Deliveries:
    """Everybody gets what is for the next one."""
    parties = list(told)
    return {party: with_frames(told[party], told[parties[place - 1]].frames) for place, party in enumerate(parties)}


def renamed(told: Deliveries) -> Deliveries:
    """Frames under another sender's name."""
    return {
        party: with_frames(one, dict(zip(one.frames, [*one.frames.values()][1:] + [*one.frames.values()][:1], strict=True)))
        for party, one in told.items()
    }


def changed(told: Deliveries) -> Deliveries:
    """One bit of each frame."""
    flipped = {party: {s: f[:-1] + bytes([f[-1] ^ 1]) for s, f in one.frames.items()} for party, one in told.items()}
    return {party: with_frames(one, flipped[party]) for party, one in told.items()}


def dropped(told: Deliveries) -> Deliveries:
    return {party: with_frames(one, {}) for party, one in told.items()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "lie", [Replays(), cross_wired, renamed, changed, dropped], ids=lambda lie: getattr(lie, "__name__", "replays")
)
def test_a_server_that_lies_gets_no_result(
    tmp_path: Path, agreement: FlowerAgreement, values: Vector, lie: Callable[..., Deliveries]
) -> None:
    star = Star(tmp_path, values, deliveries(lie))
    with pytest.raises(ProtocolFailure, match="round 1 has no result"):
        star.relay(agreement).mean(1)


def test_a_client_that_lies_about_its_weight_leaves_no_mean(
    tmp_path: Path, agreement: FlowerAgreement, values: Vector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others say why they tell no mean. Of numbers a liar has no larger ones than those that are possible: the modulus leaves
    no room beyond what values and noise can give."""
    honest = PackedSharingParty.start

    def start(machine: PackedSharingParty) -> Step[Any]:
        step = honest(machine)
        if machine._party != 3:
            return step
        return replace(step, send=tuple(replace(message, weight=0.25) for message in step.send))

    monkeypatch.setattr(PackedSharingParty, "start", start)
    with pytest.raises(ProtocolFailure, match=r"round 1 has no result.*a client says: a result that cannot be"):
        Star(tmp_path, values).relay(agreement).mean(1)
    # It is paid for.
    assert SessionAccount(agreement.terms, Home(tmp_path / "0").account).begun == 1
    protocol: Any = agreement.terms.plan.protocol
    assert protocol.prime / 2 * protocol.step < 1.2 * largest_sum(protocol, PARTIES) * protocol.step


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.filterwarnings("ignore")
def test_a_client_whose_program_lies_moves_a_mean_by_no_more_than_is_stated(
    head: str, tmp_path: Path, agreement: FlowerAgreement, values: Vector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page about liars has it of packed sharing: its program makes a possible number of what it is given, or, of a larger
    weight, stops, which the server is told. Modulo the plan's number a sum may be one that cannot be, and always is with half a
    weight."""
    honest, star, plan = PackedSharing.machine, Star(tmp_path, values), agreement.terms.plan

    def machine(protocol: PackedSharing, schedule: Any, party: int, value: Vector, weight: float, noise: Any) -> Any:
        value, weight = lie_of(head, value, weight) if party == 3 else (value, weight)
        return honest(protocol, schedule, party, value, weight, noise)

    monkeypatch.setattr(PackedSharing, "machine", machine)
    influence, mean, refused = planned_influence(plan), None, ""
    assert influence is not None
    assert influence.is_bounded
    try:
        mean = star.relay(agreement).mean(1)
    except ProtocolFailure as error:
        refused = str(error)
    if mean is None:
        assert re.search(r"round 1 has no result.*a client says: a result that cannot be", refused)
        assert head in ("half a record less", "too large", "too small", "1e300", "no number")
        return
    assert head != "half a record less"
    stopped = head == "twice the records"
    assert mean.missing == ((3,) if stopped else ())
    assert mean.weight == PARTIES - stopped
    truth = np.delete(values, 3, axis=0) if stopped else values
    moved = 8 * float(plan.prediction["mse_noise"]) ** 0.5 + (0.0 if stopped else influence.largest)
    assert np.abs(mean.mean - truth.mean(axis=0)).max() <= agreement.study.clip * moved


def test_frames_of_one_sender_lost_cost_its_input_at_most(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    def lie(told: Deliveries) -> Deliveries:
        return {party: with_frames(one, {s: f for s, f in one.frames.items() if s != 7}) for party, one in told.items()}

    found = Star(tmp_path, values, deliveries(lie)).relay(agreement).mean(1)
    assert found.weight == PARTIES - 1
    assert np.array_equal(found.mean, in_one_process(tmp_path, agreement, values, 1, {7}))


@pytest.mark.slow
def test_frames_of_another_round_do_not_open(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    old: dict[tuple[int, int], dict[int, bytes]] = {}

    def lie(told: Deliveries) -> Deliveries:
        for party, one in told.items():
            if one.round == 1:
                old[party, one.step] = one.frames
        return {p: with_frames(one, old.get((p, one.step), {})) if one.round == 2 else one for p, one in told.items()}

    relay = Star(tmp_path, values, deliveries(lie)).relay(agreement)
    assert relay.mean(1).weight == PARTIES
    with pytest.raises(ProtocolFailure, match="round 2 has no result"):
        relay.mean(2)


def test_a_step_is_taken_once(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    """Asked again a client says the same, to a question with other frames too: it never says two things in one place."""
    star = Star(tmp_path, values)
    hellos = tuple(read_answer(star.ask(party, write(AskHello()))).hello for party in range(PARTIES))
    begin = write(BeginRequest(1, hellos))
    first = [star.ask(party, begin) for party in range(PARTIES)]
    assert star.ask(0, begin) == first[0]
    frames = {party: read_answer(raw).frames[0] for party, raw in enumerate(first) if party}
    once = star.ask(0, write(Deliver(1, 1, frames, tuple(frames))))
    assert star.ask(0, write(Deliver(1, 1, {}, ()))) == once
    assert "has had round 1" in read_answer(star.ask(0, write(BeginRequest(1, hellos)))).refused
    ended = star.ask(0, write(Finish(1)))
    assert read_answer(ended).mean == b""
    assert star.ask(0, write(Finish(1))) == ended
    assert "is over" in read_answer(star.ask(0, write(Deliver(1, 2, frames, ())))).refused
    # A round that was left behind does not come back, nor does what it cost.
    star.ask(0, write(BeginRequest(3, hellos)))
    assert "has had round 3" in read_answer(star.ask(0, write(BeginRequest(2, hellos)))).refused
    assert "not in round 2" in read_answer(star.ask(0, write(Finish(2)))).refused


def test_a_client_that_missed_steps_passes_over_them(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    star = Star(tmp_path, values)
    hellos = tuple(read_answer(star.ask(party, write(AskHello()))).hello for party in range(PARTIES))
    star.ask(0, write(BeginRequest(1, hellos)))
    told = read_answer(star.ask(0, write(Deliver(1, 3, {}, ()))))
    assert (told.step, told.refused) == (4, "")


def test_greetings_that_nobody_signed_are_none(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    """A server cannot put its own key in a client's place."""
    star = Star(tmp_path, values)
    signed = {party: read_answer(star.ask(party, write(AskHello()))).hello for party in range(PARTIES)}
    own = msgspec.msgpack.decode(signed[1])
    forged = msgspec.msgpack.encode(own | {"exchange": bytes(range(32))})
    swapped = msgspec.msgpack.encode(own | {"party": 2})
    star.ask(0, write(BeginRequest(1, (forged, swapped, b"nothing"))))
    assert StarParty(Home(tmp_path / "0"))._stored.peers == {}
    told = read_answer(star.ask(0, write(BeginRequest(2, (signed[1],)))))
    assert set(told.frames) == {1}


@pytest.mark.parametrize("raw", [b"", b"\xc1", msgspec.msgpack.encode({"kind": "begin", "round": "1"})])
def test_what_is_no_request_is_refused(tmp_path: Path, agreement: FlowerAgreement, values: Vector, raw: bytes) -> None:
    assert "not a request" in read_answer(Star(tmp_path, values).ask(0, raw)).refused


def test_an_update_of_another_shape_spends_nothing(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    told = read_answer(Star(tmp_path, values[:, :3]).ask(0, write(BeginRequest(1, ()))))
    assert re.search(r"shape \(3,\) and the agreement \(6,\)", told.refused)
    assert not Home(tmp_path / "0").account.exists()


def test_agreements_that_do_not_keep_their_budget_are_refused(tmp_path: Path, agreement: FlowerAgreement) -> None:
    path = tmp_path / "0" / AGREEMENT
    assert FlowerAgreement.load(path).digest == agreement.digest
    changes: tuple[tuple[Callable[[Any], object], str], ...] = (
        (lambda raw: raw["session"].update(rounds=400), "cost over epsilon"),
        (lambda raw: raw["session"].update(epsilon=0.5), "cost over epsilon"),
        (lambda raw: raw["identities"].reverse(), "out of order"),
        (lambda raw: raw["identities"].__setitem__(0, raw["identities"][1]), "names a client twice"),
        (lambda raw: raw["session"].update(dimension=7), "other parties, coordinates"),
        (lambda raw: raw["session"].update(clip=-1), "clip must be more than 0"),
        (lambda raw: raw["session"].pop("rounds"), "rounds is missing"),
        (lambda raw: raw.pop("plan"), "is damaged"),
    )
    for change, problem in changes:
        raw = msgspec.json.decode(msgspec.json.encode(agreement.describe()))
        change(raw)
        path.write_bytes(msgspec.json.encode(raw))
        with pytest.raises(InputError, match=problem):
            FlowerAgreement.load(path)


def test_a_session_of_another_agreement_is_not_gone_on_with(tmp_path: Path, agreement: FlowerAgreement, values: Vector) -> None:
    Star(tmp_path, values).relay(agreement)
    raw = replace(agreement, study=agreement.study.model_copy(update={"clip": 2.0})).describe()
    (tmp_path / "0" / AGREEMENT).write_bytes(msgspec.json.encode(raw))
    with pytest.raises(InputError, match="is of another agreement"):
        StarParty(Home(tmp_path / "0"))
