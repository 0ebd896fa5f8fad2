"""What is on a ledger: accounts, their budgets, the studies charged to them; and what these mean in epsilon.

The only place of the ledger where mu becomes epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy.composition import compose_mu, epsilon_within, fits, remaining_mu
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.privacy.gaussian import mu_of_budget

RESERVED: Final = "reserved"
SPENT: Final = "spent"


@dataclass(frozen=True, slots=True)
class Entry:
    """One study on an account. ``mu`` counts: the reserved one at first, the certified one once it is spent.

    ``unit``: whose replacement mu is about. Times are UTC, ISO 8601.
    """

    study: str
    account: str
    name: str
    unit: PrivacyUnit
    reserved_mu: float
    mu: float
    status: str
    reserved_at: str
    settled_at: str | None
    note: str


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit: (epsilon, delta) as given, and the largest mu that meets it."""

    epsilon: float
    delta: float
    mu: float
    set_at: str

    @classmethod
    def of(cls, epsilon: float, delta: float, set_at: str) -> Self:
        """Raises :class:`InputError` for an impossible epsilon or delta."""
        return cls(epsilon, delta, mu_of_budget(epsilon, delta), set_at)

    def epsilon_of(self, mu: float) -> float:
        """What ``mu`` is at this budget's delta; rounded up."""
        return epsilon_of_mu(mu, self.delta)


@dataclass(frozen=True, slots=True)
class Account:
    """A data set's budget and what was charged to it. The last of ``budgets`` holds; the earlier ones are its history.

    ``unit``: whose replacement the budget is about. Epsilons are at the budget's delta; what is spent is rounded up, what is left
    down.
    """

    name: str
    unit: PrivacyUnit
    budgets: tuple[Budget, ...]
    entries: tuple[Entry, ...]

    @property
    def budget(self) -> Budget:
        return self.budgets[-1]

    @property
    def mus(self) -> tuple[float, ...]:
        return tuple(entry.mu for entry in self.entries)

    @property
    def charged_mu(self) -> float:
        """Spent and reserved together."""
        return compose_mu(self.mus)

    @property
    def charged_epsilon(self) -> float:
        return self.budget.epsilon_of(self.charged_mu)

    @property
    def remaining_mu(self) -> float:
        return remaining_mu(self.budget.mu, self.mus)

    @property
    def remaining_epsilon(self) -> float:
        """The largest epsilon that a further study may have at the budget's delta."""
        return epsilon_within(self.remaining_mu, self.budget.delta)

    @property
    def overspent(self) -> bool:
        """Only a study that cost more than was planned, or an account that shrank, leads here: never a reservation."""
        return not self.within(self.budget)

    def within(self, budget: Budget) -> bool:
        """Whether what is charged stays within a budget, this account's or another."""
        return fits(budget.mu, self.mus)

    def allows(self, mu: float) -> bool:
        """Whether a further study of ``mu`` stays within the budget."""
        return fits(self.budget.mu, [*self.mus, mu])

    def without(self, study: str) -> Account:
        """The account as it would be had ``study`` not been charged."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.study != study))


def spent_text(epsilon: float) -> str:
    """What is spent of a budget, rounded up."""
    return "inf" if math.isinf(epsilon) else f"{math.ceil(epsilon * 1e4 - 1e-9) / 1e4:.4f}"


def left_text(epsilon: float) -> str:
    """What is left of a budget, rounded down; only what differs by rounding alone counts as the number above."""
    return "inf" if math.isinf(epsilon) else f"{math.floor(epsilon * 1e4 + 1e-6) / 1e4:.4f}"
