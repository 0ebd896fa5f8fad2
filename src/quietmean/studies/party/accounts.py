"""Which account of a ledger is about the people of a study: named once, never a second one silently.

A person decides. What is recognised is named, nothing is merged by itself, and nothing is refused unless the policy says so.
Where the data say whose each row is, a person pays in every account that has it: two accounts are no second budget for anybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.ledger import Account, Budget, Inputs, Ledger, Refund
from quietmean.ledger.people import Sketch
from quietmean.studies.party.people import People

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
            f"no account {new!r} is made in {place}, a second one would be a second budget: {why}. Give "
            f"{named('account', names[0])} for the same people, or {named('new-account', new)} for others"
        )

    def chosen(self, answer: str) -> str | None:
        """The account of the same people, by its place from 1 on; None for a new one, 0. Raises this for any other answer."""
        if not re.fullmatch("[0-9]{1,9}", answer) or int(answer) > len(self.names):
            raise self
        return self.names[int(answer) - 1] if int(answer) else None


@dataclass(frozen=True, eq=False)
class Accounts:
    """Those of an open ledger at ``place``, for a study that would be charged to ``account``."""

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
            why = f"people of these data are in account {_listed(recognised)}"
        elif same:
            why = f"the same input columns were charged to account {_listed(same)}, so these are the same data"
        else:
            why = f"the same people as {_listed(names)}? Nothing here tells"
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
        return opening_account(name, unit, budget.epsilon, budget.delta, parent.relation, parent.refund)

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
        return f"account {opening.name!r} for new people beside {self.account!r} ({how})"

    def require_one(self, charged: str) -> None:
        """For a policy that wants nobody in two accounts. Raises :class:`InputError` where another one has some of the people."""
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
        f"the same input columns or people were charged to {_listed(twins)}, too: two accounts for the same data are two "
        "budgets, which together allow more than either says; charge all studies of a data set to one account"
    )


def opening_account(
    name: str,
    unit: PrivacyUnit,
    epsilon: float,
    delta: float,
    relation: Neighbouring = Neighbouring.REPLACEMENT,
    refund: Refund = Refund.SETTLED,
) -> Account:
    """Return an account that is yet to be made."""
    return Account(name, name, unit, relation, refund, (Budget.of(epsilon, delta, ""),), ())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
