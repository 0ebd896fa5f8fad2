"""``quietmean check`` of a study with a committee: what a member and a contributor can know before anything leaves."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quietmean.cli import check_committee
from quietmean.cli.check_committee import CommitteePlaces, FileCheck, clocks
from quietmean.cli.check_view import Finding
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.core.folders import configuration_folder
from quietmean.core.site_options import NodeOptions, SiteOptions
from quietmean.node.preflight import PeerReadiness
from quietmean.planning.automatic import Choice
from quietmean.statistics.expectation import Expectation
from quietmean.studies.agreement.deadlines import CommitteeTerms
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.party import handing_in
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from quietmean.studies.party.handing_in import ServerAnswer
from support.committee_study import CommitteeStudy
from support.site_policy import write_policy

BELOW = {"epsilon": 10.0, "delta": 1e-5}


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("c1.csv").write_text("pay\n400\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CommitteeStudy:
    return CommitteeStudy(tmp_path_factory.mktemp("committee"))


@pytest.fixture(scope="module")
def planned(world: CommitteeStudy) -> Choice:
    return world.sealed.study.choice(world.sealed.admitted)


@pytest.fixture(scope="module")
def expectations() -> dict[tuple[float, float, int], Expectation]:
    return {}


@pytest.fixture
def study(
    world: CommitteeStudy,
    planned: Choice,
    expectations: dict[tuple[float, float, int], Expectation],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CommitteeStudy:
    """One study, whose files are in a folder of this test; it is planned once, and so is what is expected of its answers."""
    made = vars(Forecast)["expectation"].func

    def kept(forecast: Forecast) -> Expectation:
        key = forecast.noise, forecast.drawn, forecast.studies
        if key not in expectations:
            expectations[key] = made(forecast)
        return expectations[key]

    shutil.copytree(world.folder, tmp_path / "own")
    Path("box").mkdir()
    monkeypatch.setattr(FileCheck, "_choice", lambda check: planned)
    monkeypatch.setattr(Forecast, "expectation", property(kept))
    return world


def check_of(study: CommitteeStudy, name: str, store: Path | None = None, data: str | None = None, **places: Any) -> FileCheck:
    """``name``'s, with its keys in this test's folder."""
    node = NodeOptions(store=store)
    key = Path("own") / f"{name}.key"
    named: dict[str, Any] = {"study": Path("own/study.sealed"), "sealed": study.sealed, "identity": study.identities[name]}
    return FileCheck(**named, key=key, data=data, places=CommitteePlaces(**places), node=node)


def said(findings: list[Finding]) -> dict[str, str]:
    """What was found by name; what is wrong begins with ``NOT``."""
    return {each.name: ("" if each.passed else "NOT ") + each.text for each in findings}


def of_contributor(study: CommitteeStudy, **places: Any) -> dict[str, str]:
    return said(check_of(study, "c1", data="c1.csv", **places).of_contributor())


def of_member(study: CommitteeStudy, store: Path | None = None) -> dict[str, str]:
    check = check_of(study, "m1", store, contributions=Path("box"))
    return said(check.of_member(check.files(), None))


def terms_of(study: CommitteeStudy) -> CommitteeTerms:
    terms = study.sealed.study.committee
    assert terms is not None
    return terms


def wrong_in(there: dict[str, str]) -> list[str]:
    return [name for name, text in there.items() if text.startswith("NOT ")]


def hand_in(study: CommitteeStudy, name: str) -> Path:
    keys = StudyKeys.load(Path("own") / study.keys[name].path.name)
    register = Register(Path("registers").absolute() / name)
    contributor = CommitteeContributor(study.sealed, study.plan, study.identities[name], keys, register)
    encoded = study.sealed.study.workload.encode(np.array([[400.0]]), step=study.plan.value_step)
    path = Path("box") / f"{name}.contribution"
    path.write_bytes(contributor.contribute(encoded).to_file())
    return path


def test_a_contributor_is_in_order(study: CommitteeStudy) -> None:
    write_policy(budget=BELOW)
    before = sorted(Path().rglob("*"))
    there = of_contributor(study)
    assert wrong_in(there) == []
    assert {"study", "contract", "time", "data", "ledger"} <= there.keys()
    assert all(name in there["study"] for name in study.members)
    assert "allowed by " in there["contract"]
    assert "--accept" not in there["contract"]
    assert "contributions come until" in there["time"]
    # Nothing was made, charged or written.
    assert sorted(Path().rglob("*")) == before
    hand_in(study, "c1")
    assert "the same data give it again" in of_contributor(study)["time"]


@pytest.mark.parametrize(
    ("wrong", "name", "says"),
    [
        ("late", "time", "contributions came until"),
        ("data", "data", "column 'pay' is not one of"),
        ("records", "data", "Set the rule to 0"),
        ("budget", "ledger", "allows"),
        ("drop away", "drop", "does not answer"),
        ("drop of another study", "drop", "another study"),
        ("no drop", "drop", "is not a drop"),
        ("drop's clock", "drop", "its clock is 6"),
    ],
)
def test_what_a_contributor_has_to_mend(
    study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch, wrong: str, name: str, says: str
) -> None:
    rules: dict[str, Any] = {"smallest_records": 5} if wrong == "records" else {}
    write_policy(budget={"epsilon": 0.5, "delta": 1e-5} if wrong == "budget" else BELOW, **rules)
    places: dict[str, Any] = {}
    if wrong == "late":
        later = terms_of(study).contribute_by + timedelta(seconds=1)
        monkeypatch.setattr(check_committee, "datetime", SimpleNamespace(now=lambda zone: later))
    elif wrong == "data":
        Path("c1.csv").write_text("wage\n400\n")
    elif "drop" in wrong:
        places = {"drop": "https://drop.example"}
        session = "0" * 64 if wrong == "drop of another study" else study.sealed.digest
        body = b"<html>" if wrong == "no drop" else json.dumps({"session": session, "contributions": 2}).encode()
        ahead = 61.0 if wrong == "drop's clock" else 0.0

        def ask(place: str, seconds: float) -> ServerAnswer:
            assert place == "https://drop.example/health"
            if wrong == "drop away":
                raise OSError("connection refused")
            return ServerAnswer(200, body, formatdate(time.time() + ahead, usegmt=True))

        monkeypatch.setattr(handing_in, "ask_server", ask)
    there = of_contributor(study, **places)
    assert wrong_in(there) == [name]
    assert says in there[name]


def test_a_drop_that_is_there_is_in_order(study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    write_policy(budget=BELOW)
    body = json.dumps({"session": study.sealed.digest, "contributions": 2}).encode()
    monkeypatch.setattr(handing_in, "ask_server", lambda place, seconds: ServerAnswer(200, body, formatdate(usegmt=True)))
    there = of_contributor(study, drop="https://drop.example/")
    assert there["drop"] == "https://drop.example/ takes contributions to this study, 2 so far"


def test_a_policy_that_forbids_it_is_said_before_anything_else(study: CommitteeStudy) -> None:
    write_policy(budget=BELOW, largest_epsilon=1.0)
    with pytest.raises(InputError, match="epsilon"):
        of_contributor(study)


def test_a_member_looks_at_what_is_public_and_opens_nothing(study: CommitteeStudy) -> None:
    hand_in(study, "c1")
    path = hand_in(study, "c2")
    path.write_bytes(path.read_bytes()[:-1])
    before = sorted(Path().rglob("*"))
    there = of_member(study)
    assert wrong_in(there) == []
    assert there.keys() == {"study", "key", "store", "time", "contributions"}
    assert "box: 1 of at least 3 contributions so far" in there["contributions"]
    assert "c2.contribution cannot count: it is cut off" in there["contributions"]
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("wrong", "name", "says"),
    [
        ("folder", "contributions", "See that it is there and mounted"),
        ("store", "store", "with another store"),
        ("place", "store", "Choose a writable place"),
        ("key", "key", "it has ended for this member"),
    ],
)
def test_what_a_member_has_to_mend(study: CommitteeStudy, wrong: str, name: str, says: str) -> None:
    store = None
    if wrong == "folder":
        Path("box").rmdir()
    elif wrong == "store":
        began_with = Register(configuration_folder() / "member")
        began_with.folder.mkdir(parents=True)
        began_with.put(check_of(study, "m1").files().register_key, b"d" * 32, "m1")
    elif wrong == "place":
        store = Path("nowhere/m1.store")
    else:
        StudyKeys.load(Path("own") / study.keys["m1"].path.name).without_opening()
    if store is not None:
        check = check_of(study, "m1", contributions=Path("box"))
        own = check.files()
        there = said(check.of_member(replace(own, options=SiteOptions(store=store)), None))
    else:
        there = of_member(study)
    assert wrong_in(there) == [name]
    assert says in there[name]


@pytest.mark.parametrize(
    ("name", "places", "says"),
    [
        ("m1", {}, r"a member's check needs .* contributors handed in\. Give --contributions FOLDER\.$"),
        ("m1", {"contributions": Path("box"), "drop": "https://drop.example"}, "--drop is for contributors"),
        ("c1", {"contributions": Path("box")}, "--contributions is for members"),
        ("c1", {}, r"a contributor's check needs the records .*\. Give --data\.$"),
    ],
)
def test_what_is_of_the_other_role(study: CommitteeStudy, name: str, places: dict[str, Any], says: str) -> None:
    check = check_of(study, name, **places)
    with pytest.raises(InputError, match=says):
        _ = check.of_member(check.files(), None) if check.is_member else check.of_contributor()


def test_the_command_says_who_is_ready(
    study: CommitteeStudy, capsys: pytest.CaptureFixture[str], free_ports: Callable[[int], list[int]]
) -> None:
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    write_policy(budget=BELOW)
    ends = {}
    for name, more in (
        ("c1", ["--data", "c1.csv"]),
        ("m1", ["--contributions", "box", "--wait", "0", "--listen", listen]),
    ):
        code = 0
        try:
            main(["check", "own/study.sealed", "--key", f"own/{name}.key", *more, "--json"])
        except SystemExit as ended:
            code = int(str(ended.code))
        ends[name] = code, json.loads(capsys.readouterr().out)
    code, document = ends["c1"]
    assert (code, document["ready"], document["parties"]) == (0, True, [])
    # The other members are not there: that is no mistake on this side.
    code, document = ends["m1"]
    assert (code, document["ready"], {party["name"] for party in document["parties"]}) == (3, False, {"m2", "m3", "m4"})
    assert all(finding["passed"] for finding in document["here"])


@pytest.mark.parametrize(("offset", "passed"), [(30.0, True), (-700.0, False), (700.0, False)])
def test_members_clocks_may_differ_by_the_grace(study: CommitteeStudy, offset: float, passed: bool) -> None:
    terms = terms_of(study).model_copy(update={"grace": 600.0})
    reply: Any = SimpleNamespace(clock_offset=offset, clock_uncertainty=0.1)
    progress = PeerReadiness(1, SimpleNamespace(), reply=reply)  # type: ignore[arg-type]
    (there,) = clocks(terms, study.sealed.roster, [progress])
    assert there.passed is passed
    if not passed:
        assert f"the clock of {study.sealed.roster.name(1)} is 700 s" in there.text


def test_a_query_that_mixes_rows_is_refused_before_the_yes_unless_policy_and_owner_say_so(study: CommitteeStudy) -> None:
    pytest.importorskip("duckdb")
    Path("q.sql").write_text("SELECT pay::DOUBLE - avg(pay::DOUBLE) OVER () AS pay FROM data")
    found = said(check_of(study, "c1", data="c1.csv#query=q.sql").of_contributor())
    assert found["data"].startswith("NOT a window in the query in q.sql is not allowed. Make the person the unit, or declare")
    with pytest.raises(InputError, match="query_mixes_rows: the query over these data mixes rows, as they declare"):
        check_of(study, "c1", data="c1.csv#query=q.sql,query_mixes_rows=true").of_contributor()
    write_policy(query_mixes_rows=True)
    found = said(check_of(study, "c1", data="c1.csv#query=q.sql,query_mixes_rows=true").of_contributor())
    assert not any(text.startswith("NOT") for text in found.values())
