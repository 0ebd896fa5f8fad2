"""The contents of messages of packed sharing: sizes, and that there is one way to say a thing; anything else is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.protocols.packed_sharing.ballots import BallotProposal, BallotRules
from quietmean.protocols.packed_sharing.messages import Codec, MemberStatement
from quietmean.protocols.publishing import ContentError
from support.effort import examples
from support.refusals import raised

PRIMES = {4: 2**31 - 1, 2: 65521}


def codec(parties: int = 11, blocks: int = 3, word_bytes: int = 4) -> Codec:
    return Codec(BallotRules(parties, 2, 4, 7, 3, 2, 0, 3), blocks, PRIMES[word_bytes], word_bytes)


@st.composite
def statements(draw: st.DrawFn, its: Codec, round_: int) -> MemberStatement:
    rules = its.rules
    sets = st.integers(0, 2**rules.parties - 1)
    proposals = st.builds(
        lambda b, u, m: BallotProposal(b, rules.pack(u), rules.pack(m)), st.integers(1, rules.ballots), sets, sets
    )
    if round_ == 2:
        return MemberStatement(draw(sets))
    if round_ == 3:
        return MemberStatement(proposal=draw(proposals))
    vote = draw(st.none() | proposals)
    if round_ == 4 or draw(st.booleans()):
        proposal = draw(st.none() | proposals) if vote is None and round_ > 4 else None
        return MemberStatement(draw(sets), vote, proposal)
    same = vote is not None and draw(st.booleans())
    decided = vote.inputs if vote is not None and same else rules.pack(draw(sets))
    numbers = np.array(draw(st.lists(st.integers(0, its.prime - 1), min_size=its.blocks, max_size=its.blocks)), dtype=np.uint32)
    return MemberStatement(vote=vote, decided=decided, share=its.write_share(numbers) if draw(st.booleans()) else None)


ANY = st.tuples(st.sampled_from([1, 8, 11, 100]), st.integers(1, 4), st.sampled_from([2, 4]), st.integers(2, 9))


@given(st.data(), ANY)
@settings(max_examples=examples(300))
def test_what_is_written_is_read(data: st.DataObject, shape: tuple[int, int, int, int]) -> None:
    *sizes, round_ = shape
    its = codec(*sizes)
    said = data.draw(statements(its, round_))
    raw = its.write(round_, said)
    assert its.read(round_, raw) == said
    assert len(raw) <= its.limit


@given(st.data(), ANY, st.binary(max_size=60))
@settings(max_examples=examples(500))
def test_whatever_can_be_read_is_the_only_way_to_say_it(
    data: st.DataObject, shape: tuple[int, int, int, int], noise: bytes
) -> None:
    """Random bytes, and good ones with a bit changed, cut off or made longer: read to what gives the same bytes, or refused."""
    *sizes, round_ = shape
    its = codec(*sizes)
    good = its.write(round_, data.draw(statements(its, round_)))
    place, bit = data.draw(st.integers(0, 8 * len(good) - 1)), data.draw(st.integers(1, 5))
    flipped = (int.from_bytes(good, "little") ^ 1 << place).to_bytes(len(good), "little")
    for raw in (noise, flipped, good[:-bit], good + noise[:bit]):
        try:
            said = its.read(round_, raw)
        except ContentError:
            continue
        assert its.write(round_, said) == raw


def test_sizes() -> None:
    """n = 100, d = 1e5, l = 80: 1250 numbers a share."""
    its = codec(100, 1250)
    everybody = (1 << 100) - 1
    vote = BallotProposal(1, its.rules.pack(everybody), its.rules.pack(everybody))
    share = its.write_share(np.zeros(1250, dtype=np.uint32))
    assert len(share) == 5000
    assert len(its.write(2, MemberStatement(everybody))) == 13
    assert len(its.write(3, MemberStatement(proposal=vote))) == 27
    assert len(its.write(4, MemberStatement(everybody, vote))) == 40
    assert len(its.write(5, MemberStatement(vote=vote, decided=vote.inputs, share=share))) == 5028
    assert len(codec(100, 1250, 2).write_share(np.zeros(1250, dtype=np.uint32))) == 2500


@pytest.mark.parametrize("word_bytes", [2, 4])
def test_shares_and_seeds(word_bytes: int) -> None:
    its = codec(blocks=2, word_bytes=word_bytes)
    share = its.write_share(np.array([0, its.prime - 1], dtype=np.uint32))
    assert its.check_dealt(share, False) == share
    assert its.check_dealt(bytes(32), True) == bytes(32)
    too_large = (its.prime).to_bytes(word_bytes, "little") + bytes(word_bytes)
    for raw, seeded, why in (
        (share + b"\0", False, "bytes"),
        (share[:-1], False, "bytes"),
        (b"", False, "bytes"),
        (too_large, False, "not below"),
        (bytes(31), True, "seed"),
        (share, True, "seed"),
    ):
        raised(ContentError, why, its.check_dealt, raw, seeded)


@pytest.mark.parametrize(
    ("round_", "raw", "why"),
    [
        (2, b"\1", "1 bytes instead of 2"),
        (2, bytes(3), "1 bytes too many"),
        (2, b"\0\xf0", "do not exist"),
        (3, b"\0" + bytes(4), "ballot 0"),
        (3, b"\4" + bytes(4), "ballot 4"),
        (3, b"\1" + bytes(3), "1 bytes instead of 2"),
        (3, b"\1" + bytes(3) + b"\x08", "do not exist"),
        (4, bytes(2) + b"\1", "0 bytes instead of 2"),
        (5, b"", "0 bytes instead of 1"),
        (5, b"\3" + bytes(12), "flags 3"),
        (5, b"\x10" + bytes(12), "flags 16"),
        (5, b"\x08" + bytes(2), "flags 8"),
        (5, b"\x20", "flags 32"),
        (5, b"\x0d\1" + b"\7\0" + bytes(2) + b"\7\0", "has already"),
        (5, b"\x15\1" + bytes(4) + b"\xff\xff\xff\x7f" + bytes(8), "not below"),
        (5, b"\x15\1" + bytes(4) + bytes(11), "11 bytes instead of 12"),
        (5, b"\x15\1" + bytes(4) + bytes(13), "1 bytes too many"),
    ],
)
def test_what_cannot_be_read_says_why(round_: int, raw: bytes, why: str) -> None:
    raised(ContentError, why, codec().read, round_, raw)
