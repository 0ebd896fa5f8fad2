"""The contents of messages as bytes. Received bytes are not trusted: anything but the exact form raises :class:`ContentError`.

====== ================================================================================================================
round  content (S: bytes of a set of parties, one bit each; W: bytes of a share, 2 or 4 for each of its numbers)
====== ================================================================================================================
1      a share, W; or the 32-byte seed of one, to the members that the dealer's number determines
2      holds, S
3      proposal: ballot 1, U, M; 1 + 2 S
4      holds, S; then the vote, if there is one, 1 + 2 S
5 ..   flags 1; undecided: holds, then the vote, then the proposal; decided: the vote, then U if the vote is not for it, then the
       sum unless a share of U is missing
====== ================================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from quietmean.protocols.packed_sharing.ballots import (
    FIRST_PROPOSAL,
    FIRST_VOTES,
    STATUS,
    BallotProposal,
    BallotRules,
    PartyMask,
    unpack,
)
from quietmean.protocols.packed_sharing.packing import Elements
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters
from quietmean.protocols.publishing import ContentError

SEED_BYTES = 32
_VOTE, _PROPOSAL, _DECIDED, _OTHER, _SUM = 1, 2, 4, 8, 16
# Valid flags: U is the set of the vote or is written out; a proposer has no vote; a sum needs a decision.
_FLAGS = frozenset(
    {0, _VOTE, _PROPOSAL, *(_DECIDED | vote | more for vote in (_VOTE, _VOTE | _OTHER, _OTHER) for more in (0, _SUM))}
)


@dataclass(frozen=True, slots=True)
class MemberStatement:
    """The content of a member's message after the first round. Either ``holds``, or, once it has decided, the set ``decided``.

    ``share``: its sum over that set, as bytes; None if it lacks a share.
    """

    holds: PartyMask | None = None
    vote: BallotProposal | None = None
    proposal: BallotProposal | None = None
    decided: bytes = b""
    share: bytes | None = None


@dataclass(frozen=True, slots=True)
class Codec:
    """Writes and reads the messages of packed sharing.

    ``blocks`` numbers below ``prime`` in a share, of ``word_bytes`` bytes each.
    """

    rules: BallotRules
    blocks: int
    prime: int
    word_bytes: int

    @classmethod
    def of(cls, parameters: PackedSharingParameters, rules: BallotRules) -> Codec:
        """The codec of a protocol."""
        return cls(rules, parameters.blocks, parameters.prime, parameters.word_bytes)

    @property
    def share_bytes(self) -> int:
        return self.blocks * self.word_bytes

    @property
    def limit(self) -> int:
        """The most bytes of any content."""
        return max(SEED_BYTES, 1 + self._proposal_bytes + self.rules.set_bytes + max(self.share_bytes, self._proposal_bytes))

    def write_share(self, share: Elements) -> bytes:
        """The bytes of a share, numbers (blocks,), little-endian."""
        return share.astype(f"<u{self.word_bytes}", copy=False).tobytes()

    def read_share(self, raw: bytes) -> Elements:
        """The inverse of :meth:`write_share`. Raises :class:`ContentError`."""
        if len(raw) != self.share_bytes:
            raise ContentError(f"a share of {len(raw)} bytes, {self.share_bytes} are due")
        # Not copied: the numbers stay where they came.
        share: Elements = np.frombuffer(raw, dtype=f"<u{self.word_bytes}")
        if share.size and int(share.max()) >= self.prime:
            raise ContentError(f"a share with a number that is not below {self.prime}")
        return share

    def check_dealt(self, raw: bytes, seeded: bool) -> bytes:
        """What a dealer sent, once it is certain that it is a share or, if ``seeded``, a seed. Raises :class:`ContentError`."""
        if not seeded:
            self.read_share(raw)
        elif len(raw) != SEED_BYTES:
            raise ContentError(f"a seed of {len(raw)} bytes, {SEED_BYTES} are due")
        return raw

    def write(self, round_: int, statement: MemberStatement) -> bytes:
        """A content of a round from 2 on."""
        if round_ == FIRST_PROPOSAL:
            return self._write_proposal(statement.proposal)
        holds = b"" if statement.holds is None else self.rules.pack(statement.holds)
        vote = self._write_proposal(statement.vote)
        if round_ <= FIRST_VOTES:
            return holds + vote
        flags = (_VOTE if vote else 0) | (_PROPOSAL if statement.proposal is not None else 0)
        if not statement.decided:
            return bytes([flags]) + holds + vote + self._write_proposal(statement.proposal)
        other = b"" if statement.vote is not None and statement.vote.inputs == statement.decided else statement.decided
        flags |= _DECIDED | (_OTHER if other else 0) | (0 if statement.share is None else _SUM)
        return bytes([flags]) + vote + other + (statement.share or b"")

    def read(self, round_: int, raw: bytes) -> MemberStatement:
        """The inverse of :meth:`write`. Raises :class:`ContentError`."""
        reader = _Reader(raw)
        if round_ == STATUS:
            statement = MemberStatement(holds=self._set(reader))
        elif round_ == FIRST_PROPOSAL:
            statement = MemberStatement(proposal=self._proposal(reader))
        elif round_ == FIRST_VOTES:
            statement = MemberStatement(self._set(reader), self._proposal(reader) if reader.left else None)
        else:
            statement = self._read_later(reader)
        if reader.left:
            raise ContentError(f"{reader.left} bytes too many in round {round_}")
        return statement

    def _read_later(self, reader: _Reader) -> MemberStatement:
        flags = reader.take(1)[0]
        if flags not in _FLAGS:
            raise ContentError(f"flags {flags} that do not go together")
        if not flags & _DECIDED:
            holds = self._set(reader)
            vote = self._proposal(reader) if flags & _VOTE else None
            return MemberStatement(holds, vote, self._proposal(reader) if flags & _PROPOSAL else None)
        vote = self._proposal(reader) if flags & _VOTE else None
        decided = b"" if vote is None else vote.inputs
        if flags & _OTHER:
            other = self.rules.pack(self._set(reader))
            if other == decided:
                raise ContentError("a set that the vote has already")
            decided = other
        if not flags & _SUM:
            return MemberStatement(vote=vote, decided=decided)
        share = reader.long(self.share_bytes)
        self.read_share(share)
        return MemberStatement(vote=vote, decided=decided, share=share)

    @property
    def _proposal_bytes(self) -> int:
        return 1 + 2 * self.rules.set_bytes

    def _write_proposal(self, proposal: BallotProposal | None) -> bytes:
        return b"" if proposal is None else bytes([proposal.ballot]) + proposal.inputs + proposal.members

    def _proposal(self, reader: _Reader) -> BallotProposal:
        ballot = reader.take(1)[0]
        if not 1 <= ballot <= self.rules.ballots:
            raise ContentError(f"ballot {ballot}, there are {self.rules.ballots}")
        return BallotProposal(ballot, self.rules.pack(self._set(reader)), self.rules.pack(self._set(reader)))

    def _set(self, reader: _Reader) -> PartyMask:
        mask = unpack(reader.take(self.rules.set_bytes))
        if mask >> self.rules.parties:
            raise ContentError("a set with parties that do not exist")
        return mask


class _Reader:
    """A reader of bytes from the front."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._raw) - self._place

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise ContentError(f"{self.left} bytes where {count} are due")
        self._place += count
        return self._raw[self._place - count : self._place]

    def long(self, count: int) -> bytes:
        """Read so many bytes where they are, as a view: a share is long."""
        if count > self.left:
            raise ContentError(f"{self.left} bytes where {count} are due")
        self._place += count
        view = memoryview(self._raw).toreadonly()[self._place - count : self._place]
        # It does all that is asked of a share's bytes.
        return cast(bytes, view)
