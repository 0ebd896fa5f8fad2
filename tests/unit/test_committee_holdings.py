"""What a member takes of the contributions: piece by piece, all of it or nothing, whatever the folder and the disk do."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from quietmean.core.errors import InputError, StorageError
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import excerpt, header_digest, largest_file
from quietmean.studies.party.member_holdings import MemberHoldings, delete_held
from support.committee_world import CommitteeWorld
from support.disk import SYSTEM_ERRORS
from support.refusals import refused as refuses

WORLD = CommitteeWorld(Committee(4))
LATER = float(1 << 33)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    folder = tmp_path / "box"
    folder.mkdir()
    for number in range(3):
        (folder / f"c{number}.contribution").write_bytes(WORLD.contribution(number))
    return folder


def take(folder: Path, world: CommitteeWorld = WORLD) -> MemberHoldings:
    return MemberHoldings.take(folder.parent / "m.held", world.session, 0, world.opener(0), folder, LATER)


def nothing_is_left(folder: Path) -> None:
    assert [path.name for path in folder.parent.iterdir() if path.is_file()] == []


def failing(name: str, error: Callable[[], BaseException]) -> Any:
    """``Path.open`` that fails for files of this name."""
    real = Path.open

    def opened(path: Path, *arguments: Any, **options: Any) -> IO[Any]:
        if path.name == name:
            raise error()
        file: IO[Any] = real(path, *arguments, **options)
        return file

    return opened


@pytest.mark.parametrize("kind", [kind for kind in SYSTEM_ERRORS if kind != "memory"])
def test_a_full_disk_takes_nothing_and_the_same_goes_on(box: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def refused(handle: int) -> None:
        raise SYSTEM_ERRORS[kind]()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refused)
        with pytest.raises(StorageError, match=r"m\.held"):
            take(box)
    nothing_is_left(box)
    assert len(take(box)) == 3


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ENOENT])
def test_a_folder_that_fails_while_it_is_read_leaves_nobody_out(box: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", failing("c1.contribution", lambda: OSError(number, os.strerror(number))))
        with pytest.raises(InputError, match=r"cannot be read \(c1\.contribution: .*nothing was listed"):
            take(box)
    nothing_is_left(box)
    assert len(take(box)) == 3


def test_a_file_that_nobody_may_read_stops_no_member(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", failing("c1.contribution", lambda: PermissionError(errno.EACCES, "Permission denied")))
    taken = take(box)
    assert len(taken) == 2
    assert taken.left_out == (("", "c1.contribution", "it cannot be read (Permission denied)"),)


def test_twice_is_once_and_another_one_is_left_out(box: Path) -> None:
    (box / "again").write_bytes((box / "c0.contribution").read_bytes())
    (box / "other").write_bytes(WORLD.contribution(1))
    taken = take(box)
    assert len(taken) == 3
    (left,) = taken.left_out
    assert left[1:] == ("other", "its contributor made another one, c1.contribution, and one counts")
    loaded = MemberHoldings.load(taken.path, WORLD.session)
    assert loaded == taken
    assert [one.digest for one in taken] == [one.digest for one in loaded]


def test_each_kind_of_file_that_cannot_count_is_left_out_with_its_reason(box: Path) -> None:
    whole = WORLD.contribution(0)
    heavier = CommitteeWorld(Committee(4), changes={"largest_weight": 2.0})
    bad = {
        "cut": (whole[:-1], "it is cut off, or was changed on the way"),
        "foreign": (b"%PDF-1.7", "it is not a contribution to a committee"),
        "of another study": (CommitteeWorld(Committee(4), session_digest=b"t" * 32).contribution(0), "it is for another study"),
        "too heavy": (heavier.contribution(0, 1.5), "its weight is 1.5, and its contributor may have 1 at most"),
        "of nobody": (
            CommitteeWorld(Committee(4), contributors=4).contribution(3),
            "its contributor is not admitted to this study",
        ),
        "too large": (whole + bytes(largest_file(WORLD.session)), "it is larger than any contribution to this study"),
        "late": (whole, "it came too late"),
    }
    for name, (content, _) in bad.items():
        (box / name).write_bytes(content)
    os.utime(box / "late", (LATER + 1, LATER + 1))
    taken = take(box)
    assert len(taken) == 3
    assert {name: why for _, name, why in taken.left_out} == {name: why for name, (_, why) in bad.items()}


def sparse(path: Path, start: bytes) -> None:
    with path.open("wb") as file:
        file.write(start)
        file.truncate(1 << 30)


# What whoever can write into the folder may put there, and why it is left out; what is no file is passed over.
ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "it is not a contribution to a committee"),
    "newer": (
        lambda path: path.write_bytes(b"qmcommi2" + WORLD.contribution(0)[8:]),
        "it was written by another version of quietmean (qmcommi2). Use that version for it.",
    ),
    "a gigabyte": (lambda path: sparse(path, WORLD.contribution(0)), "it is larger than any contribution to this study"),
    "segment": (lambda path: path.write_bytes(b"qmsegm1\n" + bytes(10)), "it is cut off, or was changed on the way"),
    "large segment": (lambda path: sparse(path, b"qmsegm1\n"), "it is for another study"),
    "\n\x1b[31m\u202e": (lambda path: path.write_bytes(b"x"), "it is not a contribution to a committee"),
    "no text \udcff": (lambda path: path.write_bytes(b"x"), "it is not a contribution to a committee"),
    "folder": (Path.mkdir, ""),
    "pipe": (os.mkfifo, ""),
    "link to a folder": (lambda path: path.symlink_to(path.parent), ""),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), ""),
    "link to a file": (lambda path: path.symlink_to("c1.contribution"), ""),
    "link to nothing": (
        lambda path: path.symlink_to("nothing"),
        "it is a link to a file that cannot be read (No such file or directory)",
    ),
    "link to itself": (
        lambda path: path.symlink_to(path.name),
        "it is a link to a file that cannot be read (Too many levels of symbolic links)",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_else_is_in_the_folder_stops_no_member(box: Path, name: str) -> None:
    make, why = ODD[name]
    make(box / name)
    taken = take(box)
    assert len(taken) == 3
    shown = name.encode(errors="backslashreplace").decode()
    assert taken.left_out == ((("", shown, why),) if why else ())
    assert MemberHoldings.load(taken.path, WORLD.session) == taken


def cut_and_changed(whole: bytes, other: bytes, every: int) -> Iterator[tuple[str, bytes]]:
    """A file with an end that is missing, a bit that is another one, a byte more, or the end of another file."""
    for at in range(0, len(whole), every):
        yield f"cut {at}", whole[:at]
        yield f"changed {at}", whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :]
        yield f"longer {at}", whole[:at] + b"\0" + whole[at:]
        yield f"spliced {at}", whole[:at] + other[at:]


@pytest.mark.parametrize("verified", [False, True])
def test_of_files_that_were_cut_or_changed_anywhere_none_counts_as_another_one(box: Path, verified: bool) -> None:
    """Each is out with a sentence, or holds this member's part as its contributor made it."""
    world = CommitteeWorld(Committee(5, verified=True)) if verified else WORLD
    for path in box.iterdir():
        path.unlink()
    whole, other = world.contribution(0), world.contribution(1)
    for name, content in cut_and_changed(whole, other, 67):
        (box / name).write_bytes(content)
    (box / "z").write_bytes(whole)
    taken = take(box, world)
    names = {name for _, name, _ in taken.left_out}
    assert {why for _, _, why in taken.left_out} <= {
        "it is not a contribution to a committee",
        "it is cut off, or was changed on the way",
        "it has no header of a contribution",
        "it has no header of a contribution to this study",
        "it is not a contribution to this study",
        "it is for another study",
        "its contributor is not admitted to this study",
        "it does not match its contributor's signature, so somebody changed it on the way",
        "the part for this member is missing, or was changed on the way",
    }
    # What was changed in another member's part alone is as good.
    right = {excerpt(world.session, raw, 0) for raw in (whole, other)}
    assert all(excerpt(world.session, path.read_bytes(), 0) in right for path in box.iterdir() if path.name not in names)
    assert {one.digest for one in taken} == {header_digest(raw) for raw in (whole, other)}


