"""What is on a ledger: accounts, their budgets, the studies charged to them; and what these mean in epsilon.

The only place of the ledger where mu becomes epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple, Self

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.readable import Phrase, bound_text, phrase
from quietmean.privacy.charge import NOTHING, Charge, additive_delta, compose, delta_of_rho, down, epsilon_of_rho, rho_of_budget
from quietmean.privacy.composition import epsilon_within, exact_sum, fits, mu_of_budget, remaining_mu
from quietmean.privacy.conversion import check_budget, delta_of_mu, epsilon_of_mu

RESERVED: Final = "reserved"
SPENT: Final = "spent"
# The part of delta that is kept for beta and tv, where the first study lets it be.
ADDITIVE_PART: Final = 0.01
# What an entry is known by whose persons were charged although another account was named.
OTHERS: Final = b"*"
# Beyond the rounding of a power of a quotient.
_UP = 1 + 1e-12


class Rule(StrEnum):
    """What an account adds up over its studies. It is fixed when the account is made: the best of several would be no filter.

    ``gauss`` adds squares of mu, ``concentrated`` adds rho, and ``pure`` adds epsilons of studies whose own delta is 0.
    """

    GAUSS = "gauss"
    CONCENTRATED = "concentrated"
    PURE = "pure"

    @property
    def curve(self) -> _Curve:
        """What the rule adds up, and what that means."""
        return _CURVES[self]


class _Curve(NamedTuple):
    """One column of a charge, to a ``power`` in sums, and what it means.

    ``limit`` of (epsilon, delta), ``delta`` at an epsilon, ``epsilon`` at a delta, and ``within``: the largest epsilon of a study
    at a delta.
    """

    column: Callable[[Charge], float]
    power: int
    limit: Callable[[float, float], float]
    delta: Callable[[float, float], float]
    epsilon: Callable[[float, float], float]
    within: Callable[[float, float], float]

    def of(self, charges: Sequence[Charge]) -> list[float]:
        return [self.column(charge) for charge in charges]


_CURVES = {
    Rule.GAUSS: _Curve(lambda charge: charge.mu, 2, mu_of_budget, delta_of_mu, epsilon_of_mu, epsilon_within),
    Rule.CONCENTRATED: _Curve(
        lambda charge: charge.rho,
        1,
        rho_of_budget,
        delta_of_rho,
        epsilon_of_rho,
        lambda rho, delta: epsilon_within(math.sqrt(2 * rho) * (1 - 1e-15), delta),
    ),
    Rule.PURE: _Curve(
        lambda charge: charge.pure,
        1,
        lambda epsilon, delta: epsilon,
        lambda pure, epsilon: float(pure > epsilon),
        lambda pure, delta: pure,
        lambda pure, delta: pure,
    ),
}


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
    UTC, ISO 8601. ``part``: the part of delta that beta and tv get where this study is the first one; None: the budget's own.
    ``known``: by which identifier it is known whose data they are; :data:`OTHERS` where another account was named; None: unknown.
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
    part: float | None = None
    known: bytes | None = None

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
    """A limit: (epsilon, delta) as given; ``limit``, the most of what the ``rule`` adds up; ``additive_delta``, the most of delta
    that beta and tv may take.

    Both together keep (epsilon, delta): delta(limit, epsilon) is at most what ``additive_delta`` leaves of delta. The first study
    fixes how delta is split, before anything is known: see :meth:`part_for`. Pure epsilons leave beta and tv all of it.
    """

    epsilon: float
    delta: float
    limit: float
    set_at: str
    additive_delta: float
    rule: Rule = Rule.GAUSS

    @classmethod
    def of(cls, epsilon: float, delta: float, set_at: str, rule: Rule = Rule.GAUSS) -> Self:
        """Make the budget of an epsilon at a delta. Raises :class:`InputError` for an impossible epsilon or delta."""
        check_budget(epsilon, delta)
        additive = delta if rule == Rule.PURE else ADDITIVE_PART * delta
        return cls(epsilon, delta, rule.curve.limit(epsilon, _rest(delta, additive)), set_at, additive, rule)

    def part_for(self, charge: Charge) -> float | None:
        """Return the part of delta that the additive terms, beta and tv, get if the study of this ``charge`` is the first.

        None means the usual part of the budget, 1 %.

        It is more where as many studies like this one as fit need more, and less where its limit needs the rest. So a budget of
        exactly a study's (epsilon, delta) pays for exactly that study.
        """
        delta, needs, usual = Fraction(self.delta), charge.additive(self.epsilon), Fraction(self.additive_delta)
        left = delta - Fraction(self._delta(charge))
        # Of a large budget beta and tv would take all: the limit keeps as much as they have without a study.
        wanted = max(usual, min(self._like(charge) * needs, delta - usual), needs)
        if needs > min(left, delta - usual) or wanted == usual <= left:
            return None
        # A little less than is left, so that neither side is lost to rounding.
        part = float((wanted if wanted <= left else left - (left - needs) / 1000) / delta)
        while Fraction(part) * delta < needs:
            part = math.nextafter(part, 1.0)
        return part

    def _like(self, charge: Charge) -> Fraction:
        """Return how many studies like this one fit together, at least 1: no whole number, rounded down."""
        delta, needs = Fraction(self.delta), charge.additive(self.epsilon)
        if not needs:
            return Fraction(1)
        low, high = Fraction(1), delta / needs
        for _ in range(60):
            middle = (low + high) / 2
            fit = Fraction(self._delta(charge, float(middle))) + middle * needs <= delta
            low, high = (Fraction(float(middle)), high) if fit else (low, middle)
        return low

    def _delta(self, charge: Charge, times: float = 1.0) -> float:
        """Return the delta at this epsilon of so many studies of this charge, beta and tv aside."""
        curve = self.rule.curve
        return curve.delta(curve.column(charge) * times ** (1 / curve.power), self.epsilon)

    def after(self, entries: Sequence[LedgerEntry]) -> Budget:
        """Return the budget, split as the first of these studies needs it, those without any cost aside."""
        first = next((entry for entry in entries if entry.charged != NOTHING), None)
        return self if first is None or first.part is None else _split(self, first.part, self.rule.curve.column(first.reserved))

    @property
    def other_delta(self) -> float:
        """The part of delta at which the limit is read."""
        return _rest(self.delta, self.additive_delta)

    def allows(self, charges: Sequence[Charge]) -> bool:
        """Whether studies together stay within both limits. Exact: no rounding at the edge."""
        return self.allows_column(charges) and self.allows_additive(charges)

    def allows_column(self, charges: Sequence[Charge]) -> bool:
        """Whether what the rule adds up stays within its limit."""
        return fits(self.limit, self.rule.curve.of(charges), self.rule.curve.power)

    def remaining(self, charges: Sequence[Charge]) -> float:
        """Return the most of what the rule adds up that is left after these; rounded down."""
        return remaining_mu(self.limit, self.rule.curve.of(charges), self.rule.curve.power)

    def allows_additive(self, charges: Sequence[Charge]) -> bool:
        """Whether beta and tv together stay within their part of delta."""
        return additive_delta(charges, self.epsilon) <= Fraction(self.additive_delta)

    def share_of(self, charge: Charge) -> float:
        """Return which part of the limit a study takes, or of what beta and tv may take where that is more."""
        power = self.rule.curve.power
        column = self.rule.curve.column(charge) ** power / self.limit**power
        return max(column, float(charge.additive(self.epsilon) / Fraction(self.additive_delta)))

    def like(self, charge: Charge, charges: Sequence[Charge]) -> int:
        """Return how many studies of one ``charge``, which costs something, fit beside ``charges``."""
        curve = self.rule.curve
        columns = curve.of([charge, *charges])
        if math.inf in columns or not self.allows(charges):
            return 0
        each, *others = (exact_sum([column], curve.power) for column in columns)
        room = Fraction(self.limit) ** curve.power - sum(others)
        rare_room = Fraction(self.additive_delta) - additive_delta(charges, self.epsilon)
        needs = ((room, each), (rare_room, charge.additive(self.epsilon)))
        return min((left // need for left, need in needs if need), default=0)

    def epsilon_of(self, charge: Charge) -> float:
        """What ``charge`` is at this budget's delta; rounded up.

        Where beta and tv stay within their part, it is that of the rule at the other part of delta, so that the epsilon of the
        whole budget is the budget's epsilon. Else it is the least one with all of delta, infinite if there is none.
        """
        epsilon = self.rule.curve.epsilon(self.rule.curve.column(charge), self.other_delta)
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

    ``shares``: where it is known whose data they are, which studies some of its persons were in. A person pays only for these, so
    what is charged is what the person with most has, column by column. Without them all studies are everybody's.
    """

    name: str
    data_set: str
    unit: PrivacyUnit
    relation: Neighbouring
    refund: Refund
    budgets: tuple[Budget, ...]
    entries: tuple[LedgerEntry, ...]
    freezes: tuple[Freeze, ...] = ()
    shares: tuple[frozenset[str], ...] = ()

    @property
    def gives_back(self) -> bool:
        """Whether what a study cost less than was reserved for it is free again."""
        return self.refund == Refund.SETTLED

    @property
    def paths(self) -> tuple[tuple[LedgerEntry, ...], ...]:
        """The studies of each of its persons, in order; all studies where nothing says whose data they are."""
        return tuple(map(self.share, self.shares)) or (self.entries,)

    def share(self, studies: frozenset[str]) -> tuple[LedgerEntry, ...]:
        """Return the entries of these studies, in order."""
        return tuple(entry for entry in self.entries if entry.study in studies)

    @property
    def budget(self) -> Budget:
        """The budget that was set last, split as the account's first study needs it."""
        return self.budgets[-1].after(self.entries)

    @property
    def mus(self) -> tuple[float, ...]:
        return tuple(entry.mu for entry in self.entries)

    @property
    def charged(self) -> Charge:
        """Settled and reserved studies together."""
        total = NOTHING
        for path in self.paths:
            total = total.larger(compose(charges_of(path)))
        return total

    @property
    def charged_mu(self) -> float:
        return self.charged.mu

    @property
    def rule(self) -> Rule:
        """What it adds up."""
        return self.budgets[-1].rule

    @property
    def charged_epsilon(self) -> float:
        return self.budget.epsilon_of(self.charged)

    @property
    def charged_additive_delta(self) -> float:
        """What beta and tv take of delta at the budget's epsilon; rounded up."""
        exact = max(additive_delta(charges_of(path), self.budget.epsilon) for path in self.paths)
        near = float(exact)
        return near if Fraction(near) >= exact else math.nextafter(near, math.inf)

    @property
    def remaining(self) -> float:
        """The most of what the rule adds up (mu, rho or epsilon) that a further study of everybody may have; 0 while frozen."""
        least = min(self.budgets[-1].after(path).remaining(charges_of(path)) for path in self.paths)
        return 0.0 if self.frozen else least

    @property
    def remaining_epsilon(self) -> float:
        """The largest epsilon that a further study may have at the part of delta at which the limit is read; 0 while frozen."""
        return self.rule.curve.within(self.remaining, self.budget.other_delta)

    @property
    def remaining_additive_delta(self) -> float:
        """What beta and tv of a further study may take of delta at the budget's epsilon; rounded down, 0 while frozen."""
        left = min(
            Fraction(budget.additive_delta) - additive_delta(charges_of(path), budget.epsilon)
            for path, budget in ((path, self.budgets[-1].after(path)) for path in self.paths)
        )
        return 0.0 if self.frozen else down(max(left, Fraction(0)))

    @property
    def overspent(self) -> bool:
        """More is charged than the budget allows: never by a reservation, only by a study that cost more than was reserved."""
        return not self.within(self.budgets[-1])

    @property
    def frozen(self) -> Freeze | None:
        """The first freeze that nobody has lifted."""
        return next((freeze for freeze in self.freezes if freeze.lifted_at is None), None)

    def use_of(self, entry: LedgerEntry) -> tuple[float, int]:
        """Return which part of the budget a study takes that is asked for, and how many more like it would fit."""
        others = [tuple(other for other in path if other.study != entry.study) for path in self.paths]
        budgets = [self.budgets[-1].after([*path, entry]) for path in others]
        each = entry.charged
        fits = min(budget.like(each, charges_of(path)) for budget, path in zip(budgets, others, strict=True))
        return max(budget.share_of(each) for budget in budgets), max(fits - 1, 0)

    def within(self, budget: Budget) -> bool:
        """Whether what is charged to each person stays within a budget, this account's or another."""
        return all(budget.after(path).allows(charges_of(path)) for path in self.paths)

    def with_entry(self, entry: LedgerEntry) -> Account:
        """The account as it would be with this entry of its study, which everybody is in."""
        entries = (*self.without(entry.study).entries, entry)
        return replace(self, entries=entries, shares=tuple(studies | {entry.study} for studies in self.shares))

    def without(self, study: str) -> Account:
        """The account as it would be had ``study`` not been charged."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.study != study))


def over_gaussian(charge: Charge, delta: float, rule: Rule = Rule.GAUSS) -> float | None:
    """How many times as much an account takes of a pure ``charge`` as of Gaussian noise of its epsilon at ``delta``.

    An upper bound, for any neighbouring relation. None where epsilon is not pure, or where it takes no more.
    """
    if charge.delta_below is None or not charge.pure:
        return None
    gaussian, curve = Charge(mu_of_budget(charge.pure, delta)), rule.curve
    times = (curve.column(charge) / curve.column(gaussian)) ** curve.power * _UP
    return times if times > 1 else None


def shared_budget_text(times: float) -> Phrase:
    """What :func:`over_gaussian` means."""
    return phrase(
        "If studies share a budget, this one takes up to {times} times as much as Gaussian noise.", times=bound_text(times)
    )


def charges_of(entries: Sequence[LedgerEntry]) -> list[Charge]:
    return [entry.charged for entry in entries]


@lru_cache(maxsize=256)
def _split(budget: Budget, part: float, column: float) -> Budget:
    """Return the budget with that part of delta for beta and tv, and the rest for the limit: ``column`` itself, if it fits."""
    exact = Fraction(part) * Fraction(budget.delta)
    additive = down(exact)
    if additive < exact:
        additive = math.nextafter(additive, 1.0)
    rest = _rest(budget.delta, additive)
    most = budget.rule.curve.limit(budget.epsilon, rest)
    if most < column and budget.rule.curve.delta(column, budget.epsilon) <= rest:
        most = column
    return replace(budget, limit=most, additive_delta=additive)


def _rest(delta: float, additive: float) -> float:
    return delta if additive == 0.0 else down(Fraction(delta) - Fraction(additive))


def left_shown(epsilon: float) -> str:
    """What is left of a budget, for a first screen: two decimals, rounded down."""
    return "inf" if math.isinf(epsilon) else f"{math.floor(epsilon * 100 + 1e-6) / 100:.2f}"


def left_text(epsilon: float) -> str:
    """What is left of a budget, rounded down; only what differs by rounding alone counts as the number above."""
    return "inf" if math.isinf(epsilon) else f"{math.floor(epsilon * 1e4 + 1e-6) / 1e4:.4f}"
