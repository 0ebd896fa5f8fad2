"""Inviting, accepting and sealing on the command line: refusals, questions, passphrases, plans of a sealed study."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.node import Identity
from quietmean.planning import Plan
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path
from support.command_lines import fails
from support.consent import accept as yes_of
from support.kinds import STUDY, Kind

PARTIES = ("north", "south", "east")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return tmp_path


def told(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON document of a command."""
    capsys.readouterr()
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def sealed_study(capsys: pytest.CaptureFixture[str], kind: Kind = STUDY) -> dict[str, Any]:
    """Of three parties; everything travels as lines of text."""
    kind.write()
    main(["key", "new", "--key", "north.key"])
    line = told(["study", "invite", "study.toml", "--key", "north.key", "--line"], capsys)["line"]
    Path("study.invitation").write_text(line)
    entries = []
    for place, name in enumerate(PARTIES):
        accept = ["accept", line, "--key", f"{name}.key", "--name", name, "--address", f"192.0.2.{place}:7001", "--line"]
        entries.append(told(accept, capsys)["line"])
        # Typed twice it says the same.
        assert told(accept, capsys)["line"] == entries[-1]
    document: dict[str, Any] = told(
        ["study", "seal", "study.invitation", *entries, "--key", "north.key", "--out", "study.sealed"], capsys
    )
    return document


@pytest.mark.parametrize(("address", "command"), [("192.0.2.{}:7001", "check"), ("", "send")])
def test_the_coordinator_tells_the_command_of_the_parties_way(
    address: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["study", "new", "mean(age in 0..100)", "--name", "ages", "--protocol", "local-dp", "--out", "study.toml"])
    main(["key", "new", "--key", "north.key"])
    main(["study", "invite", "study.toml", "--key", "north.key", "--out", "study.invitation"])
    for place, name in enumerate(PARTIES):
        reached = [f"--address={address.format(place)}"] if address else []
        main(["accept", "study.invitation", "--key", f"{name}.key", "--name", name, *reached])
    capsys.readouterr()
    main(["study", "seal", "study.invitation", *(f"{name}.entry" for name in PARTIES), "--key", "north.key"])
    assert f"Parties   quietmean {command} study.sealed --key NAME.key --data FILE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("terms", "role", "needed"),
    [
        (["--protocol", "local-dp"], [], False),
        ([], [], True),
        (["--committee", "4", "--contribute-by", "2099-01-01T12:00:00Z"], [], False),
        (["--committee", "4", "--contribute-by", "2099-01-01T12:00:00Z"], ["--member"], True),
    ],
)
def test_who_has_to_be_reached_is_told_to_give_an_address(
    terms: list[str], role: list[str], needed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["study", "new", "mean(age in 0..100)", "--name", "ages", *terms, "--out", "study.toml"])
    main(["key", "new", "--key", "north.key"])
    capsys.readouterr()
    main(["study", "invite", "study.toml", "--key", "north.key", "--out", "study.invitation"])
    told_how = "--member --address HOST:PORT" if role else "--name NAME --address HOST:PORT"
    assert (told_how in capsys.readouterr().out) == needed
    main(["accept", "study.invitation", "--key", "south.key", "--name", "south", *role])
    assert ("! ADDRESS     Nobody can connect to you" in capsys.readouterr().out) == needed
    if needed:
        main(["accept", "study.invitation", "--key", "west.key", "--name", "west", *role, "--address", "192.0.2.1:7001"])
        said = capsys.readouterr().out
        assert "west at 192.0.2.1:7001" in said
        assert "! ADDRESS" not in said


def test_the_coordinator_tells_the_command_of_members_too(capsys: pytest.CaptureFixture[str]) -> None:
    members = [*PARTIES, "fourth"]
    convened = ["--committee", "4", "--contribute-by", "2099-01-01T12:00:00Z", "--out", "study.toml"]
    main(["study", "new", "mean(age in 0..100)", "--name", "ages", *convened])
    main(["key", "new", "--key", "north.key"])
    main(["study", "invite", "study.toml", "--key", "north.key", "--out", "study.invitation"])
    for place, name in enumerate(members):
        member = ["--member", f"--address=192.0.2.{place}:7001"]
        main(["accept", "study.invitation", "--key", f"{name}.key", "--name", name, *member])
    capsys.readouterr()
    main(["study", "seal", "study.invitation", *(f"{name}.entry" for name in members), "--key", "north.key"])
    assert "Members   quietmean join study.sealed --key NAME.key --contributions FOLDER" in capsys.readouterr().out


