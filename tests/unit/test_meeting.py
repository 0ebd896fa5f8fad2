"""Invitations, entries and seals: what was changed is refused by name, and no key is in two studies."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError
from quietmean.node import Identity
from quietmean.node.net.identity import Purpose, is_signed, public_key_bytes
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.any_study import any_of_tables, study_text
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, read_signed
from quietmean.studies.agreement.study_keys import Distrusted, StudyKeys, keys_path, revocation, revoked_key
from support.kinds import KINDS, Kind
from support.meeting import Meeting, meet
from support.refusals import refused

MALLORY = Identity.generate()
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """A study, then a session: each test is of the documents of both."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def meeting(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    return meet(tmp_path_factory.mktemp("meeting"), tables=kind.tables)


@pytest.fixture(scope="module")
def sealed(meeting: Meeting) -> Sealed:
    return meeting.seal()


def changed(signed: Signed, change: Change, by: Identity | None = None) -> Signed:
    """The document after ``change``, with its old signature, or signed ``by`` somebody."""
    document = json.loads(signed.body)
    change(document)
    if by is not None:
        return Signed.sign(signed.purpose, document, by)
    return Signed(signed.purpose, canonical_json(document), signed.signature)


def parts(signed: Signed) -> dict[str, str]:
    return msgspec.structs.asdict(signed.parts())


@pytest.mark.parametrize("as_line", [False, True])
def test_documents_survive_files_and_lines(meeting: Meeting, sealed: Sealed, tmp_path: Path, as_line: bool) -> None:
    for one in (meeting.invitation, meeting.keys["south"].entry, sealed):
        kind, path = type(one), tmp_path / "document"
        line = one.signed.to_line()
        assert "\n" not in line
        path.write_bytes(line.encode() if as_line else one.signed.to_file())
        assert kind.load(path) == one
        assert kind.load(str(path)) == one
        # As a mail program wraps it.
        wrapped = "\n".join(line[start : start + 70] for start in range(0, len(line), 70))
        assert kind.load(wrapped) == one


def test_the_order_is_that_of_raw_keys_whoever_comes_first(meeting: Meeting, sealed: Sealed) -> None:
    entries = [keys.entry for keys in meeting.keys.values()]
    convener = meeting.identities["north"]
    for order in (entries, entries[::-1], entries[1:] + entries[:1]):
        found = Sealed.make(meeting.invitation, order, convener).entries
        assert found == sealed.entries
        raw = [public_key_bytes(entry.identity) for entry in found]
        assert raw == sorted(raw)
    assert sealed.conveners[0] == convener.public_key
    assert [entry.public_key for entry in sealed.roster.entries] == [entry.identity for entry in sealed.entries]
    assert sealed.roster.digest == sealed.digest
    assert sorted(sealed.roster.conveners) == [0, 1, 2]
    assert sealed.roster.entries[sealed.roster.conveners[0]].name == "north"


def test_sealed_again_it_is_another_study(meeting: Meeting, sealed: Sealed) -> None:
    again = meeting.seal()
    assert again.entries == sealed.entries
    assert again.digest != sealed.digest


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", 2), ("convener", MALLORY.public_key), ("nonce", base64.b64encode(bytes(32)).decode()), ("study", {})],
    # Names of tests are the same in all processes; keys are not.
    ids=["version", "convener", "nonce", "study"],
)
def test_a_tampered_invitation(meeting: Meeting, field: str, value: Any) -> None:
    tampered = changed(meeting.invitation.signed, lambda document: document.update({field: value}))
    refused("the invitation does not match the signature of its coordinator", Invitation.verified, tampered)


@pytest.mark.parametrize("field", ["address", "exchange", "identity", "invitation", "mailbox", "name", "nonce"])
def test_a_tampered_entry(meeting: Meeting, field: str) -> None:
    other = json.loads(meeting.keys["east"].entry.signed.body) | {"invitation": "0" * 64}
    tampered = changed(meeting.keys["south"].entry.signed, lambda document: document.update({field: other[field]}))
    refused(r"the entry of (south|east) does not match the signature of its key", Entry.verified, tampered)


