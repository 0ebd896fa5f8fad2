"""A choice: which contributions (U), which noise dealings (V), by the lists of which members (M). One is ever opened.

The digest of a choice covers the digests of M's lists and every chosen header digest with its dealer and weight, so that nothing
of it can be understood in two ways. Votes are counted by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from quietmean.core.arrays import Ints
from quietmean.protocols.committee.checks import fitting
from quietmean.protocols.committee.keys import DIGEST_BYTES
from quietmean.protocols.committee.lists import CHOSEN, CheckList, Entries, chosen_of
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.ballots import members_of
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
