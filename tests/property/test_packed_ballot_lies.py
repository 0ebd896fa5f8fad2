"""Lies about whose inputs count: proposals that are not valid, two of them at once, and votes that change.

Two of nine parties lie, which is what the plan counts with: q = 6. Each run is of the real machines; what liars tell is drawn,
for every receiver and round anew. Whatever it is, all honest members that have a result have the same right one, and none of
them ever votes for what is not valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quietmean.core.party import Message, PartyId
from quietmean.protocols.packed_sharing.ballots import FIRST_PROPOSAL, FIRST_VOTES, BallotProposal, is_valid, leads
from quietmean.protocols.packed_sharing.encoding import leaders_of
from quietmean.protocols.packed_sharing.messages import MemberStatement
from quietmean.randomness import Seed
from support.effort import examples
from support.packed_liars import PARTIES, Run, codec_of, protocol, wrong_sum

ITS = protocol()
CODEC, RULES = codec_of(ITS), ITS.rules(PARTIES)
FULL = (1 << PARTIES) - 1
LEADERS = leaders_of(ITS.draw_schedule(PARTIES, Seed.public("lies", 0)))
SETS = st.integers(0, FULL)
PROPOSALS = st.builds(
    lambda ballot, inputs, members: BallotProposal(ballot, RULES.pack(inputs), RULES.pack(members)), st.integers(1, 3), SETS, SETS
)
# For each receiver and each round from 3 on, what is proposed and voted for; None: nothing.
TALES = st.lists(
    st.lists(st.tuples(st.none() | PROPOSALS, st.none() | PROPOSALS), min_size=8, max_size=8), min_size=PARTIES, max_size=PARTIES
)


@dataclass
class Liar:
    """Tells each receiver its own tale, with everything else as it should be; votes in the first rounds of votes too."""

    tales: Mapping[PartyId, list[list[tuple[BallotProposal | None, BallotProposal | None]]]]

    def __call__(self, message: Message, receiver: int) -> bytes | None:
        if message.round < FIRST_PROPOSAL:
            return message.content
        proposal, vote = self.tales[message.sender][receiver][message.round - FIRST_PROPOSAL]
        if message.round == FIRST_PROPOSAL:
            return None if proposal is None else CODEC.write(FIRST_PROPOSAL, MemberStatement(proposal=proposal))
        leading = leads(RULES, message.round)
        proposes = leading and LEADERS[leading - 1] == message.sender and vote is None
        return CODEC.write(
            message.round, MemberStatement(FULL, vote, proposal if proposes and message.round > FIRST_VOTES else None)
        )


def votes_of(run: Run) -> list[BallotProposal]:
    found = [run.steps[party].state.member.vote for party in run.honest]
    return [vote for vote in found if vote is not None]


def check(run: Run) -> list[int]:
    """No wrong result, no two sets, no vote for what is not valid; returns who has a result."""
    assert all(is_valid(RULES, vote) for vote in votes_of(run))
    decided = {run.steps[party].state.member.decided for party in run.honest} - {b""}
    assert len(decided) <= 1
    return run.check()


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_whatever_is_proposed_and_voted_for(data: st.DataObject) -> None:
    """Leaders of the first ballots among the liars or not."""
    liars = set(data.draw(st.sampled_from([LEADERS[:2], LEADERS[:1] + LEADERS[5:6], LEADERS[7:9]])))
    run = Run(ITS, liars, Liar({liar: data.draw(TALES) for liar in liars}))
    check(run)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_two_proposals_at_once(data: st.DataObject) -> None:
    """The first leader proposes one valid set to some and another one to the others, and votes for whatever each was told."""
    leader = LEADERS[0]
    sets = data.draw(st.lists(SETS.filter(lambda one: one.bit_count() >= RULES.least), min_size=2, max_size=2, unique=True))
    told = data.draw(st.lists(st.sampled_from([0, 1]), min_size=PARTIES, max_size=PARTIES))
    made = [BallotProposal(1, RULES.pack(inputs), RULES.pack(FULL)) for inputs in sets]

    def change(message: Message, receiver: int) -> bytes | None:
        if message.round < FIRST_PROPOSAL:
            return message.content
        mine = made[told[receiver]]
        said = MemberStatement(proposal=mine) if message.round == FIRST_PROPOSAL else MemberStatement(FULL, mine)
        return CODEC.write(message.round, said)

    run = Run(ITS, {leader}, change)
    done = check(run)
    votes = votes_of(run)
    # All have voted at once, as they were told: only what six of nine say counts.
    assert len(votes) == len(run.honest)
    for one in made:
        if sum(vote == one for vote in votes) + 1 < RULES.votes_needed:
            assert run.steps[run.honest[0]].state.member.decided != one.inputs
    if done:
        assert done == run.honest


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_votes_that_change(data: st.DataObject) -> None:
    """Two members vote with everybody at first, then for another valid set: the first vote counts, the result stays."""
    liars = set(data.draw(st.permutations(range(PARTIES)))[:2])
    assume(LEADERS[0] not in liars)
    other = BallotProposal(1, RULES.pack(data.draw(SETS.filter(lambda one: one.bit_count() >= 4))), RULES.pack(FULL))
    turn = data.draw(st.integers(FIRST_VOTES, 6))

    def change(message: Message, receiver: int) -> bytes | None:
        return message.content if message.round < turn else CODEC.write(message.round, MemberStatement(FULL, other))

    run = Run(ITS, liars, change)
    done = check(run)
    assert done == run.honest
    assert {vote.inputs for vote in votes_of(run)} == {RULES.pack(FULL)}


@pytest.mark.parametrize(
    ("inputs", "members"),
    [(0b111, FULL), (0, FULL), (FULL, 0b111), (FULL, 0)],
    ids=["too few inputs", "no inputs", "too few members", "no members"],
)
@pytest.mark.parametrize("as_votes", [False, True])
def test_what_is_not_valid_is_ignored_by_everybody(inputs: int, members: int, as_votes: bool) -> None:
    """As a proposal of the first leader, or in the votes of two members: 3 inputs are below u_min = 4, 3 members below T = 4."""
    bad = BallotProposal(1, RULES.pack(inputs), RULES.pack(members))
    assert not is_valid(RULES, bad)
    liars = set(LEADERS[3:5]) if as_votes else {LEADERS[0]}

    def change(message: Message, receiver: int) -> bytes | None:
        if message.round < FIRST_PROPOSAL or (as_votes and message.round == FIRST_PROPOSAL):
            return message.content
        return CODEC.write(
            message.round, MemberStatement(proposal=bad) if message.round == FIRST_PROPOSAL else MemberStatement(FULL, bad)
        )

    run = Run(ITS, liars, change)
    assert check(run) == run.honest
    assert {vote.inputs for vote in votes_of(run)} == {RULES.pack(FULL)}
    assert {vote.ballot for vote in votes_of(run)} == {1 if as_votes else 2}


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_any_wrong_sums_are_corrected_up_to_e_and_refused_up_to_what_is_left(data: st.DataObject) -> None:
    """e = 0..2 with T = 3 of nine sums: E wrong ones are corrected for E <= e, and refused for e < E <= 6 - e."""
    lies = data.draw(st.integers(0, 2))
    its = protocol(lies, secrets=1)
    wrong = data.draw(st.integers(0, 6 - lies))
    liars = set(data.draw(st.permutations(range(PARTIES)))[:wrong])
    change = wrong_sum(codec_of(its), data.draw(st.randoms(use_true_random=False)))
    run = Run(its, liars, change)
    done = run.check()
    if wrong <= lies:
        assert done == run.honest
        named = {liar for liar in liars if any(f"member {liar}'s sum" in one for one in run.warnings(run.honest[0]))}
        assert named == liars
    else:
        assert done == []
        assert all(np.any(["do not fit together" in one for one in run.warnings(party)]) for party in run.honest)
