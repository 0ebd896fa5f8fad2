"""``join --data`` of a member: what is wrong is said before anything is handed in, charged or told, and nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli import join as join_module
from quietmean.cli.main import main
from quietmean.studies import StudyTerms
from quietmean.studies.party import handing_in
from quietmean.studies.party.member import MemberFiles
from support.committee_study import CommitteeStudy
from support.refusals import raised
from support.site_policy import write_policy


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommitteeStudy:
    """One that is planned once; nobody opens anything."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    made = CommitteeStudy(tmp_path)
    choice = made.sealed.study.choice(made.sealed.admitted)
    monkeypatch.setattr(StudyTerms, "choice", lambda terms, parties, **more: choice)
    write_policy(budget={"epsilon": 10.0, "delta": 1e-5}, unattended=True)
    Path("box").mkdir()
    Path("m1.csv").write_text("pay\n400\n")
    return made


class _Opened(Exception):
    """It came as far as the others."""


def join(study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch, *more: str, name: str = "m1") -> None:
    async def opens(own: MemberFiles, *rest: Any) -> None:
        raise _Opened

    monkeypatch.setattr("quietmean.cli.join.open_with_others", opens)
    main(["join", str(study.path), "--key", str(study.key(name)), "--yes", *more])


def files_here() -> dict[Path, bytes]:
    """But for what is kept of a yes and of a refusal."""
    kept = [path for path in Path().rglob("*") if path.is_file() and "configuration" not in path.parts]
    return {path: path.read_bytes() for path in kept if path.suffix not in (".studykeys", ".jsonl")}


def refused(
    study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str, **who: str
) -> str:
    """The one sentence with which it ends; no file of anybody has changed."""
    before = files_here()
    with pytest.raises(SystemExit) as ended:
        join(study, monkeypatch, *more, **who)
    assert ended.value.code == 2
    after = files_here()
    assert {path: content for path, content in after.items() if path in before} == before
    assert [path for path in after if path not in before and path.suffix in (".contribution", ".contributed", ".store")] == []
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("quietmean: ")][-1:]
    return sentence


def test_a_member_hands_in_once_and_what_is_wrong_is_said(
    study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    box = ["--contributions", "box"]
    Path("other.csv").write_text("wage\n400\n")
    assert "column 'pay' is not one of" in refused(study, monkeypatch, capsys, *box, "--data", "other.csv")
    assert "file nothing.csv" in refused(study, monkeypatch, capsys, *box, "--data", "nothing.csv")
    assert "handed in. Give --contributions FOLDER." in refused(study, monkeypatch, capsys, "--data", "m1.csv")
    assert "is not a member of the committee" in refused(study, monkeypatch, capsys, *box, name="c1")
    raised(_Opened, "", join, study, monkeypatch, *box, "--data", "m1.csv")
    (made,) = Path("box").iterdir()
    content = made.read_bytes()
    # The same command again, as after a crash, gives the same file.
    raised(_Opened, "", join, study, monkeypatch, *box, "--data", "m1.csv")
    assert made.read_bytes() == content
    Path("other.csv").write_text("pay\n500\n")
    assert "Make a new study for a correction" in refused(study, monkeypatch, capsys, *box, "--data", "other.csv")


def test_a_member_that_is_late_with_its_data_takes_part_without_them(
    study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, zone: Any = UTC) -> Any:
            return datetime.now(zone) + timedelta(hours=2)

    for module in (join_module, handing_in):
        monkeypatch.setattr(module, "datetime", Later)
    said = refused(study, monkeypatch, capsys, "--contributions", "box", "--data", "m1.csv")
    assert "nothing was charged" in said
    assert said.endswith("Without --data this member takes part all the same.")
    raised(_Opened, "", join, study, monkeypatch, "--contributions", "box")
