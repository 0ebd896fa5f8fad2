"""Requests and answers as files: what is in the folder, what its owner can do with them, and stores that are not the newest."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
import tracemalloc
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quietmean.core.errors import InputError, NotYet, PeerError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.folder import (
    DiskPlace,
    FolderSettings,
    FolderStorage,
    FolderTransport,
    Outbox,
    Parties,
    Slot,
    SlotKind,
    Timetable,
    open_file,
    parse_folder,
    seal_file,
)
from quietmean.node.folder.place import REMOTE
from quietmean.node.mailbox import mailbox_bytes
from quietmean.node.net import (
    ACCEPTED,
    AnswerFrame,
    AnyRequest,
    Credentials,
    Endpoint,
    Heartbeat,
    Limits,
    Payload,
    Traffic,
    Transfer,
)
from support.refusals import refused_rows

STUDY = "f" * 64
PARTIES = 3
IDENTITIES = [Identity.generate() for _ in range(PARTIES)]
MAILBOXES = [(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()) for _ in range(PARTIES)]
LIMITS = Limits.of_study(PARTIES, 4, 8)
# The start until second 1000, each of two rounds 100 s longer.
TIMETABLE = Timetable(((0, 0), (1, 1), (4, 0)), 1000.0, 100.0)
SECRET = b"a private vector of eight values, 64 bytes long: 0123456789abcdef"[:64]


class Party:
    """One of three, with an outbox of its own and a handler that remembers."""

    def __init__(
        self,
        party: int,
        folder: Path,
        *,
        study: str = STUDY,
        quiet: float = 1e9,
        place: Callable[[FolderStorage], FolderStorage] = lambda place: place,
        clock: Callable[[], float] = time.time,
    ) -> None:
        entries = [RosterEntry(f"party-{k}", ("folder.invalid", k + 1), IDENTITIES[k].public_key) for k in range(PARTIES)]
        roster = Roster(tuple(entries))
        self.refusals: list[str] = []
        self.handled: list[tuple[int, AnyRequest, bytes]] = []
        credentials = Credentials(IDENTITIES[party], roster, study)
        endpoint = Endpoint(
            party, roster, study, credentials, LIMITS, lambda who, why: self.refusals.append(why), lambda *_: None, Traffic()
        )
        share = folder / "share"
        share.mkdir(exist_ok=True)
        settings = FolderSettings(
            lambda session: place(DiskPlace(share, session)),
            MAILBOXES[party],
            {k: mailbox_bytes(MAILBOXES[k]) for k in range(PARTIES)},
            TIMETABLE,
            clock=clock,
        )
        self.file = folder / f"{party}.outbox"
        self.outbox = Outbox(self.file, study, party)
        self.post = FolderTransport(endpoint, IDENTITIES[party], settings, self.outbox, self.handle)
        self.watching: asyncio.Task[None] | None = None
        self._quiet = quiet

    async def handle(self, sender: int, request: AnyRequest, payload: Payload) -> AnswerFrame:
        self.handled.append((sender, request, bytes(payload)))
        return AnswerFrame(request.number, ACCEPTED, 0, 1)

    def start(self) -> None:
        self.watching = asyncio.create_task(self.post.watch(self._quiet))

    async def stop(self) -> None:
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
        await self.post.close()
        self.outbox.close()


def share() -> Transfer:
    return Transfer(0, 1, 1, 1.0, 1000, b"", 8)


def files(folder: Path, kind: str = "q") -> list[Path]:
    found = (folder / "share").glob(f"*/{kind}*/*")
    # Without those that are being written.
    return sorted(path for path in found if path.is_file() and not path.name.startswith("."))


@contextlib.asynccontextmanager
async def parties(folder: Path, *numbers: int) -> Any:
    found = [Party(number, folder) for number in numbers]
    try:
        for each in found:
            each.start()
        yield found
    finally:
        for each in found:
            await each.stop()


async def put(one: Party) -> asyncio.Task[AnswerFrame]:
    """A request of party 0 to party 1 that is in the folder, and whose receiver is not there."""
    asked = asyncio.create_task(one.post.links[1].ask(share(), SECRET))
    while not files(one.file.parent):
        await asyncio.sleep(0.01)
    return asked


async def test_nothing_can_be_read_in_the_folder(tmp_path: Path) -> None:
    async with parties(tmp_path, 0, 1) as (one, other):
        answer = await one.post.links[1].ask(share(), SECRET)
        assert (answer.status, answer.number) == (ACCEPTED, 1)
        ((sender, request, payload),) = other.handled
        assert (sender, payload, request.dimension) == (0, SECRET, 8)
    everything = b"".join(path.read_bytes() + str(path).encode() for path in [*files(tmp_path), *files(tmp_path, "a")])
    assert len(files(tmp_path)) == len(files(tmp_path, "a")) == 1
    assert not any(SECRET[place : place + 6] in everything for place in range(len(SECRET) - 6))
    assert b"party-" not in everything


def test_a_file_opens_with_both_keys_of_its_receiver_and_with_neither_alone() -> None:
    """Who has all keys of X25519 one day opens nothing that the folder kept; nor does who has all of ML-KEM."""
    together = Parties(STUDY, [each.public_key for each in IDENTITIES], {k: mailbox_bytes(MAILBOXES[k]) for k in range(PARTIES)})
    slot = Slot(SlotKind.REQUEST, 1, 0, 1)
    file = seal_file(together, slot, SECRET, IDENTITIES[0])
    encryption, exchange = MAILBOXES[1]
    assert open_file(together, slot, slot.name(file), file, (encryption, exchange)) == SECRET
    for mailbox in ((MLKEM768PrivateKey.generate(), exchange), (encryption, X25519PrivateKey.generate())):
        with pytest.raises(PeerError, match="not sealed to this party's key"):
            open_file(together, slot, slot.name(file), file, mailbox)


def _half(path: Path) -> None:
    content = path.read_bytes()
    # Long enough for a file of the smallest message.
    path.write_bytes(content[:-10])


def _changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    fresh = path.with_name("changed")
    fresh.write_bytes(bytes(content))
    fresh.replace(path)


def _next_slot(path: Path) -> None:
    """Shown again as the next request."""
    later = path.parent.with_name("q00000002")
    later.mkdir(exist_ok=True)
    shutil.copy(path, later / path.name)


def _other_pair(path: Path) -> None:
    """As if party 2 had sent it."""
    shutil.copy(path, path.with_name("2" + path.name[1:]))


def _doubled(path: Path) -> None:
    """The conflict copy of a program that keeps folders alike."""
    shutil.copy(path, path.with_name(f"{path.name} (conflicted copy)"))
    shutil.copy(path, path.with_name(path.name[:4] + "0" * 32))


def _link(path: Path) -> None:
    path.with_name(path.name[:4] + "1" * 32).symlink_to("/etc/passwd")
    path.with_name(path.name[:4] + "2" * 32).mkdir()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("harm", [_half, _changed, _next_slot, _other_pair, _doubled, _link, Path.unlink])
async def test_what_is_done_to_files_does_no_harm(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Each is as it was written and for its place, or as if it were not there; and it is put again until its receipt is told."""
    async with parties(tmp_path, 0) as (one,):
        asked = await put(one)
        (path,) = files(tmp_path)
        harm(path)
        async with parties(tmp_path, 1, 2) as (other, third):
            answer = await asked
            assert answer.status == ACCEPTED
            await asyncio.sleep(0.3)
            assert [(sender, payload) for sender, _, payload in other.handled] == [(0, SECRET)]
            assert (third.handled, other.refusals, third.refusals) == ([], [], [])


