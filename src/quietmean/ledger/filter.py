"""The privacy filter: which studies an account takes, and what becomes of them. Pure: values in, values out.

A study is taken only if what it may cost at most, together with all that is reserved or settled, stays within the budget in every
column. So whatever is reserved, settled or refunded, in whatever order studies were chosen, the budget holds
(docs/proofs/ledger.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.core.readable import epsilon_text
from quietmean.ledger.account import RESERVED, SPENT, Account, Budget, Freeze, LedgerEntry, charges_of, left_text
from quietmean.ledger.database import LedgerDatabase
from quietmean.privacy.charge import NOTHING, Charge, require_members

# What a unit has in it.
_HIDES = {PrivacyUnit.RECORD: 0, PrivacyUnit.PERSON: 1, PrivacyUnit.PARTY: 2}


@dataclass(frozen=True, slots=True)
class SpendingRequest:
    """A study that asks to be charged at most ``charge``, for one ``unit`` under ``relation``.

    ``members``: how many such units change together where the account's unit changes; None: the study says nothing about more
    than one. ``counts``: whose change the account has to be about; None: whatever the account says. ``refund``: whether what it
    costs less may be given back. ``data_set``: which the study says it is about; None: not said. ``reason``: why no bound is
    known, where there is none. ``seat``: the party's place in what was agreed on, which one execution has: another one takes its
    place as long as nothing of the first may have left, and no part after that.
    """

    study: str
    name: str
    charge: Charge
    unit: PrivacyUnit = PrivacyUnit.RECORD
    relation: Neighbouring = Neighbouring.REPLACEMENT
    members: int | None = None
    counts: PrivacyUnit | None = None
    refund: bool = True
    data_set: str | None = None
    reason: str = ""
    seat: str = ""


def reserved(account: Account, entry: LedgerEntry | None, request: SpendingRequest, stamp: str, command: str) -> LedgerEntry:
    """The entry of a study that is taken; ``entry`` itself, what is there of it, where it is charged enough already.

    ``command``: the beginning of the one that changes the account, for errors. Raises :class:`InputError` for a study that the
    account does not take.
    """
    wanted = asked(account, entry, request, stamp)
    if wanted is not entry:
        inside = [path for path in account.paths if entry is None or any(each.study == entry.study for each in path)]
        require_room(account, wanted, request, command, inside or [()])
    return wanted


def asked(account: Account, entry: LedgerEntry | None, request: SpendingRequest, stamp: str) -> LedgerEntry:
    """Return the entry that the study asks for, whether or not there is room; ``entry`` itself where that is charged enough.

    Raises :class:`InputError` for a study that says nothing about what the account counts, or that has no bound.
    """
    if entry is not None and entry.account != account.name:
        raise InputError(f"study {request.name!r} is charged to account {entry.account!r} already. Name that account.")
    factor = _factor(account, request)
    charge = _for_account(account, request.charge, factor)
    if entry is not None and not charge.exceeds(entry.reserved):
        return entry
    if entry is not None and entry.settled:
        raise InputError(
            f"study {request.name!r} ended after mu {entry.reserved.mu:.6g} had been reserved for it, and now asks for more, "
            f"mu {charge.mu:.6g}. Start another study, with a store of its own."
        )
    if entry is not None:
        charge = charge.larger(entry.reserved)
    if not charge.bounded:
        why = f" ({request.reason})" if request.reason else ""
        raise InputError(
            f"study {request.name!r} asks for epsilon inf, as no bound on what it discloses is known{why}. Agree on "
            "a protocol or a coalition with a bound, as no budget allows that."
        )
    others = account if entry is None else account.without(entry.study)
    alone = all(other.charged == NOTHING for other in others.entries)
    part = account.budgets[-1].part_for(charge) if entry is None or alone else entry.part
    if entry is not None:
        return replace(entry, reserved=charge, charged=charge, part=part)
    refund = request.refund and account.gives_back
    fixed = (request.study, account.name, request.name, request.unit, request.relation, factor, refund)
    return LedgerEntry(*fixed, charge, charge, None, RESERVED, stamp, None, "", part)


def has_room(account: Account, wanted: LedgerEntry, path: Sequence[LedgerEntry]) -> bool:
    """Whether somebody who was in the studies of ``path`` can be in this one, too. Exact: no rounding at the edge."""
    together = [*(entry for entry in path if entry.study != wanted.study), wanted]
    return account.budgets[-1].after(together).allows(charges_of(together))


def require_room(
    account: Account, wanted: LedgerEntry, request: SpendingRequest, command: str, paths: Sequence[Sequence[LedgerEntry]]
) -> None:
    """Raises :class:`InputError` where the account is frozen, or where who was in the studies of one of ``paths`` has no room."""
    if account.frozen is not None:
        raise InputError(
            f"account {account.name!r} is frozen since {account.frozen.since} ({account.frozen.reason}). Find out why, then lift "
            f"it with {command} --lift REASON."
        )
    for path in paths:
        if not has_room(account, wanted, path):
            raise _no_room(account, wanted, request, command, path)


def settled(account: Account, entry: LedgerEntry, charge: Charge, stamp: str, note: str) -> tuple[LedgerEntry, Freeze | None]:
    """The entry of ``account`` once it is known what the study cost, and a freeze if that is more than may be.

    ``charge`` is about the study's unit, as in :class:`Request`. After several calls the largest counts, column by column. Less
    than reserved is given back if the entry says so. More than reserved is what no bound may ever be: it is charged, and the
    account frozen. The same where an earlier refund turns out to have been too much and others have taken what it left.
    """
    certified = _for_account(account, charge, entry.factor)
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


def _for_account(account: Account, charge: Charge, factor: int) -> Charge:
    """What so many changes cost at the account's epsilon. An unbounded charge stays."""
    return charge.of_group(factor, account.budgets[-1].epsilon) if charge.bounded else charge


