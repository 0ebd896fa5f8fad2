"""Lists, choices and what wrong builds would let pass."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.protocols.committee import Committee, contribution, member
from quietmean.protocols.committee.choice import OpeningChoice, chosen_bytes, resolve, select
from quietmean.protocols.committee.contribution import ContributionError, open_excerpt, read_header
from quietmean.protocols.committee.evidence import Evidence
from quietmean.protocols.committee.keys import DIGEST_BYTES, key_line
from quietmean.protocols.committee.lists import CheckList, Held, challenge, check_numbers, entries_of, read_list, write_list
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import Seed
from support.committee_liars import with_ciphertexts_of
from support.committee_run import CommitteeRun
from support.committee_world import SEALER, CommitteeWorld
from support.refusals import raised

WORLD = CommitteeWorld(Committee(7, 1, 2), contributors=6, dimension=1)
FILES = {number: WORLD.contribution(number) for number in range(6)}


@pytest.fixture(scope="module")
def run() -> CommitteeRun:
    return CommitteeRun(WORLD, FILES).run()


def of_members(run: CommitteeRun) -> list[CheckList]:
    sent = {one.sender: one.content for one in run.sent if one.round == 2}
    return [read_list(WORLD.session, sent[number]) for number in range(7)]


def by_digest(listed: list[CheckList]) -> dict[bytes, CheckList]:
    return {one.digest: one for one in listed}


def test_a_leader_chooses_what_every_voter_finds_valid(run: CommitteeRun) -> None:
    listed = of_members(run)
    chosen = select(WORLD.session, listed)
    assert chosen is not None
    resolved = resolve(WORLD.session, chosen, by_digest(listed))
    assert resolved is not None
    assert len(resolved.chosen) == 6
    assert len(resolved.noise) == WORLD.parameters.dealings == 5


def choices_beside(valid: OpeningChoice) -> dict[str, OpeningChoice]:
    """What must not pass, one change each."""
    changed = msgspec.structs.replace
    return {
        "fewer lists than needed": changed(valid, members=valid.members[:2], lists=valid.lists[:2]),
        "lists of others": changed(valid, members=valid.members[1:], lists=valid.lists[:-1]),
        "too much noise": changed(valid, noise=tuple(range(7))),
        "too little noise": changed(valid, noise=valid.noise[:-1]),
        "noise twice": changed(valid, noise=(*valid.noise[:-1], valid.noise[-2])),
        "somebody else": changed(valid, members=(*valid.members[:-1], 9)),
        "other contributions than it says": changed(valid, marks=bytes([valid.marks[0] ^ 1])),
        "no contributions": changed(valid, marks=bytes(1), chosen=hashlib.sha256(b"").digest()),
        "marks of more": changed(valid, marks=valid.marks + b"\0"),
        "marks beyond the last": changed(valid, marks=bytes([valid.marks[0] | 0x80])),
    }


def test_choices_that_break_any_condition_are_no_choices(run: CommitteeRun) -> None:
    listed = of_members(run)
    valid = select(WORLD.session, listed)
    assert valid is not None
    for what, wrong in choices_beside(valid).items():
        assert resolve(WORLD.session, wrong, by_digest(listed)) is None, what


def test_a_choice_with_numbers_that_do_not_fit_is_none(run: CommitteeRun) -> None:
    listed = of_members(run)
    valid = select(WORLD.session, listed)
    assert valid is not None
    for kind in ("values", "noise"):
        entries = getattr(listed[0], kind).copy()
        entries["numbers"][:, 0] += 1
        lying = replace(listed[0], **{kind: entries})
        assert resolve(WORLD.session, valid, by_digest([lying, *listed[1:]])) is None


def test_a_digest_stands_for_one_choice(run: CommitteeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    valid = select(WORLD.session, of_members(run))
    assert valid is not None
    beside = [*choices_beside(valid).values(), msgspec.structs.replace(valid, lists=valid.lists[::-1])]
    assert len({one.digest(WORLD.session.session) for one in (valid, *beside)}) == len(beside) + 1
    # A build that leaves M out of it.
    monkeypatch.setattr(
        "quietmean.protocols.committee.choice.choice_digest",
        lambda session, members, noise, lists, chosen, marks: repr((noise, chosen, marks)),
    )
    assert valid.digest(b"") == msgspec.structs.replace(valid, members=(), lists=()).digest(b"")


def test_a_member_that_lies_in_its_list_costs_no_contribution(run: CommitteeRun) -> None:
    listed = of_members(run)
    for liar in range(7):
        entries = listed[liar].values.copy()
        entries["numbers"] = (entries["numbers"] + 1) % WORLD.parameters.prime
        told = [replace(one, values=entries) if one.member == liar else one for one in listed]
        chosen = select(WORLD.session, told)
        assert chosen is not None
        assert liar not in chosen.members
        resolved = resolve(WORLD.session, chosen, by_digest(told))
        assert resolved is not None
        assert len(resolved.chosen) == 6


def test_of_two_entries_of_a_contributor_the_one_in_most_lists_counts(run: CommitteeRun) -> None:
    again = WORLD.contribution(3)
    mixed = CommitteeRun(WORLD, FILES | {"again": again}, lost=frozenset({(0, 3), *((other, "again") for other in range(1, 7))}))
    mixed.run()
    checked = mixed.checked(5)
    assert checked is not None
    digests = {digest for digest, _, _ in checked.counted}
    assert read_header(WORLD.session, FILES[3]).digest in digests
    assert read_header(WORLD.session, again).digest not in digests


# --- lists ----------------------------------------------------------------------------------------------------------------------


def changed_list(run: CommitteeRun, change: Any) -> bytes:
    """The list of member 2 with other entries, signed by it."""
    own = of_members(run)[2]
    values, noise = change(own.values.copy()), own.noise.copy()
    return write_list(WORLD.session, WORLD.signer(2), 2, values, noise)


def with_weight(weight: float) -> Any:
    def change(entries: Any) -> Any:
        entries["weight"][1] = weight
        return entries

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: np.concatenate([entries[:1], entries]),
        lambda entries: entries[::-1],
        lambda entries: np.concatenate([entries, entries]),
        with_weight(2.0),
        with_weight(float("nan")),
        with_weight(-1.0),
    ],
    ids=["twice", "not sorted", "too many", "weight too large", "no weight", "below zero"],
)
def test_impossible_lists_are_none(run: CommitteeRun, change: Any) -> None:
    assert len(read_list(WORLD.session, changed_list(run, lambda entries: entries)).values) == 6
    # Of a contributor without a record.
    assert len(read_list(WORLD.session, changed_list(run, with_weight(0.0))).values) == 6
    raised(ContentError, "", read_list, WORLD.session, changed_list(run, change))


def test_a_list_of_who_is_not_admitted_or_unsigned_is_none(run: CommitteeRun) -> None:
    def stranger(entries: Any) -> Any:
        entries["dealer"][0] = b"\1" * 32
        return entries

    raised(ContentError, "", read_list, WORLD.session, changed_list(run, stranger))
    raw = changed_list(run, lambda entries: entries)
    for wrong in (raw[:-1], raw[:50], b"", raw[:-64] + bytes(64)):
        raised(ContentError, "", read_list, WORLD.session, wrong)


def test_a_build_that_takes_two_contributions_a_key_is_found(run: CommitteeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    doubled = changed_list(run, lambda entries: np.concatenate([entries[:1], entries[:3]]))
    monkeypatch.setattr(CommitteeSession, "require_admitted", lambda *arguments: None)
    assert len(read_list(WORLD.session, doubled).values) == 4


# --- publishing -----------------------------------------------------------------------------------------------------------------


def wrong_share_for(last: int) -> CommitteeRun:
    """Contributor 5 gives one member another share than those on the polynomial, and signs and seals all as due."""

    class Cheating:
        def __init__(self) -> None:
            self.number = 0

        def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
            if self.number == last:
                content = bytes([content[0] ^ 1]) + content[1:]
            self.number += 1
            return SEALER.seal(mailbox, info, content)

    numbers = np.array([1])
    raw = contribution.make_contribution(WORLD.session, WORLD.contributor(5), Cheating(), numbers, 1.0, Seed(bytes(32)))
    return CommitteeRun(WORLD, FILES | {5: raw})


def test_a_member_publishes_only_if_its_own_numbers_fit() -> None:
    run = wrong_share_for(6).run()
    checked = run.checked(0)
    assert checked is not None
    assert len(checked.counted) == 6
    assert run.states[6].withheld
    assert run.states[6].own_sum is None
    assert checked.wrong == ()
    assert run.checked(6) is not None
    assert "published nothing" in " ".join(member.warnings(WORLD.parameters, run.states[6]))


def test_a_build_that_publishes_although_they_do_not_fit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "array_equal", lambda *arguments: True)
    run = wrong_share_for(6).run()
    monkeypatch.undo()
    checked = run.checked(0)
    assert checked is not None
    assert checked.wrong == (6,)


# --- contributions --------------------------------------------------------------------------------------------------------------


def test_a_build_that_takes_copied_ciphertexts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another contributor's ciphertexts under the own name open only where the name is not bound to them."""
    monkeypatch.setattr(type(WORLD.session), "first_seeded", lambda session, dealer: 0)

    def copied() -> bytes:
        return with_ciphertexts_of(WORLD.session, WORLD.contribution(0), WORLD.contribution(1), WORLD.contributor(1))

    def opened(raw: bytes) -> Held:
        own = contribution.excerpt(WORLD.session, raw, 2)
        header = read_header(WORLD.session, own)
        return Held(header.digest, header.dealer, 1.0, open_excerpt(WORLD.session, header, own, 2, WORLD.opener(2)))

    raised(ContributionError, "not sealed to it", opened, copied())
    monkeypatch.setattr(contribution, "_info", lambda *arguments: b"nothing")
    assert key_line(opened(copied()).dealer) == WORLD.contributor(1).public_key


