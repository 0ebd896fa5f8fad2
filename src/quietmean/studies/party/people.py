"""Whose data a study is of, for the ledger: a sketch of a site's persons, or of its rows where it does not say whose they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import open_private, sync_folder, write_down
from quietmean.ledger.people import DISTINCT_ROWS, PERSONS, ROWS, Identities, Sketch, digests_of, name_of_key
from quietmean.randomness import Seed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data import GroupedRows, Records, Source, location_of, records_of
from quietmean.studies.data.location import SiteMapping
from quietmean.studies.data.records import Withheld, whole_rows
from quietmean.studies.data.text import Notify

# In the folder of the identity key, for all parties there.
KEY_NAME: Final = "people.key"
_KEY_BYTES = 32


@dataclass(frozen=True, eq=False)
class People:
    """``folder``: where the key is; ``tell``: for sentences that do not depend on the data."""

    records: Records | GroupedRows = field(repr=False)
    source: Source = field(repr=False)
    folder: Path
    tell: Callable[[str], None] = field(default=lambda sentence: None, repr=False)

    @property
    def named(self) -> bool:
        """Does the site say whose its rows are?"""
        return self.records.persons is not None

    @property
    def limit(self) -> int | None:
        """So many rows of one person have values in a study of records; None: not said."""
        return self.mapping.rows_per_person

    @property
    def mapping(self) -> SiteMapping:
        """What the site says of its persons."""
        return location_of(self.source).mapping

    def most_rows(self) -> int:
        """Return how many rows the person with most of them has, for the owner alone."""
        return self.records.most_rows() if isinstance(self.records, Records) else 0

    @cached_property
    def sketch(self) -> Sketch | None:
        """By the identifiers, else by whole rows; None where nothing tells data sets apart."""
        key = self._key
        if key is None:
            return None
        if self.named:
            digests, column = np.unique(self._digests), self.mapping.person
            return Sketch(PERSONS, name_of_key(key), 0, digests, len(digests), name_of_key(key, column))
        if isinstance(self.records, GroupedRows):
            return None
        rows, all_rows = whole_rows(self.source, self.records.columns)
        return Sketch.of(rows, ROWS, key) if len(rows) >= DISTINCT_ROWS * all_rows > 0 else None

    def without_value(self, silent: Identities) -> Records | GroupedRows:
        """Return the records, of which persons with these digests take part without a value."""
        persons = self.records.persons
        if not len(silent) or persons is None or not isinstance(self.records, Records):
            return self.records
        gone = persons[np.isin(self._digests, silent)]
        return self.records.withholding(replace(self.records.withheld, persons=gone))

    @cached_property
    def _digests(self) -> Identities:
        """The digests of the persons in their order, (persons,)."""
        persons, key = self.records.persons, self._key
        if persons is None or key is None:
            return np.empty(0, dtype=np.uint64)
        return digests_of(persons, PERSONS, key)

    @cached_property
    def _key(self) -> bytes | None:
        path = self.folder / KEY_NAME
        there = path.exists()
        try:
            key = people_key(self.folder)
            if not there:
                self.tell(f"{path} is made: keep it there, and secret, for by it the ledger recognises people")
            return key
        except InputError as error:
            self.tell(f"nobody is recognised in the ledger: {error}")
            return None


def records_for(study: StudyTerms, data: Source, tell: Notify) -> Records | GroupedRows:
    """The columns that the study uses of all rows; NaN where a cell has no number.

    In a study of records so many rows of one person have values as the site says, and others none; where the number of records is
    private these are left out.
    """
    most = location_of(data).mapping.rows_per_person if study.unit == PrivacyUnit.RECORD else None
    withheld = Withheld(most=most, absent=study.count == CountVisibility.PRIVATE)
    return records_of(data, study.workload.columns, tell, study.rows, withheld)


def people_key(folder: Path) -> bytes:
    """The secret under which sketches of people are made, from its file in the folder; made there at the first time.

    Raises :class:`InputError` where it cannot be read or made.
    """
    path = folder / KEY_NAME
    try:
        if not path.exists():
            _make(path)
        key = path.read_bytes()
    except OSError as error:
        refuse_outage(error, path)
        raise InputError(f"{path} cannot be read or made ({error.strerror}): let the folder of the key be writable") from None
    if len(key) != _KEY_BYTES:
        raise InputError(f"{path} is not a key for people: restore it, or move it away")
    return key


def _make(path: Path) -> None:
    """Whole or not at all: another process may be making it, too."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            write_down(file, Seed.from_os().secret)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    try:
        sync_folder(path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise
