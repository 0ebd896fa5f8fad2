"""The file of large vectors: what committed rows name is there after any restart, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.node.storage.blob_store import LARGE, BlobStore
from support.effort import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.vectors"


def content(number: int, size: int) -> bytes:
    return bytes([number % 255 + 1]) * size


def test_small_content_makes_no_file(path: Path) -> None:
    blob_store = BlobStore(path)
    assert blob_store.get(blob_store.put(b"small")) == b"small"
    assert blob_store.get(blob_store.put(b"")) == b""
    assert not path.exists()


@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 5 * LARGE - 1, 800_000])
def test_large_content_is_found_again_after_a_restart(path: Path, size: int) -> None:
    blob_store = BlobStore(path)
    tokens = [blob_store.put(content(number, size + number)) for number in range(4)]
    blob_store.sync()
    blob_store.close()
    assert path.stat().st_mode & 0o777 == 0o600
    blob_store = BlobStore(path)
    blob_store.open(tokens[1:3])
    assert [blob_store.get(token) for token in tokens[1:3]] == [content(1, size + 1), content(2, size + 2)]
    blob_store.close()


def test_what_no_row_names_is_wiped_and_its_place_used_again(path: Path) -> None:
    blob_store = BlobStore(path)
    old, kept = blob_store.put(content(6, 3 * LARGE)), blob_store.put(content(7, 2 * LARGE))
    blob_store.keep_only([kept])
    blob_store.wipe()
    assert content(6, 1) not in path.read_bytes()
    size = path.stat().st_size
    new = blob_store.put(content(8, 3 * LARGE))
    blob_store.sync()
    assert path.stat().st_size == size
    assert (blob_store.get(new), blob_store.get(kept)) == (content(8, 3 * LARGE), content(7, 2 * LARGE))
    assert old[9:] == new[9:]
    blob_store.keep_only([])
    blob_store.wipe()
    assert path.stat().st_size == 0
    blob_store.close()


def test_what_is_public_is_not_wiped_but_what_was_under_it_is(path: Path) -> None:
    blob_store = BlobStore(path)
    secret = blob_store.put(content(6, 3 * LARGE))
    blob_store.keep_only([])
    public = blob_store.put(content(7, 2 * LARGE + 5), public=True)
    assert secret[9:] == public[9:]
    blob_store.keep_only([])
    kept = blob_store.put(content(8, 4 * LARGE), public=True)
    apart = blob_store.put(content(9, LARGE), public=True)
    blob_store.keep_only([apart])
    blob_store.wipe()
    left = path.read_bytes()
    assert content(6, 1) not in left
    assert content(8, LARGE) in left
    assert blob_store.get(apart) == content(9, LARGE)
    assert kept != apart
    blob_store.close()


def test_a_system_that_writes_less_than_it_is_given_is_given_the_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, raw, offset: write(file, memoryview(raw)[:30_000], offset))
    blob_store = BlobStore(path)
    token = blob_store.put(content(6, 3 * LARGE + 7))
    assert blob_store.get(token) == content(6, 3 * LARGE + 7)
    blob_store.close()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "restart"]), st.integers(0, 4 * LARGE)), max_size=25))
def test_like_a_dictionary(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    path = tmp_path_factory.mktemp("blobs") / "vectors"
    blob_store, known = BlobStore(path), dict[bytes, bytes]()
    for number, (what, size) in enumerate(steps):
        if what == "put":
            raw = content(number, size)
            token = blob_store.put(raw)
            assert token not in known or size < LARGE
            known[token] = raw
        elif what == "drop" and known:
            del known[sorted(known)[size % len(known)]]
            blob_store.keep_only(known)
        elif what == "restart":
            blob_store.sync()
            blob_store.close()
            blob_store = BlobStore(path)
            blob_store.open(known)
        assert {token: blob_store.get(token) for token in known} == known
    blob_store.close()