def flip(document: dict[str, Any]) -> None:
    document["instance"] = base64.b64encode(bytes(32)).decode()


def test_a_tampered_seal(sealed: Sealed) -> None:
    def reorder(document: dict[str, Any]) -> None:
        document["conveners"].reverse()

    def without(document: dict[str, Any]) -> None:
        gone = json.loads(document["entries"].pop()["body"])["identity"]
        document["conveners"].remove(gone)

    for change in (flip, reorder, without):
        refused(
            "the sealed study does not match the signature of its coordinator", Sealed.verified, changed(sealed.signed, change)
        )
        refused(
            "the sealed study does not match the signature of its coordinator",
            Sealed.verified,
            changed(sealed.signed, change, by=MALLORY),
        )


def test_what_a_convener_cannot_do(meeting: Meeting, sealed: Sealed, tmp_path: Path) -> None:
    """It signs whatever it likes; what others signed stays what they signed."""
    convener = meeting.identities["north"]
    stranger = meet(tmp_path, names=("north", "east"), known={"north": convener})

    def rename(document: dict[str, Any]) -> None:
        body = json.loads(document["entries"][0]["body"])
        document["entries"][0]["body"] = canonical_json(body | {"name": "west"}).decode()

    cases: list[tuple[str, Change]] = [
        ("the entry of west does not match the signature of its key", rename),
        ("have the same identity", lambda document: document["entries"].append(document["entries"][-1])),
        ("not in the order of their keys", lambda document: document["entries"].reverse()),
        ("at least 2 parties", lambda document: document.update(entries=document["entries"][:1])),
        (
            "'east' is for another invitation",
            lambda document: document["entries"].append(parts(stranger.keys["east"].entry.signed)),
        ),
        ("is for another invitation", lambda document: document.update(invitation=parts(stranger.invitation.signed))),
        ("order of coordinators", lambda document: document["conveners"].pop()),
        ("instance of the sealed study is not 32 bytes", lambda document: document.update(instance="A" * 22 + "==")),
    ]
    for message, change in cases:
        refused(message, Sealed.verified, changed(sealed.signed, change, by=convener))


def test_only_the_convener_seals(meeting: Meeting) -> None:
    with pytest.raises(InputError, match="Ask its coordinator to seal"):
        Sealed.make(meeting.invitation, [keys.entry for keys in meeting.keys.values()], MALLORY)


def test_names_and_keys_are_unique_in_a_seal(meeting: Meeting, tmp_path: Path) -> None:
    path = tmp_path / "double.studykeys"
    double = StudyKeys.make(path, meeting.invitation, MALLORY, "North", "192.0.2.9:1")
    entries = [*(keys.entry for keys in meeting.keys.values()), double.entry]
    refused("look alike", Sealed.make, meeting.invitation, entries, meeting.identities["north"])


def test_every_program_finds_its_own_entry_unchanged(meeting: Meeting, sealed: Sealed, tmp_path: Path) -> None:
    for keys in meeting.keys.values():
        assert sealed.require_own(keys) == keys.entry
    south = meeting.identities["south"]
    again = StudyKeys.make(tmp_path / "again.studykeys", meeting.invitation, south, "south", "192.0.2.2:7001")
    refused(r"another one than you signed last \(exchange, mailbox, encapsulation, nonce", sealed.require_own, again)
    absent = StudyKeys.make(tmp_path / "absent.studykeys", meeting.invitation, MALLORY, "west", "")
    refused("your entry, 'west'", sealed.require_own, absent)


