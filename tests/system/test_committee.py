"""A committee opens one sum of contributions: real machines, keys and files, whoever is away, lies, or sends garbage."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core.party import NoiseGroup
from quietmean.protocols.committee import Committee, Size
from quietmean.protocols.committee.contribution import excerpt, make_contribution, make_noise, read_header
from quietmean.protocols.committee.design import decode, encode
from quietmean.protocols.committee.evidence import Taken
from quietmean.protocols.committee.member import CommitteeMachine, warnings
from quietmean.protocols.committee.result import ResultError, check_result, is_end, merge_results, read_result, sign_end
from quietmean.protocols.committee.voting import CommitteeState, read_statement, sign_sum, write_statement
from quietmean.randomness import Seed
from support.committee_run import CommitteeRun
from support.committee_world import SEALER, CommitteeWorld, OwnNoise

GONE = CommitteeWorld(Committee(5), contributors=8)
LYING = CommitteeWorld(Committee(6, size=Size.LYING), contributors=8)


@cache
def files(world: CommitteeWorld) -> dict[int, bytes]:
    return {number: world.contribution(number) for number in range(world.contributors)}


def key(world: CommitteeWorld, number: int) -> str:
    return world.contributor(number).public_key


def expected(world: CommitteeWorld, counted: set[int], dealers: tuple[int, ...], seed: str = "run") -> np.ndarray:
    """The sum of what these dealt and of the noise of these members: what is opened, exactly."""
    parameters = world.parameters
    numbers = sum(encode(parameters, world.value(number), 1.0, Seed.public("contribution", number)) for number in counted)
    noise = sum(
        OwnNoise(Seed.public(seed, member)).discrete(NoiseGroup.INDEPENDENT, 0, parameters.scale, parameters.dimension)
        for member in dealers
    )
    return decode(parameters, np.asarray(numbers + noise), [1.0] * len(counted))


def require_result(run: CommitteeRun, counted: set[int], members: set[int]) -> None:
    """These members, and no others, have the result over these contributions; it is right to the last digit."""
    results = run.results()
    assert {member for member, checked in enumerate(results) if checked is not None} == members
    assert run.counted() == {frozenset(key(run.world, number) for number in counted)}
    for member in members:
        checked = results[member]
        assert checked is not None
        result = read_result(run.world.session, run.states[member].result.content)
        assert np.array_equal(checked.total, expected(run.world, counted, result.noise))
        assert len(result.noise) == run.world.parameters.dealings


def test_everybody_there_everybody_counts() -> None:
    run = CommitteeRun(GONE, files(GONE)).run()
    require_result(run, set(range(8)), set(range(5)))
    assert not any(state.remarks for state in run.states)
    merged = merge_results([read_result(GONE.session, state.result.content) for state in run.states])
    assert check_result(GONE.session, merged).sums == 5


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("member", "round_"), list(itertools.product(range(5), range(1, 9)))[::2])
def test_any_one_member_may_be_gone_from_any_moment_on(member: int, round_: int) -> None:
    run = CommitteeRun(GONE, files(GONE), gone={member: round_}).run()
    staying = set(range(5)) - {member}
    require_result(run, set(range(8)), staying)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("member", "round_"), list(itertools.product(range(5), range(1, 11))))
def test_members_with_the_result_wait_in_few_rounds_for_who_is_gone(member: int, round_: int) -> None:
    run = CommitteeRun(GONE, files(GONE), gone={member: round_}).run()
    require_result(run, set(range(8)), set(range(5)) - {member})
    assert all(len(rounds) <= 5 for rounds in run.waited.values())


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("member", "first"), list(itertools.product(range(5), range(1, 11))))
def test_who_is_cut_off_until_the_last_round_gets_the_result_then(member: int, first: int) -> None:
    def cut(round_: int, sender: int, receiver: int, content: bytes) -> bytes | None:
        return None if member in (sender, receiver) and first <= round_ < GONE.parameters.rounds else content

    run = CommitteeRun(GONE, files(GONE), network=cut).run()
    require_result(run, set(range(8)), set(range(5)))
    assert all(len(rounds) <= 5 for other, rounds in run.waited.items() if other != member)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(20))
def test_with_one_member_gone_and_messages_lost_all_others_get_the_result(number: int) -> None:
    drawn, rounds = random.Random(number), GONE.parameters.rounds

    def lose(round_: int, sender: int, receiver: int, content: bytes) -> bytes | None:
        return None if 5 < round_ < rounds - 2 and drawn.random() < 0.4 else content

    gone = drawn.randrange(5)
    run = CommitteeRun(GONE, files(GONE), network=lose, gone={gone: drawn.randint(6, 10)}).run()
    require_result(run, set(range(8)), set(range(5)) - {gone})


def test_a_member_that_died_goes_on_where_its_store_says() -> None:
    restarts = frozenset((round_, member) for round_ in range(1, 9) for member in range(5))
    require_result(CommitteeRun(GONE, files(GONE), restarts=restarts).run(), set(range(8)), set(range(5)))


def test_a_contribution_that_too_few_members_hold_is_left_out_and_named() -> None:
    run = CommitteeRun(GONE, files(GONE), lost=frozenset({(1, 4), (3, 4)})).run()
    require_result(run, set(range(8)) - {4}, set(range(5)))
    assert all(state.left_out == ((key(GONE, 4), "3 of 5 members hold it"),) for state in run.states)


def test_fewer_contributions_than_the_minimum_give_no_result() -> None:
    run = CommitteeRun(GONE, {0: files(GONE)[0], 1: files(GONE)[1]}).run()
    assert run.results() == [None] * 5
    assert not any(state.own_sum for state in run.states)
    assert "heard in time of fewer than" in " ".join(warnings(GONE.parameters, run.states[0]))


# --- contributions that are bad -----------------------------------------------------------------------------------------------


def other_share(world: CommitteeWorld, number: int, member: int) -> bytes:
    """One member's share is another than that on the polynomials; all is sealed and signed as due."""
    parameters, original = world.parameters, SEALER.seal
    position = iter(range(parameters.members))

    class Cheating:
        def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
            if next(position) == member:
                changed = (int.from_bytes(content[:4], "little") + 1) % parameters.prime
                content = changed.to_bytes(4, "little") + content[4:]
            return original(mailbox, info, content)

    numbers = encode(parameters, world.value(number), 1.0, Seed(bytes(32)))
    return make_contribution(world.session, world.contributor(number), Cheating(), numbers, 1.0, Seed(bytes(32)))


