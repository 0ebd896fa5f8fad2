"""Whole runs of secure aggregation: exact sums under any losses, clear ends below the threshold, and what nobody ever learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Message, PartyId, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.secagg import SecAgg, SecAggParameters
from quietmean.protocols.secagg import keys as wire
from quietmean.protocols.secagg.batch import follow
from quietmean.protocols.secagg.driver import aggregate
from quietmean.protocols.secagg.keys import SEALED_BYTES, SHARE_BYTES, Secrets, own_mask, pair_mask, share
from quietmean.protocols.secagg.party import ROUNDS, AggregatorState
from quietmean.protocols.secagg.spec import LAPLACE
from quietmean.protocols.secagg_plus import SecAggPlus
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecureStackedNoise, insecure_seed
from quietmean.testing.strategies import executions
from support.effort import examples

STEP = 2.0**-16
PROTOCOLS = ["secagg", "secagg-plus"]


def make_execution(
    name: str, parties: int, threshold: int, minimum: int, degree: int = 4, *, bits: int = 32, aggregator: PartyId = 0
) -> Execution:
    """Without noise: sums are exact."""
    raw = {"threshold": threshold, "minimum": minimum, "granularity": STEP, "sigma": 0.0, "clip": 1000.0, "noise": "none"}
    protocol = get_protocol(name).read(raw | {"degree": degree, "bits": bits, "aggregator": aggregator}).resolved(parties)
    schedule = protocol.draw_schedule(parties, insecure_seed(11))
    return Execution(protocol, schedule, ExecutionTrace.everyone(ROUNDS, parties), 1.0, np.ones(parties))


def secagg_of(execution: Execution) -> SecAgg:
    """The protocol, which has the numbers of shares."""
    assert isinstance(execution.protocol, SecAgg)
    return execution.protocol


def grid_values(parties: int, dimension: int = 3) -> Vector:
    """Multiples of the step, so that rounding changes nothing."""
    drawn = BitStream(insecure_seed(12)).integers(2**20, parties * dimension).reshape(parties, dimension)
    return (drawn - 2**19).astype(np.float64) * STEP


def leaving(parties: int, last_rounds: dict[PartyId, int]) -> ExecutionTrace:
    """``last_rounds``: the last round that a party takes part in."""
    trace = ExecutionTrace.everyone(ROUNDS, parties)
    for party, last in last_rounds.items():
        trace.online[last + 1 :, party] = False
    return trace


@dataclass
class Wire:
    """Runs machines round by round; ``tamper`` may change each message on its way, or swallow it by returning None."""

    execution: Execution
    values: Vector
    tamper: Callable[[Message, PartyId], Message | None] = lambda message, receiver: message
    sent: list[tuple[Message, PartyId]] = field(default_factory=list)

    def run(self) -> tuple[list[Any], list[Any]]:
        noise = InsecureStackedNoise(5, self.execution.parties)
        machines = [self.execution.machine(party, self.values[party], noise.party(party)) for party in range(len(self.values))]
        steps = [machine.start() for machine in machines]
        for _ in range(ROUNDS):
            steps = self._round(machines, steps)
        return machines, steps

    def _round(self, machines: Sequence[Any], steps: list[Any]) -> list[Any]:
        inboxes: list[list[Message]] = [[] for _ in steps]
        delivered: list[set[PartyId]] = [set() for _ in steps]
        for sender, step in enumerate(steps):
            for message in step.send:
                for receiver in message.recipients:
                    self.sent.append((message, receiver))
                    arriving = self.tamper(message, receiver)
                    if arriving is not None:
                        inboxes[receiver].append(arriving)
                        delivered[sender].add(receiver)
        return [
            machine.end_round(step.state, inbox, frozenset(arrived))
            for machine, step, inbox, arrived in zip(machines, steps, inboxes, delivered, strict=True)
        ]


def assert_exact(execution: Execution, values: Vector, trace: ExecutionTrace) -> None:
    """What is released is the sum over who is counted, to the last bit; or nothing, and batch and machines agree on which."""
    execution = execution.with_trace(trace)
    outcome = follow(secagg_of(execution), execution.schedule, trace)
    noise = InsecureStackedNoise(5, execution.parties)
    if not outcome.counted.any():
        assert outcome.failure
        with pytest.raises(ProtocolFailure, match=r"gave no result: \w"):
            aggregate(execution, values, noise)
        return
    release = aggregate(execution, values, noise)
    assert outcome.counted.sum() >= secagg_of(execution).minimum
    np.testing.assert_array_equal(release.vector, values[outcome.counted].sum(axis=0))
    assert release.weight == outcome.counted.sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_sums_are_exact_under_any_dropouts(name: str) -> None:
    parties = 9

    @settings(max_examples=examples(60), deadline=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        bits, aggregator = data.draw(st.sampled_from([24, 28, 32])), data.draw(st.sampled_from([0, 4]))
        execution = make_execution(name, parties, 5 if name == "secagg" else 3, 5, bits=bits, aggregator=aggregator)
        others = st.integers(0, parties - 1).filter(lambda party: party != aggregator)
        gone = data.draw(st.dictionaries(others, st.integers(0, ROUNDS - 1), max_size=5))
        assert_exact(execution, grid_values(parties), leaving(parties, gone))

    holds()


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("last", range(ROUNDS))
def test_losses_down_to_the_threshold_at_every_stage(name: str, last: int) -> None:
    parties, threshold = 8, 5
    # A complete graph for both, so that the threshold alone decides.
    execution = make_execution(name, parties, threshold, threshold, degree=7)
    values = grid_values(parties)
    allowed = leaving(parties, dict.fromkeys(range(1, 1 + parties - threshold), last))
    release = aggregate(execution.with_trace(allowed), values, InsecureStackedNoise(5, parties))
    counted = np.ones(parties, dtype=np.bool_)
    counted[1 : 1 + parties - threshold] = last >= 5
    np.testing.assert_array_equal(release.vector, values[counted].sum(axis=0))
    # One more is one too many, and the reason says how many there were.
    too_many = leaving(parties, dict.fromkeys(range(1, 2 + parties - threshold), last))
    reason = {0: "keys of 4", 1: "shares of 4", 2: "shares of 4", 3: "inputs of 4", 4: "inputs of 4"}.get(
        last, "4 shares of a secret"
    )
    with pytest.raises(ProtocolFailure, match=reason):
        aggregate(execution.with_trace(too_many), values, InsecureStackedNoise(5, parties))


def test_an_aggregator_that_is_away_ends_the_run() -> None:
    execution = make_execution("secagg", 5, 3, 3)
    with pytest.raises(ProtocolFailure, match="the aggregator was away in round 4"):
        aggregate(execution.with_trace(leaving(5, {0: 3})), grid_values(5), InsecureStackedNoise(5, 5))
    other = Execution.from_json({"protocol": "local-dp", "parties": 2, "rounds": 1, "sigma": 1.0, "neighbours": [[[], []]]})
    with pytest.raises(InputError, match="does not aggregate securely"):
        aggregate(other, grid_values(2), InsecureStackedNoise(5, 2))


def test_everybody_hears_why_there_is_no_result() -> None:
    execution = make_execution("secagg", 6, 4, 5)
    trace = leaving(6, {1: 4, 2: 4})
    result = execution.with_trace(trace).run(grid_values(6), InsecureStackedNoise(5, 6))
    assert result.releases == {}
    failures = [getattr(state, "failure", "") for state in result.states]
    assert failures[0] == "inputs of 4 parties arrived, fewer than the minimum of 5. Run again."
    assert all(failure == f"the aggregator ended the run: {failures[0]}" for failure in failures[3:])
    assert failures[1] == "this party was away in round 5"
    state = result.states[0]
    assert isinstance(state, AggregatorState)
    # Nothing is kept that could be unmasked later.
    assert (state.total, state.own, state.adverts) == (b"", b"", None)


def test_masked_inputs_and_sums_look_like_nothing() -> None:
    execution = make_execution("secagg", 4, 3, 3)
    network = Wire(execution, np.zeros((4, 4000)))
    _, steps = network.run()
    np.testing.assert_array_equal(steps[0].release.vector, np.zeros(4000))
    for message, _ in network.sent:
        if message.round == 5:
            words = wire.read_words(message.content, 32, 4000)
            top = np.bincount(words >> 28, minlength=16)
            # Chi-square with 15 degrees of freedom: above 60 with probability 2e-7.
            assert ((top - 250.0) ** 2 / 250.0).sum() < 60


def test_an_input_that_comes_late_stays_undecodable() -> None:
    """The party was declared gone, its mask key was opened: its own mask still covers what it sends."""
    parties, late = 6, 3
    execution, values = make_execution("secagg", parties, 4, 4), grid_values(parties, 4000)
    kept: list[Message] = []

    def hold_back(message: Message, receiver: PartyId) -> Message | None:
        if message.sender == late and message.round == 5:
            kept.append(message)
            return None
        return message

    network = Wire(execution, values, hold_back)
    machines, steps = network.run()
    np.testing.assert_array_equal(steps[0].release.vector, values.sum(axis=0) - values[late])
    # All that was ever told of the late party's secrets is its mask key, which is enough to take off the masks of pairs.
    noise = InsecureStackedNoise(5, parties)
    secrets = Secrets.of(noise.party(late))
    answers = [message.content for message, _ in network.sent if message.round == 7]
    self_shares = _own_shares(secrets.self_mask, secrets, "self mask", parties)
    mask_shares = _own_shares(secrets.mask_key, secrets, "mask key", parties)
    assert not any(one in answer for one in self_shares for answer in answers)
    assert sum(one in answer for one in mask_shares for answer in answers) == parties - 2
    words = wire.read_words(kept[0].content, 32, 4000).copy()
    for other in range(parties):
        if other != late:
            public = Secrets.of(noise.party(other)).masking.public
            words -= _signed_mask(execution, secrets, public, late < other)
    residue = words - np.round(values[late] / STEP).astype(np.int64).astype(np.uint32)
    np.testing.assert_array_equal(residue, own_mask(secrets.self_mask).ring(32, 4000))
    # The machine that has finished takes nothing more.
    assert machines[0].expects(steps[0].state) == frozenset()


def _signed_mask(execution: Execution, secrets: Secrets, public: bytes, added: bool) -> NDArray[np.uint32]:
    label = secagg_of(execution).rules(execution.parties).label
    mask = pair_mask(secrets.masking, public, label).ring(32, 4000).astype(np.uint32)
    return mask if added else (0 - mask).astype(np.uint32)


def _own_shares(secret: bytes, secrets: Secrets, name: str, parties: int) -> list[bytes]:
    values = share(secret, 4, range(1, parties + 1), secrets.polynomials.derive(name))
    return [value.to_bytes(SHARE_BYTES, "big") for value in values]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_no_aggregator_gets_both_secrets_of_anybody(data: st.DataObject) -> None:
    """An aggregator that tells every client other survivors, twice over: each answers once, with one kind of share a user.

    With more than half of all shares needed, no user's two secrets can both be put together from what honest clients tell.
    """
    parties, threshold = 7, 4
    sets = st.frozensets(st.integers(0, parties - 1))
    requests = {
        receiver: [(data.draw(sets), data.draw(sets)) if data.draw(st.booleans()) else _split(data, parties) for _ in range(2)]
        for receiver in range(1, parties)
    }

    def lie(message: Message, receiver: PartyId) -> Message | None:
        if message.round != 6:
            return message
        arrived, dropped = requests[receiver][0]
        return replace(message, content=wire.go_on(wire.write_set(arrived, parties) + wire.write_set(dropped, parties)))

    network = Wire(make_execution("secagg", parties, threshold, threshold), grid_values(parties), lie)
    machines, steps = network.run()
    noise = InsecureStackedNoise(5, parties)
    kinds = _kinds_of_shares([noise.party(party).secret("mask key", 0) for party in range(parties)], noise, threshold)
    told: dict[PartyId, set[tuple[PartyId, str]]] = {party: set() for party in range(parties)}
    for message, _ in network.sent:
        if message.round == 7:
            answer = wire.read_shares(message.content, list(range(parties)))
            arrived, dropped = requests[message.sender][0]
            _assert_may_be_answered(message.sender, arrived, dropped, parties, threshold)
            for owner, value in answer.items():
                kind = kinds[owner, message.sender][value]
                assert kind == ("self" if owner in arrived else "mask")
                told[owner].add((message.sender, kind))
    for shares in told.values():
        assert min(sum(kind == one for _, kind in shares) for one in ("self", "mask")) < threshold
        assert len({holder for holder, _ in shares}) == len(shares)
    # Asked again, a client says nothing.
    for receiver in range(1, parties):
        arrived, dropped = requests[receiver][1]
        content = wire.go_on(wire.write_set(arrived, parties) + wire.write_set(dropped, parties))
        again = Message(0, (receiver,), 6, np.empty(0), 0.0, content)
        assert machines[receiver].expects(steps[receiver].state) == frozenset()
        assert machines[receiver].end_round(replace(steps[receiver].state, round=7), [again], frozenset()).send == ()


def _split(data: st.DataObject, parties: int) -> tuple[frozenset[PartyId], frozenset[PartyId]]:
    """A request that looks right."""
    arrived = data.draw(st.frozensets(st.integers(0, parties - 1), min_size=4))
    return arrived, frozenset(range(parties)) - arrived


def _assert_may_be_answered(
    party: PartyId, arrived: frozenset[PartyId], dropped: frozenset[PartyId], parties: int, threshold: int
) -> None:
    assert party in arrived
    assert not arrived & dropped
    assert arrived | dropped == frozenset(range(parties))
    assert len(arrived) >= threshold


def _kinds_of_shares(
    mask_keys: list[bytes], noise: InsecureStackedNoise, threshold: int
) -> dict[tuple[PartyId, PartyId], dict[int, str]]:
    """(owner, holder) -> which value is a share of which secret."""
    kinds = {}
    points = range(1, len(mask_keys) + 1)
    for owner, mask_key in enumerate(mask_keys):
        secrets = Secrets.of(noise.party(owner))
        mask = share(mask_key, threshold, points, secrets.polynomials.derive("mask key"))
        own = share(secrets.self_mask, threshold, points, secrets.polynomials.derive("self mask"))
        for holder in range(len(mask_keys)):
            kinds[owner, holder] = {mask[holder]: "mask", own[holder]: "self"}
    return kinds


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_consistent_list_opens_one_secret_of_each(data: st.DataObject) -> None:
    """Over random dropouts, with an honest aggregator: never shares of both kinds for one user, from anybody."""
    name = data.draw(st.sampled_from(PROTOCOLS))
    parties = 8
    execution = make_execution(name, parties, 5 if name == "secagg" else 3, 5)
    gone = data.draw(st.dictionaries(st.integers(1, parties - 1), st.integers(0, ROUNDS - 1), max_size=3))
    network = Wire(execution, grid_values(parties), lambda m, r: None if _is_gone(m, r, gone) else m)
    network.run()
    noise = InsecureStackedNoise(5, parties)
    told: dict[PartyId, set[str]] = {party: set() for party in range(parties)}
    every = [m.content for m, _ in network.sent if m.round == 7]
    for owner in range(parties):
        secrets, points = Secrets.of(noise.party(owner)), range(1, parties + 1)
        for kind, secret in (("mask key", secrets.mask_key), ("self mask", secrets.self_mask)):
            values = share(secret, secagg_of(execution).threshold, points, secrets.polynomials.derive(kind))
            if any(value.to_bytes(SHARE_BYTES, "big") in content for value in values for content in every):
                told[owner].add(kind)
    assert all(len(kinds) <= 1 for kinds in told.values())
    assert any(told.values()) or not every


def _is_gone(message: Message, receiver: PartyId, gone: dict[PartyId, int]) -> bool:
    return any(party in gone and message.round > gone[party] for party in (message.sender, receiver))


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_tampered_shares_are_refused_and_the_sum_is_right_or_absent(data: st.DataObject) -> None:
    parties, threshold = 7, 4
    values = grid_values(parties)
    spoilt = data.draw(st.lists(st.tuples(st.integers(1, parties - 1), st.integers(0, parties - 2)), max_size=20, unique=True))

    def flip(message: Message, receiver: PartyId) -> Message:
        content = bytearray(message.content)
        if message.round == 3:
            for sender, slot in spoilt:
                if sender == message.sender:
                    content[slot * SEALED_BYTES + data.draw(st.integers(0, SEALED_BYTES - 1))] ^= 1 + data.draw(
                        st.integers(0, 254)
                    )
        return replace(message, content=bytes(content))

    _, steps = Wire(make_execution("secagg", parties, threshold, threshold), values, flip).run()
    worst = max(sum(sender == party for sender, _ in spoilt) for party in range(parties))
    if parties - worst >= threshold:
        np.testing.assert_array_equal(steps[0].release.vector, values.sum(axis=0))
    else:
        assert steps[0].release is None
        assert "below the threshold 4" in steps[0].state.failure


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_any_bytes_from_strangers_count_as_not_arrived(data: st.DataObject) -> None:
    """Foreign content in any message of any client and towards any client: no exception, and never a wrong sum."""
    parties = 6
    values = grid_values(parties)
    execution = make_execution("secagg", parties, 4, 4)
    victims = data.draw(st.dictionaries(st.tuples(st.integers(1, 7), st.integers(1, parties - 1)), st.integers(0, 3), max_size=2))

    def garble(message: Message, receiver: PartyId) -> Message | None:
        client = message.sender or receiver
        how = victims.get((message.round, client))
        if how is None:
            return message
        if how == 0:
            return replace(message, content=data.draw(st.binary(max_size=200)))
        if how == 1:
            return replace(message, content=message.content[: data.draw(st.integers(0, len(message.content)))])
        if how == 2:
            return replace(message, content=message.content + data.draw(st.binary(min_size=1, max_size=5)))
        return replace(message, weight=data.draw(st.sampled_from([0.0, -1.0, 2.0, float("nan"), float("inf")])))

    _, steps = Wire(execution, values, garble).run()
    release = steps[0].release
    if release is None:
        assert steps[0].state.failure
        return
    counted = steps[0].state.arrived
    np.testing.assert_array_equal(release.vector, values[list(counted)].sum(axis=0))
    assert release.weight == len(counted)


def test_two_messages_of_one_sender_are_none() -> None:
    execution, values = make_execution("secagg", 5, 3, 3), grid_values(5)
    noise = InsecureStackedNoise(5, 5)
    machine = execution.machine(0, values[0], noise.party(0))
    adverts = [execution.machine(party, values[party], noise.party(party)).start().send[0] for party in range(1, 5)]
    state = machine.end_round(machine.start().state, [*adverts, adverts[0]], frozenset()).state
    assert isinstance(state, AggregatorState)
    assert state.adverts is not None
    assert sorted(state.adverts) == [0, 2, 3, 4]


def test_keys_that_are_none_are_left_out_or_end_the_party() -> None:
    execution, values = make_execution("secagg", 5, 3, 3), grid_values(5)

    def weak(message: Message, receiver: PartyId) -> Message:
        if message.round == 1 and message.sender == 2:
            return replace(message, content=bytes(32) + message.content[32:])
        if message.round == 2 and receiver == 1:
            # A lying aggregator: the first key in the list of party 1.
            return replace(message, content=message.content[:2] + bytes(32) + message.content[34:])
        return message

    _, steps = Wire(execution, values, weak).run()
    assert steps[0].state.arrived == (0, 3, 4)
    assert steps[1].state.failure == "the key list has a key of party 0 that is not valid"
    np.testing.assert_array_equal(steps[0].release.vector, values[[0, 3, 4]].sum(axis=0))


def test_false_shares_end_the_run_instead_of_spoiling_the_sum() -> None:
    execution, values = make_execution("secagg", 5, 3, 4), grid_values(5)

    def another_share(message: Message, receiver: PartyId) -> Message:
        if message.round == 7 and message.sender == 1:
            content = bytearray(message.content)
            content[20] ^= 1
            return replace(message, content=bytes(content))
        return message

    _, steps = Wire(execution, values, another_share).run()
    assert steps[0].release is None
    assert (
        steps[0].state.failure
        == "the shares of the self mask of party 0 do not fit together. Find the party that sent wrong ones."
    )


def test_random_executions_do_get_results() -> None:
    """The conformance tests see runs with and without a result, and most kinds of failure."""
    seen: set[str] = set()

    @settings(max_examples=150, deadline=None, database=None)
    @given(executions("secagg-plus"))
    def look(execution: Execution) -> None:
        seen.add(follow(secagg_of(execution), execution.schedule, execution.trace).failure)

    look()
    assert {"", "the aggregator was away", "too few keys"} <= seen


def test_the_state_holds_no_secret() -> None:
    execution, values = make_execution("secagg", 5, 3, 3), grid_values(5)
    noise = InsecureStackedNoise(5, 5)
    watched: list[bytes] = []
    network = Wire(execution, values)
    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(5)]
    steps = [machine.start() for machine in machines]
    for _ in range(ROUNDS):
        steps = network._round(machines, steps)
        watched += [repr(step.state).encode() for step in steps]
    for party in range(5):
        secrets = Secrets.of(noise.party(party))
        for secret in (secrets.channel_seed, secrets.mask_key, secrets.self_mask, secrets.polynomials.secret):
            assert not any(repr(secret)[2:-1].encode() in state for state in watched)


def test_parameters_name_every_field() -> None:
    document = make_execution("secagg-plus", 6, 3, 3).protocol.describe()
    named = {*SecAggParameters.__dataclass_fields__, "degree"} - {"neighbours", "region", "l1", "rounded", "shares"}
    assert set(document) == named - {"dimension"}, "which is left out where it is not known"
    planned = SecAggPlus(threshold=3, minimum=3, granularity=STEP, sigma=100 * STEP, clip=1.0, neighbours=4, dimension=7)
    assert set(planned.resolved(6).describe()) == named
    laplace = replace(planned, noise=LAPLACE, l1=1.0, shares=2)
    assert set(laplace.resolved(6).describe()) == {*named, "l1", "shares"}


def test_schedules_are_stars() -> None:
    schedule: Schedule = make_execution("secagg", 4, 3, 3, aggregator=2).schedule
    assert schedule.recipients(1, 0) == (2,)
    assert schedule.recipients(2, 2) == (0, 1, 3)
    assert schedule.recipients(2, 0) == schedule.recipients(1, 2) == ()
