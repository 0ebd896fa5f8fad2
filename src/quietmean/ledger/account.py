"""What is on a ledger: accounts, their budgets, the studies charged to them; and what these mean in epsilon.

The only place of the ledger where mu becomes epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final, Self

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.privacy.charge import Charge, additive_delta, compose, down
from quietmean.privacy.composition import epsilon_within, fits, remaining_mu
from quietmean.privacy.conversion import check_budget, epsilon_of_mu
from quietmean.privacy.gaussian import mu_of_budget

RESERVED: Final = "reserved"
SPENT: Final = "spent"
# The part of delta that is kept for beta and tv.
ADDITIVE_PART: Final = 0.01


class Refund(StrEnum):
    """Whether a study that turns out to have cost less than reserved gives the difference back.

    A refund needs that attendance, refusals and losses do not depend on values. Who doubts that keeps what was reserved.
    """

    SETTLED = "settled"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One study on an account. ``charged`` counts: what was reserved at first, what it cost once it is settled.

    All three charges are about the account's unit and relation: those of the study times ``factor``. ``unit``, ``relation``: what
    the study protects. ``certified``: what the execution cost, whether or not that was given back; None before it is settled.
    ``refund``: whether less than reserved is given back. ``status``: :data:`RESERVED`, or :data:`SPENT` once settled. Times are
    UTC, ISO 8601.
    """

    study: str
    account: str
    name: str
    unit: PrivacyUnit
    relation: Neighbouring
    factor: int
    refund: bool
    reserved: Charge
    charged: Charge
    certified: Charge | None
    status: str
    reserved_at: str
    settled_at: str | None
    note: str

    @property
    def mu(self) -> float:
        return self.charged.mu

    @property
    def reserved_mu(self) -> float:
        return self.reserved.mu

    @property
    def settled(self) -> bool:
        return self.status == SPENT


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit: (epsilon, delta) as given; the largest mu, and ``additive_delta``, what beta and tv may take of delta.

    Both limits together keep (epsilon, delta): delta(mu, epsilon) is at most what ``additive_delta`` leaves of delta. Budgets
    that version 1 of the file knew have no part for beta and tv: there mu has all of delta.
    """

    epsilon: float
    delta: float
    mu: float
    set_at: str
    additive_delta: float

    @classmethod
    def of(cls, epsilon: float, delta: float, set_at: str) -> Self:
        """Raises :class:`InputError` for an impossible epsilon or delta."""
        check_budget(epsilon, delta)
        additive = ADDITIVE_PART * delta
        return cls(epsilon, delta, mu_of_budget(epsilon, _rest(delta, additive)), set_at, additive)

    @property
    def gaussian_delta(self) -> float:
        """The part of delta at which mu is read."""
        return _rest(self.delta, self.additive_delta)

    def allows(self, charges: Sequence[Charge]) -> bool:
        """Whether studies together stay within both limits. Exact: no rounding at the edge."""
        return self.allows_mu(charges) and self.allows_additive(charges)

    def allows_mu(self, charges: Sequence[Charge]) -> bool:
        """Whether their mu together stays within the limit of mu."""
        return fits(self.mu, [charge.mu for charge in charges])

    def allows_additive(self, charges: Sequence[Charge]) -> bool:
        """Whether beta and tv together stay within their part of delta."""
        return additive_delta(charges, self.epsilon) <= Fraction(self.additive_delta)

    def epsilon_of(self, charge: Charge) -> float:
        """What ``charge`` is at this budget's delta; rounded up.

        Where beta and tv stay within their part, it is that of mu at the other part of delta, so that the epsilon of the whole
        budget is the budget's epsilon. Else it is the least one with all of delta, infinite if there is none.
        """
        epsilon = epsilon_of_mu(charge.mu, self.gaussian_delta)
        if math.isinf(epsilon) or charge.additive(epsilon) <= Fraction(self.additive_delta):
            return epsilon
        return charge.epsilon(self.delta)


@dataclass(frozen=True, slots=True)
class Freeze:
    """Nothing may be reserved on the account from ``since`` on, for this reason, until a person lifts it with another one."""

    study: str
    since: str
    reason: str
    lifted_at: str | None = None
    lifted_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """A data set's budget and what was charged to it. The last of ``budgets`` holds; the earlier ones are its history.

    ``unit``, ``relation``: whose change the budget is about. Epsilons are at the budget's delta; what is charged is rounded up,
    what is left down. They say how much of the budget is taken, by reserved and settled studies; not an (epsilon, delta) that
    holds at a moment that somebody picks: only the whole budget is certified.
    """

    name: str
    data_set: str
    unit: PrivacyUnit
    relation: Neighbouring
    refund: Refund
    budgets: tuple[Budget, ...]
    entries: tuple[LedgerEntry, ...]
    freezes: tuple[Freeze, ...] = ()

    @property
    def budget(self) -> Budget:
        return self.budgets[-1]

    @property
    def mus(self) -> tuple[float, ...]:
        return tuple(entry.mu for entry in self.entries)

    @property
    def charges(self) -> tuple[Charge, ...]:
        return tuple(entry.charged for entry in self.entries)

    @property
    def charged(self) -> Charge:
        """Settled and reserved studies together."""
        return compose(self.charges)

    @property
    def charged_mu(self) -> float:
        return self.charged.mu

    @property
    def charged_epsilon(self) -> float:
        return self.budget.epsilon_of(self.charged)

    @property
    def charged_additive_delta(self) -> float:
        """What beta and tv take of delta at the budget's epsilon; rounded up."""
        exact = additive_delta(self.charges, self.budget.epsilon)
        near = float(exact)
        return near if Fraction(near) >= exact else math.nextafter(near, math.inf)

    @property
    def remaining_mu(self) -> float:
        """The largest mu that a further study may have; 0 while frozen."""
        return 0.0 if self.frozen else remaining_mu(self.budget.mu, self.mus)

    @property
    def remaining_epsilon(self) -> float:
        """The largest epsilon that a further study may have at the part of delta at which mu is read; 0 while frozen."""
        return epsilon_within(self.remaining_mu, self.budget.gaussian_delta)

    @property
    def remaining_additive_delta(self) -> float:
        """What beta and tv of a further study may take of delta at the budget's epsilon; rounded down, 0 while frozen."""
        left = Fraction(self.budget.additive_delta) - additive_delta(self.charges, self.budget.epsilon)
        return 0.0 if self.frozen else down(max(left, Fraction(0)))

    @property
    def overspent(self) -> bool:
        """More is charged than the budget allows: never by a reservation, only by a study that cost more than was reserved."""
        return not self.within(self.budget)

    @property
    def frozen(self) -> Freeze | None:
        """The first freeze that nobody has lifted."""
        return next((freeze for freeze in self.freezes if freeze.lifted_at is None), None)

    def within(self, budget: Budget) -> bool:
        """Whether what is charged stays within a budget, this account's or another."""
        return budget.allows(self.charges)

    def without(self, study: str) -> Account:
        """The account as it would be had ``study`` not been charged."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.study != study))


def _rest(delta: float, additive: float) -> float:
    return delta if additive == 0.0 else down(Fraction(delta) - Fraction(additive))


def left_text(epsilon: float) -> str:
    """What is left of a budget, rounded down; only what differs by rounding alone counts as the number above."""
    return "inf" if math.isinf(epsilon) else f"{math.floor(epsilon * 1e4 + 1e-6) / 1e4:.4f}"
