"""A study with a gate through a folder: IncA, in processes that only share that folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.folder_sites import PARTIES, Sites, sites_in

INCA = {'protocol = "cordp-dme"': 'protocol = "inca"'}


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