async def test_a_file_of_another_study_or_to_another_key(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    one = Party(0, elsewhere, study="e" * 64)
    one.start()
    asked = await put(one)
    (path,) = files(elsewhere)
    async with parties(tmp_path, 1) as (other,):
        slot = tmp_path / "share" / STUDY[:32] / "q00000001"
        slot.mkdir(parents=True)
        shutil.copy(path, slot / path.name)
        await asyncio.sleep(0.5)
        assert (other.handled, other.refusals) == ([], [])
    asked.cancel()
    await one.stop()


async def test_two_different_files_in_one_place_end_it_for_their_sender(tmp_path: Path) -> None:
    """Its store was copied: two processes of one party asked different things under one number."""
    for copy in ("first", "second"):
        (tmp_path / copy).mkdir()
        one = Party(0, tmp_path / copy)
        one.start()
        (await put(one)).cancel()
        await one.stop()
    slot = tmp_path / "share" / STUDY[:32] / "q00000001"
    slot.mkdir(parents=True)
    for copy in ("first", "second"):
        (path,) = files(tmp_path / copy)
        shutil.copy(path, slot / path.name)
    async with parties(tmp_path, 1) as (other,):
        while not other.refusals:
            await asyncio.sleep(0.01)
        assert other.handled == []
        assert "its store was copied, or it lies" in other.refusals[0]


async def test_an_older_outbox_takes_no_part(tmp_path: Path) -> None:
    async with parties(tmp_path, 0) as (one,):
        shutil.copy(one.file, tmp_path / "backup")
        (await put(one)).cancel()
    shutil.copy(tmp_path / "backup", tmp_path / "0.outbox")
    again = Party(0, tmp_path)
    with pytest.raises(InputError, match="the store was restored or copied"):
        await again.post.watch()
    await again.stop()


async def test_what_a_process_before_asked_is_not_asked_again(tmp_path: Path) -> None:
    """Never two parties at the same time."""
    for _ in range(3):
        async with parties(tmp_path, 0) as (one,):
            (await put(one)).cancel()
    assert len(files(tmp_path)) == 1
    async with parties(tmp_path, 1) as (other,):
        while not other.handled:
            await asyncio.sleep(0.01)
    async with parties(tmp_path, 0) as (one,):
        assert (await one.post.links[1].ask(share(), SECRET)).status == ACCEPTED
    async with parties(tmp_path, 0) as (one,):
        # Its answer is known: no file is looked for.
        shutil.rmtree(tmp_path / "share")
        (tmp_path / "share").mkdir()
        assert (await one.post.links[1].ask(share(), SECRET)).status == ACCEPTED
        assert files(tmp_path) == []
        with pytest.raises(TimeoutError):
            await one.post.links[1].ask(Heartbeat(0, 1, 1))


async def test_a_visit_ends(tmp_path: Path) -> None:
    one = Party(0, tmp_path, quiet=0.3)
    asked = asyncio.create_task(one.post.links[1].ask(share(), SECRET))
    with pytest.raises(NotYet, match="Run the same command again later"):
        await one.post.watch(0.3)
    assert len(files(tmp_path)) == 1
    asked.cancel()
    await one.stop()


class Slow:
    """A share on which everything takes long; counts what is read."""

    def __init__(self, place: FolderStorage, seconds: float = 0.0) -> None:
        self._place, self._seconds = place, seconds
        self.read_bytes = 0

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        time.sleep(self._seconds)
        return self._place.names(round_, prefixes)

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        time.sleep(self._seconds)
        content = self._place.read(round_, name, limit)
        self.read_bytes += len(content or b"")
        return content

    def put(self, round_: str, name: str, file: bytes) -> None:
        time.sleep(self._seconds)
        self._place.put(round_, name, file)


async def test_a_round_is_closed_by_the_timetable_once_all_that_is_there_is_read(tmp_path: Path) -> None:
    """By a process that starts after its end, on a slow share, where something was put before, or after: nobody can know."""

    async with parties(tmp_path, 0) as (one,):
        (await put(one)).cancel()
    late = Party(1, tmp_path, place=lambda place: Slow(place, 0.2), clock=lambda: 1050.0)
    late.start()
    start, round_ = (asyncio.create_task(late.post.closed(position)) for position in ((0, 0), (1, 1)))
    await start
    assert len(late.handled) == 1
    assert not round_.done()
    round_.cancel()
    await late.stop()
    early = Party(2, tmp_path, clock=lambda: 900.0)
    early.start()
    start = asyncio.create_task(early.post.closed((0, 0)))
    await asyncio.sleep(0.3)
    assert not start.done()
    start.cancel()
    await early.stop()


async def test_a_process_that_ends_answers_all_that_came(tmp_path: Path) -> None:
    """Of each party, a look reads one request."""
    async with parties(tmp_path, 0) as (asking,):
        asked = [asyncio.create_task(asking.post.links[1].ask(share(), bytes([number]) * 64)) for number in range(5)]
        while len(files(tmp_path)) < len(asked):
            await asyncio.sleep(0.01)
        leaving = Party(1, tmp_path)
        await leaving.stop()
        assert len(leaving.handled) == len(files(tmp_path, "a")) == len(asked)
        async with asyncio.timeout(20.0):
            assert {answer.status for answer in await asyncio.gather(*asked)} == {ACCEPTED}


async def test_who_shows_something_new_for_ever_keeps_no_round_open(tmp_path: Path) -> None:
    class Flood:
        """In each look another file that could be the one that is due."""

        def __init__(self, place: FolderStorage) -> None:
            self._place, self._shown = place, 0

        def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
            self._shown += 1
            return iter([(f"0-1-{self._shown:032x}", 2000, 0.0)])

        def read(self, round_: str, name: str, limit: int) -> bytes | None:
            return bytes(2000)

        def put(self, round_: str, name: str, file: bytes) -> None:
            """Nothing is kept."""

    party = Party(1, tmp_path, place=Flood, clock=lambda: 2000.0)
    party.start()
    await party.post.closed((1, 1))
    await party.stop()


async def test_a_look_waits_for_one_whose_caller_gave_up(tmp_path: Path) -> None:
    """At the end of a session there is a last look, while the thread of the one before may still talk to a server."""
    inside, most = 0, 0

    class Talking(Slow):
        def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.2)
            inside -= 1
            return iter(())

    one = Party(0, tmp_path, place=Talking)
    one.start()
    await asyncio.sleep(0.05)
    await one.stop()
    assert most == 1


