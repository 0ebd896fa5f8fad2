"""Folders that are not mounted, at servers of this machine: a bucket, SFTP, WebDAV. ``make test-remote`` installs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quietmean.node.folder.place import RemotePlace
from support.folder_sites import PARTIES, sites_in
from support.remote_places import SERVERS, remote_place


@pytest.fixture(params=sorted(SERVERS))
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    home = tmp_path / "home"
    home.mkdir()
    with remote_place(request.param, home, monkeypatch) as found:
        yield found


@pytest.mark.slow
def test_by_schedule_alone(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sites_in(tmp_path, monkeypatch) as sites:
        sites.place = url
        found = sites.visit_until_the_end(*PARTIES)
        assert len({json.dumps(result["estimate"]) for result in found}) == 1
        assert all(result["parties_counted"] == 3 for result in found)
        assert list(sites.share.iterdir()) == []


def test_what_is_put_is_there_and_whole(url: str) -> None:
    place = RemotePlace(url, "a" * 64)
    name = "0-1-" + "0" * 32
    assert list(place.names("q00000001", {"0-1-"})) == []
    assert place.read("q00000001", name, 100) is None
    place.put("q00000001", name, b"x" * 100)
    place.put("q00000001", "2-1-" + "0" * 32, b"y")
    ((found, size, time_),) = place.names("q00000001", {"0-1-"})
    assert (found, size) == (name, 100)
    assert time_ > 0
    assert place.read("q00000001", name, 100) == b"x" * 100
    assert place.read("q00000001", name, 99) is None
    # Over what is there.
    place.put("q00000001", name, b"z" * 50)
    assert [size for _, size, _ in place.names("q00000001", {"0-1-"})] == [50]
    # Another session of the same folder sees none of it.
    assert list(RemotePlace(url, "b" * 64).names("q00000001", {"0-1-"})) == []


def test_a_connection_that_was_lost_is_made_again(url: str) -> None:
    place = RemotePlace(url, "a" * 64)
    name = "0-1-" + "0" * 32
    place.put("q00000001", name, b"x")
    opened = place._opened
    assert opened is not None
    if hasattr(opened.files, "ftp"):
        opened.files.client.close()
        with pytest.raises(OSError):  # noqa: PT011 (whatever the library says)
            place.read("q00000001", name, 10)
    assert place.read("q00000001", name, 10) == b"x"


def test_a_host_whose_key_is_not_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with remote_place("sftp", home, monkeypatch) as url:
        (home / ".ssh" / "known_hosts").write_text("")
        with pytest.raises(OSError, match="is not the one in known_hosts"):
            RemotePlace(url, "a" * 64).put("q00000001", "0-1-" + "0" * 32, b"x")