def test_what_is_not_whole_is_no_holdings(box: Path) -> None:
    taken = take(box)
    whole = taken.path.read_bytes()
    wrong = [whole[:size] for size in (0, 7, 8, 15, len(whole) // 2, len(whole) - 1)]
    wrong += [whole[:8] + whole[9:], whole + b"x", whole[:-8] + b"\xff" * 8, b"x" + whole[1:]]
    for content in wrong:
        taken.path.write_bytes(content)
        with pytest.raises(InputError, match="takes no part any more"):
            MemberHoldings.load(taken.path, WORLD.session)
    taken.path.write_bytes(whole)
    other = CommitteeWorld(Committee(4), session_digest=b"t" * 32)
    with pytest.raises(InputError, match="takes no part any more"):
        MemberHoldings.load(taken.path, other.session)


def test_what_was_written_when_it_was_killed_goes_too(box: Path) -> None:
    taken = take(box)
    left = taken.path.with_name("m.held.4711.new")
    left.write_bytes(b"shares")
    delete_held(taken.path)
    nothing_is_left(box)
    delete_held(taken.path)


def test_memory_does_not_grow_with_what_is_taken(tmp_path: Path) -> None:
    """96 more contributions, of which a part has 4 kB, take less than 1.5 kB each."""
    world = CommitteeWorld(Committee(4), contributors=112, dimension=1000)
    peaks = []
    for count in (16, 112):
        folder = tmp_path / str(count) / "box"
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / str(number)).write_bytes(world.contribution(number))
        tracemalloc.start()
        taken = take(folder, world)
        assert sum(1 for _ in taken) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 96 * 1500


def test_a_folder_without_any_says_how_many_a_result_takes_and_until_when(tmp_path: Path) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    (folder / "note.txt").write_text("hello")
    words = "holds 0 contributions that came until 2242-03-16 12:56:32 UTC, and a result takes at least 3"
    refuses(words, take, folder)
    assert not (tmp_path / "m.held").exists()