@pytest.mark.sampled(1)
def test_from_invitation_to_words(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    sealed = sealed_study(capsys, kind)
    assert len(sealed["words"].split()) == 8
    assert [party["key"] for party in sealed["parties"]] == [one.identity for one in Sealed.load("study.sealed").entries]
    again = told(["verify", "words", "study.sealed", "--key", "south.key"], capsys)
    assert (again["words"], again["digest"], again["own_entry"]) == (sealed["words"], sealed["digest"], "south")
    assert Path("south.key.revocation").exists()
    assert "exists already" in fails(
        ["study", "seal", "study.invitation", "x", "--key", "north.key", "--out", "study.sealed"], capsys
    )
    assert "Ask its coordinator" in fails(
        ["study", "invite", "study.toml", "--key", "south.key", "--after", "study.sealed"], capsys
    )
    following = told(
        ["study", "invite", "study.toml", "--key", "north.key", "--after", "study.sealed", "--out", "2.invitation"], capsys
    )
    assert following["version"] == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("links", ["hybrid", "x25519"])
def test_a_site_that_wants_keys_of_ml_kem(kind: Kind, links: str, capsys: pytest.CaptureFixture[str], own_folder: Path) -> None:
    sealed_study(capsys, kind if links == "hybrid" else kind.with_fields(links=links))
    rest = ["study.sealed", "--key", "south.key"]
    said = told(["site", "contract", *rest], capsys)
    assert (said["links"], said["post_quantum"]) == (links, links == "hybrid")
    main(["site", "contract", *rest, "--details"])
    text = " ".join(capsys.readouterr().out.split())
    assert ("ML-KEM-768 and X25519 together" in text) == (links == "hybrid")
    assert ("X25519 alone: who records messages now" in text) == (links == "x25519")
    # The rule of a site is looked at before its ledger, and before anything is asked.
    policy = own_folder / "config" / "quietmean" / "policy.toml"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text("[policy]\nrequire_post_quantum = true\n")
    policy.chmod(0o600)
    join = ["join", *rest, *kind.join, "--accept", yes_of("south", "study.sealed"), "--compared", "north, east"]
    if links == "x25519":
        for command in (join, *([["send", *join[1:]]] if kind.name == "study" else [])):
            assert "require_post_quantum: the study's keys: X25519 alone" in fails(command, capsys)
    assert not list(own_folder.rglob("*.sqlite"))
    assert not list(own_folder.rglob("*.store"))


@pytest.mark.sampled(1)
def test_joining_needs_a_yes_and_the_own_keys(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    sealed = sealed_study(capsys, kind)
    join = ["join", "study.sealed", *kind.join, "--key", "south.key"]
    accept = yes_of("south", "study.sealed")
    # What a refusal would offer is copied: a digest stands only below the terms.
    refused = fails(join, capsys)
    assert "nobody said yes" in refused
    assert not re.search(r"[0-9a-f]{32}", refused)
    for copied in (accept[:31], sealed["digest"], yes_of("north", "study.sealed"), "0" * 64):
        assert "is not the digest" in fails([*join, "--accept", copied], capsys)
    assert "Leave --roster out" in fails([*join, "--roster", "roster.toml"], capsys)
    assert "'west' is not one" in fails([*join, "--accept", accept, "--compared", "west"], capsys)
    assert "'west' is not one" in fails([*join, "--accept", accept, "--compared", "north,west"], capsys)
    keys = keys_path(Path("south.key"), Sealed.load("study.sealed").invitation.digest)
    assert StudyKeys.load(keys).sealed is None
    keys.rename("elsewhere")
    assert "Give --store" in fails([*join, "--accept", accept], capsys)
    Path("folder").mkdir()
    Path("elsewhere").rename(Path("folder") / keys.name)
    assert "nobody said yes" in fails([*join, "--store", "folder"], capsys)
    Path("folder", keys.name).rename(keys)
    StudyKeys.load(keys).bind("0" * 64)
    assert "what is sealed again is another study" in fails([*join, "--accept", accept], capsys)
    assert "Give --roster" in fails(["join", "study.toml", *kind.join, "--key", "south.key"], capsys)


@pytest.mark.sampled(1)
def test_a_distrusted_key_is_refused_everywhere(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    sealed_study(capsys, kind)
    assert told(["key", "revoke"], capsys)["distrusted"] == []
    (key,) = told(["key", "revoke", "north.key.revocation"], capsys)["distrusted"]
    assert key == Identity.load(Path("north.key")).public_key
    for command in (
        ["verify", "words", "study.sealed"],
        ["accept", "study.invitation", "--key", "west.key", "--name", "west"],
        ["join", "study.sealed", *kind.join, "--key", "south.key"],
        ["check", "study.sealed", *(part for part in kind.join if part not in ("--program", "train.py")), "--key", "south.key"],
        ["site", "contract", "study.sealed", "--key", "south.key"],
        *([["plan", "--study", "study.sealed"]] if kind.name == "study" else []),
    ):
        assert "distrusts" in fails(command, capsys), command
    assert not Path("west.key").exists()


@pytest.mark.slow
def test_the_plan_of_a_study_is_the_one_that_join_makes(capsys: pytest.CaptureFixture[str]) -> None:
    sealed_study(capsys)
    answer = told(["plan", "--study", "study.sealed", "--out", "plan.json"], capsys)
    assert answer["protocol"] == "local-dp"
    study = StudyTerms.load(Path("study.toml"))
    assert study.placed(Plan.from_json(json.loads(Path("plan.json").read_text()))).digest == study.plan(3).digest
    Path("roster.toml").write_text(Sealed.load("study.sealed").roster.to_toml())
    for given in (["--study", "study.toml", "--roster", "roster.toml"], ["--study", "study.toml", "--parties", "3"]):
        assert told(["plan", *given], capsys) == answer
    assert "--epsilon cannot go with --study" in fails(["plan", "--study", "study.sealed", "--epsilon", "2"], capsys)
    assert "Leave it out" in fails(["plan", "--study", "study.sealed", "--parties", "4"], capsys)
    assert "Give --parties" in fails(["plan", "--epsilon", "2"], capsys)


def test_what_is_impossible_is_refused_before_a_key_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in [
        (["--name", "no\u202erth"], "U+202E"),
        (["--name", "x" * 41], "41 characters"),
        (["--name", "😀"], "neither letters nor digits"),
        (["--address", "nohost"], "not host:port"),
    ]:
        assert words in fails(["key", "new", "--key", "a.key", *arguments], capsys)
    assert not list(Path().glob("a.key*"))
    main(["key", "new", "--key", "a.key", "--name", 'a"b'])
    shown = capsys.readouterr().out
    assert '"a\\"b"' in shown
    # Who takes part by an invitation has nothing to hand out: its entry is made by accept.
    said = " ".join(shown.replace("\n# ", " ").split())
    assert "for a roster, a policy or study new --registrar. A registrar goes on with quietmean study vouchers." in said
    assert "127.0.0.1:7000" in shown


def test_a_key_behind_a_passphrase(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "without a terminal" in fails(["key", "new", "--key", "a.key", "--passphrase"], capsys)
    Path("secret").write_text("correct horse\n")
    monkeypatch.setenv("QUIETMEAN_PASSPHRASE_FILE", "secret")
    main(["key", "new", "--key", "a.key", "--passphrase"])
    assert b"ENCRYPTED" in Path("a.key").read_bytes()
    main(["study", "new", "mean(age in 0..100)"])
    main(["study", "invite", "study.toml", "--key", "a.key"])
    Path("secret").write_text("wrong\n")
    assert "cannot be opened with this passphrase" in fails(["study", "invite", "study.toml", "--key", "a.key"], capsys)
    monkeypatch.delenv("QUIETMEAN_PASSPHRASE_FILE")
    assert "without a terminal" in fails(["study", "invite", "study.toml", "--key", "a.key"], capsys)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_new_asks_for_what_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing is asked" in fails(["study", "new"], capsys)
    answers = ["ages", "age", "numbers", "zero", "0", "100", "sex", "levels", "f, m", "smoker", "yes-no", "", "0.5", ""]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(answers) + "\n"))
    main(["study", "new", "--out", "asked.toml"])
    study = StudyTerms.load(Path("asked.toml"))
    assert (study.name, study.epsilon, study.colluding) == ("ages", 0.5, None)
    assert [column.describe() for column in study.columns] == [
        {"name": "age", "low": 0.0, "high": 100.0, "missing": "indicator"},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "smoker", "boolean": True},
    ]
    assert "exists already" in fails(["study", "new", "--out", "asked.toml"], capsys)


def test_a_new_study_declares_columns_like_run_and_leaves_the_protocol_open(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ["mean(age in 0..100 [missing_codes=-9 unknown])"]
    dates = ["mean(admitted in 2020-01-01..2020-12-31)"]
    main(["study", "new", *numbers, *dates, "old = age >= 65", "--out", "study.toml"])
    study = StudyTerms.load(Path("study.toml"))
    assert [column.name for column in study.columns] == ["age", "admitted", "old"]
    assert study.columns[0].missing_codes == ("-9", "unknown")
    assert study.columns[1].since is not None
    assert study.columns[1].high == 365
    assert study.protocol == "auto"