async def test_long_junk_does_not_make_a_look_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many and as long files as could be valid: no more is read in a look than a bound, and what is among them is found."""
    async with parties(tmp_path, 0) as (one,):
        (await put(one)).cancel()
    (path,) = files(tmp_path)
    largest = 30_000
    for junk in range(1500):
        (path.parent / f"0-1-{junk:032x}").write_bytes(bytes(largest))
    slow: list[Slow] = []

    def counted(place: FolderStorage) -> FolderStorage:
        slow.append(Slow(place))
        return slow[0]

    other = Party(1, tmp_path, place=counted)
    looks = most = 0
    look = other.post._looker.look

    def one_look(*slots: Any) -> Any:
        nonlocal looks, most
        before = slow[0].read_bytes
        found = look(*slots)
        looks, most = looks + 1, max(most, slow[0].read_bytes - before)
        return found

    monkeypatch.setattr(other.post._looker, "look", one_look)
    other.start()
    while not other.handled:
        await asyncio.sleep(0.01)
    await other.stop()
    assert looks > 3
    assert most < 10_000_000, most


async def test_a_folder_that_cannot_be_used_now_is_told_and_tried_again(tmp_path: Path) -> None:
    async with parties(tmp_path, 0, 1) as (one, _):
        share_ = tmp_path / "share"
        shutil.rmtree(share_)
        # A file where the folder was: the share is not mounted.
        share_.write_text("")
        asked = asyncio.create_task(one.post.links[1].ask(share(), SECRET))
        while "the folder cannot be used now" not in one.post.links[1].trouble:
            await asyncio.sleep(0.01)
        share_.unlink()
        share_.mkdir()
        assert (await asked).status == ACCEPTED


@pytest.mark.slow
async def test_junk_costs_little_memory(tmp_path: Path) -> None:
    """3000 files that could be of the slot that is looked at, as others can write them: the one among them is found."""
    async with parties(tmp_path, 0) as (one,):
        (await put(one)).cancel()
    (path,) = files(tmp_path)
    for junk in range(3000):
        (path.parent / f"0-1-{junk:032x}").write_bytes(bytes(2000))
    other = Party(1, tmp_path)
    tracemalloc.start()
    other.start()
    while not other.handled:
        await asyncio.sleep(0.01)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    await other.stop()
    assert peak < 4 * 2**20, peak


@refused_rows("places_that_are_none")
def test_places_that_are_none(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as raised:
        parse_folder(text)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("planted", ["session", "round", "name", "name of nothing"])
def test_a_planted_link_makes_nobody_write_elsewhere(planted: str, tmp_path: Path) -> None:
    """Whoever rules the shared folder puts a link where this party is about to write."""
    share, elsewhere = tmp_path / "share", tmp_path / "elsewhere"
    share.mkdir()
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(b"mine")
    place = DiskPlace(share, "s" * 64)
    session = share / ("s" * 32)
    if planted == "session":
        session.symlink_to(elsewhere)
    else:
        session.mkdir()
        if planted == "round":
            (session / "1").symlink_to(elsewhere)
        else:
            (session / "1").mkdir()
            (session / "1" / "file").symlink_to(elsewhere / ("mine" if planted == "name" else "new"))
    if planted in ("session", "round"):
        with pytest.raises(OSError, match=r"."):
            place.put("1", "file", b"told")
    else:
        place.put("1", "file", b"told")
        assert place.read("1", "file", 9) == b"told"
        assert sorted(one.name for one in (session / "1").iterdir()) == ["file"]
    assert {one.name: one.read_bytes() for one in elsewhere.iterdir()} == {"mine": b"mine"}


def test_a_share_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Files in an empty mount point would reach nobody."""
    with pytest.raises(FileNotFoundError):
        DiskPlace(tmp_path / "share", "s" * 64).put("1", "file", b"told")
    assert list(tmp_path.iterdir()) == []


def test_another_distribution_brings_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shelf.py").write_text(
        "from pathlib import Path\nfrom urllib.parse import urlsplit\nfrom quietmean.node.folder import DiskPlace\n"
        "def shelf(url, session):\n    return DiskPlace(Path(urlsplit(url).path), session)\n"
    )
    metadata = tmp_path / "shelf-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[quietmean.folders]\nshelf = shelf:shelf\nlost = nowhere:shelf\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    parse_folder(f"shelf://{tmp_path}")(STUDY).put("q00000001", "0-1-" + "0" * 32, b"file")
    assert (tmp_path / STUDY[:32] / "q00000001" / ("0-1-" + "0" * 32)).read_bytes() == b"file"
    with pytest.raises(InputError, match=r"folder 'lost' \(nowhere:shelf\) cannot be loaded"):
        parse_folder("lost://here")
    schemes = ", ".join(f"{scheme}://" for scheme in (*REMOTE, "lost", "shelf"))
    with pytest.raises(InputError, match=rf"Give a path, or one of {schemes}\.$"):
        parse_folder("other://here")
    with pytest.raises(InputError, match="credentials in it"):
        parse_folder("shelf://name:secret@here/")
