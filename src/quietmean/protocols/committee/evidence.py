"""What members stated, as far as it is signed and possible; and who is caught lying by two signatures of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from quietmean.core.codec import StableBytes
from quietmean.protocols.committee.choice import OpeningChoice, Resolved, agreement, is_possible, places_of, resolve
from quietmean.protocols.committee.keys import key_line
from quietmean.protocols.committee.lists import CheckList, keys_of, list_digest, read_list
from quietmean.protocols.committee.parameters import REPETITIONS
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee.voting import (
    ChoiceProposal,
    ChoiceVote,
    CommitteeState,
    Echo,
    HeardVotes,
    Proposed,
    SignedStatement,
    is_echoed,
    is_proposed,
    is_summed,
    is_voted,
    read_statement,
)
from quietmean.protocols.packed_sharing.ballots import PartyMask
from quietmean.protocols.packed_sharing.correction import agreeing_members
from quietmean.protocols.packed_sharing.packing import Residues
from quietmean.protocols.publishing import ContentError

# Of one member and ballot, and of one ballot: what lies beyond shows nothing new.
_MOST = 2
_MOST_WANTED = 64


@dataclass(frozen=True)
class Taken:
    """A state with all that arrived, and what of that is about votes; ``results``: those that members stated, unchecked."""

    state: CommitteeState
    heard: HeardVotes = field(default_factory=HeardVotes)
    results: tuple[bytes, ...] = ()


class Evidence:
    """Checks and keeps what arrives. Lists that were read and choices that were resolved once are remembered."""

    def __init__(self, session: CommitteeSession) -> None:
        self._session = session
        self._lists: dict[bytes, CheckList] = {}
        self._resolved: dict[bytes, Resolved | None] = {}

    # --- what arrives ---

    def take_lists(self, state: CommitteeState, arrived: Mapping[int, bytes]) -> Taken:
        """The end of the round of lists."""
        for raw in arrived.values():
            state = self._with_list(state, raw)
        return Taken(state)

    def take(self, state: CommitteeState, arrived: Mapping[int, bytes]) -> Taken:
        """Take the statements that a later round ended with, by sender. What cannot be read counts as not arrived."""
        statements: dict[int, SignedStatement] = {}
        for sender, raw in arrived.items():
            try:
                statements[sender] = read_statement(raw)
            except ContentError:
                continue
        proposals: list[Proposed] = []
        echoes: dict[Proposed, PartyMask] = {}
        locks: dict[Proposed, PartyMask] = {}
        votes: dict[bytes, PartyMask] = {}
        for sender, statement in statements.items():
            for raw in statement.lists:
                state = self._with_list(state, raw)
            for proposal in statement.proposals:
                state, proposed = self._with_proposal(state, proposal)
                proposals.extend(proposed)
            for echo in (*statement.echoes, *(() if statement.vote is None else statement.vote.locks)):
                state, signed = self._with_echo(state, echo)
                if signed:
                    voters, place = locks if echo.lock else echoes, (echo.ballot, echo.digest)
                    voters[place] = voters.get(place, 0) | 1 << echo.member
            if statement.vote is not None and statement.vote.member == sender:
                state, digest = self._with_vote(state, statement.vote)
                if digest:
                    votes[digest] = votes.get(digest, 0) | 1 << sender
            state = self._with_sum(state, sender, statement)
        requests = {sender: statement.wants for sender, statement in statements.items() if statement.wants}
        results = tuple(dict.fromkeys(statement.result for statement in statements.values() if statement.result))
        return Taken(replace(state, wanted=requests), HeardVotes(tuple(proposals), echoes, locks, votes), results)

    def _with_list(self, state: CommitteeState, raw: bytes) -> CommitteeState:
        digest = list_digest(raw)
        if digest in state.lists:
            return state
        try:
            read = read_list(self._session, raw)
        except ContentError:
            return state
        others = [known for known in self._all_lists(state) if known.member == read.member]
        if len(others) >= _MOST and digest not in self.missing(state):
            return state
        self._lists[digest] = read
        state = replace(state, lists=state.lists | {digest: StableBytes(raw)})
        return _named(state, read.member, "signed two different lists") if others else state

    def _with_proposal(self, state: CommitteeState, proposal: ChoiceProposal) -> tuple[CommitteeState, list[Proposed]]:
        if not is_possible(self._session.parameters, proposal.choice):
            return state, []
        digest = proposal.choice.digest(self._session.session)
        known = [earlier.choice.digest(self._session.session) for earlier in state.proposals if earlier.ballot == proposal.ballot]
        if digest in known:
            return state, [(proposal.ballot, digest)]
        if len(known) >= _MOST or not is_proposed(self._session, proposal):
            return state, []
        state = replace(state, proposals=(*state.proposals, proposal), choices=state.choices | {digest: proposal.choice})
        if known:
            state = _named(state, self._session.leader(proposal.ballot), f"made two proposals in ballot {proposal.ballot}")
        return state, [(proposal.ballot, digest)]

    def _with_echo(self, state: CommitteeState, echo: Echo) -> tuple[CommitteeState, bool]:
        place = echo.member, echo.ballot, echo.lock
        same = [known for known in state.echoes if (known.member, known.ballot, known.lock) == place]
        if any(known.digest == echo.digest for known in same):
            return state, True
        if len(same) >= _MOST or not is_echoed(self._session, echo):
            return state, False
        state = replace(state, echoes=(*state.echoes, echo))
        return (_named(state, echo.member, f"backed two proposals in ballot {echo.ballot}") if same else state), True

    def _with_vote(self, state: CommitteeState, vote: ChoiceVote) -> tuple[CommitteeState, bytes]:
        """The first vote of each member counts."""
        digest = vote.choice.digest(self._session.session)
        known = state.votes.get(vote.member)
        if known is not None and known.choice.digest(self._session.session) == digest:
            return state, digest
        if not is_possible(self._session.parameters, vote.choice) or not is_voted(self._session, vote):
            return state, b""
        if known is not None:
            return _named(state, vote.member, "voted twice"), b""
        return replace(state, votes=state.votes | {vote.member: vote}, choices=state.choices | {digest: vote.choice}), digest

    def _with_sum(self, state: CommitteeState, sender: int, statement: SignedStatement) -> CommitteeState:
        """The first sum of each member counts; once it is known what was decided, the first over that."""
        sent, decided = statement.sum, state.voting.decided
        if sent is None or sent.member != sender:
            return state
        known = state.sums.get(sender)
        if known is not None and (known.digest == decided or sent.digest == known.digest):
            return state
        return replace(state, sums=state.sums | {sender: sent}) if is_summed(self._session, sent) else state

    # --- lists and choices ---

    def _list(self, state: CommitteeState, digest: bytes) -> CheckList:
        """The list of a member. Raises KeyError for one that is missing."""
        if digest not in self._lists:
            self._lists[digest] = read_list(self._session, state.lists[digest].content)
        return self._lists[digest]

    def _all_lists(self, state: CommitteeState) -> list[CheckList]:
        return [self._list(state, digest) for digest in state.lists]

    def lists_by_member(self, state: CommitteeState) -> list[CheckList]:
        """The first list that came of each member."""
        first: dict[int, CheckList] = {}
        for own in self._all_lists(state):
            first.setdefault(own.member, own)
        return list(first.values())

    def is_valid(self, state: CommitteeState, digest: bytes) -> bool | None:
        """Whether a choice is valid by its lists; None as long as one of them, or the choice itself, is missing."""
        if digest not in self._resolved:
            choice = state.choices.get(digest)
            if choice is None or self._lacks(state, choice):
                return None
            lists = {named: self._list(state, named) for named in choice.lists}
            self._resolved[digest] = resolve(self._session, choice, lists)
        return self._resolved[digest] is not None

    def resolved(self, state: CommitteeState, digest: bytes) -> Resolved:
        """A choice that is valid."""
        if not self.is_valid(state, digest) or (resolved := self._resolved[digest]) is None:
            raise RuntimeError("a choice that is not valid")
        return resolved

    def missing(self, state: CommitteeState) -> tuple[bytes, ...]:
        """The lists that choices name and that have not come."""
        lacking = [digest for choice in state.choices.values() for digest in self._lacks(state, choice)]
        return tuple(dict.fromkeys(lacking))[:_MOST_WANTED]

    def _lacks(self, state: CommitteeState, choice: OpeningChoice) -> list[bytes]:
        return [digest for digest in choice.lists if digest not in state.lists]

    def left_out(self, state: CommitteeState, counted: set[bytes]) -> tuple[tuple[str, str], ...]:
        """List contributions in any list that do not count: the contributor, and why."""
        stated: dict[tuple[bytes, bytes], list[tuple[int, Residues]]] = {}
        lists = self.lists_by_member(state)
        for own in lists:
            for digest, dealer, numbers in zip(
                keys_of(own.values, "digest"), keys_of(own.values), own.values["numbers"], strict=True
            ):
                if digest not in counted:
                    stated.setdefault((digest, dealer), []).append((own.member, numbers))
        reasons = []
        for (_, dealer), numbers_of in sorted(stated.items(), key=lambda item: item[0][1]):
            everywhere = len(numbers_of) == len(lists)
            why = self._problem(dict(numbers_of)) if everywhere else f"{len(numbers_of)} of {len(lists)} members hold it"
            reasons.append((key_line(dealer), why))
        return tuple(reasons)

    def _problem(self, numbers: Mapping[int, Residues]) -> str:
        """Why the check numbers of an entry, by member, let it count for nothing."""
        parameters = self._session.parameters
        degrees = np.array([numbers[member][:REPETITIONS] for member in numbers], dtype=np.uint32)
        able = min(parameters.colluding, (len(degrees) - parameters.threshold) // 2)
        agreeing = agreeing_members(parameters.packing, list(numbers), degrees, max(able, 0))
        if parameters.verified and agreeing is not None and len(agreeing) >= parameters.lists_needed:
            return "a number of it is out of its range, or is not what it has to be beside others"
        return "its shares do not fit together"

    def wrong_noise(self, state: CommitteeState) -> tuple[str, ...]:
        """Name the members whose dealings of noise are such that no lists of enough members agree on them, a sentence each."""
        lists = sorted(self.lists_by_member(state), key=lambda own: own.member)
        if len(lists) < self._session.parameters.lists_needed:
            return ()
        agreed = agreement(self._session, lists, noise=True)
        enough = agreed.agree.sum(axis=0) >= self._session.parameters.lists_needed
        wrong = []
        for place in np.nonzero(~enough)[0].tolist():
            entry = agreed.entries[place : place + 1]
            stated = {own.member: own.noise["numbers"][at[0]] for own in lists if (at := places_of(entry, own.noise))[0] >= 0}
            if len(stated) == len(lists):
                dealer = self._session.raw_members.index(keys_of(entry)[0])
                wrong.append(f"member {dealer + 1} dealt noise that does not count, {self._problem(stated)}: it lies")
        return tuple(wrong)


def _named(state: CommitteeState, member: int, statement: str) -> CommitteeState:
    remark = f"member {member + 1} {statement}: it lies"
    return state if remark in state.remarks else replace(state, remarks=(*state.remarks, remark))
