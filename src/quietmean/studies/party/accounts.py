"""Which account of a ledger is about the people of a study: named once, never a second one silently.

A person decides. What is recognised is named, nothing is merged or refused by itself: two accounts for the same people are two
budgets, and one account for two hospitals is a budget less than there is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import Inputs, Ledger
from quietmean.ledger.people import Sketch
from quietmean.studies.party.people import People
from quietmean.studies.party.policy import PolicyBudget

# Between the name of an account and the number of one for new people beside it.
_BESIDE = "/"


class WhoseAccount(InputError):
    """A second account would be made, and a person has to say whose people these are.

    ``why``: what is recognised, in words; ``names``: of all accounts, recognised ones first; ``new``: of one for others.
    """

    def __init__(self, place: Path, why: str, names: Sequence[str], new: str) -> None:
        self.why, self.names, self.new = why, tuple(names), new
        # What a person chose before a stop.
        self.charged: str | None = None
        super().__init__(
            f"no account {new!r} is made in {place}, a second one would be a second budget: {why}. Give "
            f"--account {names[0]} for the same people, or --new-account {new} for others"
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

    def require_first(self) -> None:
        """Raises :class:`WhoseAccount` where the ledger has an account already: that of the same people, perhaps."""
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
        raise WhoseAccount(self.place, why, [*same, *(name for name in names if name not in same)], self.account)

    def make(self, budget: PolicyBudget, unit: PrivacyUnit) -> None:
        """One that counts replacement: what is hidden under add-remove is charged to it as two each."""
        self.book.set_budget(
            self.account,
            budget.epsilon,
            budget.delta,
            when=datetime.now(UTC),
            unit=unit,
            relation=Neighbouring.REPLACEMENT,
        )

    def beside(self, study: str) -> tuple[str, str]:
        """The account for new people beside :attr:`account`, and in words that it was made, with the same budget.

        Each person is in one of them only, so the budget of each holds. Raises :class:`InputError` where some of them are in that
        account, or in another one beside it.
        """
        parent = self.book.account(self.account)
        family = [name for name in self.names if name == parent.name or name.startswith(parent.name + _BESIDE)]
        charged = self.book.account_of(study)
        if charged in family[1:]:
            return charged, ""
        known = [name for name in self._recognised() if name in family]
        if known:
            raise InputError(
                f"--new-people, but people of these data are in account {_listed(known)}: leave it out, and charge the study to "
                f"--account {known[0]}"
            )
        sketch = None if self.people is None else self.people.sketch
        checked = sketch is not None and all(any(old.comparable(sketch) for old in self.book.people_of(name)) for name in family)
        name = f"{parent.name}{_BESIDE}{len(family) + 1}"
        budget = parent.budget
        self.book.set_budget(
            name,
            budget.epsilon,
            budget.delta,
            when=datetime.now(UTC),
            unit=parent.unit,
            relation=parent.relation,
            data_set=name,
            refund=parent.refund,
        )
        self.book.claim(name, json.dumps({"new_people_beside": parent.name, "checked": checked}))
        how = "checked by what the ledger knows of them" if checked else "as you say, for nothing here tells who they are"
        return name, f"account {name!r} for new people beside {parent.name!r}, {how},"

    def sketch_for(self, account: str) -> Sketch | None:
        """What the ledger is to remember of the people; whole rows once only, for they take long to read."""
        if self.people is None:
            return None
        return self.people.sketch if self.people.named or not self.book.people_of(account) else None

    def warn(self, account: str, tell: Callable[[str], None]) -> None:
        """Tells of accounts that were charged with the same data, or with some of the same people."""
        twins = {*self.book.same_inputs(account, self.inputs)}
        if self.people is not None and self.people.named:
            twins |= set(self._recognised()) - {account}
        if twins:
            tell(f"account {account!r}: {twins_text(sorted(twins))}")

    def _recognised(self) -> list[str]:
        sketch = None if self.people is None else self.people.sketch
        return [] if sketch is None else list(self.book.accounts_with(sketch))


def twins_text(twins: Sequence[str]) -> str:
    return (
        f"the same input columns or people were charged to {_listed(twins)}, too: two accounts for the same data are two "
        "budgets, which together allow more than either says; charge all studies of a data set to one account"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
