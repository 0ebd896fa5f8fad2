"""Contributions to a committee: each member reads its own part, and everything else is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from quietmean.node.committee import IdentitySigner
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import (
    ContributionError,
    DealtParts,
    Part,
    excerpt,
    make_contribution,
    make_noise,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.design import decode, encode
from quietmean.protocols.committee.keys import raw_key
from quietmean.protocols.committee.lists import challenge, check_numbers, expected_numbers, fitting
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.packing import open_sums
from quietmean.randomness import Seed
from support.committee_liars import with_ciphertexts_of
from support.committee_world import SEALER, CommitteeWorld, identity
from support.refusals import raised

WORLD = CommitteeWorld(Committee(5), contributors=60)


def _first(number: int) -> int:
    return WORLD.session.first_seeded(raw_key(WORLD.contributor(number).public_key))


FILE = WORLD.contribution(0)
# Of many contributors some get seeds for the same members.
COPIER = next(WORLD.contributor(other) for other in range(1, WORLD.contributors) if _first(other) == _first(0))


def part(raw: bytes, member: int, session: CommitteeSession = WORLD.session) -> Part:
    own = excerpt(session, raw, member)
    return open_excerpt(session, read_header(session, own), own, member, WORLD.opener(member))


def numbers(raw: bytes, session: CommitteeSession = WORLD.session) -> np.ndarray:
    """The check numbers of all members, shape (m, 1, 6)."""
    digest = read_header(session, raw).digest
    return np.array([[check_numbers(session, digest, part(raw, member))] for member in range(5)], dtype=np.uint32)


def test_parts_add_up_to_the_value_and_their_check_numbers_lie_on_polynomials() -> None:
    parameters = WORLD.parameters
    shares = {member: part(FILE, member).values for member in (1, 3, 4)}
    total = open_sums(parameters.packing, shares, parameters.dimension)
    assert decode(parameters, total, [1.0]) == pytest.approx(WORLD.value(0), abs=parameters.step)
    told = numbers(FILE)
    assert fitting(parameters.packing, range(5), told).all()
    assert np.array_equal(expected_numbers(parameters.packing, [0, 2, 3], told[[0, 2, 3]], 4), told[4])


@pytest.mark.parametrize("member", range(5))
def test_one_changed_share_or_mask_is_seen(member: int) -> None:
    digest = read_header(WORLD.session, FILE).digest
    for changes in ("values", "masks"):
        held = part(FILE, member)
        wrong = getattr(held, changes).copy()
        wrong[0] = (wrong[0] + 1) % WORLD.parameters.prime
        told = numbers(FILE)
        told[member, 0] = check_numbers(WORLD.session, digest, replace(held, **{changes: wrong}))
        assert not fitting(WORLD.parameters.packing, range(5), told).any()


def test_a_file_is_made_with_fresh_masks_and_the_same_shares() -> None:
    again = WORLD.contribution(0)
    assert again != FILE
    for member in range(5):
        assert np.array_equal(part(again, member).values, part(FILE, member).values)
        # One number alike in 2^31 of them.
        assert not np.array_equal(part(again, member).masks, part(FILE, member).masks)


def test_challenges_differ_with_the_session_and_the_header() -> None:
    digest = read_header(WORLD.session, FILE).digest
    other = CommitteeWorld(Committee(5), session_digest=b"t" * 32).session
    drawn = [challenge(WORLD.session, digest, 2), challenge(WORLD.session, b"d" * 32, 2), challenge(other, digest, 2)]
    assert len({one.tobytes() for one in drawn}) == 3


def test_the_digest_covers_what_is_signed_and_nothing_else() -> None:
    header = read_header(WORLD.session, FILE)
    assert header.digest == hashlib.sha256(FILE[12 : header.size - 64]).digest()
    assert header.contributor == WORLD.contributor(0).public_key
    assert (header.kind, header.weight) == (DealtParts.VALUE, 1.0)


def copied(raw: bytes) -> bytes:
    """Another contributor, whose shares go to members in the same way, signs the same ciphertexts under its own name."""
    own = make_contribution(WORLD.session, COPIER, SEALER, np.zeros(4, dtype=np.int64), 1.0, Seed(bytes(32)))
    return with_ciphertexts_of(WORLD.session, raw, own, COPIER)


def changed(place: int) -> Callable[[bytes], bytes]:
    def change(raw: bytes) -> bytes:
        at = place % len(raw)
        return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: b"", "not a contribution"),
        (lambda raw: raw[:20], "cut off"),
        (lambda raw: raw[:-1], "cut off"),
        (lambda raw: raw + b"x", "cut off"),
        (changed(13), "no header|not as its contributor"),
        (changed(60), "no header|not as its contributor|not admitted|another study"),
        (changed(-1), "missing, or was changed"),
        (copied, "was not sealed"),
    ],
)
def test_what_is_not_as_its_contributor_made_it_is_refused(change: Callable[[bytes], bytes], message: str) -> None:
    raised(ContributionError, message, part, change(FILE), 4)


def test_another_study_and_who_is_not_admitted_are_refused() -> None:
    other = CommitteeWorld(Committee(5), session_digest=b"t" * 32)
    raised(ContributionError, "another study", read_header, WORLD.session, other.contribution(0))
    with pytest.raises(ContributionError, match="not admitted"):
        make_contribution(
            WORLD.session, IdentitySigner(identity("mallory")), SEALER, np.zeros(4, dtype=np.int64), 1.0, Seed(bytes(32))
        )


@pytest.mark.parametrize("weight", [-1e-9, -1.0, 1.5, float("nan"), float("inf")])
def test_a_weight_beyond_the_allowed_one_is_refused(weight: float) -> None:
    with pytest.raises(ContributionError, match="weight"):
        make_contribution(WORLD.session, WORLD.contributor(0), SEALER, np.zeros(4, dtype=np.int64), weight, Seed(bytes(32)))


def test_noise_is_a_members_alone() -> None:
    noise = np.array([5, -3, 0, 7])
    raw = make_noise(WORLD.session, WORLD.signer(2), SEALER, noise, Seed(bytes(32)))
    shares = {member: part(raw, member).values for member in range(3)}
    assert open_sums(WORLD.parameters.packing, shares, 4).tolist() == noise.tolist()
    with pytest.raises(ContributionError, match="not a contribution to this study"):
        read_header(WORLD.session, make_noise(WORLD.session, WORLD.contributor(0), SEALER, noise, Seed(bytes(32))))


@pytest.mark.parametrize("region", ["box", "ball"])
def test_what_is_encoded_starts_at_0_and_decodes_to_the_value(region: str) -> None:
    parameters = replace(WORLD.parameters, region=region)
    for number in range(3):
        value = 0.5 + 0.2 * (WORLD.value(number) - 0.5)
        encoded = encode(parameters, value, 1.0, Seed.public("rounding", number))
        assert encoded.min() >= 0
        assert encoded.max() <= parameters.range
        assert decode(parameters, encoded, [1.0]) == pytest.approx(value, abs=parameters.step)
