"""``quietmean check`` of what goes through a folder, of a study and of a session: nobody is dialled, the folder is looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.cli.screens import MORE
from quietmean.node import Identity
from quietmean.studies.agreement.any_study import load_any
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path
from support.kinds import KINDS, Kind
from support.site_policy import write_policy

NAMES = ("ada", "bob", "eve")


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kind:
    monkeypatch.chdir(tmp_path)
    asked: Kind = request.param
    asked.write()
    first = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    deadlines = f'transport = "folder"\ndeadlines = {{first = "{first}", interval = 60.0, poll = 2.0}}'
    file = Path("study.toml")
    file.write_text(file.read_text().replace(f"[{asked.name}]", f"[{asked.name}]\n{deadlines}"))
    study = load_any(file)
    keys = {name: Identity.generate() for name in NAMES}
    for name, identity in keys.items():
        identity.save(Path(f"{name}.key"))
    invitation = Invitation.make(study, keys["ada"])
    entries = [
        StudyKeys.make(keys_path(Path(f"{name}.key"), invitation.digest), invitation, keys[name], name, "").entry
        for name in NAMES
    ]
    Path("study.sealed").write_bytes(Sealed.make(invitation, entries, keys["ada"]).signed.to_file())
    return asked


def check(kind: Kind) -> None:
    paying = ["--account", "wards"] if kind.name == "session" else ["--data", "wards.csv"]
    main(["check", "study.sealed", "--key", "ada.key", *paying, "--json"])


def test_a_party_is_ready_whoever_else_is_there(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    Path("share").mkdir()
    policy = write_policy()
    policy.write_text(f'folder = "{Path("share").absolute()}"\n{policy.read_text()}')
    check(kind)
    document = json.loads(capsys.readouterr().out)
    assert document["ready"]
    assert {finding["name"] for finding in document["here"]} >= {"folder", "store", "ledger"}


WRONG: dict[str, Callable[[], object]] = {
    "does not exist": lambda: None,
    "has credentials in it": lambda: "webdav://user:word@host/share",
}


@pytest.mark.parametrize(("sentence", "place"), [(sentence, make()) for sentence, make in WRONG.items()])
def test_a_folder_that_cannot_be_used_is_said(
    kind: Kind, capsys: pytest.CaptureFixture[str], sentence: str, place: str | None
) -> None:
    policy = write_policy()
    policy.write_text(f'folder = "{place or "/no/such/folder"}"\n{policy.read_text()}')
    with pytest.raises(SystemExit) as ended:
        check(kind)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert "folder.invalid" not in said.err + said.out


def test_the_first_screen_of_the_terms_says_until_when(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    del kind
    said = []
    for more in ([], ["--details"]):
        main(["site", "contract", "study.sealed", "--key", "ada.key", *more])
        said.append(" ".join(capsys.readouterr().out.split()))
    first, terms = said
    start, end = re.findall(r"until (\S+ \S+ UTC)", terms)
    assert f"starts by {start}; ends by {end}" in first


def test_a_folder_that_is_named_is_looked_at_without_a_policy(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    """As for join: a clinic without rules of its own knows whether its share can be used."""
    Path("share").mkdir()
    paying = ["--account", "wards"] if kind.name == "session" else ["--data", "wards.csv"]
    line = ["check", "study.sealed", "--key", "ada.key", *paying]
    main([*line, "--folder", "share"])
    shown = capsys.readouterr().out
    assert "ok  the folder can be used" in shown
    assert shown.splitlines()[0].endswith("  in order")
    with pytest.raises(SystemExit) as stop:
        main([*line, "--folder", "absent"])
    assert stop.value.code == 2
    shown, said = capsys.readouterr()
    assert "NO  folder: folder 'absent' does not exist" in " ".join(shown.split()).replace("NO folder", "NO  folder")
    assert "folder 'absent' does not exist" in said
    main(line)
    assert "the folder is not named. Give --folder" in capsys.readouterr().out


def test_the_first_screen_is_short_and_asks_for_no_yes(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    Path("share").mkdir()
    paying = ["--account", "wards"] if kind.name == "session" else ["--data", "wards.csv"]
    line = ["check", "study.sealed", "--key", "ada.key", *paying, "--folder", "share"]
    main(line)
    first = capsys.readouterr().out.splitlines()
    assert len(first) <= 12
    assert max(len(each) for each in first if not each.startswith("Next ")) <= 80
    assert "yes" not in " ".join(first).split()
    main([*line, "--details"])
    details = capsys.readouterr().out.splitlines()
    assert first[-1] == MORE
    assert details[: len(first) - 1] == first[:-1]
    main([*line, "--json"])
    text = " ".join(" ".join(details).split())
    for finding in json.loads(capsys.readouterr().out)["here"]:
        assert f"{finding['name']}: ok, {finding['text']}" in text
        assert "--accept" not in finding["text"]
