"""The state of one party in the attempts to start a study, and how announcements of the others change it.

An attempt has one convener, which signs who takes part; where a study starts with all or not at all, nobody need say who, and all
are in the one attempt from the beginning. A party takes one proposal an attempt, and sends it to all of its members itself. Once
every member sent the same it commits to a nonce that it uses in this attempt only; once all have committed, it reveals. Who has
all that was revealed is bound, for good: only then may it send what depends on its data. Until then it may go on to a later
attempt, which it announces by being there, and never comes back.

A :class:`StartProgress` is what a party must not forget. It is on disk before anything of it is sent. Announcements say where a
party is, as a whole, and are repeated: they may be lost, doubled or come in any order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol, TypeAlias

from quietmean.core.errors import InputError, PeerError
from quietmean.core.growing import GrowingMap
from quietmean.core.limits import ATTEMPTS, least_minimum
from quietmean.core.party import PartyId
from quietmean.node.session import Opening, commitment_hash


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
            raise InputError("the order of coordinators does not name every party once. Seal the study again.")
        if not isinstance(self.colluding, int) or not 0 <= self.colluding < self.parties:
            raise InputError(f"{self.colluding} colluding parties of {self.parties} are impossible. Give a number of parties.")
        least = self.least
        for name, count in (("minimum", self.start_quorum), ("the fewest parties of a result", self.least_result)):
            if not least <= count <= self.parties:
                raise InputError(
                    f"{name} is {count}, but {self.colluding} of {self.parties} parties may collude. Choose {least}.."
                    f"{self.parties}, more than half of their sum: else two results could be made."
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
        in_study = members is everybody(self.parties) or not members or (min(members) >= 0 and max(members) < self.parties)
        return in_study and len(members) >= self.start_quorum


@lru_cache(maxsize=4)
def everybody(parties: int) -> frozenset[PartyId]:
    """All of so many parties: the same object, so that no two of them are compared one by one."""
    return frozenset(range(parties))


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
        return self is other or (self.attempt, self.members) == (other.attempt, other.members)

    @cached_property
    def ordered(self) -> tuple[PartyId, ...]:
        return tuple(sorted(self.members))


class Signatures(Protocol):
    """Signs as this party, and knows the keys of all."""

    def sign(self, content: bytes) -> bytes: ...

    def verify(self, party: PartyId, content: bytes, signature: bytes) -> bool: ...


def quorum_study(session: str, proposal: Proposal) -> str:
    """The digest of (session, attempt, members), hexadecimal: in every label of what these parties do together."""
    return _digest(session, proposal.attempt, proposal.members)


@lru_cache(maxsize=64)
def _digest(session: str, attempt: int, members: frozenset[PartyId]) -> str:
    return hashlib.sha256(_content(session, attempt, members)).hexdigest()


def _content(session: str, attempt: int, members: frozenset[PartyId]) -> bytes:
    return f"quietmean quorum 1\n{session}\n{attempt}\n{','.join(map(str, sorted(members)))}\n".encode()


# What a party will reveal, made anew for each attempt.
Fresh: TypeAlias = Callable[[], Opening]


@dataclass(frozen=True)
class Attempt:
    """The attempt in which a party is. ``agreed``: the members that sent the same proposal, itself included.

    ``own``: what this party will reveal; ``commits`` and ``openings`` by party; ``bound_there``: members who say that they are
    bound in it. All of these are of members, so that their number tells whether they are of all.
    """

    proposal: Proposal
    own: Opening = field(repr=False)
    agreed: frozenset[PartyId]
    commits: GrowingMap[PartyId, bytes] = field(default_factory=GrowingMap)
    openings: GrowingMap[PartyId, Opening] = field(default_factory=GrowingMap)
    bound_there: frozenset[PartyId] = frozenset()

    @property
    def members(self) -> frozenset[PartyId]:
        return self.proposal.members

    @property
    def all_agreed(self) -> bool:
        return len(self.agreed) == len(self.members)

    @property
    def all_committed(self) -> bool:
        return self.all_agreed and len(self.commits) == len(self.members)

    @property
    def all_revealed(self) -> bool:
        return self.all_committed and len(self.openings) == len(self.members)


@dataclass(frozen=True)
class StartProgress:
    """Where a party is in the attempts to start.

    ``attempt``: the last one that this party accepted; it never takes part in an earlier one. ``bound``: in that one.

    ``never``: it takes no part in this session, in no attempt. ``others_bound``: who says that it is bound in another attempt
    or with other members, the number and the members of that.
    """

    attempt: Attempt | None = None
    bound: bool = False
    never: bool = False
    others_bound: Mapping[PartyId, tuple[int, frozenset[PartyId]]] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The number of the last attempt that was accepted; 0 before the first."""
        return 0 if self.attempt is None else self.attempt.proposal.attempt

    @property
    def free(self) -> bool:
        """Whether it may still go on to a later attempt."""
        return not (self.bound or self.never)


