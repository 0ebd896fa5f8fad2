"""Members and dealers of packed sharing that say anything: what is corrected, what is refused, who is named.

The machines are real, arithmetic included. Liars' messages are changed on their way, for each receiver in another way.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from quietmean.core.party import Message
from quietmean.protocols.packed_sharing.ballots import BallotProposal
from quietmean.protocols.packed_sharing.messages import Codec, MemberStatement
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import Seed
from support.packed_liars import NAMED, PARTIES, Change, Run, codec_of, protocol, wrong_sum


@pytest.mark.parametrize(("lies", "liars"), [(1, {4}), (2, {0, 7})])
def test_so_many_wrong_sums_are_corrected_and_named(lies: int, liars: set[int]) -> None:
    its = protocol(lies, secrets=2)
    run = Run(its, liars, wrong_sum(codec_of(its), random.Random(1)))
    assert run.check() == run.honest
    for party in run.honest:
        for liar in liars:
            assert f"member {liar}'s {NAMED}" in " ".join(run.warnings(party))


@pytest.mark.parametrize(("lies", "liars"), [(0, {3}), (0, {3, 5}), (1, {1, 2})])
def test_more_wrong_sums_are_refused(lies: int, liars: set[int]) -> None:
    its = protocol(lies)
    run = Run(its, liars, wrong_sum(codec_of(its), random.Random(2)))
    assert run.check() == []
    for party in run.honest:
        assert not its.ending(run.steps[party].state).nothing_published
        assert run.warnings(party)


def test_a_dealer_that_deals_a_wrong_share_is_among_those_named() -> None:
    its = protocol(1)
    codec = codec_of(its)
    # From dealer 0 member 5 gets numbers, not a seed.
    assert its.rules(PARTIES).colluding == 2

    def change(message: Message, receiver: int) -> bytes:
        if message.round == 1 and receiver == 5:
            share = codec.read_share(message.content).astype(np.int64)
            return codec.write_share(((share + 1) % codec.prime).astype(np.uint32))
        return message.content

    run = Run(its, {0}, change)
    assert run.check() == run.honest
    for party in run.honest:
        if party != 5:
            assert f"member 5's {NAMED}" in " ".join(run.warnings(party))


def test_a_leader_whose_proposal_has_too_few_inputs_or_members_is_ignored() -> None:
    its = protocol()
    codec, rules = codec_of(its), its.rules(PARTIES)
    full = (1 << PARTIES) - 1
    for inputs, members in ((0b111, full), (full, 0b111)):

        def change(message: Message, receiver: int, bad: tuple[int, int] = (inputs, members)) -> bytes | None:
            if message.round != 3:
                # It is silent later: its vote would be for the good proposal.
                return message.content if message.round < 3 else None
            return codec.write(3, MemberStatement(proposal=BallotProposal(1, rules.pack(bad[0]), rules.pack(bad[1]))))

        leader = int(np.nonzero(its.draw_schedule(PARTIES, Seed.public("lies", 0)).out_degree[2])[0][0])
        run = Run(its, {leader}, change)
        # The next leader proposes.
        assert run.check() == run.honest
        votes = [run.steps[party].state.member.vote for party in run.honest]
        assert {vote.ballot for vote in votes if vote is not None} == {2}


def anything(codec: Codec, chance: random.Random, heard: list[Message]) -> Change:
    """Good messages, changed ones, those of others, proposals and votes for anything, noise, and nothing."""
    rules = codec.rules

    def invented(round_: int) -> bytes:
        sets = [chance.getrandbits(PARTIES) | chance.getrandbits(PARTIES) for _ in range(3)]
        made = BallotProposal(chance.randint(1, rules.ballots), rules.pack(sets[0]), rules.pack(sets[1]))
        share = codec.write_share(np.array([chance.randrange(codec.prime) for _ in range(codec.blocks)], dtype=np.uint32))
        said: dict[int, Any] = {2: MemberStatement(sets[2]), 3: MemberStatement(proposal=made), 4: MemberStatement(sets[2], made)}
        later = [
            MemberStatement(sets[2], made),
            MemberStatement(sets[2], None, made),
            MemberStatement(vote=made, decided=made.inputs, share=share),
        ]
        return codec.write(round_, said.get(round_) or chance.choice(later))

    def change(message: Message, receiver: int) -> bytes | None:
        if message.round == 1:
            return message.content
        heard.append(message)
        what = chance.randrange(6)
        if what == 0:
            return None
        if what == 1:
            raw = bytearray(message.content or b"\0")
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            return bytes(raw)
        if what == 2:
            return chance.randbytes(chance.randrange(40))
        if what == 3:
            return chance.choice(heard).content
        return invented(message.round) if what == 4 else message.content

    return change


def runs_with_liars(count: int, first: int = 0) -> int:
    """Two members lie after they have dealt; e = 2 of nine and T = 3, so that all is corrected, however they choose it."""
    done = 0
    its = protocol(2, secrets=1)
    for seed in range(first, first + count):
        chance = random.Random(seed)
        liars = set(chance.sample(range(PARTIES), 2))
        run = Run(its, liars, anything(codec_of(its), chance, []), seed)
        found = run.check()
        done += found == run.honest
    return done


def test_nothing_that_two_liars_say_gives_a_wrong_result() -> None:
    assert runs_with_liars(25) > 0


@pytest.mark.slow
def test_nothing_that_two_liars_say_gives_a_wrong_result_at_length() -> None:
    print(f"\n2000 runs, {runs_with_liars(2000, 100)} with the result for all honest parties")


def test_what_cannot_be_read_has_not_arrived() -> None:
    """A member whose messages are all unreadable is one that is silent."""
    its = protocol()
    with pytest.raises(ContentError):
        codec_of(its).read(2, b"")
    silent = Run(its, {6}, lambda message, receiver: None)
    garbled = Run(its, {6}, lambda message, receiver: b"\xff" * 3)
    assert silent.check() == garbled.check() == silent.honest
    for party in silent.honest:
        assert silent.steps[party].state.inputs == garbled.steps[party].state.inputs


# --- by how many sums a result was checked -----------------------------------------------------------------------------------

# Members publish their sums from here on.
_SUMS = 5


def silent(first: int, last: int = 99) -> Change:
    """Who says nothing in these rounds."""
    return lambda message, receiver: None if first <= message.round <= last else message.content


def counted(run: Run) -> set[tuple[int | None, int | None]]:
    """How many sums each honest party's result is from, and how many wrong ones would have been noticed."""
    checks = [run.its.ending(run.steps[party].state).protocol.traits.checks.by or {} for party in run.honest]
    return {(by.get("sums"), by.get("lies_excluded")) for by in checks}


