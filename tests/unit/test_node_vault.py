"""The file of large vectors: what committed rows name is there after any restart, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.node.storage.vault import LARGE, Vault


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.vectors"


def content(number: int, size: int) -> bytes:
    return bytes([number % 255 + 1]) * size


def test_small_content_makes_no_file(path: Path) -> None:
    vault = Vault(path)
    assert vault.get(vault.put(b"small")) == b"small"
    assert vault.get(vault.put(b"")) == b""
    assert not path.exists()


@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 5 * LARGE - 1, 800_000])
def test_large_content_is_found_again_after_a_restart(path: Path, size: int) -> None:
    vault = Vault(path)
    tokens = [vault.put(content(number, size + number)) for number in range(4)]
    vault.sync()
    vault.close()
    assert path.stat().st_mode & 0o777 == 0o600
    vault = Vault(path)
    vault.open(tokens[1:3])
    assert [vault.get(token) for token in tokens[1:3]] == [content(1, size + 1), content(2, size + 2)]
    vault.close()


def test_what_no_row_names_is_wiped_and_its_place_used_again(path: Path) -> None:
    vault = Vault(path)
    old, kept = vault.put(content(6, 3 * LARGE)), vault.put(content(7, 2 * LARGE))
    vault.keep_only([kept])
    vault.wipe()
    assert content(6, 1) not in path.read_bytes()
    size = path.stat().st_size
    new = vault.put(content(8, 3 * LARGE))
    vault.sync()
    assert path.stat().st_size == size
    assert (vault.get(new), vault.get(kept)) == (content(8, 3 * LARGE), content(7, 2 * LARGE))
    assert old[9:] == new[9:]
    vault.keep_only([])
    vault.wipe()
    assert path.stat().st_size == 0
    vault.close()


def test_what_is_public_is_not_wiped_but_what_was_under_it_is(path: Path) -> None:
    vault = Vault(path)
    secret = vault.put(content(6, 3 * LARGE))
    vault.keep_only([])
    public = vault.put(content(7, 2 * LARGE + 5), public=True)
    assert secret[9:] == public[9:]
    vault.keep_only([])
    kept = vault.put(content(8, 4 * LARGE), public=True)
    apart = vault.put(content(9, LARGE), public=True)
    vault.keep_only([apart])
    vault.wipe()
    left = path.read_bytes()
    assert content(6, 1) not in left
    assert content(8, LARGE) in left
    assert vault.get(apart) == content(9, LARGE)
    assert kept != apart
    vault.close()


def test_a_system_that_writes_less_than_it_is_given_is_given_the_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, raw, offset: write(file, memoryview(raw)[:30_000], offset))
    vault = Vault(path)
    token = vault.put(content(6, 3 * LARGE + 7))
    assert vault.get(token) == content(6, 3 * LARGE + 7)
    vault.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "restart"]), st.integers(0, 4 * LARGE)), max_size=25))
def test_like_a_dictionary(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    path = tmp_path_factory.mktemp("vault") / "vectors"
    vault, known = Vault(path), dict[bytes, bytes]()
    for number, (what, size) in enumerate(steps):
        if what == "put":
            raw = content(number, size)
            token = vault.put(raw)
            assert token not in known or size < LARGE
            known[token] = raw
        elif what == "drop" and known:
            del known[sorted(known)[size % len(known)]]
            vault.keep_only(known)
        elif what == "restart":
            vault.sync()
            vault.close()
            vault = Vault(path)
            vault.open(known)
        assert {token: vault.get(token) for token in known} == known
    vault.close()