@dataclass(frozen=True)
class Announcement:
    """What a party announces of its attempt to all others. Being there is its acceptance. ``commit``: empty before it committed.

    ``openings``: its own, once it reveals; all that it has once it is ``bound``, since some may not have come everywhere.
    """

    proposal: Proposal | None = None
    commit: bytes = b""
    openings: Mapping[PartyId, Opening] = field(default_factory=dict)
    bound: bool = False


class Machine:
    """The changes of one party's progress. All methods are functions of their arguments, but for ``fresh``."""

    def __init__(self, party: PartyId, rules: Rules, signatures: Signatures, fresh: Fresh) -> None:
        self.party = party
        self.rules = rules
        self._signatures = signatures
        self._fresh = fresh

    # --- what it does by itself --------------------------------------------------------------------------------------

    def begin(self, progress: StartProgress) -> StartProgress:
        """Be in the one attempt of a study that starts with all or not at all; nothing changes in any other study."""
        return self._accept(progress, Proposal(1, everybody(self.rules.parties), b"")) if self.rules.for_all else progress

    def propose(self, progress: StartProgress, attempt: int, members: frozenset[PartyId]) -> StartProgress:
        """Say, as the attempt's convener, who takes part, and accept that. Nothing changes where it is not allowed."""
        may = self.rules.convener(attempt) == self.party and not self.rules.for_all
        if not may or self.party not in members or not self.rules.allows(members):
            return progress
        return self._accept(progress, Proposal.signed(self.rules.session, attempt, members, self._signatures))

    def bind(self, progress: StartProgress) -> StartProgress:
        """Bind this party to its attempt if all is revealed: from here on its data may be used, in this attempt only."""
        attempt = progress.attempt
        may = attempt is not None and attempt.all_revealed and progress.free
        return replace(progress, bound=True) if may else progress

    def give_up(self, progress: StartProgress) -> StartProgress:
        """Take no part in this session any more. Who is bound stays so."""
        return progress if progress.bound else StartProgress(None, never=True)

    def announce(self, progress: StartProgress) -> Announcement:
        """What all others may know of where this party is."""
        attempt = progress.attempt
        if attempt is None or progress.never:
            return Announcement()
        commit = self._commit(attempt) if attempt.all_agreed else b""
        openings: Mapping[PartyId, Opening] = {}
        if progress.bound:
            openings = attempt.openings
        elif attempt.all_committed:
            openings = {self.party: attempt.own}
        return Announcement(attempt.proposal, commit, openings, progress.bound)

    # --- what others announce ----------------------------------------------------------------------------------------

    def receive(self, progress: StartProgress, sender: PartyId, announcement: Announcement) -> StartProgress:
        """The progress after ``sender`` announced where it is. Raises :class:`PeerError` for what a correct party never does."""
        if announcement.proposal is None or progress.never:
            return progress
        self.check(sender, announcement)
        if not self._is_current(progress, announcement.proposal):
            progress = self._accept(progress, announcement.proposal)
        attempt = progress.attempt
        if progress.bound:
            return progress
        if attempt is None or not attempt.proposal.same_as(announcement.proposal):
            place = announcement.proposal.attempt, announcement.proposal.members
            return replace(progress, others_bound={**progress.others_bound, sender: place}) if announcement.bound else progress
        noted = self._noted(attempt, sender, announcement)
        return StartProgress(noted, progress.bound, progress.never, progress.others_bound)

    def check(self, sender: PartyId, announcement: Announcement) -> None:
        """Raises :class:`PeerError` unless ``sender`` may be where it says that it is."""
        proposal = announcement.proposal
        if proposal is None:
            return
        if not 1 <= proposal.attempt <= self.rules.attempts:
            raise PeerError(f"it is in attempt {proposal.attempt} of {self.rules.attempts} to start")
        if sender not in proposal.members or not self.rules.allows(proposal.members):
            raise PeerError("it is in an attempt to start that the study does not allow")
        by = self.rules.convener(proposal.attempt)
        if not (self.rules.for_all or proposal.is_by(by, self.rules.session, self._signatures)):
            raise PeerError("it is in an attempt to start that its coordinator did not sign")

    def _is_current(self, progress: StartProgress, proposal: Proposal) -> bool:
        return progress.attempt is not None and progress.attempt.proposal.same_as(proposal)

    def _accept(self, progress: StartProgress, proposal: Proposal) -> StartProgress:
        """Go on to a proposal that is checked, if this party may. Its earlier attempt is left with that, for good."""
        if self.party not in proposal.members or not self._may_move(progress, proposal):
            return progress
        agreed = proposal.members if self.rules.for_all else frozenset({self.party})
        return replace(progress, attempt=Attempt(proposal, self._own(progress), agreed))

    def _may_move(self, progress: StartProgress, proposal: Proposal) -> bool:
        before = progress.attempt
        if not progress.free or proposal.attempt <= progress.latest:
            return False
        # Where one is bound, all can be: what was revealed comes from those who are.
        return before is None or not (before.bound_there or before.all_revealed)

    def _own(self, progress: StartProgress) -> Opening:
        # A nonce that was revealed in one attempt would let anyone who commits last in the next one choose the seed.
        return self._fresh()

    def _commit(self, attempt: Attempt) -> bytes:
        return commitment_hash(quorum_study(self.rules.session, attempt.proposal), self.party, attempt.own)

    def _noted(self, attempt: Attempt, sender: PartyId, announcement: Announcement) -> Attempt:
        study = quorum_study(self.rules.session, attempt.proposal)
        commits, openings, everybodys = attempt.commits, attempt.openings, len(attempt.members)
        if announcement.commit and commits.get(sender, announcement.commit) != announcement.commit:
            raise PeerError(
                "it committed to something else before: it lost its store, or tells different parties different things"
            )
        agreed = self._agreed(attempt, sender)
        committed: dict[PartyId, bytes] = {}
        if announcement.commit and sender not in commits:
            committed[sender] = announcement.commit
        if len(agreed) == everybodys and self.party not in commits:
            committed[self.party] = commitment_hash(study, self.party, attempt.own)
        commits = commits.with_entries(committed) if committed else commits
        revealed: dict[PartyId, Opening] = {}
        for party, opening in announcement.openings.items():
            if party in openings or party not in commits:
                # What was committed to comes first; all is sent again.
                continue
            if commitment_hash(study, party, opening) == commits[party]:
                _check_weight(opening)
                revealed[party] = opening
            elif party == sender:
                raise PeerError("it showed other numbers than those it had fixed before. It may cheat. Call it, and start again")
        if len(agreed) == len(commits) == everybodys and self.party not in openings:
            revealed[self.party] = attempt.own
        openings = openings.with_entries(revealed) if revealed else openings
        bound_there = attempt.bound_there | {sender} if announcement.bound else attempt.bound_there
        return Attempt(attempt.proposal, attempt.own, agreed, commits, openings, bound_there)

    def _agreed(self, attempt: Attempt, sender: PartyId) -> frozenset[PartyId]:
        # Each says so itself, over its own connection: a convener could equivocate between two sets.
        return attempt.agreed if sender in attempt.agreed else attempt.agreed | {sender}


def _check_weight(opening: Opening) -> None:
    if not (math.isfinite(opening.weight) and opening.weight >= 0):
        raise PeerError(f"it sent a weight of {opening.weight}, it must be a number of at least 0")
