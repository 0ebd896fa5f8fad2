"""Mappings that only grow, of which each state is a value: a larger one shares the entries of that which it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class GrowingMap(Mapping[Key, Value]):
    """A mapping that never changes. :meth:`with_entries` makes a larger one in the time of its new entries, not of all.

    A smaller one that is still read after that pays for it: it copies its entries then.
    """

    __slots__ = ("_entries", "_size")

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        self._entries: dict[Key, Value] = dict(entries or {})
        self._size = len(self._entries)

    def with_entries(self, entries: Mapping[Key, Value]) -> GrowingMap[Key, Value]:
        """This one and new entries. Raises ValueError for a key that it has."""
        known = self._own()
        if not known.keys().isdisjoint(entries):
            raise ValueError("a key is in both")
        larger: GrowingMap[Key, Value] = object.__new__(type(self))
        known.update(entries)
        larger._entries, larger._size = known, len(known)
        return larger

    def _own(self) -> dict[Key, Value]:
        if len(self._entries) > self._size:
            # They have grown to those of a larger one: the first ones are this one's.
            self._entries = dict(islice(self._entries.items(), self._size))
        return self._entries

    def __getitem__(self, key: Key) -> Value:
        return self._own()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._own()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._own())

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if isinstance(other, GrowingMap):
            return self._size == other._size and (self._entries is other._entries or self._own() == other._own())
        return self._own() == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._own().items()))

    def __repr__(self) -> str:
        return f"GrowingMap({self._own()!r})"