def for_unit(account: Account, request: SpendingRequest) -> Account:
    """The account with the unit that it has from its first study on. Raises :class:`InputError` where it would mix two units."""
    if request.counts != PrivacyUnit.PERSON or account.unit != PrivacyUnit.RECORD:
        return account
    if account.entries:
        raise InputError(
            f"account {account.name!r} counts records, and the data say whose each row is. Make one that counts "
            f"persons with {named('new-account', 'NAME')}, as an account never mixes units."
        )
    return replace(account, unit=PrivacyUnit.PERSON)


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
            reserved=_for_account(account, entry.reserved, 2),
            charged=_for_account(account, entry.charged, 2),
            certified=None if entry.certified is None else _for_account(account, entry.certified, 2),
        )
        for entry in account.entries
    )
    return replace(account, relation=relation, entries=entries)


def _keeps(account: Account, budget: Budget, path: Sequence[LedgerEntry]) -> bool:
    charges, before, budget = charges_of(path), account.budgets[-1].after(path), budget.after(path)
    return budget.allows_column(charges) or budget.limit >= before.limit


def _keeps_rare(account: Account, budget: Budget, path: Sequence[LedgerEntry]) -> bool:
    """Whether the delta kept for rare events still covers them: a larger epsilon counts more of them."""
    charges, before, budget = charges_of(path), account.budgets[-1].after(path), budget.after(path)
    return budget.allows_additive(charges) or not before.allows_additive(charges)


def check_change(
    account: Account, budget: Budget, unit: PrivacyUnit | None, relation: Neighbouring | None, data_set: str | None
) -> None:
    """Raises :class:`InputError` for a change of what never changes, and for a budget below what is charged."""
    if unit not in (None, account.unit):
        raise InputError(f"account {account.name!r} counts per {account.unit}, not per {unit}. Make another account for that.")
    if relation not in (None, account.relation):
        raise InputError(f"account {account.name!r} counts {account.relation}, not {relation}. Make another account for that.")
    if budget.rule != account.rule:
        raise InputError(
            f"account {account.name!r} counts by the rule {account.rule}, not {budget.rule}. Make another account for that."
        )
    if data_set not in (None, account.data_set):
        raise InputError(
            f"account {account.name!r} is about data set {account.data_set!r}, not {data_set!r}. Make another account for that."
        )
    # A budget that is exceeded already may be raised by less than it lacks.
    if budget.epsilon > account.budgets[-1].epsilon and any(
        entry.factor > 1 and entry.reserved.beta for entry in account.entries
    ):
        raise InputError(
            f"account {account.name!r} has rare events of groups, which were counted at epsilon {account.budgets[-1].epsilon:g}. "
            "Choose at most that epsilon, or make another account"
        )
    if not all(_keeps(account, budget, path) for path in account.paths):
        raise InputError(
            f"a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} is less than what is charged to account "
            f"{account.name!r}, epsilon {epsilon_text(budget.epsilon_of(account.charged))}. Choose at least that."
        )
    if not all(_keeps_rare(account, budget, path) for path in account.paths):
        raise InputError(
            f"a budget of epsilon {budget.epsilon:g} is too large for account {account.name!r}: its rare events would use more "
            "delta than is kept for them. Choose a smaller epsilon."
        )


def _factor(account: Account, request: SpendingRequest) -> int:
    """How many changes that the study hides make one change that the account is about. Raises :class:`InputError` if unknown."""
    if request.data_set is not None and request.data_set != account.data_set:
        raise InputError(
            f"study {request.name!r} is about data set {request.data_set!r}, account {account.name!r} about "
            f"{account.data_set!r}. Use the account of that data set."
        )
    if request.members is not None:
        require_members(request.members)
    # What hides a whole party hides each of its persons, and what hides a person each of its records; not the other way round.
    if _HIDES[account.unit] > _HIDES[request.unit] and request.members is None:
        raise InputError(
            f"study {request.name!r} protects one {request.unit}, account {account.name!r} counts per {account.unit}. "
            f"Use an account that counts per {request.unit}, or say how many {request.unit}s change together, the most of one "
            f"{account.unit}."
        )
    if account.relation == Neighbouring.ADD_REMOVE and request.relation != Neighbouring.ADD_REMOVE:
        raise InputError(
            f"study {request.name!r} protects against {request.relation}, account {account.name!r} counts {account.relation}: "
            f"nothing follows from the one for the other. Use an account that counts {request.relation}."
        )
    twice = account.relation == Neighbouring.REPLACEMENT and request.relation == Neighbouring.ADD_REMOVE
    return (request.members or 1) * (2 if twice else 1)


