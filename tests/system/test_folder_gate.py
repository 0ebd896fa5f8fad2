"""A study with a gate through a folder: IncA, in processes that only share that folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.errors import ProtocolFailure
from support.folder_sites import PARTIES, Sites, sites_in

INCA = {'protocol = "cordp-dme"': 'protocol = "inca"'}
# With few visits; or nobody colludes, and one of three may leave.
FEW = {'protocol = "cordp-dme"': 'protocol = "inca"\noptions = {rounds = 2}'}
ALONE = {**INCA, "colluding = 1": "colluding = 0", "dropouts = 0.0": "dropouts = 0.34"}


@pytest.fixture
def sites(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Its parameters are those of :class:`Sites`."""
    with sites_in(tmp_path, monkeypatch, *request.param) as found:
        yield found


def require_alike(found: list[dict[str, Any]]) -> None:
    """All have the same, promised before the start and near the truth: 40.5, within six standard errors."""
    assert len({json.dumps(result["estimate"]) for result in found}) == 1
    assert all(result["parties_counted"] == len(PARTIES) for result in found)
    assert all(float(result["epsilon"]) <= 1.0 + 1e-9 for result in found)
    assert abs(found[0]["estimate"] - 40.5) < 6 * found[0]["standard_error"]


@pytest.mark.slow
@pytest.mark.parametrize("sites", [(300.0, 60.0, None, INCA)], indirect=True)
def test_three_parties_one_of_them_killed_and_started_again(sites: Sites) -> None:
    sites.join(*PARTIES)
    sites.wait_for_rounds(4)
    sites.kill("south")
    sites.join("south")
    require_alike(list(sites.finish().values()))


@pytest.mark.slow
@pytest.mark.parametrize("sites", [(600.0, 600.0, None, FEW)], indirect=True)
def test_by_schedule_alone(sites: Sites) -> None:
    """Nobody waits for a deadline where all have come, in whichever of its processes."""
    require_alike(sites.visit_until_the_end(*PARTIES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "published"), [((240.0, 12.0, None, ALONE), True), ((240.0, 12.0, None, INCA), False)], indirect=["sites"]
)
def test_one_is_gone_for_good(sites: Sites, published: bool) -> None:
    """The others publish where what happened passes their gate, else each says why not; they do the same."""
    sites.join(*PARTIES)
    sites.wait_for_rounds(4)
    sites.kill("east")
    del sites.processes["east"]
    if published:
        found = sites.finish()
        assert len({json.dumps(result["estimate"]) for result in found.values()}) == 1
        return
    for process in sites.processes.values():
        _, errors = process.communicate(timeout=400)
        assert process.returncode == ProtocolFailure.exit_code, errors
        assert "no result, the gate before the release is closed: this history could cost a mu of" in errors