def test_masks_of_the_seed_under_two_headers_would_give_shares_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def share_from_two_headers() -> tuple[int, int]:
        """What two sets of check numbers of a member give of its share, if the masks are the same; and the share."""
        prime, told, values = WORLD.parameters.prime, [], []
        for _ in range(2):
            raw = WORLD.contribution(4)
            own = contribution.excerpt(WORLD.session, raw, 1)
            header = read_header(WORLD.session, own)
            part = open_excerpt(WORLD.session, header, own, 1, WORLD.opener(1))
            r = int(challenge(WORLD.session, header.digest, WORLD.parameters.blocks)[0, 0])
            told.append((int(check_numbers(WORLD.session, header.digest, part)[0]), r))
            values.append(int(part.values[0]))
        (one, r), (other, s) = told
        return (one - other) * pow(r - s, -1, prime) % prime, values[0]

    guessed, share = share_from_two_headers()
    assert guessed != share
    monkeypatch.setattr(contribution, "_deal_masks", lambda session, secret: REAL_MASKS(session, Seed(bytes(32))))
    guessed, share = share_from_two_headers()
    assert guessed == share


REAL_MASKS = contribution._deal_masks


def test_evidence_keeps_two_lists_of_a_member_and_names_it(run: CommitteeRun) -> None:
    evidence, state = Evidence(WORLD.session), run.states[0]
    state = replace(state, lists={}, remarks=())
    raw = [changed_list(run, lambda entries, count=count: entries[:count]) for count in (6, 5, 4)]
    for one in raw:
        state = evidence.take_lists(state, {2: one}).state
    assert len(state.lists) == 2
    assert state.remarks == ("member 3 signed two different lists: it lies",)
    assert len(evidence.lists_by_member(state)[0].values) == 6
    assert all(len(digest) == DIGEST_BYTES for digest in state.lists)
    assert chosen_bytes(entries_of([], 6)) == b""
