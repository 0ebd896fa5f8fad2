"""Whose a row is: the site's column that tells persons apart, and the day by which one of their rows is chosen.

Identifiers never leave this module: each person is 128 bits of a hash, in memory alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import FIRST_ROW, LAST_ROW, MEAN_OF_ROWS
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.studies.data.cells import MISSING_TEXTS, days_in, meaning_of, text_of_cell
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import NoticedRows, Notify, Table, require_heading

# Two words of 64 bits for each person, and what a row of nobody has.
_BYTES = 16
_LABEL = b"quietmean person"
_NOBODY = bytes(_BYTES)
# Whole numbers below this one are floats, exactly; and the most identifiers that are kept with their hashes.
_EXACT = 2.0**53
_MOST_KNOWN = 2**21

Identities = NDArray[np.uint64]


@dataclass
class KnownNumbers:
    """Identifiers that are whole numbers, and who has each: in 24 bytes, so that one is not hashed for each of a person's rows.

    Of the first two million of them; any others are hashed again wherever they stand.
    """

    # Rising, the last one above all.
    _numbers: Array = field(default_factory=lambda: np.array([np.inf]), repr=False)
    _words: Identities = field(default_factory=lambda: np.zeros((1, 2), dtype=np.uint64), repr=False)
    _waiting: list[tuple[Array, Identities]] = field(default_factory=list, repr=False)

    def identities(self, numbers: Array) -> Identities:
        """Return the hashes of persons with these identifiers, (numbers, 2)."""
        places = np.searchsorted(self._numbers, numbers)
        words = self._words[places]
        fresh = np.flatnonzero(self._numbers[places] != numbers)
        words[fresh] = _in_words(map(_hashed, map(str, numbers[fresh].astype(np.int64).tolist())))
        if len(self._numbers) < _MOST_KNOWN:
            self._waiting.append((numbers[fresh], words[fresh]))
        # So seldom that each is sorted a few times only.
        if 4 * sum(len(waiting) for waiting, _ in self._waiting) > len(self._numbers):
            self._settle()
        return words

    def _settle(self) -> None:
        """Insert those who wait between the others: only they are sorted."""
        numbers, first = np.unique(np.concatenate([waiting for waiting, _ in self._waiting]), return_index=True)
        words = np.vstack([waiting for _, waiting in self._waiting])[first]
        places, self._waiting = np.searchsorted(self._numbers, numbers), []
        self._numbers = np.insert(self._numbers, places, numbers)
        self._words = np.insert(self._words, places, words, axis=0)


@dataclass
class PersonReader:
    """Reads whose each row is, and its day where the site says in which column that is.

    Rows that name nobody are nobody's: they do not count.
    """

    location: Location
    known: KnownNumbers = field(default_factory=KnownNumbers, repr=False)
    nobodys: NoticedRows = field(default_factory=NoticedRows)
    undated: NoticedRows = field(default_factory=NoticedRows)

    @property
    def columns(self) -> list[str]:
        """What the site calls them."""
        mapping = self.location.mapping
        return [name for name in (mapping.person, mapping.date) if name]

    def require(self, table: Table) -> None:
        """Raises :class:`InputError` without one of these columns, whether there is any row or none."""
        for name in self.columns:
            require_heading(table, name)

    def identities(self, table: Table) -> Identities:
        """Return the hash of the person of each row, (rows, 2); zeros for nobody. Raises :class:`InputError` without it."""
        cells = table.headed(self.location.mapping.person).distinct()
        words = cells.spread(self._words(cells.values))
        self.nobodys.add(table.lines, np.flatnonzero(~words.any(axis=1)))
        return np.asarray(words)

    def _words(self, cells: Sequence[Any] | Array) -> Identities:
        """Return the hashes of distinct cells."""
        if not isinstance(cells, np.ndarray):
            return identities_of(map(text_of_cell, cells))
        words, whole = np.zeros((len(cells), 2), dtype=np.uint64), is_whole(cells)
        words[whole] = self.known.identities(cells[whole])
        words[~whole] = identities_of(map(text_of_cell, cells[~whole].tolist()))
        return words

    def days(self, table: Table) -> Array:
        """Return the day of each row, (rows,), since 1970; NaN where none is known. Raises :class:`InputError` without it."""
        name = self.location.mapping.date
        if not name:
            return np.full(table.height, np.nan)
        cells = table.headed(name).distinct()
        days = np.asarray(cells.spread(days_in(cells.values, self.location)))
        self.undated.add(table.lines, np.flatnonzero(np.isnan(days)))
        return days

    def tell(self, place: str, word: str, tell: Notify, rows: str | int) -> None:
        """Says to the owner how many rows are nobody's, if any, and how many have no day where that chooses their ``rows``."""
        if many := self.nobodys.count:
            names, count = ("rows name", "count") if many > 1 else ("row names", "counts")
            stand = self.nobodys.where(word)
            tell(f"{place}: {many} {names} no person in the person column, and {count} as empty ({stand})")
        if self.undated.count and rows != MEAN_OF_ROWS:
            have = count_of(self.undated.count, "row has", "rows have")
            stand = self.undated.where(word)
            tell(f"{place}: {have} no date in the date column. Rows of the same person with a date are taken first ({stand})")


