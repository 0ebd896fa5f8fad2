"""A study whose messages are files in a folder: its page's commands, in processes that only share that folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quietmean.core.errors import NotStarted
from quietmean.studies.agreement.study_keys import StudyKeys
from support.folder_sites import PARTIES, Sites, sites_in


@pytest.fixture
def sites(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Its parameters are those of :class:`Sites`: when the start ends, and how long each round is, in seconds, and so on."""
    with sites_in(tmp_path, monkeypatch, *getattr(request, "param", ())) as found:
        yield found


@pytest.mark.slow
def test_three_parties_one_of_them_killed_and_started_again(sites: Sites) -> None:
    sites.join("north", "south", "east")
    sites.wait_for_rounds()
    sites.kill("south")
    # What anybody may put there.
    (session,) = sites.share.iterdir()
    for number in range(1, 4):
        slot = session / f"q{number:08d}"
        slot.mkdir(exist_ok=True)
        for junk in range(1000):
            (slot / f"{junk}").touch()
        (slot / f"0-1-{'0' * 32}").write_bytes(os.urandom(5000))
    sites.join("south")
    found = sites.finish()
    assert len({json.dumps(result["estimate"]) for result in found.values()}) == 1
    assert all(result["parties_counted"] == 3 for result in found.values())
    assert abs(found["north"]["estimate"] - 40.5) < 6 * found["north"]["standard_error"]


@pytest.mark.slow
def test_by_schedule_alone(sites: Sites) -> None:
    """As cron would run it: each party alone, with hours between the visits for all that anybody knows."""
    found = sites.visit_until_the_end(*PARTIES)
    assert len({json.dumps(result["estimate"]) for result in found}) == 1
    assert all(result["parties_counted"] == 3 for result in found)
    # What the folder keeps can be opened by nobody any more.
    assert all(StudyKeys.load(path).mailbox is None for path in sites.folder.glob("*.studykeys"))
    assert len(list(sites.folder.glob("*.studykeys"))) == 3
    # A visit after the end says the same and puts nothing.
    before = sites.rounds()
    assert sites.visit("north") == {"north": 0}
    assert json.loads(sites.output["north"])["estimate"] == found[0]["estimate"]
    assert sites.rounds() == before


@pytest.mark.slow
@pytest.mark.parametrize("sites", [(120.0, 30.0)], indirect=True)
def test_one_never_comes_again(sites: Sites) -> None:
    """After the others' deadlines, which go on while nobody's process runs."""
    for _ in range(3):
        sites.visit(*PARTIES)
    found = sites.visit_until_the_end("north", "south", pause=5.0)
    assert len({json.dumps(result["estimate"]) for result in found}) == 1
    # East had put its value by its third visit, as the others had.
    assert [result["parties_counted"] for result in found] == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("sites", [(140.0, 60.0, 15.0)], indirect=True)
def test_two_start_where_the_third_never_comes_and_one_is_killed(sites: Sites) -> None:
    sites.join("north", "south")
    sites.wait_for_rounds(2)
    sites.kill("south")
    time.sleep(2.0)
    sites.join("south")
    found = sites.finish()
    assert len({json.dumps(result["estimate"]) for result in found.values()}) == 1
    assert all((result["parties_counted"], result["not_in_at_start"]) == (2, ["east"]) for result in found.values())
    # What was put for it tells it, whenever it comes.
    sites.join("east", once=True)
    _, errors = sites.processes["east"].communicate(timeout=120)
    assert sites.processes["east"].returncode == NotStarted.exit_code, errors
    assert "the study started without this party, with" in errors


@pytest.mark.slow
def test_a_store_from_a_backup_takes_no_part(sites: Sites) -> None:
    """Store and outbox are put back together, as a backup of the whole machine does; the keys for the study are still there."""
    sites.visit(*PARTIES)
    (store,) = sites.folder.glob("*-north.store")
    files = {path: path.read_bytes() for path in sites.folder.glob(f"{store.name}*")}
    assert {path.name for path in files} >= {store.name, f"{store.name}.outbox"}
    sites.visit(*PARTIES)
    for path in sites.folder.glob(f"{store.name}*"):
        path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
    there = {path: path.read_bytes() for path in sites.share.rglob("*") if path.is_file()}
    sites.join("north", once=True)
    output, errors = sites.processes["north"].communicate(timeout=120)
    assert sites.processes["north"].returncode == 2, (output, errors)
    assert "the store was restored or copied" in errors
    assert {path: path.read_bytes() for path in sites.share.rglob("*") if path.is_file()} == there
