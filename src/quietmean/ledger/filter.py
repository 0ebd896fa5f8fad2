"""The privacy filter: which studies an account takes, and what becomes of them. Pure: values in, values out.

A study is taken only if what it may cost at most, together with all that is reserved or settled, stays within the budget in every
column. So whatever is reserved, settled or refunded, in whatever order studies were chosen, the budget holds
(docs/mathematics/ledger.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Required, TypedDict

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import epsilon_text
from quietmean.ledger.account import RESERVED, SPENT, Account, Budget, Freeze, LedgerEntry, Refund, left_text
from quietmean.privacy.charge import Charge, require_members

# What a unit has in it.
_HIDES = {PrivacyUnit.RECORD: 0, PrivacyUnit.PERSON: 1, PrivacyUnit.PARTY: 2}


@dataclass(frozen=True, slots=True)
class SpendingRequest:
    """A study that asks to be charged at most ``charge``, for one ``unit`` under ``relation``.

    ``members``: how many such units change together where the account's unit changes; None: the study says nothing about more
    than one. ``refund``: whether what it costs less may be given back. ``data_set``: which the study says it is about; None: not
    said.
    ``reason``: why no bound is known, where there is none.
    """

    study: str
    name: str
    charge: Charge
    unit: PrivacyUnit = PrivacyUnit.RECORD
    relation: Neighbouring = Neighbouring.REPLACEMENT
    members: int | None = None
    refund: bool = True
    data_set: str | None = None
    reason: str = ""


class StatedSpending(TypedDict, total=False):
    """What is said of a study beside its charge, see :class:`SpendingRequest`."""

    name: Required[str]
    unit: PrivacyUnit
    relation: Neighbouring
    members: int | None
    refund: bool
    data_set: str | None
    reason: str


def reserved(account: Account, entry: LedgerEntry | None, request: SpendingRequest, stamp: str, command: str) -> LedgerEntry:
    """The entry of a study that is taken; ``entry`` itself, what is there of it, where it is charged enough already.

    ``command``: the beginning of the one that changes the account, for errors. Raises :class:`InputError` for a study that the
    account does not take.
    """
    if entry is not None and entry.account != account.name:
        raise InputError(f"study {request.name!r} is charged to account {entry.account!r} already: name that account")
    factor = _factor(account, request)
    charge = request.charge.of_group(factor) if request.charge.bounded else request.charge
    if entry is not None and not charge.exceeds(entry.reserved):
        return entry
    if entry is not None and entry.settled:
        raise InputError(
            f"study {request.name!r} ended after mu {entry.reserved.mu:.6g} had been reserved for it, and now asks for more, "
            f"mu {charge.mu:.6g}: start another study, with a store of its own"
        )
    if entry is not None:
        charge = charge.larger(entry.reserved)
    _check_room(account, entry, request, charge, command)
    if entry is not None:
        return replace(entry, reserved=charge, charged=charge)
    refund = request.refund and account.refund == Refund.SETTLED
    fixed = (request.study, account.name, request.name, request.unit, request.relation, factor, refund)
    return LedgerEntry(*fixed, charge, charge, None, RESERVED, stamp, None, "")


def settled(account: Account, entry: LedgerEntry, charge: Charge, stamp: str, note: str) -> tuple[LedgerEntry, Freeze | None]:
    """The entry of ``account`` once it is known what the study cost, and a freeze if that is more than may be.

    ``charge`` is about the study's unit, as in :class:`Request`. After several calls the largest counts, column by column. Less
    than reserved is given back if the entry says so. More than reserved is what no bound may ever be: it is charged, and the
    account frozen. The same where an earlier refund turns out to have been too much and others have taken what it left.
    """
    certified = _for_account(charge, entry.factor)
    if entry.certified is not None:
        certified = certified.larger(entry.certified)
    charged = certified if entry.refund else certified.larger(entry.reserved)
    if entry.settled and certified == entry.certified:
        return entry, None
    fresh = replace(entry, certified=certified, charged=charged, status=SPENT, settled_at=stamp, note=note)
    after = replace(account, entries=tuple(fresh if other.study == entry.study else other for other in account.entries))
    reason = None
    if certified.exceeds(entry.reserved):
        reason = f"study {entry.name!r} cost {_columns(certified)} where {_columns(entry.reserved)} was reserved as a bound"
    elif after.overspent and not account.overspent:
        reason = (
            f"study {entry.name!r} cost {_columns(certified)}, more than was charged when it ended, and other studies took the "
            "rest of the budget"
        )
    return fresh, None if reason is None else Freeze(entry.study, stamp, reason)


def _for_account(charge: Charge, factor: int) -> Charge:
    # No error here: what has happened is recorded, as an unbounded charge if need be.
    if factor == 1 or not charge.bounded:
        return charge
    return replace(charge, mu=math.inf) if charge.beta else charge.of_group(factor)


def for_relation(account: Account, relation: Neighbouring) -> Account:
    """The account where studies under that relation can be charged: one account carries both, for its people are the same.

    What was charged under add-remove costs twice as much under replacement. An account whose charges cannot be doubled stays.
    """
    charges = [charge for old in account.entries for charge in (old.reserved, old.charged, old.certified) if charge is not None]
    doubled = account.relation == Neighbouring.ADD_REMOVE and relation == Neighbouring.REPLACEMENT
    if not doubled or any(charge.beta for charge in charges):
        return account
    entries = tuple(
        replace(
            entry,
            factor=2 * entry.factor,
            reserved=_for_account(entry.reserved, 2),
            charged=_for_account(entry.charged, 2),
            certified=None if entry.certified is None else _for_account(entry.certified, 2),
        )
        for entry in account.entries
    )
    return replace(account, relation=relation, entries=entries)


def check_change(
    account: Account, budget: Budget, unit: PrivacyUnit | None, relation: Neighbouring | None, data_set: str | None
) -> None:
    """Raises :class:`InputError` for a change of what never changes, and for a budget below what is charged."""
    if unit not in (None, account.unit):
        raise InputError(f"account {account.name!r} counts per {account.unit}, not per {unit}: make another account for that")
    if relation not in (None, account.relation):
        raise InputError(f"account {account.name!r} counts {account.relation}, not {relation}: make another account for that")
    if data_set not in (None, account.data_set):
        raise InputError(
            f"account {account.name!r} is about data set {account.data_set!r}, not {data_set!r}: make another account for that"
        )
    # A budget that is exceeded already may be raised by less than it lacks.
    enough = budget.allows_mu(account.charges) or budget.mu >= account.budget.mu
    additive = budget.allows_additive(account.charges) or not account.budget.allows_additive(account.charges)
    if not (enough and additive):
        raise InputError(
            f"a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} is less than what is charged to account "
            f"{account.name!r}, epsilon {epsilon_text(budget.epsilon_of(account.charged))}: choose at least that"
        )


def _factor(account: Account, request: SpendingRequest) -> int:
    """How many changes that the study hides make one change that the account is about. Raises :class:`InputError` if unknown."""
    if request.data_set is not None and request.data_set != account.data_set:
        raise InputError(
            f"study {request.name!r} is about data set {request.data_set!r}, account {account.name!r} about "
            f"{account.data_set!r}: use the account of that data set"
        )
    if request.members is not None:
        require_members(request.members)
    # What hides a whole party hides each of its persons, and what hides a person each of its records; not the other way round.
    if _HIDES[account.unit] > _HIDES[request.unit] and request.members is None:
        raise InputError(
            f"study {request.name!r} protects one {request.unit}, account {account.name!r} counts per {account.unit}: "
            f"use an account that counts per {request.unit}, or say how many {request.unit}s change together, the most of one "
            f"{account.unit}"
        )
    if account.relation == Neighbouring.ADD_REMOVE and request.relation != Neighbouring.ADD_REMOVE:
        raise InputError(
            f"study {request.name!r} protects against {request.relation}, account {account.name!r} counts {account.relation}: "
            f"nothing follows from the one for the other, use an account that counts {request.relation}"
        )
    twice = account.relation == Neighbouring.REPLACEMENT and request.relation == Neighbouring.ADD_REMOVE
    return (request.members or 1) * (2 if twice else 1)


def _check_room(account: Account, entry: LedgerEntry | None, request: SpendingRequest, charge: Charge, command: str) -> None:
    if account.frozen is not None:
        raise InputError(
            f"account {account.name!r} is frozen since {account.frozen.since} ({account.frozen.reason}): find out why, then lift "
            f"it with {command} --lift REASON"
        )
    if not charge.bounded:
        why = f" ({request.reason})" if request.reason else ""
        raise InputError(
            f"study {request.name!r} asks for epsilon inf, as no bound on what it discloses is known{why}: no budget allows "
            "that, agree on a protocol or a coalition with a bound"
        )
    others = account if entry is None else account.without(entry.study)
    budget, together = account.budget, [*others.charges, charge]
    if budget.allows(together):
        return
    if not budget.allows_additive(together):
        raise InputError(
            f"study {request.name!r} may fail with {float(charge.additive(budget.epsilon)):.3g} of delta (rare events, sampler), "
            f"account {account.name!r} has {others.remaining_additive_delta:.3g} left of the {budget.additive_delta:.3g} that it "
            f"keeps for that: agree on a study that needs less, or set the budget with {command} --budget EPSILON DELTA"
        )
    needed, left = epsilon_text(budget.epsilon_of(Charge(charge.mu))), left_text(others.remaining_epsilon)
    raise InputError(
        f"study {request.name!r} asks for epsilon {needed} at delta {budget.delta:g} but account {account.name!r} has epsilon "
        f"{left} left of {budget.epsilon:g}: agree on a study that costs less, or raise the budget with {command} "
        "--budget EPSILON DELTA"
    )


def _columns(charge: Charge) -> str:
    extra = "".join(f", {name} {part:.3g}" for name, part in (("beta", charge.beta), ("tv", charge.tv)) if part)
    return f"mu {charge.mu:.6g}{extra}"
