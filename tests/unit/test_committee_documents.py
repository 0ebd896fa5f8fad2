"""A study with a committee is written, accepted and sealed: members with keys for what comes to them, contributors by name."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError
from quietmean.node.net import Identity
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee, Size
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys
from support.committee_study import CommitteeStudy
from support.refusals import refused

BY = "2027-03-01T12:00:00Z"
COMMITTEE: dict[str, Any] = {"members": 4, "contribute_by": BY}


def study(**committee: Any) -> StudyTerms:
    column = [{"name": "pay", "low": 0.0, "high": 1000.0}]
    return StudyTerms.parse({"name": "wages", "column": column, "unit": "party", "committee": COMMITTEE | committee})


@pytest.mark.parametrize(
    ("numbers", "size", "secrets", "votes", "dealings"),
    [
        ((4, 1, 1), "gone", 1, 3, 3),
        ((5, 1, 1), "gone", 2, 4, 4),
        ((15, 3, 3), "gone", 6, 10, 12),
        ((31, 6, 6), "gone", 13, 19, 25),
        ((5, 1, 1), "lying", 1, 4, 4),
        ((9, 2, 2), "lying", 1, 6, 7),
        ((15, 3, 3), "lying", 3, 10, 12),
        ((31, 6, 6), "lying", 7, 19, 25),
    ],
)
def test_what_a_committee_can_do(numbers: tuple[int, int, int], size: str, secrets: int, votes: int, dealings: int) -> None:
    committee = Committee(*numbers, Size(size))
    assert (committee.secrets, committee.votes_needed, committee.dealings) == (secrets, votes, dealings)
    # Without one of its members it is what this one says, or nothing.
    assert committee.fewest_members == numbers[0] - secrets + 1


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"members": 3}, "too small for 1 colluding and 1 gone. Take 4 members"),
        ({"members": 4, "size": Size.LYING}, "gone or lying. Take 5 members"),
        ({"members": 5, "colluding": 0}, "each member knows its own noise"),
        ({"members": 9, "colluding": 2}, "Plan for 2 gone or more"),
        ({"members": 9, "gone": 6}, "cannot decide: 6 have to vote"),
        ({"members": 65, "gone": 3}, "64 members or fewer"),
        ({"members": 5, "minimum": 0}, "Choose 1 or more"),
        ({"members": 5, "largest_weight": float("inf")}, "a finite number"),
    ],
)
def test_what_no_committee_can_do(numbers: dict[str, Any], reason: str) -> None:
    refused(reason, Committee, **numbers)


def test_a_target_says_its_committee_and_one_without_says_nothing() -> None:
    plain = Target(20, 1.0, 1e-6)
    assert "committee" not in plain.describe()
    target = Target(20, 1.0, 1e-6, committee=Committee(9, 1, 2, minimum=5, largest_weight=3.0, size=Size.LYING))
    assert Target.parse(json.loads(json.dumps(target.describe()))) == target
    assert target.describe() != plain.describe()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"colluding": 2}, "with all other contributors"),
        ({"committee": Committee(5, minimum=21)}, "20 or fewer"),
        ({"eavesdropping": 0.5}, "has no effect in a committee"),
    ],
)
def test_what_says_nothing_beside_a_committee(fields: dict[str, Any], reason: str) -> None:
    refused(reason, replace, Target(20, 1.0, 1e-6, committee=Committee(5)), **fields)


def test_a_study_file_says_its_committee(tmp_path: Path) -> None:
    for asked in (study(), study(colluding=1, gone=1, size="gone", grace=5.0, minimum=3, largest_weight=7.5)):
        path = tmp_path / "study.toml"
        path.write_text(study_text(asked))
        assert StudyTerms.load(path) == asked
    plain = asked.model_copy(update={"committee": None})
    assert "committee" not in study_text(plain)
    assert "committee" not in plain.context()
    # The same time is the same study.
    assert study().context() == study(contribute_by="2027-03-01T13:00:00+01:00").context()
    assert study().context() != study(grace=1.0).context()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"protocol": "inca"}, "and protocol inca none"),
        ({"colluding": 1}, "colluding has no effect in a study with a committee"),
        ({"minimum": 2}, "write minimum into the committee"),
        ({"start_by": BY}, "when the time for contributions is over"),
        ({"committee": {"members": 4}}, "committee.contribute_by is missing"),
        ({"committee": COMMITTEE | {"contribute_by": 1800000000}}, "a time with its offset"),
        ({"committee": COMMITTEE | {"size": "lost"}}, 'committee.size must be "gone" or "lying"'),
        ({"committee": COMMITTEE | {"graze": 5.0}}, "committee.graze is unknown.*grace"),
        ({"committee": COMMITTEE, "grace": 5.0}, 'grace is unknown here: it belongs under "committee"'),
        ({"committee": COMMITTEE | {"members": 3}}, "too small"),
        ({"transport": "folder", "deadlines": {"first": BY, "interval": 60.0, "poll": 5.0}}, "Give a later one"),
    ],
)
def test_what_no_study_with_a_committee_says(fields: dict[str, Any], reason: str) -> None:
    tables = study().tables()
    general = {**tables["study"], "column": tables["column"], **fields}
    if "transport" in fields:
        del general["round_timeout"], general["start_timeout"]
    refused(reason, StudyTerms.parse, general)


class Invited:
    """Four members and two contributors who accepted."""

    def __init__(self, folder: Path, asked: StudyTerms, members: int = 4) -> None:
        self.identities = {name: Identity.generate() for name in (*(f"m{place}" for place in range(members)), "c1", "c2")}
        self.convener = self.identities["m0"]
        self.invitation = Invitation.make(asked, self.convener)
        self.keys = {
            name: StudyKeys.make(
                folder / name,
                self.invitation,
                identity,
                name,
                f"{name}:7000" if name.startswith("m") else "",
                member=name.startswith("m"),
            )
            for name, identity in self.identities.items()
        }

    @property
    def entries(self) -> list[Entry]:
        return [keys.entry for keys in self.keys.values()]


@pytest.fixture
def invited(tmp_path: Path) -> Invited:
    return Invited(tmp_path, study())


def test_members_are_numbered_and_contributors_known_by_key(invited: Invited) -> None:
    sealed = Sealed.make(invited.invitation, invited.entries, invited.convener)
    assert Sealed.verified(sealed.signed) == sealed
    assert {entry.name for entry in sealed.computing} == {"m0", "m1", "m2", "m3"}
    assert [entry.identity_bytes for entry in sealed.computing] == sorted(entry.identity_bytes for entry in sealed.computing)
    # Who is dialled, and who may propose: members only.
    assert [entry.public_key for entry in sealed.roster.entries] == [entry.identity for entry in sealed.computing]
    assert sorted(sealed.roster.conveners) == [0, 1, 2, 3]
    assert sealed.conveners[0] == invited.convener.public_key
    assert {entry.name for entry in sealed.entries} - {entry.name for entry in sealed.computing} == {"c1", "c2"}


def test_a_contributor_has_no_keys_that_could_be_lost(invited: Invited) -> None:
    kept = StudyKeys.load(invited.keys["c1"].path)
    assert (kept.exchange, kept.mailbox, kept.encapsulation) == (None, None, None)
    assert StudyKeys.load(invited.keys["m1"].path).mailbox is not None
    # Accepted again it says the same; as a member it is another entry.
    again = StudyKeys.make(kept.path, invited.invitation, invited.identities["c1"], "c1", "")
    assert again.entry == kept.entry
    other = StudyKeys.make(kept.path, invited.invitation, invited.identities["c1"], "c1", "c1:7000", member=True)
    assert other.entry.member


def test_who_is_a_member_is_signed_and_sealed(invited: Invited) -> None:
    entry = invited.keys["m1"].entry
    body = json.loads(entry.signed.body)
    del body["member"]
    refused(
        "does not match the signature of its key",
        Entry.verified,
        Signed(entry.signed.purpose, canonical_json(body), entry.signed.signature),
    )
    sealed = Sealed.make(invited.invitation, invited.entries, invited.convener)
    assert any(fields.get("member") for fields in sealed.fields()["parties"])


def without_member(invited: Invited, folder: Path) -> list[Entry]:
    return [entry for entry in invited.entries if entry.name != "m3"]


def as_contributor(invited: Invited, folder: Path) -> list[Entry]:
    """One who did not say that it is a member, and has keys."""
    entry = Entry.make(invited.invitation, invited.identities["m3"], "m3", "", _public(invited.keys["m3"]))
    return [*without_member(invited, folder), entry]


def one_member_more(invited: Invited, folder: Path) -> list[Entry]:
    path = folder / "another"
    another = StudyKeys.make(path, invited.invitation, Identity.generate(), "m4", "m4:7000", member=True)
    return [*invited.entries, another.entry]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (without_member, r"a committee of 4, and 3 accepted with --member \(.*\). Add the entries"),
        (one_member_more, "a committee of 4, and 5 accepted"),
        (as_contributor, "'m3' has keys that nobody would use"),
    ],
)
def test_what_is_not_sealed(invited: Invited, tmp_path: Path, entries: Any, reason: str) -> None:
    refused(reason, Sealed.make, invited.invitation, entries(invited, tmp_path), invited.convener)


def test_a_study_without_a_committee_has_no_members_and_no_contributors(tmp_path: Path) -> None:
    plain = study().model_copy(update={"committee": None})
    identity = Identity.generate()
    invitation = Invitation.make(plain, identity)
    refused("Leave --member out", StudyKeys.make, tmp_path / "keys", invitation, identity, "m0", "m0:7000", member=True)
    south = StudyKeys.make(tmp_path / "south", invitation, Identity.generate(), "south", "south:7000")
    keyless = Entry.make(invitation, identity, "north", "north:7000", {})
    refused("the entry of 'north' has no keys", Sealed.make, invitation, [keyless, south.entry], identity)
    member = Entry.make(invitation, identity, "north", "n:7000", _public(south), member=True)
    with pytest.raises(InputError, match="'north' accepted as a member, and the study has no committee"):
        Sealed.make(invitation, [member, south.entry], identity)


def _public(keys: StudyKeys) -> dict[str, bytes]:
    return {name: base64.b64decode(getattr(keys.entry, name)) for name in ("exchange", "mailbox", "encapsulation")}


def run(*line: str) -> int:
    """The exit code of a command."""
    try:
        main(line)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def test_new_writes_a_committee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ask = "mean(pay in 0..200000)"
    committee = (
        "--committee",
        "9",
        "--with",
        "committee-colluding=2",
        "--contribute-by",
        BY,
        "--minimum",
        "3",
        "--with",
        "largest-weight=2",
    )
    assert (
        run(
            "study",
            "new",
            ask,
            *committee,
            "--with",
            "committee-size=gone",
            "--grace",
            "5",
            "--out",
            "study.toml",
        )
        == 0
    )
    terms = StudyTerms.load(tmp_path / "study.toml").committee
    assert terms is not None
    # As many gone as may collude, where nobody says it.
    assert terms.committee == Committee(9, 2, 2, minimum=3, largest_weight=2.0)
    assert terms.lists_at == terms.contribute_by.timestamp() + 5.0
    assert (
        run("study", "new", ask, "--committee", "5", "--contribute-by", BY, "--with", "verified=yes", "--out", "checked.toml")
        == 0
    )
    checked = StudyTerms.load(tmp_path / "checked.toml").committee
    assert checked is not None
    assert checked.committee == Committee(5, verified=True)
    assert run("plan", "--study", "checked.toml", "--parties", "7", "--records", "70", "--details") == 0
    assert "checks: the members, that each number of a contribution" in " ".join(capsys.readouterr().out.split())
    capsys.readouterr()
    for line, reason in (
        (("--contribute-by", BY), "go with --committee MEMBERS"),
        (("--committee", "5"), "Give --contribute-by"),
        (("--committee", "5", "--contribute-by", "tomorrow"), "a time with its offset"),
    ):
        assert run("study", "new", ask, *line, "--out", "other.toml") == 2
        assert reason in capsys.readouterr().err
        assert not (tmp_path / "other.toml").exists()


def test_a_sealed_study_is_verified_once_in_a_process_and_what_was_changed_is_not_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CommitteeStudy(tmp_path)
    loaded = Sealed.load(made.path)
    checked: list[str] = []
    real = Entry.verified

    def counted(signed: Signed) -> Entry:
        entry = real(signed)
        checked.append(entry.name)
        return entry

    monkeypatch.setattr(Entry, "verified", counted)
    assert Sealed.load(made.path) is loaded
    assert checked == []
    whole = json.loads(made.path.read_text())
    for name, wrong in (("signature", "A" * len(whole["signature"])), ("body", whole["body"][:-4])):
        (tmp_path / "changed").write_text(json.dumps({**whole, name: wrong}))
        for _ in range(2):
            refused("", Sealed.load, tmp_path / "changed")
    # Another study with the same parties is read anew.
    (tmp_path / "other").mkdir()
    other = CommitteeStudy(tmp_path / "other")
    assert Sealed.load(other.path) is not loaded
