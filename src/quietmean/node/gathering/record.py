"""The standing of a party in the attempts to start, as the store keeps it and as the others are told."""

from __future__ import annotations

import msgspec

from quietmean.core.codec import load_state
from quietmean.core.party import PartyId
from quietmean.node.net import Identity, Opened, Purpose, Roster, Start, is_signed
from quietmean.node.quorum import Attempt, Opening, Own, Proposal, Standing, Telling


class _Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``seed`` and ``own``: of this party."""

    attempt: int
    members: tuple[int, ...]
    signature: bytes
    seed: bytes
    own: Opened
    agreed: tuple[int, ...]
    commits: dict[int, bytes]
    openings: tuple[Opened, ...]
    bound_there: tuple[int, ...]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    attempt: _Attempt | None
    bound: bool
    never: bool


def dump_standing(party: PartyId, standing: Standing) -> bytes:
    """For the store: it holds secrets."""
    attempt = standing.attempt
    inside = None
    if attempt is not None:
        inside = _Attempt(
            attempt.proposal.attempt,
            attempt.proposal.ordered,
            attempt.proposal.signature,
            attempt.own.seed,
            _opened(party, attempt.own.opening),
            tuple(sorted(attempt.agreed)),
            dict(attempt.commits),
            tuple(_opened(*one) for one in sorted(attempt.openings.items())),
            tuple(sorted(attempt.bound_there)),
        )
    return msgspec.msgpack.encode(_Record(inside, standing.bound, standing.never))


def load_standing(raw: bytes | None) -> Standing:
    """The inverse of :func:`dump_standing`; of a party that has told nothing yet where there is none."""
    if raw is None:
        return Standing()
    record = load_state(_Record, raw)
    inside = record.attempt
    if inside is None:
        return Standing(None, record.bound, record.never)
    attempt = Attempt(
        Proposal(inside.attempt, frozenset(inside.members), inside.signature),
        Own(inside.seed, _opening(inside.own)),
        frozenset(inside.agreed),
        inside.commits,
        {one.party: _opening(one) for one in inside.openings},
        frozenset(inside.bound_there),
    )
    return Standing(attempt, record.bound, record.never)


def to_frame(telling: Telling, encapsulated: bytes = b"") -> Start:
    """``encapsulated``: to the key of who gets it, with a commitment."""
    proposal = telling.proposal
    if proposal is None:
        return Start(0)
    openings = tuple(_opened(*one) for one in sorted(telling.openings.items()))
    return Start(0, proposal.attempt, proposal.ordered, proposal.signature, telling.commit, openings, telling.bound, encapsulated)


def from_frame(frame: Start) -> Telling:
    if frame.attempt == 0:
        return Telling()
    proposal = Proposal(frame.attempt, frozenset(frame.members), frame.signature)
    return Telling(proposal, frame.commit, {one.party: _opening(one) for one in frame.openings}, frame.bound)


class RosterSignatures:
    """Signs with this party's identity, and knows the keys of the roster."""

    def __init__(self, identity: Identity, roster: Roster) -> None:
        self._identity = identity
        self._roster = roster

    def sign(self, content: bytes) -> bytes:
        return self._identity.sign(Purpose.QUORUM, content)

    def verify(self, party: PartyId, content: bytes, signature: bytes) -> bool:
        return is_signed(self._roster.entries[party].public_key, Purpose.QUORUM, content, signature)


def _opened(party: PartyId, opening: Opening) -> Opened:
    return Opened(party, opening.nonce, opening.weight, opening.exchange)


def _opening(opened: Opened) -> Opening:
    return Opening(opened.nonce, opened.weight, opened.exchange)