def require_persons(location: Location, rows: str | int) -> None:
    """Raises :class:`InputError` where the site does not say what a study of persons needs."""
    mapping, beside = location.mapping, location.format_file
    where_to = "of the data" if beside is None else f"of {beside.name}"
    if not mapping.person:
        raise InputError(
            f"the study protects persons, and nothing says which column of {location.name} tells them apart. Write "
            f'person = "patient_id" in table [mapping] {where_to}, by the column\'s own name, which nobody else sees.'
        )
    if rows in (FIRST_ROW, LAST_ROW) and not mapping.date:
        raise InputError(
            f"the study takes the {rows} row of each person, and nothing says by which dates of {location.name}. Write "
            f'date = "visit_date" in table [mapping] {where_to}, beside person.'
        )


@dataclass
class DistinctPersons:
    """The persons of all pieces so far, 16 bytes each; memory grows with them and not with their rows."""

    # In order, a word after the other: each is looked up alone.
    _known: Identities = field(default_factory=lambda: np.empty((0, 2), dtype=np.uint64, order="F"), repr=False)
    _waiting: list[Identities] = field(default_factory=list, repr=False)
    _rows: int = 0

    def add(self, identities: Identities) -> None:
        distinct = _distinct(identities[identities.any(axis=1)])
        self._waiting.append(distinct[~self._has(distinct)])
        self._rows += len(self._waiting[-1])
        # So seldom that each person moves a few times only.
        if self._rows > max(len(self._known) // 4, 2**16):
            self._settle()

    def all(self) -> Identities:
        """Each once, (persons, 2), in an order that tells nothing."""
        self._settle()
        return self._known

    def _has(self, identities: Identities) -> Mask:
        """Who is known, (persons,); somebody with half of the bits of another one need not be seen to be."""
        if not len(self._known):
            return np.zeros(len(identities), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self._known[:, 0], identities[:, 0]), len(self._known) - 1)
        return np.asarray((self._known[places] == identities).all(axis=1))

    def _settle(self) -> None:
        """Insert those who wait between the others: only they are sorted."""
        if not self._waiting:
            return
        fresh = _distinct(np.vstack(self._waiting))
        self._waiting, self._rows = [], 0
        known = np.insert(self._known, np.searchsorted(self._known[:, 0], fresh[:, 0]), fresh, axis=0)
        alike = (known[1:, 0] == known[:-1, 0]).any()
        self._known = np.asfortranarray(_distinct(known) if alike else known)


def identities_of(texts: Iterable[str | None]) -> Identities:
    """Return the hashes of persons with these identifiers, (persons, 2)."""
    return _in_words(map(_digest, texts))


def _in_words(digests: Iterable[bytes]) -> Identities:
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64)


def is_whole(numbers: Array) -> Mask:
    """Which are whole numbers that a float has exactly, as their texts have them."""
    return np.asarray((np.abs(numbers) < _EXACT) & (numbers == np.trunc(numbers)))


def _distinct(identities: Identities) -> Identities:
    ordered = identities[np.argsort(identities[:, 0])]
    fresh = (ordered[1:] != ordered[:-1]).T
    # Half of the bits tell persons apart, unless two have the same half.
    if (fresh[1] & ~fresh[0]).any():
        ordered = identities[np.lexsort((identities[:, 1], identities[:, 0]))]
        fresh = (ordered[1:] != ordered[:-1]).T
    return np.asarray(ordered[np.concatenate([[True], fresh.any(axis=0)])[: len(ordered)]])


def _digest(text: str | None) -> bytes:
    """Return the hash of an identifier, by its meaning where it is a number: 7, 7.0 and 007 are one."""
    same = identifier(text)
    return _NOBODY if same is None else _hashed(same)


def identifier(text: str | None) -> str | None:
    """The one spelling of an identifier; None where it is nobody's."""
    if text is None or text.lower() in MISSING_TEXTS:
        return None
    return text if _is_plain(text) else _by_meaning(text)


def _hashed(same: str) -> bytes:
    return hashlib.blake2b(same.encode(errors="surrogatepass"), digest_size=_BYTES, person=_LABEL).digest()


def _is_plain(text: str) -> bool:
    """Is it quickly seen that a text is neither a number nor a day, or a number as it is written everywhere?"""
    return text[0].isalpha() or (text[0] != "0" and text.isascii() and text.isdigit())


def _by_meaning(text: str) -> str:
    meaning = meaning_of(text)
    if not isinstance(meaning, Decimal):
        return text if meaning is None else meaning
    same = f"{meaning:f}"
    return same.rstrip("0").rstrip(".") if "." in same else same
