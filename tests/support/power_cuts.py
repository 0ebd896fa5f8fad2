"""What a power cut may leave of files, from the log of all calls that changed them.

Of a file, any of the writes since its last fsync is there, or is not, or is there in some of its sectors; of a folder, any of the
names that were made, changed or taken away since its own fsync. After an fsync that failed, what it was about stays in doubt for
ever, as Linux calls those pages clean. Indexes of SQLite's logs are left out: the first process after a cut makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from support.injected import Call

SECTOR = 512
_INDEX = "-shm"


@dataclass(eq=False)
class Change:
    """One change of one file's content, or of names in one folder. ``after``: how many calls were made with it."""

    after: int
    offset: int = 0
    content: bytes | None = None
    # Names that it takes away, and the file that it gives a name.
    gone: str = ""
    name: str = ""
    file: File | None = None
    # When it was certain to be on the disk, if ever, and that it cannot be made so any more.
    durable: int | None = None
    doubtful: bool = False


@dataclass(eq=False)
class File:
    changes: list[Change] = field(default_factory=list)

    def content(self, keeps: Callable[[Change], Sequence[tuple[int, int]] | None]) -> bytes:
        """``keeps``: the parts of a write that are there, or None for all of it; an empty one is not there."""
        held = bytearray()
        for change in self.changes:
            parts = keeps(change)
            if change.content is None:
                if parts is None:
                    held[change.offset :] = bytes(max(0, change.offset - len(held)))
                continue
            for begin, end in [(0, len(change.content))] if parts is None else parts:
                at = change.offset + begin
                held.extend(bytes(max(0, at + end - begin - len(held))))
                held[at : at + end - begin] = change.content[begin:end]
        return bytes(held)


class Disk:
    """Files under ``place`` as the calls in ``log`` made them. ``told``: (after how many calls, what was told by then)."""

    def __init__(self, log: Sequence[Call], place: Path, told: Path) -> None:
        self.place = str(place)
        self.length = len(log)
        self.names: list[Change] = []
        self.folders: list[Change] = []
        self.told: list[tuple[int, str]] = []
        self._now: dict[str, File] = {}
        for number, call in enumerate(log, 1):
            if call.path == str(told):
                self.told += [(number, line) for line in call.content.decode().splitlines()]
            elif not call.path.endswith((_INDEX, " (deleted)")):
                self._apply(call, number)

    def _apply(self, call: Call, number: int) -> None:
        if call.kind == "sync":
            self._sync(call, number)
        elif not call.done:
            return
        elif call.kind == "create":
            self._name(Change(number, name=call.path, file=File()))
        elif call.kind == "mkdir":
            self.folders.append(Change(number, name=call.path))
        elif call.kind == "write":
            assert len(call.content) == call.result, call
            self._now[call.path].changes.append(Change(number, call.offset, call.content))
        elif call.kind == "truncate":
            self._now[call.path].changes.append(Change(number, call.offset))
        elif call.kind == "rename":
            self._name(Change(number, gone=call.path, name=call.other, file=self._now[call.path]))
        elif call.kind == "link":
            self._name(Change(number, name=call.other, file=self._now[call.path]))
        elif call.kind == "unlink":
            self._name(Change(number, gone=call.path))

    def _name(self, change: Change) -> None:
        self.names.append(change)
        self._now.pop(change.gone, None)
        if change.file is not None:
            self._now[change.name] = change.file

    def _sync(self, call: Call, number: int) -> None:
        changes = [one for one in (*self.names, *self.folders) if str(Path(one.name or one.gone).parent) == call.path]
        if call.path in self._now:
            changes = self._now[call.path].changes
            if not call.done:
                for change in changes:
                    change.doubtful |= change.durable is None
        if call.done:
            for change in changes:
                if change.durable is None and not change.doubtful:
                    change.durable = number

    def states(self, after: int, draws: int, random: Random) -> Iterator[dict[str, bytes | None]]:
        """What may be there if the power is cut after so many calls, by path; None is a folder.

        Nothing that is not certain, all of it, and ``draws`` at random: of those some have one change only in doubt.
        """
        files = {change.file for change in self.names if change.after <= after and change.file is not None}
        changes = [*self.folders, *self.names, *(change for file in files for change in file.changes)]
        doubtful = [one for one in changes if one.after <= after and (one.durable is None or one.durable > after)]
        yield self._state(after, {})
        if not doubtful:
            return
        yield self._state(after, dict.fromkeys(doubtful))
        for draw in range(draws):
            kept: dict[Change, Sequence[tuple[int, int]] | None] = {}
            if draw % 3 == 0:
                kept = dict.fromkeys(doubtful)
                del kept[random.choice(doubtful)]
            elif draw % 3 == 1:
                kept = {random.choice(doubtful): None}
            else:
                for change in doubtful:
                    if random.random() < 0.5:
                        kept[change] = _torn(change, random)
            yield self._state(after, kept)

    def _state(self, after: int, kept: dict[Change, Sequence[tuple[int, int]] | None]) -> dict[str, bytes | None]:
        def keeps(change: Change) -> Sequence[tuple[int, int]] | None:
            if change.after > after:
                return ()
            certain = change.durable is not None and change.durable <= after
            return None if certain else kept.get(change, ())

        folders = {self.place, *(one.name for one in self.folders if keeps(one) is None)}
        named: dict[str, File] = {}
        for change in self.names:
            if keeps(change) is None:
                named.pop(change.gone, None)
                if change.file is not None:
                    named[change.name] = change.file
        state: dict[str, bytes | None] = {}
        for folder in sorted(folders):
            if folder == self.place or str(Path(folder).parent) in state:
                state[folder] = None
        for name, file in named.items():
            if str(Path(name).parent) in state:
                state[name] = file.content(keeps)
        return state


def _torn(change: Change, random: Random) -> Sequence[tuple[int, int]] | None:
    """The sectors of a write that are there."""
    if change.content is None or random.random() < 0.5:
        return None
    first = SECTOR - change.offset % SECTOR
    places = [0, *range(first, len(change.content), SECTOR), len(change.content)]
    return [pair for pair in pairwise(places) if pair[0] < pair[1] and random.random() < 0.5]


def lay_out(state: dict[str, bytes | None], recorded: Path, place: Path) -> None:
    """Make the files of a state of the folder ``recorded`` in another one."""
    for name, content in state.items():
        path = place / Path(name).relative_to(recorded)
        if content is None:
            path.mkdir(exist_ok=True, parents=True)
        else:
            path.write_bytes(content)
            path.chmod(0o600)
