"""The rules by which parties of a roster agree on who takes part, and the proposals that they agree to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.start_quorum import ATTEMPTS, least_minimum


@dataclass(frozen=True)
class Rules:
    """What is fixed before the start, the same at every party.

    ``session``: what the parties have in common, hexadecimal. ``conveners``: all parties, in the order in which they may
    propose. ``colluding``: a count on the whole roster. ``start_quorum`` parties start a study, ``least_result`` make a result.
    Raises :class:`InputError` for numbers with which two results of one session could be made.
    """

    session: str
    conveners: tuple[PartyId, ...]
    colluding: int
    start_quorum: int
    least_result: int

    def __post_init__(self) -> None:
        if sorted(self.conveners) != list(range(self.parties)):
            raise InputError("the order of conveners does not name every party once: seal the study again")
        if not isinstance(self.colluding, int) or not 0 <= self.colluding < self.parties:
            raise InputError(f"{self.colluding} colluding parties of {self.parties} are impossible: give a number of parties")
        least = self.least
        for name, count in (("minimum", self.start_quorum), ("the fewest parties of a result", self.least_result)):
            if not least <= count <= self.parties:
                raise InputError(
                    f"{name} is {count}: with {self.parties} parties of whom {self.colluding} may collude choose "
                    f"{least}..{self.parties}, more than half of their sum, so that no two results can be made"
                )

    @property
    def parties(self) -> int:
        return len(self.conveners)

    @property
    def least(self) -> int:
        return least_minimum(self.parties, self.colluding)

    @property
    def for_all(self) -> bool:
        """Whether a study starts with all parties or not at all: who is in is known, and there is one attempt."""
        return self.start_quorum == self.parties

    @property
    def attempts(self) -> int:
        return 1 if self.for_all else ATTEMPTS

    def convener(self, attempt: int) -> PartyId:
        """Who proposes in an attempt, from 1 on; with fewer parties than attempts they take turns."""
        return self.conveners[(attempt - 1) % self.parties]

    def allows(self, members: frozenset[PartyId]) -> bool:
        """Whether a study may start with these parties."""
        in_study = all(0 <= member < self.parties for member in members)
        return in_study and len(members) >= self.start_quorum


@dataclass(frozen=True)
class Proposal:
    """Who takes part, as the convener of an attempt signed it for one session."""

    attempt: int
    members: frozenset[PartyId]
    signature: bytes

    @classmethod
    def signed(cls, session: str, attempt: int, members: Iterable[PartyId], signatures: Signatures) -> Proposal:
        chosen = frozenset(members)
        return cls(attempt, chosen, signatures.sign(_content(session, attempt, chosen)))

    def is_by(self, convener: PartyId, session: str, signatures: Signatures) -> bool:
        return signatures.verify(convener, _content(session, self.attempt, self.members), self.signature)

    def same_as(self, other: Proposal) -> bool:
        """Whether both say the same; a signature can have several spellings."""
        return (self.attempt, self.members) == (other.attempt, other.members)

    @cached_property
    def ordered(self) -> tuple[PartyId, ...]:
        return tuple(sorted(self.members))


class Signatures(Protocol):
    """Signs as this party, and knows the keys of all."""

    def sign(self, content: bytes) -> bytes: ...

    def verify(self, party: PartyId, content: bytes, signature: bytes) -> bool: ...


def quorum_study(session: str, proposal: Proposal) -> str:
    """The digest of (session, attempt, members), hexadecimal: in every label of what these parties do together."""
    return hashlib.sha256(_content(session, proposal.attempt, proposal.members)).hexdigest()


def _content(session: str, attempt: int, members: frozenset[PartyId]) -> bytes:
    return f"quietmean quorum 1\n{session}\n{attempt}\n{','.join(map(str, sorted(members)))}\n".encode()
