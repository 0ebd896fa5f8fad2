"""One look into the folder: own files are put where they are missing, those that are due are read, and nothing else is opened."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Self, TypeAlias

from quietmean.core.errors import InputError, PeerError
from quietmean.node.folder.place import FolderStorage
from quietmean.node.folder.slot import OVERHEAD, Parties, Slot, is_valid, open_file
from quietmean.node.mailbox import Mailbox

# Looked at so many files of one slot at a time.
CANDIDATES: Final = 256
# No more is opened in a look once so many bytes were read in vain (8 MiB): who writes there chooses how long its files are.
_IN_VAIN: Final = 8 << 20
# Files remembered as refused, by slot; then all are looked at again.
_REMEMBERED: Final = 100_000
# Name, size and time of a file, as a place lists it.
_Listed: TypeAlias = tuple[str, int, float]


@dataclass(frozen=True)
class OwnFile:
    """A file of this party, under the name that it has in the folder."""

    name: str
    file: bytes = field(repr=False)

    @classmethod
    def of(cls, slot: Slot, file: bytes) -> Self:
        return cls(slot.name(file), file)


@dataclass(frozen=True)
class Seen:
    """What one look into a slot found: ``content`` of the one valid file, or what is wrong with its sender. ``size``: as read."""

    slot: Slot
    size: int
    content: bytes = b""
    fault: str = ""


class Poller:
    """Looks for the messages of others in a folder.

    ``largest``: size in bytes of the longest file that can be valid.
    """

    def __init__(self, place: FolderStorage, parties: Parties, mailbox: Mailbox, largest: int) -> None:
        self._place, self._parties, self._mailbox, self._largest = place, parties, mailbox, largest
        # By hashes of name, size and time, which nobody outside knows: files that are not valid, own ones that are as put.
        self._refused: dict[Slot, set[int]] = {}
        self._intact: dict[Slot, int] = {}
        # Bytes that the last look read of files that are none of a party's: of many, one may be valid.
        self.in_vain = 0
        # A look whose caller was cancelled goes on in its thread: the next one waits for its end.
        self._looking = Lock()

    def look(self, outgoing: Mapping[Slot, OwnFile], due: Collection[Slot], own: Collection[Slot]) -> list[Seen]:
        """Put what is missing, read what is due. ``own``: where a message of this party would be that its store does not know.

        Raises OSError where the place cannot be reached, :class:`InputError` where the store is not the newest of this party.
        """
        with self._looking:
            return self._look(outgoing, due, own)

    def _look(self, outgoing: Mapping[Slot, OwnFile], due: Collection[Slot], own: Collection[Slot]) -> list[Seen]:
        self.in_vain = 0
        rounds: dict[str, list[Slot]] = {}
        for slot in (*outgoing, *due, *own):
            rounds.setdefault(slot.round, []).append(slot)
        files, expected = [], set(due)
        for round_, slots in rounds.items():
            names = {outgoing[slot].name for slot in slots if slot in outgoing}
            listed, put = self._list(round_, slots, names)
            for slot in slots:
                there = listed.get(slot.prefix, [])
                if slot in expected:
                    if (seen := self._read(slot, there)) is not None:
                        files.append(seen)
                    continue
                self._require_newest(slot, there)
                if slot in outgoing:
                    self._keep_there(slot, outgoing[slot], put.get(outgoing[slot].name))
        return files

    def _keep_there(self, slot: Slot, own: OwnFile, listed: _Listed | None) -> None:
        """Put a file, again where somebody took it away, cut it short or wrote over it."""
        if listed is not None and hash(listed) == self._intact.get(slot):
            return
        if listed is None or self._place.read(slot.round, own.name, len(own.file)) != own.file:
            self._place.put(slot.round, own.name, own.file)
        else:
            self._intact[slot] = hash(listed)

    def _list(
        self, round_: str, slots: Collection[Slot], own: Collection[str]
    ) -> tuple[dict[str, list[_Listed]], dict[str, _Listed]]:
        """List at most so many candidates of each slot, without those that were refused and did not change; and the
        ``own`` ones."""
        by_prefix = {slot.prefix: slot for slot in slots}
        listed: dict[str, list[_Listed]] = {}
        put: dict[str, _Listed] = {}
        for each in self._place.names(round_, by_prefix.keys()):
            prefix = each[0].rpartition("-")[0] + "-"
            if each[0] in own:
                put[each[0]] = each
                continue
            possible = prefix in by_prefix and OVERHEAD <= each[1] <= self._largest
            if possible and hash(each) not in self._refused.get(by_prefix[prefix], ()):
                candidates = listed.setdefault(prefix, [])
                candidates.append(each)
                if len(candidates) > 16 * CANDIDATES:
                    listed[prefix] = heapq.nsmallest(CANDIDATES, candidates)
        return {prefix: heapq.nsmallest(CANDIDATES, candidates) for prefix, candidates in listed.items()}, put

    def forget(self, slot: Slot) -> None:
        """Look for no messages there any more: none is due."""
        self._refused.pop(slot, None)

    def _files(self, slot: Slot, there: Collection[_Listed]) -> dict[str, bytes]:
        """The valid ones of a slot, by name. Others are not looked at again until they change."""
        files = {}
        for each in there:
            if self.in_vain >= _IN_VAIN:
                break
            name = each[0]
            file = self._place.read(slot.round, name, self._largest)
            if file is not None and is_valid(self._parties, slot, name, file):
                files[name] = file
                continue
            refused = self._refused.setdefault(slot, set())
            if len(refused) >= _REMEMBERED:
                refused.clear()
            refused.add(hash(each))
            self.in_vain += each[1]
        return files

    def _read(self, slot: Slot, there: Collection[_Listed]) -> Seen | None:
        files = self._files(slot, there)
        if len(files) > 1:
            size = sum(map(len, files.values()))
            return Seen(slot, size, fault=f"it put {len(files)} different files in one place: its store was copied, or it lies")
        for name, file in files.items():
            try:
                return Seen(slot, len(file), open_file(self._parties, slot, name, file, self._mailbox))
            except PeerError as error:
                return Seen(slot, len(file), fault=str(error))
        return None

    def _require_newest(self, slot: Slot, others: Collection[_Listed]) -> None:
        """Raises :class:`InputError` where a valid file of this party is there that its outbox does not have."""
        if self._files(slot, others):
            raise InputError(
                "the folder has a file of this party that its store does not know: the store was restored or copied, and must "
                "not take part a second time; go on with the newest store, or stay out of this study"
            )