def of_higher_degree(world: CommitteeWorld, number: int) -> bytes:
    """The shares of all members are random: they lie on no polynomial."""

    class Cheating:
        def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
            numbers = np.random.default_rng(int.from_bytes(mailbox[:4], "big")).integers(2**31 - 1, size=len(content) // 4)
            return SEALER.seal(mailbox, info, numbers.astype("<u4").tobytes())

    return make_contribution(
        world.session, world.contributor(number), Cheating(), np.zeros(4, dtype=np.int64), 1.0, Seed(bytes(32))
    )


BAD: dict[str, Callable[[CommitteeWorld], bytes]] = {
    "degree": lambda world: of_higher_degree(world, 7),
    **{f"other share to {member}": lambda world, member=member: other_share(world, 7, member) for member in range(5)},  # type: ignore[misc]
    "truncated": lambda world: files(world)[7][:-100],
    "changed": lambda world: files(world)[7][:-5] + bytes(5),
    "another session": lambda world: CommitteeWorld(Committee(5), 8, session_digest=b"t" * 32).contribution(7),
    "garbage": lambda world: bytes(1000),
    "nothing": lambda world: b"",
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_contribution_is_out_and_the_result_is_right(bad: str) -> None:
    mixed = files(GONE) | {7: BAD[bad](GONE)}
    run = CommitteeRun(GONE, mixed).run()
    require_result(run, set(range(7)), set(range(5)))
    named = [set(state.left_out) for state in run.states]
    refused = [entry for held in run.holdings for entry in held.left_out]
    assert all(dict(one).keys() <= {key(GONE, 7)} for one in named)
    assert any(named) or refused


def test_two_files_of_a_contributor_count_for_nothing_if_members_hold_different_ones() -> None:
    mixed = dict(files(GONE)) | {"again": GONE.contribution(7)}
    lost = frozenset({(0, 7), (1, 7), (2, "again"), (3, "again"), (4, "again")})
    run = CommitteeRun(GONE, mixed, lost=lost).run()
    require_result(run, set(range(7)), set(range(5)))
    assert {name for name, _ in run.states[0].left_out} == {key(GONE, 7)}


def test_a_second_file_of_a_contributor_does_not_count_besides_its_first() -> None:
    run = CommitteeRun(GONE, dict(files(GONE)) | {"again": GONE.contribution(7), "same": files(GONE)[7]}).run()
    require_result(run, set(range(8)), set(range(5)))
    assert [len(held.left_out) for held in run.holdings] == [1] * 5


# --- members that lie ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("world", "liar"), [*((GONE, liar) for liar in range(5)), *((LYING, liar) for liar in range(6))])
def test_a_wrong_sum_is_corrected_or_refused_and_its_member_named(world: CommitteeWorld, liar: int) -> None:
    def lie(round_: int, sender: int, receiver: int, content: bytes) -> bytes:
        if sender != liar or round_ < 6:
            return content
        statement = read_statement(content)
        if statement.sum is None:
            return content
        share = bytes([statement.sum.share[0] ^ 1]) + statement.sum.share[1:]
        wrong = sign_sum(world.session, world.signer(liar), liar, statement.sum.digest, share)
        return write_statement(msgspec.structs.replace(statement, sum=wrong))

    run = CommitteeRun(world, files(world), network=lie).run()
    honest = set(range(world.parameters.members)) - {liar}
    assert run.counted() == {frozenset(key(world, number) for number in range(8))}
    for member in honest:
        checked = run.checked(member)
        assert checked is not None
        assert checked.wrong == (liar,)
        result = read_result(world.session, run.states[member].result.content)
        assert np.array_equal(checked.total, expected(world, set(range(8)), result.noise))
        assert f"member {liar + 1} published a wrong sum" in " ".join(run.states[member].remarks)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("liar", range(5))
def test_with_a_wrong_sum_and_a_member_gone_the_result_is_refused(liar: int) -> None:
    gone = (liar + 1) % 5

    def lie(round_: int, sender: int, receiver: int, content: bytes) -> bytes:
        if sender == liar and round_ >= 6 and (own := read_statement(content).sum) is not None:
            share = bytes([own.share[0] ^ 1]) + own.share[1:]
            wrong = sign_sum(GONE.session, GONE.signer(liar), liar, own.digest, share)
            return write_statement(msgspec.structs.replace(read_statement(content), sum=wrong))
        return content

    run = CommitteeRun(GONE, files(GONE), network=lie, gone={gone: 6}).run()
    for member in set(range(5)) - {liar, gone}:
        assert run.checked(member) is None
        assert "do not fit together" in " ".join(warnings(GONE.parameters, run.states[member]))


class NeverQuiet(CommitteeMachine):
    """It states something to all others in every round, to the last."""

    def _concluded(self, state: CommitteeState, taken: Taken) -> CommitteeState:
        return state


@pytest.mark.sampled(3)
@pytest.mark.parametrize("liar", range(5))
def test_a_member_that_states_a_wrong_result_keeps_nobody_from_the_right_one(liar: int) -> None:
    right = read_result(GONE.session, CommitteeRun(GONE, files(GONE), seed="another").run().states[0].result.content)
    wrong = (b"garbage", msgspec.structs.replace(right, sums=right.sums[:2]).to_bytes())

    def lie(round_: int, sender: int, receiver: int, content: bytes) -> bytes:
        if sender != liar or round_ <= 2:
            return content
        return write_statement(msgspec.structs.replace(read_statement(content), result=wrong[receiver % 2]))

    run = CommitteeRun(GONE, files(GONE), network=lie, kinds={liar: NeverQuiet}).run()
    require_result(run, set(range(8)), set(range(5)) - {liar})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("liar", range(5))
def test_two_lists_of_a_member_are_named_and_one_result_comes(liar: int) -> None:
    other = CommitteeRun(GONE, files(GONE), lost=frozenset({(liar, 0)})).run()
    second = next(one.content for one in other.sent if one.sender == liar and one.round == 2)

    def lie(round_: int, sender: int, receiver: int, content: bytes) -> bytes:
        return second if sender == liar and round_ == 2 and receiver % 2 else content

    run = CommitteeRun(GONE, files(GONE), network=lie).run()
    assert len(run.counted()) == 1
    assert all(run.checked(member) is not None for member in set(range(5)) - {liar})


@pytest.mark.parametrize("liar", range(5))
def test_noise_whose_shares_do_not_fit_is_left_out(liar: int) -> None:
    class Cheating:
        def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
            changed = (int.from_bytes(content[:4], "little") + mailbox[0]) % (2**31 - 1)
            return SEALER.seal(mailbox, info, changed.to_bytes(4, "little") + content[4:])

    raw = make_noise(GONE.session, GONE.signer(liar), Cheating(), np.zeros(4, dtype=np.int64), Seed(bytes(32)))

    def lie(round_: int, sender: int, receiver: int, content: bytes) -> bytes:
        return excerpt(GONE.session, raw, receiver) if sender == liar and round_ == 1 else content

    run = CommitteeRun(GONE, files(GONE), network=lie).run()
    for member in set(range(5)) - {liar}:
        result = read_result(GONE.session, run.states[member].result.content)
        assert liar not in result.noise
        assert run.checked(member) is not None


def test_a_members_word_that_it_deleted_everything_is_its_own() -> None:
    word = sign_end(GONE.session, GONE.signer(2))
    assert is_end(GONE.session, 2, word)
    assert not is_end(GONE.session, 1, word)


# --- results that prove nothing -----------------------------------------------------------------------------------------------


def test_a_changed_result_is_refused() -> None:
    raw = CommitteeRun(GONE, files(GONE)).run().states[0].result.content
    result = read_result(GONE.session, raw)
    changes: list[dict[str, Any]] = [
        {"chosen": result.chosen[72:]},
        {"noise": (0, 1, 2, 4) if result.noise == (0, 1, 2, 3) else (0, 1, 2, 3)},
        {"members": (0, 1, 2, 3, 4, 4)},
        {"session": b"t" * 32},
        {"label": "another"},
        {"sums": (*result.sums, result.sums[0])},
        {"sums": (msgspec.structs.replace(result.sums[0], share=bytes(8)), *result.sums[1:])},
    ]
    for change in changes:
        with pytest.raises(ResultError):
            read_result(GONE.session, msgspec.structs.replace(result, **change).to_bytes())
    few = msgspec.structs.replace(result, sums=result.sums[:3])
    with pytest.raises(ResultError, match="do not give a result, which needs 4"):
        check_result(GONE.session, few)
    with pytest.raises(ResultError, match="not a result"):
        read_result(GONE.session, raw[:-1])


def test_a_member_that_signed_two_sums_is_named_where_their_files_are_given_together() -> None:
    run = CommitteeRun(GONE, files(GONE)).run()
    result = read_result(GONE.session, run.states[0].result.content)
    own = result.sums[2]
    other = sign_sum(GONE.session, GONE.signer(2), 2, own.digest, bytes([own.share[0] ^ 1]) + own.share[1:])
    second = msgspec.structs.replace(result, sums=(*result.sums[:2], other, *result.sums[3:]))
    with pytest.raises(ResultError, match="member 3 signed two different sums over one choice: it lies, so give the file of one"):
        merge_results([result, second])


def test_headers_are_named_in_the_result_by_what_contributors_signed() -> None:
    run = CommitteeRun(GONE, files(GONE)).run()
    checked = run.checked(3)
    assert checked is not None
    assert {digest for digest, _, _ in checked.counted} == {read_header(GONE.session, raw).digest for raw in files(GONE).values()}
