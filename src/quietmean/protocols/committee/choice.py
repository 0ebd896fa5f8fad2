"""A choice: which contributions (U), which noise dealings (V), by the lists of which members (M). One is ever opened.

The digest of a choice covers the digests of M's lists and every chosen header digest with its dealer and weight, so that nothing
of it can be understood in two ways. Votes are counted by it.

What a leader proposes: contributions and noise dealings whose check numbers fit, by the lists of enough members.

Which members' numbers of an entry agree is found as wrong sums are: those of up to c_m members may be off. From that it is chosen
as between peers: drop entries until enough members agree on all others, or add members that leave most; the larger count of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.protocols.committee.keys import DIGEST_BYTES
from quietmean.protocols.committee.lists import CHOSEN, CheckList, Entries, by_degree, chosen_of, fitting, keys_of
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.ballots import mask_of, members_of
from quietmean.protocols.packed_sharing.correction import agreeing_members
from quietmean.protocols.packed_sharing.packing import Residues

_LABEL = "quietmean committee choice 1"


class OpeningChoice(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """``members`` (M) and ``noise`` (V): numbers of members in rising order. ``lists``: digests of M's lists, in that order.

    ``chosen``: SHA-256 of U, see :func:`chosen_bytes`; ``marks``: which entries of the first list these are, a bit each.
    """

    members: tuple[int, ...]
    noise: tuple[int, ...]
    lists: tuple[bytes, ...]
    chosen: bytes
    marks: bytes

    def digest(self, session: bytes) -> bytes:
        """What votes are counted by."""
        return choice_digest(session, self.members, self.noise, self.lists, self.chosen, self.marks)


def choice_digest(
    session: bytes, members: Sequence[int], noise: Sequence[int], lists: Sequence[bytes], chosen: bytes, marks: bytes
) -> bytes:
    """SHA-256 of all that a choice is."""
    return hashlib.sha256(msgspec.msgpack.encode([_LABEL, session, members, noise, lists, chosen, marks])).digest()


def chosen_bytes(chosen: Entries) -> bytes:
    """U as canonical bytes: header digest, dealer and weight of each, sorted by dealer."""
    return chosen_of(chosen).tobytes()


@dataclass(frozen=True, eq=False)
class Resolved:
    """A choice that is valid by the lists it names. ``chosen``: U; ``noise``: V; check numbers of both, (|M|, n, 6 or 12)."""

    choice: OpeningChoice
    digest: bytes
    chosen: Entries = field(repr=False)
    noise: Entries = field(repr=False)
    numbers: Residues = field(repr=False)
    noise_numbers: Residues = field(repr=False)


def is_possible(parameters: CommitteeParameters, choice: OpeningChoice) -> bool:
    """Whether numbers are in range and there are enough of them; what needs no list."""
    members, noise = choice.members, choice.noise
    ordered = all(
        list(numbers) == sorted(set(numbers)) and all(0 <= number < parameters.members for number in numbers)
        for numbers in (members, noise)
    )
    sized = len(choice.chosen) == DIGEST_BYTES and all(len(digest) == DIGEST_BYTES for digest in choice.lists)
    enough = len(members) >= parameters.lists_needed and len(members) == len(choice.lists)
    # Exactly k: with fewer a value is not hidden, and more would be excess noise.
    return ordered and sized and enough and len(noise) == parameters.dealings


def resolve(session: CommitteeSession, choice: OpeningChoice, lists: Mapping[bytes, CheckList]) -> Resolved | None:
    """The choice, once every condition on it holds by the ``lists``, by digest; None for one that is not valid.

    Raises KeyError for a list that is missing.
    """
    parameters = session.parameters
    if not is_possible(parameters, choice):
        return None
    named = [lists[digest] for digest in choice.lists]
    if [own.member for own in named] != list(choice.members):
        return None
    marked = _marked(choice.marks, len(named[0].values))
    if marked is None or len(marked) < parameters.minimum:
        return None
    chosen = named[0].values[marked]
    dealers = np.array(sorted(session.raw_members[dealer] for dealer in choice.noise), dtype=named[0].noise["dealer"].dtype)
    noise = named[0].noise[np.isin(named[0].noise["dealer"], dealers)]
    numbers, noise_numbers = (
        stated_numbers(chosen, [own.values for own in named]),
        stated_numbers(noise, [own.noise for own in named]),
    )
    if len(noise) != parameters.dealings or numbers is None or noise_numbers is None:
        return None
    if hashlib.sha256(chosen_bytes(chosen)).digest() != choice.chosen:
        return None
    good = fitting(parameters.packing, choice.members, np.concatenate([numbers, noise_numbers], axis=1))
    if not good.all():
        return None
    return Resolved(choice, choice.digest(session.session), chosen, noise, numbers, noise_numbers)


def stated_numbers(chosen: Entries, lists: Sequence[Entries]) -> Residues | None:
    """Return the check numbers of the ``chosen`` entries in each of the ``lists``, (lists, n, 6 or 12), if all have them."""
    stated = np.empty((len(lists), len(chosen), chosen["numbers"].shape[1]), dtype=np.uint32)
    for row, entries in enumerate(lists):
        places = places_of(chosen, entries)
        if (places < 0).any():
            return None
        stated[row] = entries["numbers"][places]
    return stated


def places_of(chosen: Entries, entries: Entries) -> Ints:
    """Where ``entries``, sorted by dealer, have the same header digest, dealer and weight; -1 where they have not. Shape (n,)."""
    if not len(entries):
        return np.full(len(chosen), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(entries["dealer"], chosen["dealer"]), len(entries) - 1)
    same = np.ones(len(chosen), dtype=np.bool_)
    for name in CHOSEN.names or ():
        same &= entries[name][places] == chosen[name]
    return np.where(same, places, -1).astype(np.int64)


def _marked(marks: bytes, count: int) -> Ints | None:
    """The entries that are marked; None unless these are marks of ``count`` entries."""
    if len(marks) != -(-count // 8):
        return None
    bits = np.unpackbits(np.frombuffer(marks, dtype=np.uint8), bitorder="little")
    return None if bits[count:].any() else np.nonzero(bits[:count])[0]


def make_choice(session: CommitteeSession, lists: Sequence[CheckList], noise: int, chosen: Entries) -> OpeningChoice:
    """The choice of entries of the first of M's ``lists``, in the order of members, and of the dealers ``noise``, a mask."""
    marks = np.isin(lists[0].values["dealer"], chosen["dealer"])
    return OpeningChoice(
        members=tuple(own.member for own in lists),
        noise=members_of(noise),
        lists=tuple(own.digest for own in lists),
        chosen=hashlib.sha256(chosen_bytes(chosen)).digest(),
        marks=np.packbits(marks, bitorder="little").tobytes(),
    )


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
