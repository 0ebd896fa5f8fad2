"""Which account of a ledger is about the people of a study: named once, never a second one silently.

A person decides. What is recognised is named, nothing is merged by itself, and nothing is refused unless the policy says so.
Where the data say whose each row is, a person pays in every account that has it: two accounts are no second budget for anybody.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from quietmean.core.domain import CountVisibility, Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import open_private, sync_folder, write_down
from quietmean.ledger import Account, Budget, Inputs, Ledger, Refund
from quietmean.ledger.account import left_shown
from quietmean.ledger.people import DISTINCT_ROWS, PERSONS, ROWS, Identities, Sketch, digests_of, name_of_key
from quietmean.randomness import Seed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data import GroupedRows, Records, Source, location_of, records_of
from quietmean.studies.data.location import SiteMapping
from quietmean.studies.data.records import Withheld, whole_rows
from quietmean.studies.data.table import Notify

# In the folder of the identity key, for all parties there.
KEY_NAME: Final = "people.key"
_KEY_BYTES = 32


@dataclass(frozen=True, eq=False)
class People:
    """What is known of the people in a party's data.

    ``folder``: where the key is; ``tell``: for sentences that do not depend on the data.
    """

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
        """How many rows of one person have values in a study of records; None: not said."""
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
        """The sketch of people by the identifiers, else by whole rows; None where nothing tells data sets apart."""
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
                self.tell(f"{path} is made. The ledger recognises people by it. Keep it there and secret")
            return key
        except InputError as error:
            self.tell(f"nobody is recognised in the ledger: {error}")
            return None


def left_in(ledger: Path, account: str, opening: float | None) -> str:
    """What of which budget is left, for the owner, as it goes on behind the costs. ``opening``: that of an account that is yet to
    be made; empty without one.

    Raises :class:`InputError` where neither an account can be made nor a ledger is there: nobody is asked for a yes first.
    """
    if opening is None or Ledger.is_there(ledger):
        with Ledger.open(ledger) as book, contextlib.suppress(InputError):
            there = book.account(account)
            return f"; {left_shown(there.remaining_epsilon)} left of {there.budget.epsilon:g} in budget {account!r}"
    return "" if opening is None else f", of {opening:g} in a new budget {account!r}"


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
        raise InputError(f"{path} cannot be read or made ({error.strerror}). Let the folder of the key be writable.") from None
    if len(key) != _KEY_BYTES:
        raise InputError(f"{path} is not a key for people. Restore it, or move it away.")
    return key


def _make(path: Path) -> None:
    """Make the file whole or not at all: another process may be making it, too."""
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


# Between the name of an account and the number of one for new people beside it.
_BESIDE = "/"


class AccountQuestion(InputError):
    """A second account would be made, and a person has to say whose people these are.

    ``why``: what is recognised, in words; ``names``: of all accounts, recognised ones first; ``new``: of one for others.
    """

    def __init__(self, place: Path, why: str, names: Sequence[str], new: str) -> None:
        self.why, self.names, self.new = why, tuple(names), new
        # What a person chose before a stop.
        self.charged: str | None = None
        super().__init__(
            f"account {new!r} does not exist in {place}, and a second account is a second budget. {why}. Give "
            f"{named('account', names[0])} for the same people, or {named('new-account', new)} for others, such as another site's"
        )

    def chosen(self, answer: str) -> str | None:
        """The account of the same people, by its place from 1 on; None for a new one, 0. Raises this for any other answer."""
        if not re.fullmatch("[0-9]{1,9}", answer) or int(answer) > len(self.names):
            raise self
        return self.names[int(answer) - 1] if int(answer) else None


@dataclass(frozen=True, eq=False)
class Accounts:
    """The accounts: those of an open ledger at ``place``, for a study that would be charged to ``account``."""

    book: Ledger
    place: Path
    account: str
    inputs: Inputs
    people: People | None

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.book.accounts()]

    @property
    def there(self) -> bool:
        return self.account in self.names

    def require_first(self, study: str = "") -> None:
        """Raises :class:`AccountQuestion` where the ledger has an account already: that of the same people, perhaps.

        ``study``: what is charged, if a person may have chosen its account before a stop.
        """
        names = self.names
        if not names:
            return
        recognised = self._recognised()
        same = recognised or list(self.book.accounts_of(self.inputs))
        if recognised:
            why = f"People of these data are in account {_listed(recognised)}"
        elif same:
            why = f"The same input columns were charged to account {_listed(same)}, so these are the same data"
        else:
            why = f"These may be the same people as in {_listed(names)}"
        question = AccountQuestion(self.place, why, [*same, *(name for name in names if name not in same)], self.account)
        question.charged = self.book.account_of(study) if study else None
        raise question

    def beside(self, study: str) -> Account:
        """The account for new people beside :attr:`account`, with the same budget, to which the study is charged or would be."""
        parent = self.book.account(self.account)
        family = [name for name in self.names if name == parent.name or name.startswith(parent.name + _BESIDE)]
        charged = self.book.account_of(study)
        if charged in family[1:]:
            return self.book.account(charged)
        unit = PrivacyUnit.PERSON if self.named and not parent.entries else parent.unit
        name, budget = f"{parent.name}{_BESIDE}{len(family) + 1}", parent.budget
        fresh = Budget.of(budget.epsilon, budget.delta, "", parent.rule)
        return opening_account(name, unit, fresh, parent.relation, parent.refund)

    def make(self, opening: Account) -> None:
        """Make this account."""
        self.book.set_budget(
            opening.name,
            opening.budget.epsilon,
            opening.budget.delta,
            when=datetime.now(UTC),
            unit=opening.unit,
            relation=opening.relation,
            refund=opening.refund,
            rule=opening.rule,
        )

    def make_beside(self, opening: Account) -> str:
        """Make the account for new people, and say so with whether the ledger knows for certain who is new."""
        sketch = self.people.sketch if self.people is not None and self.people.named else None
        checked = sketch is not None and self.book.knows_all(sketch)
        self.make(opening)
        self.book.claim(opening.name, json.dumps({"new_people_beside": self.account, "checked": checked}))
        how = (
            "checked: people who are known pay in the account that knows them, too"
            if checked
            else "not checked: nothing proves it"
        )
        return f"account {opening.name!r}, for people who are not in {self.account!r} ({how})"

    def require_one(self, charged: str) -> None:
        """Require one account, for a policy that wants nobody in two.

        Raises :class:`InputError` where another has some of the people.
        """
        others = [name for name in self._recognised() if name != charged] if self.named else []
        if others:
            raise InputError(
                f"account {_listed(others)} has persons of these data, and the policy refuses people_in_two_accounts. Charge the "
                f"study to {named('account')} {others[0]}"
            )

    @property
    def named(self) -> bool:
        """Do the data say whose each row is?"""
        return self.people is not None and self.people.named

    def sketch_for(self, account: str) -> Sketch | None:
        """What the ledger is to remember of the people; whole rows once only, for they take long to read."""
        if self.people is None:
            return None
        return self.people.sketch if self.people.named or not self.book.people_of(account) else None

    def warn(self, account: str, tell: Callable[[str], None]) -> None:
        """Tells of accounts that were charged with the same data, where these do not say whose they are."""
        twins = () if self.named else self.book.same_inputs(account, self.inputs)
        if twins:
            tell(f"account {account!r}: {twins_text(twins)}")

    def _recognised(self) -> list[str]:
        sketch = None if self.people is None else self.people.sketch
        return [] if sketch is None else list(self.book.accounts_with(sketch))


def twins_text(twins: Sequence[str]) -> str:
    return (
        f"the same input columns or people were charged to {_listed(twins)}, too. Two accounts for the same data are "
        "two budgets, which together allow more than either says. Charge all studies of a data set to one account."
    )


def opening_account(
    name: str,
    unit: PrivacyUnit,
    budget: Budget,
    relation: Neighbouring = Neighbouring.REPLACEMENT,
    refund: Refund = Refund.SETTLED,
) -> Account:
    """Return an account that is yet to be made."""
    return Account(name, name, unit, relation, refund, (budget,), ())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
