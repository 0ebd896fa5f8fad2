"""Where a party is in the attempts to start, as its store keeps it and as it is announced to the others."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quietmean.core.codec import load_state
from quietmean.core.party import PartyId
from quietmean.node.net import Identity, Purpose, Revealed, Roster, Start, is_signed
from quietmean.node.session import Opening
from quietmean.node.start.machine import Announcement, Attempt, Proposal, StartProgress

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
        inside.commits,
        {opening.party: _opening(opening) for opening in inside.openings},
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


def from_frame(frame: Start, parties: int) -> Announcement:
    """What a frame says, of a party of so many."""
    if frame.attempt == 0:
        return Announcement()
    proposal = Proposal(frame.attempt, frozenset(frame.members or range(parties)), frame.signature)
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
