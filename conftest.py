"""What tests, examples in pages and reproductions share: none of them uses what this user has."""

from __future__ import annotations

import itertools

import pytest

_HOMES = itertools.count()


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not this user's policy, ledger or log, nor what another test charged to one."""
    base = tmp_path_factory.getbasetemp() / f"home-{next(_HOMES)}"
    monkeypatch.setenv("XDG_DATA_HOME", str(base / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base / "config"))