def _no_room(
    account: Account, wanted: LedgerEntry, request: SpendingRequest, command: str, path: Sequence[LedgerEntry]
) -> InputError:
    before = [entry for entry in path if entry.study != wanted.study]
    others = replace(account, entries=tuple(before), shares=())
    charge, together = wanted.charged, [*before, wanted]
    budget = account.budgets[-1].after(together)
    if not budget.allows_additive(charges_of(together)) and budget.allows_column(charges_of(together)):
        return InputError(
            f"study {request.name!r} may fail with {float(charge.additive(budget.epsilon)):.3g} of delta (rare events, sampler). "
            f"For that account {account.name!r} has {others.remaining_additive_delta:.3g} left of the "
            f"{budget.additive_delta:.3g} that it keeps. Agree on a study that needs less, or set "
            f"the budget with {command} --budget EPSILON DELTA."
        )
    if math.isinf(budget.rule.curve.column(charge)):
        return InputError(
            f"study {request.name!r} has no epsilon at delta 0, as its noise is Gaussian. But account {account.name!r} adds up "
            "epsilons at delta 0. Use an account with another rule."
        )
    needed, left = epsilon_text(budget.epsilon_of(replace(charge, beta=0.0, tv=0.0))), left_text(others.remaining_epsilon)
    return InputError(
        f"study {request.name!r} asks for epsilon {needed} at delta {budget.delta:g} but account {account.name!r} has epsilon "
        f"{left} left of {budget.epsilon:g}. Agree on a study that costs less, or raise the budget with {command} "
        "--budget EPSILON DELTA."
    )


def _columns(charge: Charge) -> str:
    extra = "".join(f", {name} {part:.3g}" for name, part in (("beta", charge.beta), ("tv", charge.tv)) if part)
    pure = "" if math.isinf(charge.pure) else f", pure epsilon {charge.pure:.6g}"
    return f"mu {charge.mu:.6g}{pure}{extra}"


_KEEP = "INSERT OR IGNORE INTO fact VALUES (?, ?)"


def _fact(database: LedgerDatabase, name: str) -> bytes | None:
    row = database.row("SELECT value FROM fact WHERE name = ?", name)
    return None if row is None else bytes(row[0])


def bind(database: LedgerDatabase, study: str, content: bytes) -> None:
    """Remember the one thing that leaves for a study. Raises :class:`InputError` for another one, or if all was given back."""
    if was_given_back(database, study):
        raise InputError(
            f"the charge of study {study} was given back in ledger {database.path}, because this party sent nothing. This store "
            "is an older copy. Use the party's own store."
        )
    bound = _fact(database, f"bound {study}")
    if bound is not None and bound != content:
        raise InputError(
            f"ledger {database.path} knows another contribution of this party to this study. Make a new study for a "
            "correction, it is charged anew."
        )
    database.change(_KEEP, f"bound {study}", content)


def is_bound(database: LedgerDatabase, study: str) -> bool:
    """Return whether something may have left for a study."""
    return _fact(database, f"bound {study}") is not None


def note_given_back(database: LedgerDatabase, study: str) -> None:
    """Remember that nothing ever leaves for a study."""
    database.change(_KEEP, f"given back {study}", b"")


def was_given_back(database: LedgerDatabase, study: str) -> bool:
    """Return whether nothing ever leaves for a study."""
    return _fact(database, f"given back {study}") is not None


def in_seat(database: LedgerDatabase, request: SpendingRequest) -> str | None:
    """Return the execution of another store that has the place of the same party in what was agreed on."""
    holder = _fact(database, f"seat {request.seat}") if request.seat else None
    return None if holder is None or holder.decode() == request.study else holder.decode()


def take_seat(database: LedgerDatabase, request: SpendingRequest) -> None:
    """Give the place of the party to this execution."""
    if request.seat:
        database.change("INSERT OR REPLACE INTO fact VALUES (?, ?)", f"seat {request.seat}", request.study.encode())


def refuse_second(database: LedgerDatabase, first: LedgerEntry) -> None:
    """Raises :class:`InputError` for a second store of a key, once something of the first may have left."""
    if is_bound(database, first.study):
        raise InputError(
            f"this party already takes part in study {first.name!r} with another store. Give that store with "
            f"{named('store', 'PATH')}. Nothing is charged for the store here."
        )
