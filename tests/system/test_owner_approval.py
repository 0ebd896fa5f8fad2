"""Approvals by keys of their own: good for one contract, plan, data set, policy, version, party and time, and nothing else."""

from __future__ import annotations

import base64
import io
import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import Purpose
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.party import OwnerApproval, Policy
from quietmean.studies.party.audit import Event, verify
from support.command_lines import fails
from support.consent import accept as yes_of
from support.kinds import Kind
from support.site_policy import write_policy

TOMORROW = datetime.now(UTC).date() + timedelta(days=1)


@pytest.fixture
def join(kind: Kind) -> list[str]:
    """The command of party a, without a yes."""
    return ["join", "study.toml", "--roster", "roster.toml", "--key", "a.key", *kind.join]


@pytest.fixture(autouse=True)
def site(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party of three whose address no machine has, and two people who answer for its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for name in ("a", "b", "c", "anna", "ben", "eve"):
        Identity.generate().save(Path(f"{name}.key"))
    entries = [RosterEntry(name, ("192.0.2.7", 7001 + place), key(name)) for place, name in enumerate("abc")]
    Path("roster.toml").write_text(Roster(tuple(entries)).to_toml())
    kind.write()
    write_policy(approvers=[key("anna"), key("ben")])


def key(name: str) -> str:
    return Identity.load(Path(f"{name}.key")).public_key


def digest(capsys: pytest.CaptureFixture[str], field: str = "accept") -> str:
    capsys.readouterr()
    main(["site", "contract", "study.toml", "--roster", "roster.toml", "--key", "a.key", "--json"])
    return str(json.loads(capsys.readouterr().out)[field])


def sign(
    capsys: pytest.CaptureFixture[str], who: str = "anna", out: str = "study.approval", until: date = TOMORROW, **changed: str
) -> list[str]:
    accept = yes_of(changed.get("party", "a"), "study.toml", Path("roster.toml"))
    options = {"party": "a", "account": "wards", "accept": accept, **changed}
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    owner = ["--owner-key", f"{who}.key", "--until", until.isoformat(), "--out", out]
    main(["site", "approve", "study.toml", "--roster", "roster.toml", *owner, *given])
    return ["--approval", out]


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence of a command that is refused; of a join that is not, that its address cannot be listened on."""
    capsys.readouterr()
    return fails(arguments, capsys, warned=True)


def gets_through(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> bool:
    return "cannot listen on 192.0.2.7" in said(arguments, capsys)


def test_no_other_yes_counts(join: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 of the approvers of" in said([*join, "--accept", digest(capsys)], capsys)
    assert not list(Path().glob("*.store"))
    assert gets_through([*join, *sign(capsys)], capsys)
    # It has begun: the same command goes on, also after the last day, when the file is not at hand.
    assert gets_through(join, capsys)


@pytest.mark.sampled(1)
def test_it_is_good_once(join: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Another store draws fresh noise: a second execution, of which nobody has approved."""
    given = sign(capsys)
    assert gets_through([*join, *given], capsys)
    assert gets_through([*join, *given], capsys)
    Path("study-a.store").rename("old.store")
    assert "was used up on" in said([*join, *given], capsys)
    charged = [one.entry for one in Policy.load().audit_log.read()[0] if one.entry.event == Event.CHARGED]
    assert len(charged) == 2
    Path("study-a.store").unlink()
    assert gets_through([*join, *sign(capsys, "ben", "ben.approval")], capsys)


@pytest.mark.sampled(1)
def test_the_audit_log_says_who(kind: Kind, join: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    agreed, accept = digest(capsys, "digest"), digest(capsys)
    said(join, capsys)
    gets_through([*join, *sign(capsys)], capsys)
    gets_through(join, capsys)
    write_policy(approvers=[key("anna")], largest_epsilon=1.0)
    said(join, capsys)
    # Of a session the records are its program's.
    rule = "smallest_records" if kind.name == "study" else "smallest_parties"
    write_policy(smallest_records=4000) if kind.name == "study" else write_policy(smallest_parties=4000)
    said([*join, "--accept", accept], capsys)
    found = verify(Policy().audit_log, {})
    assert found.faults == ()
    whole = json.dumps([msgspec.to_builtins(one) for one in found.entries])
    assert {(one.party, one.key, one.contract) for one in found.entries} == {("a", key("a"), agreed)}
    events = [one.event for one in found.entries]
    begun = [Event.CHARGED, Event.STARTED]
    assert events[:4] == [Event.REFUSED, Event.YES, Event.USED, Event.CHARGED]
    assert events.count(Event.CHARGED) == 2
    # What data could refuse is said before the yes.
    after = [Event.REFUSED, Event.REFUSED]
    assert events[-len(after) :] == after
    yes = [one.about for one in found.entries if one.event == Event.YES]
    assert yes[0]["approvers"] == [key("anna")]
    assert len(yes[0]["approvals"][0]) == 64
    by = ["approvers", "this party before, it continues", "the digest of the contract"]
    assert [one["by"] for one in yes] == by[: len(yes)]
    assert len(yes) == 1 + after.count(Event.YES) + 1
    refused = [one.about["reason"] for one in found.entries if one.event == Event.REFUSED]
    assert ["approvers of" in refused[0], "largest_epsilon" in refused[1], rule in refused[2]] == [True] * 3
    assert all(one in events for one in begun)
    # The records are the numbers from 20 to 59; digests and times have any digits in them.
    assert re.search(r"(?<![\w.:])(39\.5|1580)(?![\w.])|\[20\b", whole) is None


def test_nothing_begins_without_an_audit_log(join: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(approvers=[key("anna")], audit={"log": str(Path().resolve())})
    assert "audit log" in said([*join, *sign(capsys)], capsys)
    assert not list(Path().glob("*.store"))
    write_policy(approvers=[key("anna")], audit={"log": str(Path("own.jsonl").resolve())})
    assert gets_through([*join, *sign(capsys)], capsys)
    assert Path("own.jsonl").read_text().count("\n") > 2


@pytest.mark.sampled(1)
def test_as_many_as_the_policy_wants(join: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(approvers=[key("anna"), key("ben")], approvals=2)
    anna, ben = sign(capsys), sign(capsys, "ben", "ben.approval")
    assert "2 of the approvers" in said([*join, *anna], capsys)
    assert "is a second approval by" in said([*join, *anna, *sign(capsys, out="again.approval")], capsys)
    assert gets_through([*join, *anna, *ben], capsys)
    write_policy(approvers=[key("anna")], approvals=2)
    assert "wants 2 approvals of fewer approvers" in said(join, capsys)
    write_policy(approvers=["ed25519:abc"])
    assert "ed25519" in said(join, capsys)


def test_the_contract_names_the_signatures_and_no_other_yes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["site", "contract", "study.toml", "--roster", "roster.toml", "--key", "a.key"]
    main(shown)
    told = capsys.readouterr().out
    assert "Required: 1 of its approvers signs, with quietmean site approve.\nTo sign: --accept " in told
    assert "To agree" not in told
    write_policy()
    main(shown)
    told = capsys.readouterr().out
    # Nothing says which data set the vectors of a session are of.
    own = "--program FILE --account NAME" if "session" in Path("study.toml").read_text() else "--data FILE"
    assert f"To agree  quietmean join study.toml --roster roster.toml --key a.key {own} --accept " in told


@pytest.mark.sampled(1)
def test_it_is_good_for_nothing_else(
    kind: Kind, join: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [*join, *sign(capsys)]
    if kind.name == "study":
        Path("copy.csv").write_text(Path("wards.csv").read_text())
        assert "another data set" in said([*given[:7], "copy.csv", *given[8:]], capsys)
    rest = [part for part in given if part not in ("--account", "wards")]
    assert "another data set" in said([*rest, "--account", "other"], capsys)
    kind.with_fields(epsilon=5.5).write()
    assert "another contract" in said(given, capsys)
    kind.write()
    write_policy(approvers=[key("anna"), key("ben")], largest_epsilon=9.0)
    assert "another policy" in said(given, capsys)
    write_policy(approvers=[key("ben")])
    assert "who is not an approver" in said(given, capsys)
    write_policy(approvers=[key("anna"), key("ben")])
    assert "another party" in said([*join, *sign(capsys, out="b.approval", party="b")], capsys)
    monkeypatch.setattr("quietmean.studies.party.approval.package_version", lambda: "0.0.1")
    assert "another version" in said(given, capsys)
    monkeypatch.undo()


def test_until_its_last_day(join: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = [*join, *sign(capsys)]
    monkeypatch.setattr("quietmean.studies.party.approval._today", lambda: TOMORROW + timedelta(days=1))
    assert f"was good until {TOMORROW}" in said(given, capsys)
    assert "void since" in said(_approve_options(capsys), capsys)


def _approve_options(capsys: pytest.CaptureFixture[str]) -> list[str]:
    options = ["--party", "a", "--account", "wards", "--owner-key", "anna.key", "--until", TOMORROW.isoformat(), "--out", "late"]
    return ["site", "approve", "study.toml", "--roster", "roster.toml", *options, "--accept", digest(capsys)]


@pytest.mark.sampled(1)
def test_what_was_changed_or_signed_as_something_else(join: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [*join, *sign(capsys)]
    raw = json.loads(Path("study.approval").read_text())
    for body in (raw["body"].replace("wards", "other"), raw["body"].replace(key("anna"), key("ben")), raw["body"] + " "):
        Path("study.approval").write_text(json.dumps({**raw, "body": body}))
        assert "changed" in said(given, capsys)
    # The node's own key signs as an approver.
    forged = json.loads(raw["body"]) | {"approver": key("a")}
    Path("study.approval").write_bytes(Signed.sign(Purpose.APPROVAL, forged, Identity.load(Path("a.key"))).to_file())
    assert "who is not an approver" in said(given, capsys)
    # A signature for another purpose.
    entry = Signed.sign(Purpose.ENTRY, json.loads(raw["body"]), Identity.load(Path("anna.key")))
    Path("study.approval").write_bytes(
        msgspec.json.encode({**raw, "body": entry.body.decode(), "signature": base64.b64encode(entry.signature).decode()})
    )
    assert "changed" in said(given, capsys)


def test_what_nobody_may_sign(capsys: pytest.CaptureFixture[str]) -> None:
    options = _approve_options(capsys)
    assert "nobody can be asked" in said(options[:-2], capsys)
    assert "is not the digest" in said([*options[:-1], "0" * 64], capsys)
    assert "is not one of the parties" in said([part if part != "a" else "d" for part in options], capsys)
    assert "is not an approver of" in said([part.replace("anna", "eve") for part in options], capsys)
    write_policy(approvers=[key("anna")], largest_epsilon=1.0)
    assert "largest_epsilon" in said(options, capsys)
    assert not Path("late").exists()
    with pytest.raises(InputError, match="does not exist"):
        OwnerApproval.load(Path("late"))
