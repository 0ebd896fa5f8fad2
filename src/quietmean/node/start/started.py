"""Who was in at the start of a study, and what one of them is in it: the one place where parties are numbered anew.

With hybrid links each two share something besides X25519: the one with the lower number encapsulates to the other's ML-KEM key,
that of its entry, and sends that with its commitment. It is on disk before it is sent, or before the commitment counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import msgspec
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

from quietmean.core.codec import load_state
from quietmean.core.errors import InputError, PeerError, named
from quietmean.core.growing import GrowingMap
from quietmean.core.party import PartyId
from quietmean.node.net import Identity, Purpose, Revealed, Roster, Seal, Start, is_signed
from quietmean.node.session import NodeSettings, Opening, StartAgreement
from quietmean.node.start.machine import Announcement, Attempt, Proposal, StartProgress, everybody, quorum_study
from quietmean.node.storage import Store
from quietmean.randomness import Encapsulated


@dataclass(frozen=True)
class Started:
    """A study that started: ``settings`` are those of this party as one of its members, by whose places all are numbered then.

    ``attempt``: which one it was; ``members``: their places in the roster; ``absent``: names of who was not in at the start.
    """

    settings: NodeSettings
    attempt: int
    members: tuple[PartyId, ...]
    absent: tuple[str, ...]

    @classmethod
    def of(cls, settings: NodeSettings, attempt: Attempt, shared: Mapping[PartyId, Encapsulated]) -> Self:
        """Make it after the attempt to which the party of these settings is bound.

        ``shared``: with others, by place in the roster.
        """
        members, start = attempt.proposal.ordered, settings.start
        agreed = StartAgreement(
            {index: attempt.openings[member] for index, member in enumerate(members)},
            {index: shared[member] for index, member in enumerate(members) if member in shared},
        )
        if start is None:
            return cls(replace(settings, agreed=agreed), attempt.proposal.attempt, members, ())
        # Its digest is in every label of what these parties do together.
        seal = Seal(quorum_study(settings.study, attempt.proposal), tuple(range(len(members))))
        inside = replace(
            settings,
            roster=Roster(tuple(settings.roster.entries[member] for member in members), seal),
            brought=start.smaller.get(len(members), settings.brought),
            start=None,
            site=replace(settings.site, before_bound=None),
            agreed=agreed,
        )
        absent = tuple(name for party, name in enumerate(settings.names) if party not in attempt.members)
        return cls(inside, attempt.proposal.attempt, members, absent)

    def place(self, party: PartyId) -> PartyId | None:
        """The index of a party of the roster in the members; None for who is not in."""
        return self._places.get(party)

    @cached_property
    def _places(self) -> dict[PartyId, PartyId]:
        return {member: index for index, member in enumerate(self.members)}


class Pairing:
    """The pair keys of one party; nothing where the study has none.

    Raises :class:`InputError` where those of this party are gone.
    """

    def __init__(self, settings: NodeSettings, store: Store) -> None:
        self._keys, self._party, self._store = settings.keys.pairs, settings.party, store
        if self._keys is not None and self._keys.own is None:
            raise InputError(
                "the keys of this party for this study were deleted with its result. Give "
                f"{named('store')} with the one that has it."
            )
        self._known: dict[PartyId, Encapsulated] = {} if self._keys is None else store.encapsulated()

    def ciphertext_for(self, peer: PartyId) -> bytes:
        """What goes to a party with this one's commitment: the same whenever it is asked for."""
        if self._keys is None or peer < self._party:
            return b""
        if peer not in self._known:
            # All at once, in one write.
            later = [party for party in self._keys.public if party > self._party and party not in self._known]
            keys = {party: MLKEM768PublicKey.from_public_bytes(self._keys.public[party]) for party in later}
            self._keep({party: Encapsulated(*key.encapsulate()) for party, key in keys.items()})
        return self._known[peer].ciphertext

    def check(self, sender: PartyId, ciphertext: bytes, *, commits: bool) -> None:
        """Raises :class:`PeerError` for a commitment without what it encapsulated, or with something where nothing is due."""
        due = self._keys is not None and sender < self._party and commits
        if due != bool(ciphertext):
            what = "without" if due else "with"
            raise PeerError(f"it committed {what} a secret of ML-KEM-768 for this party: do both have the same sealed study?")

    def take(self, sender: PartyId, ciphertext: bytes, *, committed: bool) -> None:
        """Keep what came with a commitment, before that counts; ``committed``: it counts already.

        Raises :class:`PeerError` for another than before, then.
        """
        before = self._known.get(sender)
        if not ciphertext or (before is not None and before.ciphertext == ciphertext):
            return
        if committed:
            raise PeerError(
                "it encapsulated something else before: it lost its store, or tells different parties different things"
            )
        self._keep({sender: Encapsulated(self._opened(ciphertext), ciphertext)})

    def _opened(self, ciphertext: bytes) -> bytes:
        own = None if self._keys is None else self._keys.own
        try:
            if own is None:
                raise ValueError
            return own.decapsulate(ciphertext)
        except ValueError:
            raise PeerError("it encapsulated something that cannot be opened") from None

    def _keep(self, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        self._store.save_encapsulated(encapsulated)
        self._known |= encapsulated


# So many openings are sent in one frame; a header has no room for those of hundreds of parties.
_OPENINGS = 32


class _Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``own``: what this party will reveal. Its seed is the store's."""

    attempt: int
    members: tuple[int, ...]
    signature: bytes
    own: Revealed
    agreed: tuple[int, ...]
    commits: dict[int, bytes]
    openings: tuple[Revealed, ...]
    bound_there: tuple[int, ...]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``others_bound``: by party, as :class:`StartProgress` has it."""

    attempt: _Attempt | None
    bound: bool
    never: bool
    others_bound: dict[int, tuple[int, tuple[int, ...]]] = {}


def dump_progress(party: PartyId, progress: StartProgress) -> bytes:
    """The bytes of the progress for the store: it holds secrets, but not the seed."""
    attempt = progress.attempt
    inside = None
    if attempt is not None:
        inside = _Attempt(
            attempt.proposal.attempt,
            attempt.proposal.ordered,
            attempt.proposal.signature,
            _opened(party, attempt.own),
            tuple(sorted(attempt.agreed)),
            dict(attempt.commits),
            tuple(_opened(*item) for item in sorted(attempt.openings.items())),
            tuple(sorted(attempt.bound_there)),
        )
    others_bound = {party: (number, tuple(sorted(members))) for party, (number, members) in progress.others_bound.items()}
    return msgspec.msgpack.encode(_Record(inside, progress.bound, progress.never, others_bound))


def load_progress(raw: bytes | None) -> StartProgress:
    """The inverse of :func:`dump_progress`; of a party that has announced nothing yet where there is none."""
    if raw is None:
        return StartProgress()
    record = load_state(_Record, raw)
    inside = record.attempt
    others_bound = {party: (number, frozenset(members)) for party, (number, members) in record.others_bound.items()}
    if inside is None:
        return StartProgress(None, record.bound, record.never, others_bound)
    attempt = Attempt(
        Proposal(inside.attempt, frozenset(inside.members), inside.signature),
        _opening(inside.own),
        frozenset(inside.agreed),
        GrowingMap(inside.commits),
        GrowingMap({opening.party: _opening(opening) for opening in inside.openings}),
        frozenset(inside.bound_there),
    )
    return StartProgress(attempt, record.bound, record.never, others_bound)


def to_frames(announcement: Announcement, parties: int, encapsulated: bytes = b"") -> Iterator[Start]:
    """An announcement to one of so many parties, as frames. ``encapsulated``: to its key, beside a commitment."""
    proposal = announcement.proposal
    if proposal is None:
        yield Start(0)
        return
    members = () if len(proposal.members) == parties else proposal.ordered
    inside = proposal.attempt, members, proposal.signature, announcement.commit
    opened = [_opened(*item) for item in sorted(announcement.openings.items())]
    for part in [opened[begin : begin + _OPENINGS] for begin in range(0, max(len(opened), 1), _OPENINGS)]:
        yield Start(0, *inside, tuple(part), announcement.bound, encapsulated)


# Parties of one process hear the same frame, one after the other.
@lru_cache(maxsize=16)
def from_frame(frame: Start, parties: int) -> Announcement:
    """What a frame says, of a party of so many."""
    if frame.attempt == 0:
        return Announcement()
    members = frozenset(frame.members) if frame.members else everybody(parties)
    proposal = Proposal(frame.attempt, members, frame.signature)
    return Announcement(proposal, frame.commit, {opening.party: _opening(opening) for opening in frame.openings}, frame.bound)


class RosterSignatures:
    """Signs with this party's identity, and knows the keys of the roster."""

    def __init__(self, identity: Identity, roster: Roster) -> None:
        self._identity = identity
        self._roster = roster

    def sign(self, content: bytes) -> bytes:
        return self._identity.sign(Purpose.QUORUM, content)

    def verify(self, party: PartyId, content: bytes, signature: bytes) -> bool:
        return is_signed(self._roster.entries[party].public_key, Purpose.QUORUM, content, signature)


def _opened(party: PartyId, opening: Opening) -> Revealed:
    return Revealed(party, opening.nonce, opening.weight, opening.exchange)


def _opening(opened: Revealed) -> Opening:
    return Opening(opened.nonce, opened.weight, opened.exchange)