def test_study_keys_are_fresh_private_and_for_one_seal(meeting: Meeting, sealed: Sealed, tmp_path: Path) -> None:
    south, path = meeting.identities["south"], tmp_path / "south.studykeys"
    first = StudyKeys.make(path, meeting.invitation, south, "south", "")
    assert StudyKeys.make(path, meeting.invitation, south, "south", "").entry == first.entry
    second = StudyKeys.make(path, meeting.invitation, south, "south", "192.0.2.2:7001")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({first.entry.exchange, second.entry.exchange, first.entry.mailbox, second.entry.mailbox}) == 4
    assert StudyKeys.load(path).entry == second.entry
    assert second.exchange is not None
    assert second.exchange.private_bytes_raw().hex() not in repr(second)
    bound = second.bind(sealed.digest, ["east"])
    assert StudyKeys.load(path).sealed == sealed.digest
    assert bound.bind(sealed.digest, ["north"]).compared == ("east", "north")
    refused("what is sealed again is another study", StudyKeys.load(path).bind, "0" * 64)
    refused("Ask for a new invitation", StudyKeys.make, path, meeting.invitation, south, "south", "")
    assert StudyKeys.make(path, meeting.invitation, south, "south", "192.0.2.2:7001").sealed == sealed.digest
    path.chmod(0o640)
    refused("chmod 600", StudyKeys.load, path)
    refused("Give --store", StudyKeys.load, tmp_path / "none.studykeys")
    # Whoever gave the key file another name since is told so; of several files nobody knows which it was.
    for name, told in (("south-0123.studykeys", True), ("east-0123.studykeys", False)):
        (tmp_path / name).touch()
        refusal = refused("", StudyKeys.load, tmp_path / "party-0123.studykeys")
        assert ("the name that it had when south-0123.studykeys was made" in refusal) == told


def test_a_new_seal_names_the_one_it_follows(kind: Kind, meeting: Meeting, sealed: Sealed, tmp_path: Path) -> None:
    wider = any_of_tables(kind.wider.tables, "the study")
    convener = meeting.identities["north"]
    following = Invitation.make(wider, convener, sealed.invitation.version + 1, sealed.digest)
    assert (following.version, following.previous) == (2, sealed.digest)
    refused("for another invitation", Sealed.make, following, [keys.entry for keys in meeting.keys.values()], convener)
    refused("version 1 and previous", Invitation.make, wider, convener, 1, sealed.digest)
    assert keys_path(tmp_path / "a.key", following.digest) != keys_path(tmp_path / "a.key", meeting.invitation.digest)


def test_a_rotated_key_is_signed_by_the_old_one(meeting: Meeting, tmp_path: Path) -> None:
    old, new = Identity.generate(), Identity.generate()
    keys = StudyKeys.make(tmp_path / "new.studykeys", meeting.invitation, new, "west", "", old)
    assert keys.entry.formerly == old.public_key

    claimed = changed(keys.entry.signed, lambda document: document["formerly"].update(key=MALLORY.public_key), by=new)
    refused("which did not sign that", Entry.verified, claimed)