def test_all_sums_that_come_check_the_result() -> None:
    run = Run(protocol(), {8}, silent(_SUMS))
    assert run.check() == run.honest
    assert run.its.threshold == 4
    # Of eight sums four determine the result.
    assert counted(run) == {(8, 4)}
    assert counted(Run(protocol(1), {8}, silent(_SUMS))) == {(8, 3)}


def test_with_no_more_sums_than_determine_it_the_result_is_unchecked_and_says_so() -> None:
    run = Run(protocol(), {4, 5, 6, 7, 8}, silent(_SUMS))
    assert run.check() == run.honest
    assert counted(run) == {(4, 0)}
    assert all("unchecked: only as many members' sums came" in " ".join(run.warnings(party)) for party in run.honest)


def test_who_has_only_as_many_sums_as_determine_it_waits_a_round_for_more() -> None:
    """So a wrong sum that would have been among four is noticed by those that came a round later."""
    late = {4, 5, 6, 7, 8}
    run = Run(protocol(), late, silent(_SUMS, _SUMS))
    assert run.check() == run.honest
    assert counted(run) == {(9, 5)}
    its = protocol()
    wrong, quiet = wrong_sum(codec_of(its), random.Random(3)), silent(_SUMS, _SUMS)
    lied = Run(its, late | {3}, lambda message, receiver: (wrong if message.sender == 3 else quiet)(message, receiver))
    assert lied.check() == []
    assert all("The result is refused." in " ".join(lied.warnings(party)) for party in lied.honest)


def test_nobody_waits_where_no_more_sums_can_come_or_the_last_round_is_over() -> None:
    rules = protocol().rules(PARTIES)
    assert rules.waits_for_more(4, rules.rounds)
    assert not rules.waits_for_more(4, rules.rounds + 1)
    assert not rules.waits_for_more(5, _SUMS)
    all_needed = protocol(colluding=2, secrets=7).rules(PARTIES)
    assert all_needed.threshold == PARTIES
    assert not all_needed.waits_for_more(PARTIES, _SUMS)
