"""Deadlines of a study through a folder: what is refused, what all parties agree on, and when each wait ends."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from quietmean.cli.main import main
from quietmean.node.folder import Timetable
from quietmean.node.phase import Phase
from quietmean.planning import Plan, Target
from quietmean.protocols import get_protocol
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.any_study import study_text
from support.command_lines import fails
from support.pages import commands
from support.refusals import refused
from support.site_policy import write_policy

FIRST = "2099-03-01T12:00:00Z"


def study(**changed: Any) -> StudyTerms:
    given: dict[str, Any] = {
        "column": [{"name": "age", "low": 0, "high": 100}],
        "colluding": 1,
        "protocol": "cordp-dme",
        "transport": "folder",
        "deadlines": {"first": FIRST, "interval": 86400.0, "poll": 3600.0},
    }
    return StudyTerms.parse({name: value for name, value in (given | changed).items() if value is not None})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"deadlines": None}, 'Write deadlines = {first = "2027-03-01T12:00:00Z"'),
        ({"transport": "connections"}, "has deadlines and its parties connect"),
        ({"round_timeout": 60.0}, "round_timeout has no effect in a study through a folder"),
        ({"start_timeout": 60.0}, "start_timeout has no effect"),
        ({"start_by": "2099-02-27T12:00:00Z"}, "Give a first deadline 2.29 days or more after start_by. Up to 10 attempts"),
        ({"deadlines": {"first": FIRST, "interval": 7199.0, "poll": 3600.0}}, "Give an interval of 2 polls or more"),
        ({"deadlines": {"first": FIRST, "interval": 7200.0, "poll": 1.0}}, "deadlines.poll must be at least 2"),
        ({"deadlines": {"first": FIRST, "interval": 1e9, "poll": 3600.0}}, "deadlines.interval"),
        ({"deadlines": {"first": 4076308800, "interval": 7200.0, "poll": 60.0}}, "must be a time with its offset from UTC"),
        ({"deadlines": {"first": "2099-03-01T12:00:00", "interval": 7200.0, "poll": 60.0}}, "must be a time with its offset"),
        ({"deadlines": {"first": FIRST, "intervall": 7200.0, "poll": 60.0}}, "did you mean 'interval'"),
        ({"deadlines": {"first": FIRST, "interval": float("nan"), "poll": 60.0}}, "deadlines.interval"),
        ({"deadlines": "tomorrow"}, "deadlines"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], sentence: str) -> None:
    assert sentence in refused("", study, **changed)


def test_the_file_holds_what_was_agreed_and_the_same_instant_is_the_same_study(tmp_path: Path) -> None:
    one = study()
    path = tmp_path / "study.toml"
    path.write_text(study_text(one))
    assert "timeout" not in path.read_text()
    assert StudyTerms.load(path) == one
    elsewhere = study(deadlines={"first": "2099-03-01T13:00:00+01:00", "interval": 86400.0, "poll": 3600.0})
    assert elsewhere.context() == one.context()
    later = study(deadlines={"first": "2099-03-01T12:00:01Z", "interval": 86400.0, "poll": 3600.0})
    assert later.context() != one.context()


def test_each_wait_has_its_time() -> None:
    target = Target(parties=5, epsilon=1.0, delta=1e-6, dimension=1)
    inca = Plan(target, get_protocol("inca").read({"rounds": 3, "sigma_star": 0.7, "sigma_delta": 1.8}).resolved(5))
    table = Timetable.of([inca], 100.0, 10.0)
    # The start, three rounds and what is in doubt after them, the releases, the logs.
    assert [end for _, end in table] == [100.0 + 10.0 * place for place in range(7)]
    assert [what for what, _ in table] == [
        "agreement",
        "mixing 1",
        "mixing 2",
        "mixing 3",
        "mixing 4",
        "dissemination 1",
        "closing",
    ]
    assert table.end((int(Phase.FINALIZATION), 0)) == 160.0
    with pytest.raises(ValueError, match=r"tuple\.index"):
        table.end((int(Phase.GATE), 0))


def test_every_attempt_to_start_has_its_time_before_the_first_deadline() -> None:
    one = study(start_by="2099-02-26T21:00:00Z")
    assert one.start_by is not None
    # Of the 63 hours, one part is left for what is begun in the last attempt.
    assert one.required_deadlines.start_timeout(one.start_by) == pytest.approx(63 * 3600 * 10 / 11)


def test_a_new_study_that_starts_with_those_who_are_there_leaves_time_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new = f"{commands('take-part/connect.md', 'A folder')[0]} --start-by 2099-03-01T12:00:00+02:00"
    main(shlex.split(new)[1:])
    written = StudyTerms.load(Path("study.toml"))
    assert written.required_deadlines.first == datetime(2099, 3, 4, 10, tzinfo=UTC)
    assert written.starts_with_quorum


def test_the_convener_of_a_study_by_schedule_starts_it_with_its_next_visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    new, keygen, invite, accept, seal, _ = commands("take-part/connect.md", "A folder")
    lines = [f"{new} --start-by 2099-03-01T12:00:00Z", keygen, invite]
    for line in (*lines, *(accept.replace("south", name) for name in ("north", "south", "east")), seal):
        main(shlex.split(line)[1:])
    start = ["study", "start", "study.sealed", "--key", "north.key"]
    assert "no join with the store" in fails(start, capsys)
    # No process runs now; one has been there.
    Path("study-north.store").write_bytes(b"a store")
    main(start)
    assert Path("study-north.store.start").exists()


class Earlier(datetime):
    """A clock that is an hour behind."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) - timedelta(hours=1)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three parties met, and sealed in time; the first deadline was a second ago."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write_policy(unattended=True)
    new, keygen, invite, accept, seal, _ = commands("take-part/connect.md", "A folder")
    passed = datetime.now(UTC) - timedelta(seconds=1)
    for line in (f"{new} --first-deadline {passed.isoformat()}", keygen, invite):
        main(shlex.split(line)[1:])
    for name in ("north", "south", "east"):
        main(shlex.split(accept.replace("south", name))[1:])
    with monkeypatch.context() as then:
        then.setattr("quietmean.cli.convening.datetime", Earlier)
        main(shlex.split(seal)[1:])
    Path("south.csv").write_text("age\n30\n40\n")
    Path("share").mkdir()
    return tmp_path


def join(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    return fails(
        ["join", "study.sealed", "--key", "south.key", "--data", "south.csv", "--folder", "share", "--once", "--yes"], capsys
    )


def test_nothing_is_charged_once_it_is_too_late_to_start(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(join(capsys).split())
    assert "which has passed. Agree on later deadlines (it is 20" in said
    assert "UTC by this machine's clock, set that if it is wrong)" in said
    assert not list(begun.rglob("*.store"))
    assert list((begun / "share").iterdir()) == []
    capsys.readouterr()
    assert not list(begun.rglob("*ledger*"))


def test_contract_and_plan_say_until_when(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["site", "contract", "study.sealed", "--key", "south.key", "--details"])
    said = " ".join(capsys.readouterr().out.split())
    assert "UTC, then for 3 rounds, each 24 hours longer, until" in said
    assert "through a folder, with east; north" in said.replace("north; east", "east; north")
    assert "folder.invalid" not in said
    assert "Every party looks into the folder every 60 minutes or more often" in said
    main(["plan", "--study", "study.sealed"])
    assert "through a folder: 3 rounds of at most 24 hours after the start" in " ".join(capsys.readouterr().out.split())