def test_no_signature_stands_for_another_purpose(meeting: Meeting) -> None:
    identity, content = MALLORY, b"content"
    for purpose in Purpose:
        signature = identity.sign(purpose, content)
        assert purpose.label.endswith(b" 1\0")
        for other in Purpose:
            assert is_signed(identity.public_key, other, content, signature) == (other is purpose)
    entry = meeting.keys["south"].entry.signed
    refused("", Invitation.verified, Signed(Purpose.INVITATION, entry.body, entry.signature))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exchange": base64.b64encode(bytes(32)).decode()}, "not safe"),
        ({"exchange": base64.b64encode(b"\xff" * 32).decode()}, "not written in its standard form"),
        ({"exchange": "AAAA"}, "exchange key in the entry of west is not 32 bytes"),
        ({"mailbox": base64.b64encode(b"\xff" * 1216).decode()}, "not an ML-KEM-768 key"),
        ({"name": "no\u202erth"}, r"U\+202E"),
        ({"address": "nohost"}, "not host:port"),
        ({"formerly": 3}, "cannot be read"),
        ({"further": 3}, "cannot be read"),
    ],
)
def test_impossible_entries(meeting: Meeting, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    keys = StudyKeys.make(tmp_path / "west.studykeys", meeting.invitation, MALLORY, "west", "")
    refused(message, Entry.verified, changed(keys.entry.signed, lambda document: document.update(change), by=MALLORY))


def test_files_that_are_something_else(meeting: Meeting, sealed: Sealed, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(meeting.invitation.signed.to_file())
    refused("holds an invitation, not an entry", Entry.load, path)
    refused("holds an invitation, not a sealed study", Sealed.load, meeting.invitation.signed.to_line())
    for content in (b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"format": 3}'):
        path.write_bytes(content)
        refused(r"file .*file is not an entry\. Give the file as quietmean wrote it\.$", Entry.load, path)
    path.write_bytes(b"quietmean-entry-1.***.***")
    refused(r"file .*file holds no whole entry. Copy it again, from quietmean-entry-1 to its end.$", Entry.load, path)
    path.write_bytes(b" " * (4 * 2**20 + 1))
    refused("larger than", Entry.load, path)
    wrong: list[dict[str, Any]] = [
        {"study": 3, "column": []},
        {"study": {}, "column": 3},
        {"colour": {}},
        {"study": {"epsilon": [1]}},
        {"session": {"rounds": 0}},
        {"session": {}, "column": []},
    ]
    for tables in wrong:
        document = json.loads(meeting.invitation.signed.body) | {"study": tables}
        refused(r"study|session", Invitation.verified, Signed.sign(Purpose.INVITATION, document, meeting.identities["north"]))
    refused("does not exist", Entry.load, tmp_path / "none")
    # Other white space, or a field twice, would be other bytes with the same meaning.
    signed = meeting.invitation.signed
    spaced = signed.body.replace(b":", b": ", 1)
    own = Signed(signed.purpose, spaced, meeting.identities["north"].sign(signed.purpose, spaced))
    refused("not in the form that quietmean writes", Invitation.verified, own)


def test_a_distrusted_key_is_refused(tmp_path: Path) -> None:
    here, path = Distrusted(tmp_path / "site" / "distrusted"), tmp_path / "m.revocation"
    here.refuse([("party 'm'", MALLORY.public_key)])
    path.write_bytes(revocation(MALLORY))
    assert revoked_key(path) == MALLORY.public_key
    assert here.add(str(path)) == MALLORY.public_key
    assert here.add(MALLORY.public_key) == MALLORY.public_key
    assert here.keys() == (MALLORY.public_key,)
    refused("party 'm' has the key", Distrusted(here.path).refuse, [("party 'm'", MALLORY.public_key)])
    forged = changed(read_signed(Purpose.REVOCATION, path), lambda document: document.update(key=Identity.generate().public_key))
    path.write_bytes(forged.to_file())
    refused("not signed by that key", here.add, str(path))
    here.path.write_text("nonsense\n")
    refused("not a public key", here.keys)


def test_study_files_are_read_back(tmp_path: Path) -> None:
    tables = {
        "study": {"name": 'a "b" \u2028é', "epsilon": 0.5, "protocol": "inca", "options": {"rounds": 3}, "unit": "party"},
        "column": [{"name": "age", "low": 0, "high": 1e9}, {"name": "sex", "levels": ["f", "m"]}, {"name": "x", "boolean": True}],
        "statistic": [{"kind": "mean", "column": "age"}],
    }
    study, path = StudyTerms.from_tables(tables, "the study"), tmp_path / "study.toml"
    path.write_text(study_text(study), encoding="utf-8")
    assert StudyTerms.load(path) == study
    assert StudyTerms.from_tables(json.loads(canonical_json(study.tables())), "the study").tables() == study.tables()
