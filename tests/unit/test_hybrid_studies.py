"""Which keys a study has stands in it: hybrid unless it says X25519, and a site may refuse that."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.domain import Links
from quietmean.core.errors import InputError
from quietmean.node import Identity
from quietmean.report import Stamps
from quietmean.studies.agreement.any_study import any_of_tables, study_text
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.party import Contract
from quietmean.studies.party.files import PartyContext, agreed_terms
from quietmean.studies.party.policy import Policy, PolicyRules
from quietmean.studies.party.session_contract import SessionContract, contract_for
from support.kinds import Kind
from support.meeting import AGES, Meeting, meet


def tables(**fields: Any) -> dict[str, Any]:
    return {**AGES, "study": {**AGES["study"], **fields}}


def contract(sealed: Sealed, by_file: bool = False) -> Contract | SessionContract:
    if by_file:
        choice = sealed.study.choice(len(sealed.entries))
        own = next(entry for entry in sealed.entries if entry.name == "south")
        return Contract.by_file(sealed, _Named(own.identity), choice)  # type: ignore[arg-type]
    return contract_for("south", sealed)


class _Named:
    def __init__(self, public_key: str) -> None:
        self.public_key = public_key


def test_what_is_sealed_now_has_hybrid_links(kind: Kind, tmp_path: Path) -> None:
    sealed = meet(tmp_path, tables=kind.tables).seal()
    assert sealed.terms.keyed_by == Links.HYBRID
    assert sealed.terms.tables()[kind.name]["links"] == "hybrid"
    assert all(entry.encapsulation for entry in sealed.entries)
    assert contract(sealed).to_json()["links"] == "hybrid"
    assert contract(sealed).post_quantum
    assert "ML-KEM-768" in dict(contract(sealed).lines())["keys"]
    # All that the digest covers names it, so that parties who differ are told in which field.
    assert sealed.fields()[kind.name]["links"] == "hybrid"


def test_who_asks_for_x25519_gets_entries_without_other_keys(kind: Kind, tmp_path: Path) -> None:
    sealed = meet(tmp_path, tables=kind.with_fields(links="x25519").tables).seal()
    assert sealed.terms.tables()[kind.name]["links"] == "x25519"
    assert not any(entry.encapsulation for entry in sealed.entries)
    assert set(json.loads(sealed.entries[0].signed.body)) == {
        "address", "exchange", "formerly", "identity", "invitation", "mailbox", "name", "nonce"
    }  # fmt: skip
    assert "x25519" in contract(sealed).to_json()["links"]


def test_an_entry_without_ml_kem_does_not_go_with_hybrid_links(meeting: Meeting) -> None:
    south = meeting.identities["south"]
    old = json.loads(meeting.keys["south"].entry.signed.body)
    public = {name: base64.b64decode(old[name]) for name in ("exchange", "mailbox")}
    without = Entry.make(meeting.invitation, south, "south", old["address"], public)
    assert not without.encapsulation
    entries = [keys.entry for name, keys in meeting.keys.items() if name != "south"] + [without]
    with pytest.raises(InputError, match="'south' has no ML-KEM-768 key"):
        Sealed.make(meeting.invitation, entries, meeting.identities["north"])


@pytest.mark.parametrize("key", [b"\xff" * 1184, bytes(1183)])
def test_an_entry_with_something_that_is_no_key_is_refused(key: bytes, meeting: Meeting) -> None:
    old = json.loads(meeting.keys["south"].entry.signed.body)
    decoded = {name: base64.b64decode(old[name]) for name in ("exchange", "mailbox")}
    with pytest.raises(InputError, match="encapsulation key in the entry of"):
        Entry.make(meeting.invitation, meeting.identities["south"], "south", "", {**decoded, "encapsulation": key})


def test_two_parties_with_one_key_are_refused(meeting: Meeting) -> None:
    decode = base64.b64decode
    stolen = decode(meeting.keys["north"].entry.encapsulation)
    own = json.loads(meeting.keys["south"].entry.signed.body)
    public = {"exchange": decode(own["exchange"]), "mailbox": decode(own["mailbox"]), "encapsulation": stolen}
    twin = Entry.make(meeting.invitation, meeting.identities["south"], "south", own["address"], public)
    entries = [keys.entry for name, keys in meeting.keys.items() if name != "south"] + [twin]
    with pytest.raises(InputError, match="have the same encapsulation"):
        Sealed.make(meeting.invitation, entries, meeting.identities["north"])


def test_hybrid_links_need_a_seal(kind: Kind, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    asked = any_of_tables(kind.with_fields(links="hybrid").tables, "the study")
    study.write_text(study_text(asked))
    (tmp_path / "roster.toml").write_text("")
    with pytest.raises(InputError, match="has to be sealed"):
        agreed_terms(study, tmp_path / "roster.toml")
    with pytest.raises(InputError, match="has to be sealed"):
        PartyContext.of(asked, tmp_path / "roster.toml", tmp_path / "a.key", Identity.load)


def test_links_that_nobody_knows_are_refused(kind: Kind) -> None:
    with pytest.raises(InputError, match="links must be"):
        any_of_tables(kind.with_fields(links="quantum").tables, "the study")


# --- keys ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def meeting(kind: Kind, tmp_path: Path) -> Meeting:
    return meet(tmp_path, tables=kind.tables)


def test_keys_are_kept_and_never_shown(meeting: Meeting) -> None:
    keys = meeting.keys["south"]
    again = StudyKeys.load(keys.path)
    assert again.encapsulation is not None
    secret = again.encapsulation.private_bytes_raw()
    assert keys.encapsulation is not None
    assert secret == keys.encapsulation.private_bytes_raw()
    assert repr(secret) not in repr(again)
    assert secret.hex() not in repr(again)
    bound = again.bind("0" * 64)
    assert StudyKeys.load(keys.path).encapsulation is not None
    forgotten = bound.without_opening()
    assert (forgotten.encapsulation, forgotten.mailbox) == (None, None)
    assert StudyKeys.load(keys.path).entry == keys.entry
    assert base64.b64encode(secret) not in keys.path.read_bytes()


def test_keys_of_another_entry_are_found(meeting: Meeting, tmp_path: Path) -> None:
    path = meeting.keys["south"].path
    other = json.loads(meeting.keys["east"].path.read_text())
    changed = json.loads(path.read_text()) | {"encapsulation": other["encapsulation"]}
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match="are not those of its entry"):
        StudyKeys.load(path)


# --- a site that wants it ----------------------------------------------------------------------------------------------------


def refused(sealed: Sealed, by_file: bool = False) -> list[str]:
    broken = Policy(PolicyRules(require_post_quantum=True)).broken(contract(sealed, by_file))
    return [sentence for sentence in broken if sentence.startswith("require_post_quantum")]


def test_a_policy_can_refuse_what_rests_on_x25519_alone(tmp_path: Path) -> None:
    assert refused(meet(tmp_path / "hybrid").seal()) == []
    alone = meet(tmp_path / "alone", tables=tables(links="x25519")).seal()
    (sentence,) = refused(alone)
    assert "X25519 alone" in sentence
    assert Policy(PolicyRules()).broken(contract(alone)) == []
    found = contract(alone)
    assert found.to_json()["links"] == "x25519"
    assert not found.to_json()["post_quantum"]
    assert dict(found.lines())["keys"].startswith("X25519 alone")


def test_what_ml_kem_does_not_protect_in_any_study_is_refused_too(tmp_path: Path) -> None:
    masks = meet(tmp_path / "masks", tables=tables(protocol="secagg")).seal()
    (sentence,) = refused(masks)
    assert "masks of secagg rest on X25519 alone" in sentence
    assert not contract(masks).to_json()["post_quantum"]
    noise = meet(tmp_path / "noise", tables=tables(protocol="cordp-dme", dropouts=0.4)).seal()
    assert refused(noise) == []
    (sentence,) = refused(noise, by_file=True)
    assert "by file" in sentence
    alone = meet(tmp_path / "alone", tables=tables(protocol="local-dp")).seal()
    assert refused(alone, by_file=True) == []


# --- afterwards --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", list(Links))
def test_a_page_says_what_the_receipt_says(links: Links) -> None:
    rows = dict(Stamps.of_origin({"links": str(links)}).rows)
    assert rows["Keys"] == links.text
    # Receipts of before, and forged ones, say nothing.
    assert "Keys" not in dict(Stamps.of_origin({}).rows)
    assert "Keys" not in dict(Stamps.of_origin({"links": ["hybrid"]}).rows)


def test_an_invitation_follows_with_hybrid_links(kind: Kind) -> None:
    convener = Identity.generate()
    before, after = (any_of_tables(one.tables, "the study") for one in (kind.with_fields(links="x25519"), kind))
    old, new = Invitation.make(before, convener), Invitation.make(after, convener, 2, "0" * 64)
    assert (old.terms.keyed_by, new.terms.keyed_by) == (Links.X25519, Links.HYBRID)
