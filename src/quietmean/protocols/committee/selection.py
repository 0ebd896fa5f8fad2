"""What a leader proposes: contributions and noise dealings whose check numbers fit, by the lists of enough members.

Which members' numbers of an entry agree is found as wrong sums are: those of up to c_m members may be off. From that it is chosen
as between peers: drop entries until enough members agree on all others, or add members that leave most; the larger count of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.protocols.committee.checks import by_degree, fitting
from quietmean.protocols.committee.choice import OpeningChoice, make_choice, places_of
from quietmean.protocols.committee.lists import CHOSEN, CheckList, Entries, chosen_of, keys_of
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.ballots import mask_of
from quietmean.protocols.packed_sharing.correction import agreeing_members
from quietmean.protocols.packed_sharing.packing import Residues

# Rows of members, which entries, and whose noise, as a mask.
_Candidate = tuple[list[int], Mask, int]


@dataclass(frozen=True, eq=False)
class ListAgreement:
    """Which of the ``lists`` agree on each of ``entries``: ``agree``, shape (lists, n)."""

    lists: tuple[CheckList, ...]
    entries: Entries = field(repr=False)
    agree: Mask = field(repr=False)


def agreement(session: CommitteeSession, lists: Sequence[CheckList], *, noise: bool = False) -> ListAgreement:
    """The entries on which lists of different members, in rising order of these, agree."""
    listed = [own.noise if noise else own.values for own in lists]
    entries = _all_entries(listed)
    places = np.array([places_of(entries, own) for own in listed], dtype=np.int64).reshape(len(lists), len(entries))
    kept = _one_a_dealer(entries, (places >= 0).sum(axis=0))
    entries, places = entries[kept], places[:, kept]
    has = places >= 0
    numbers = np.zeros((*has.shape, listed[0]["numbers"].shape[1]), dtype=np.uint32)
    for row, own in enumerate(listed):
        numbers[row, has[row]] = own["numbers"][places[row, has[row]]]
    members = np.array([own.member for own in lists])
    return ListAgreement(tuple(lists), entries, _agree(session, members, has, numbers))


def _all_entries(listed: Sequence[Entries]) -> Entries:
    """What any list has, without check numbers."""
    # As fixed-size strings, which sort fast.
    together = np.concatenate([chosen_of(own).view(f"S{CHOSEN.itemsize}") for own in listed])
    unique: Entries = np.unique(together).view(CHOSEN)
    return unique


def _one_a_dealer(entries: Entries, lists: Ints) -> Ints:
    """Sorted by dealer: of each the entry that most lists have, of several the one with the smallest digest."""
    order = np.lexsort((entries["digest"], -lists, entries["dealer"]))
    dealers = entries["dealer"][order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = dealers[1:] != dealers[:-1]
    return order[first]


def _agree(session: CommitteeSession, members: Ints, has: Mask, numbers: Residues) -> Mask:
    parameters = session.parameters
    agree = np.zeros_like(has)
    if not has.shape[1]:
        return agree
    # Entries that the same members have are gone through together.
    patterns, which = np.unique(has, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        rows = np.nonzero(patterns[:, number])[0]
        left = np.nonzero(which.reshape(-1) == number)[0]
        if len(rows) >= parameters.lists_needed:
            fit = fitting(parameters.packing, members[rows].tolist(), numbers[np.ix_(rows, left)])
            agree[np.ix_(rows, left[fit])] = True
            _without_wrong(session, members, rows, left[~fit], numbers, agree)
    return agree


def _without_wrong(session: CommitteeSession, members: Ints, rows: Ints, left: Ints, numbers: Residues, agree: Mask) -> None:
    """Sets ``agree`` for entries ``left`` that fit without the numbers of some members: who lies does so for many entries."""
    parameters = session.parameters
    while len(left):
        kept = _trusted(session, members, rows, numbers[rows, left[0]])
        if len(rows) > len(kept) >= parameters.lists_needed:
            fit = fitting(parameters.packing, members[kept].tolist(), numbers[np.ix_(kept, left)])
            agree[np.ix_(kept, left[fit])] = True
            # Of one that is bad in other ways these members' numbers do not fit either.
            fit[0] = True
            left = left[~fit]
        else:
            left = left[1:]


def _trusted(session: CommitteeSession, members: Ints, rows: Ints, stated: Residues) -> Ints:
    """Those of ``rows`` whose check numbers of one entry, ``stated``, (rows, 6 or 12), agree; none where too many do not."""
    packing, named = session.parameters.packing, members[rows].tolist()
    trusted = set(named)
    for kind, numbers in by_degree(packing, stated):
        able = min(session.parameters.colluding, (len(rows) - kind.threshold) // 2)
        agreeing = agreeing_members(kind, named, np.ascontiguousarray(numbers), able)
        trusted &= set() if agreeing is None else set(agreeing)
    return rows[np.isin(members[rows], list(trusted))]


def select(session: CommitteeSession, lists: Sequence[CheckList]) -> OpeningChoice | None:
    """The choice of most contributions by ``lists`` of different members; None if there are too few of anything."""
    parameters = session.parameters
    lists = sorted(lists, key=lambda own: own.member)
    # Members without a list count as some of those that may be gone.
    spare = max(0, parameters.gone - (parameters.members - len(lists)))
    if len(lists) < max(parameters.lists_needed + spare, parameters.votes_needed):
        return None
    values, noise = agreement(session, lists), agreement(session, lists, noise=True)
    # Who lies in its list counts as one of them, too, where nothing else is left.
    needs = range(parameters.lists_needed + spare, parameters.lists_needed - 1, -1)
    best = next((candidate for need in needs if (candidate := _best(session, values, noise, need)) is not None), None)
    if best is None:
        return None
    rows, chosen, dealers = best
    return make_choice(session, [lists[row] for row in rows], dealers, values.entries[chosen])


def _best(session: CommitteeSession, values: ListAgreement, noise: ListAgreement, need: int) -> _Candidate | None:
    """The best choice with ``need`` members at least."""
    candidates = (
        _for_members(session, values, noise, rows)
        for rows in (_by_dropping(values, noise, need), _by_adding(values, noise, need))
    )
    return max(
        (candidate for candidate in candidates if candidate is not None),
        key=lambda candidate: int(candidate[1].sum()),
        default=None,
    )


def _for_members(session: CommitteeSession, values: ListAgreement, noise: ListAgreement, rows: Ints) -> _Candidate | None:
    """All members that agree on what these do, what that is, and whose noise, as a mask; None if it is too little."""
    parameters = session.parameters
    chosen, dealt = (np.asarray(kind.agree[rows].all(axis=0), dtype=np.bool_) for kind in (values, noise))
    if chosen.sum() < parameters.minimum or dealt.sum() < parameters.dealings:
        return None
    numbers = np.array([session.raw_members.index(key) for key in keys_of(noise.entries)])
    dealers = sorted(numbers[dealt].tolist())[: parameters.dealings]
    used = np.isin(numbers, dealers)
    holds = values.agree[:, chosen].all(axis=1) & noise.agree[:, used].all(axis=1)
    return np.nonzero(holds)[0].tolist(), chosen, mask_of(dealers)


def _by_dropping(values: ListAgreement, noise: ListAgreement, need: int) -> Ints:
    """Drop the entry on which most members do not agree until ``need`` members agree on all others; noise comes last."""
    agree = np.concatenate([values.agree[:, np.argsort(values.agree.sum(axis=0), kind="stable")], noise.agree], axis=1)
    # How many entries have to go for each member.
    drops = np.array([int(np.nonzero(~row)[0].max(initial=-1)) + 1 for row in agree])
    return np.sort(np.argsort(drops, kind="stable")[:need])


def _by_adding(values: ListAgreement, noise: ListAgreement, need: int) -> Ints:
    """Add members one by one, each time the one that leaves most common entries; a noise dealing counts more than all others."""
    agree = np.concatenate([values.agree, noise.agree], axis=1)
    weights = np.r_[np.ones(values.agree.shape[1]), np.full(noise.agree.shape[1], values.agree.shape[1] + 1.0)]
    common, rows = np.ones(agree.shape[1], dtype=np.bool_), list(range(len(agree)))
    added: list[int] = []
    for _ in range(need):
        best = max(rows, key=lambda row: float(weights[common & agree[row]].sum()))
        common &= agree[best]
        rows.remove(best)
        added.append(best)
    return np.array(sorted(added), dtype=np.int64)
