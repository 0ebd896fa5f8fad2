"""What a leader proposes, what a member votes for, and what votes decide: pure functions, compared with plain definitions."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.protocols.packed_sharing.ballots import (
    BallotProposal,
    BallotRules,
    ballots_needed,
    choose,
    decided,
    is_valid,
    mask_of,
    members_of,
    preferred,
    proves_unpublished,
    unpack,
    with_votes,
)
from support.effort import examples


def rules(parties: int = 7, colluding: int = 1, secrets: int = 2, gone: int = 2, least: int = 3, liars: int = 0) -> BallotRules:
    return BallotRules(parties, colluding, secrets, (parties + colluding) // 2 + 1, least, gone, liars, 3)


def proposal(its: BallotRules, ballot: int, inputs: int, members: int) -> BallotProposal:
    return BallotProposal(ballot, its.pack(inputs), its.pack(members))


FULL = 0b1111111
STATUSES = st.dictionaries(st.integers(0, 6), st.integers(0, FULL), min_size=1, max_size=7)


@given(STATUSES, st.integers(0, 2), st.integers(1, 4))
@settings(max_examples=examples(300))
def test_a_choice_is_what_it_must_be(holds: dict[int, int], gone: int, least: int) -> None:
    its = rules(gone=gone, least=least)
    chosen = choose(its, holds)
    need = max(its.threshold, its.sums_needed + gone - (7 - len(holds)))
    if chosen is None:
        return
    inputs, members = chosen
    assert inputs.bit_count() >= least
    assert members.bit_count() >= need
    assert set(members_of(members)) == {member for member, held in holds.items() if held & inputs == inputs}


@given(STATUSES)
@settings(max_examples=examples(300))
def test_a_choice_is_the_larger_of_two_simple_searches(holds: dict[int, int]) -> None:
    its = rules(gone=0, least=0)
    need = max(its.threshold, its.sums_needed - (7 - len(holds)))
    if len(holds) < need:
        assert choose(its, holds) is None
        return
    missed = {dealer: sum(not held >> dealer & 1 for held in holds.values()) for dealer in range(7)}
    kept = set(range(7))
    while sum(kept <= set(members_of(held)) for held in holds.values()) < need:
        kept.remove(min(kept, key=lambda dealer: (-missed[dealer], dealer)))
    common, left = FULL, dict(holds)
    for _ in range(need):
        best = min(left, key=lambda member: (-(common & left[member]).bit_count(), member))
        common &= left.pop(best)
    chosen = choose(its, holds)
    assert chosen is not None
    assert chosen[0] == max(mask_of(kept), common, key=int.bit_count)


def test_who_was_not_heard_counts_among_those_that_may_be_gone() -> None:
    its = rules(gone=2)
    everything = dict.fromkeys(range(7), FULL)
    # T = 3 and two may go: five must hold everything, and of five that were heard, three.
    for lacking, heard in ((2, 7), (2, 5)):
        holds = {member: FULL if member >= lacking else FULL & ~1 for member in list(everything)[:heard]}
        chosen = choose(its, holds)
        assert chosen is not None
        assert chosen[0] == FULL
    assert choose(its, {member: FULL if member > 2 else FULL & ~1 for member in range(7)}) == (FULL & ~1, FULL)


def test_too_few_inputs_or_members_give_no_choice() -> None:
    assert choose(rules(least=4), dict.fromkeys(range(7), 0b111)) is None
    assert choose(rules(), dict.fromkeys(range(2), FULL)) is None


def test_what_is_not_valid_is_ignored_everywhere() -> None:
    its = rules()
    good = proposal(its, 2, 0b111, 0b1110000)
    bad = [proposal(its, 1, 0b11, FULL), proposal(its, 1, FULL, 0b11), proposal(its, 4, FULL, FULL), proposal(its, 0, FULL, FULL)]
    assert is_valid(its, good)
    assert not any(is_valid(its, one) for one in bad)
    assert preferred(its, [*bad, good]) == good
    assert preferred(its, bad) is None
    assert with_votes(its, {}, dict.fromkeys(bad, FULL)) == {}


def test_the_lowest_ballot_is_voted_for() -> None:
    its = rules()
    offered = [proposal(its, ballot, 0b111 << ballot, FULL) for ballot in (3, 1, 2)]
    for order in itertools.permutations(offered):
        assert preferred(its, order) == offered[1]


def test_the_first_vote_of_each_voter_counts() -> None:
    its = rules()
    one, other = proposal(its, 1, 0b111, FULL), proposal(its, 1, 0b1110, FULL)
    votes = with_votes(its, {one: 0b11}, {other: 0b111})
    assert votes == {one: 0b11, other: 0b100}
    assert with_votes(its, votes, {one: 0b1100}) == {one: 0b1011, other: 0b100}


def test_votes_of_all_ballots_for_one_set_count_together() -> None:
    its = rules()
    first, second = proposal(its, 1, 0b111, FULL), proposal(its, 2, 0b111, FULL)
    assert its.votes_needed == 5
    assert decided(its, {first: 0b11, second: 0b1100}) is None
    assert decided(its, {first: 0b11, second: 0b11100}) == its.pack(0b111)


def test_two_sets_are_never_decided() -> None:
    """For all small n: q honest-or-lying voters each need more honest members than there are."""
    for parties in range(2, 40):
        for colluding in range(parties):
            quorum = (parties + colluding) // 2 + 1
            assert 2 * quorum > parties + colluding
            assert 2 * (quorum - 1) <= parties + colluding


def test_the_proof_that_nobody_published() -> None:
    """So many said that they never voted that, even if those who may lie lied, fewer than q have."""
    for parties in range(2, 20):
        for colluding in range(parties):
            its = BallotRules(parties, colluding, 1, (parties + colluding) // 2 + 1, 1, 0, 0, 3)
            least = next((count for count in range(parties + 1) if proves_unpublished(its, (1 << count) - 1)), None)
            for count in range(parties + 1):
                voters = parties - max(count - colluding, 0)
                assert proves_unpublished(its, (1 << count) - 1) == (voters < its.votes_needed), (
                    parties,
                    colluding,
                    count,
                    least,
                )


def test_the_number_of_ballots() -> None:
    assert ballots_needed(4, 1) == 3
    assert ballots_needed(100, 10) == 5
    for members, gone in ((100, 20), (30, 6), (1000, 100)):
        found = ballots_needed(members, gone)
        chance = math.comb(gone, found) / math.comb(members, found)
        assert chance <= 1e-5 < math.comb(gone, found - 1) / math.comb(members, found - 1)


@given(st.integers(1, 300).flatmap(lambda parties: st.tuples(st.just(parties), st.integers(0, 2**parties - 1))))
def test_sets_as_bytes(found: tuple[int, int]) -> None:
    parties, mask = found
    packed = rules(parties).pack(mask)
    assert len(packed) == -(-parties // 8)
    assert unpack(packed) == mask
    assert mask_of(members_of(mask)) == mask
