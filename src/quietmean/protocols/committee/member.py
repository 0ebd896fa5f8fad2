"""A member of a committee as a state machine: it deals noise, lists what it holds, votes once, and opens one sum.

The same machine runs in this process, over connections and through a folder. The caller records a state durably before anything
of it is sent, runs ``start`` once in a member's life, and gives a store that was set back or copied no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from quietmean.core.codec import StableBytes
from quietmean.core.party import Message, NoiseGroup, NoiseSource, Release, Step
from quietmean.core.readable import count_of
from quietmean.protocols.committee.choice import select
from quietmean.protocols.committee.contribution import (
    ContributionError,
    DealtParts,
    excerpt,
    largest_noise_part,
    make_noise,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.evidence import Evidence, Taken
from quietmean.protocols.committee.keys import DIGEST_BYTES, Opener, Sealer, Signer
from quietmean.protocols.committee.lists import (
    Held,
    Holdings,
    check_numbers,
    entries_of,
    entry_of,
    expected_numbers,
    keys_of,
    list_digest,
    write_list,
)
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.result import CheckedResult, Result, ResultError, check_result, read_result, result_of
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee.voting import (
    FIRST_ECHOES,
    FIRST_PROPOSAL,
    LISTS,
    NOISE,
    CommitteeState,
    Echo,
    SignedStatement,
    Voter,
    VotingRules,
    certificate,
    echo,
    propose,
    sign_sum,
    vote,
    write_statement,
)
from quietmean.protocols.packed_sharing.packing import Elements
from quietmean.randomness import Seed

_NOTHING = np.empty(0)
# Lists that one message carries for who lacks them.
_MOST_LISTS = 2
# In so many last rounds a result is sent again to a party that has not taken it: together they take about one round.
_LAST_TOLD = 4


class CommitteeMachine:
    """Member number ``member``. ``holdings``: what it took of contributions until its deadline, which is over.

    ``noise``: its own, of a store that is new in this study; ``fresh``: seeds that were never used before, for masks.
    """

    state_type = CommitteeState

    def __init__(
        self,
        session: CommitteeSession,
        member: int,
        signer: Signer,
        sealer: Sealer,
        opener: Opener,
        holdings: Holdings,
        noise: NoiseSource,
        fresh: Callable[[], Seed] = Seed.from_os,
    ) -> None:
        self._session, self._member = session, member
        self._signer, self._sealer, self._opener = signer, sealer, opener
        self._holdings, self._noise, self._fresh = holdings, noise, fresh
        self._parameters = session.parameters
        self._rules = VotingRules.of(session.parameters, session.leaders)
        self._voter = Voter(self._rules, member)
        self._evidence = Evidence(session)
        self._others = tuple(other for other in range(session.parameters.members) if other != member)

    @property
    def rounds(self) -> int:
        return self._rules.rounds

    def start(self) -> Step[CommitteeState]:
        """Deal noise. This is done once in a life: a member that is started again sends what its store has."""
        drawn = self._noise.discrete(NoiseGroup.INDEPENDENT, 0, self._parameters.scale, self._parameters.dimension)
        seed = Seed(self._noise.secret("committee noise", 0))
        raw = make_noise(self._session, self._signer, self._sealer, drawn, seed, self._fresh)
        dealt = [excerpt(self._session, raw, member) for member in range(self._parameters.members)]
        state = CommitteeState(noise={self._member: StableBytes(dealt[self._member])})
        return Step(state, tuple(self._message((other,), NOISE, dealt[other]) for other in self._others))

    def end_round(self, state: CommitteeState, received: Sequence[Message], delivered: frozenset[int]) -> Step[CommitteeState]:
        arrived = _first_of_each(received, state.round)
        if state.round == NOISE:
            return self._proceed(self._listed(state, arrived))
        take = self._evidence.take_lists if state.round == LISTS else self._evidence.take
        taken = take(state, arrived)
        state = replace(taken.state, undelivered=tuple(other for other in state.undelivered if other not in delivered))
        if state.has_result:
            return self._proceed(replace(state, round=state.round + 1))
        state = self._voted(state, taken)
        state = self._published(self._decided_by_sums(state))
        return self._proceed(self._concluded(state, taken), tells=True)

    def miss_round(self, state: CommitteeState) -> Step[CommitteeState]:
        if state.round == NOISE:
            return self._proceed(self._listed(state, {}))
        return self._proceed(replace(state, round=state.round + 1, voting=self._voter.miss_round(state.voting)))

    def expects(self, state: CommitteeState) -> frozenset[int]:
        if state.round == FIRST_PROPOSAL:
            return frozenset(other for other in self._others if other == self._rules.leader(1))
        done = state.has_result or state.round > self.rounds
        return frozenset() if done else frozenset(self._others)

    @property
    def content_limit(self) -> int:
        """The most bytes of any content."""
        return self.most_content(self._parameters)

    @staticmethod
    def most_content(parameters: CommitteeParameters) -> int:
        """Return the most content of a message of any member of a committee with these parameters."""
        listed = entry_of(parameters.checks).itemsize * (parameters.contributors + parameters.members) + 256
        choice = parameters.contributors // 8 + parameters.members * (DIGEST_BYTES + 4) + 512
        echoes = 320 * (parameters.members + parameters.ballots)
        opened = 80 * parameters.contributors + parameters.members * (4 * parameters.blocks + 160) + choice
        return _MOST_LISTS * listed + 8 * choice + echoes + opened + largest_noise_part(parameters)

    # --- lists ---

    def _listed(self, state: CommitteeState, arrived: dict[int, bytes]) -> CommitteeState:
        """The own list, which is made once: of what is held now, and of the noise that came."""
        noise = dict(state.noise)
        for sender, content in arrived.items():
            if self._noise_of(sender, content) is not None:
                noise[sender] = StableBytes(content)
        dealt = [self._noise_of(dealer, content.content) for dealer, content in sorted(noise.items())]
        checks = self._parameters.checks
        values = entries_of((self._stated(held) for held in self._holdings), checks)
        dealings = entries_of((self._stated(held) for held in dealt if held is not None), checks)
        raw = write_list(self._session, self._signer, self._member, values, dealings)
        own = StableBytes(raw)
        return replace(state, round=LISTS, noise=noise, own_list=own, lists={list_digest(raw): own})

    def _stated(self, held: Held) -> tuple[bytes, bytes, float, Elements]:
        return held.digest, held.dealer, held.weight, check_numbers(self._session, held.digest, held.part)

    def _noise_of(self, dealer: int, content: bytes) -> Held | None:
        """A member's noise dealing; None for anything else."""
        try:
            header = read_header(self._session, content)
            if header.kind != DealtParts.NOISE or header.dealer != self._session.raw_members[dealer]:
                return None
            part = open_excerpt(self._session, header, content, self._member, self._opener)
        except ContributionError:
            return None
        return Held(header.digest, header.dealer, header.weight, part)

    # --- the choice ---

    def _voted(self, state: CommitteeState, taken: Taken) -> CommitteeState:
        """Echo, vote, decide, and propose for the coming round."""
        choices = dict(state.choices)

        def proposed() -> bytes | None:
            choice = select(self._session, self._evidence.lists_by_member(state))
            if choice is None:
                return None
            digest = choice.digest(self._session.session)
            choices[digest] = choice
            return digest

        voting = self._voter.end_round(
            state.voting, taken.heard, lambda digest: self._evidence.is_valid(replace(state, choices=choices), digest), proposed
        )
        signed = [
            echo(self._session, self._signer, self._member, proposed, lock=lock)
            for lock, now, before in (
                (False, voting.echoed, state.voting.echoed),
                (True, voting.locked, state.voting.locked),
            )
            for proposed in now
            if proposed not in before
        ]
        state = replace(state, round=state.round + 1, voting=voting, choices=choices, echoes=(*state.echoes, *signed))
        if voting.proposal is not None:
            ballot, digest = voting.proposal
            own = propose(self._session, self._signer, ballot, choices[digest])
            state = replace(state, proposals=(*state.proposals, own))
        if voting.vote and self._member not in state.votes:
            locks = self._signed_by(state, voting.vote, lock=True)
            own_vote = vote(self._session, self._signer, self._member, choices[voting.vote], locks)
            state = replace(state, votes=state.votes | {self._member: own_vote})
        return state

    def _signed_by(self, state: CommitteeState, digest: bytes, *, lock: bool) -> tuple[Echo, ...]:
        """q signed echoes of a choice, or locks on it, in the highest ballot in which these are known; none if there are not."""
        voters = state.voting.locks if lock else state.voting.echoes
        certified = certificate(self._rules, voters, digest)
        if certified is None:
            return ()
        ballot, members = certified
        signed = {(echo.member, echo.ballot, echo.digest, echo.lock): echo for echo in state.echoes}
        return tuple(signed[member, ballot, digest, lock] for member in members)

    def _decided_by_sums(self, state: CommitteeState) -> CommitteeState:
        """More sums over one choice than members can lie show that it was decided: for who missed the votes."""
        if state.voting.decided:
            return state
        digests = [sent.digest for sent in state.sums.values()]
        enough = (
            digest
            for digest in set(digests)
            if digests.count(digest) >= self._parameters.sums_needed and self._evidence.is_valid(state, digest)
        )
        decided = next(enough, b"")
        return replace(state, voting=replace(state.voting, decided=decided, proposal=None)) if decided else state

    # --- the sum ---

    def _published(self, state: CommitteeState) -> CommitteeState:
        """The own sum over the choice that was decided on, once, if all of it is here and the own numbers fit those of M."""
        digest = state.voting.decided
        if not digest or state.own_sum is not None or state.withheld or not self._evidence.is_valid(state, digest):
            return state
        share = self._sum(state, digest)
        if share is None:
            return replace(state, withheld=True, undelivered=self._others, noise={})
        own = sign_sum(self._session, self._signer, self._member, digest, share.astype("<u4").tobytes())
        return replace(state, own_sum=own, undelivered=self._others, sums=state.sums | {self._member: own}, noise={})

    def _sum(self, state: CommitteeState, digest: bytes) -> Elements | None:
        resolved = self._evidence.resolved(state, digest)
        packing, members = self._parameters.packing, resolved.choice.members
        dealt = [self._noise_of(dealer, content.content) for dealer, content in state.noise.items()]
        total = np.zeros(self._parameters.blocks, dtype=np.uint64)
        for entries, numbers, held in (
            (resolved.chosen, resolved.numbers, self._holdings),
            (resolved.noise, resolved.noise_numbers, [dealing for dealing in dealt if dealing is not None]),
        ):
            due = expected_numbers(packing, members, numbers, self._member)
            places = {key: place for place, key in enumerate(keys_of(entries, "digest"))}
            left = len(places)
            for dealing in held:
                place = places.get(dealing.digest)
                if place is None:
                    continue
                if not np.array_equal(check_numbers(self._session, dealing.digest, dealing.part), due[place]):
                    return None
                total += dealing.part.summed(self._parameters.prime)
                left -= 1
            if left:
                return None
        return (total % np.uint64(self._parameters.prime)).astype(np.uint32)

    def _concluded(self, state: CommitteeState, taken: Taken) -> CommitteeState:
        digest, possible = state.voting.decided, list(taken.results)
        if digest and self._evidence.is_valid(state, digest):
            resolved = self._evidence.resolved(state, digest)
            possible.append(result_of(self._session, resolved, state.sums.values()).to_bytes())
        if not possible:
            return state
        try:
            result, checked = self._first_right(possible)
        except ResultError as error:
            over = state.round > self.rounds
            return replace(state, remarks=(*state.remarks, str(error))) if over else state
        wrong = tuple(f"member {member + 1} published a wrong sum: it lies" for member in checked.wrong)
        left_out = self._evidence.left_out(state, {counted for counted, _, _ in checked.counted})
        wrong = (*self._evidence.wrong_noise(state), *wrong)
        return replace(
            state,
            result=StableBytes(result.to_bytes()),
            voting=replace(state.voting, decided=result.digest, proposal=None),
            undelivered=state.undelivered if state.own_sum is not None else self._others,
            left_out=left_out,
            remarks=(*state.remarks, *wrong),
            noise={},
            lists={},
            choices={},
            sums={},
        )

    def _first_right(self, possible: Sequence[bytes]) -> tuple[Result, CheckedResult]:
        """The first result that holds: a wrong one of a member that lies stands in no way. Raises :class:`ResultError`."""
        for raw in possible:
            try:
                result = read_result(self._session, raw)
                return result, check_result(self._session, result)
            except ResultError as error:
                why = error
        raise why

    # --- what is sent ---

    def _proceed(self, state: CommitteeState, *, tells: bool = False) -> Step[CommitteeState]:
        """``tells``: of a result, if there is one, in this round: who is gone for good is not waited for in all that are left."""
        if state.round > self.rounds:
            return self._end(state)
        if state.round == LISTS:
            return Step(state, (self._message(self._others, LISTS, state.own_list.content),))
        if state.has_result:
            if not state.undelivered or not (tells or state.round > self.rounds - _LAST_TOLD):
                return Step(state)
            content = write_statement(SignedStatement(result=state.result.content))
            return Step(state, (self._message(state.undelivered, state.round, content),))
        statement = self._statement(state)
        if state.round < FIRST_ECHOES and not statement.proposals:
            return Step(state)
        return Step(state, self._told_to_all(state, statement))

    def _statement(self, state: CommitteeState) -> SignedStatement:
        voting = state.voting
        last = max(voting.echoed, default=None)
        proposals = tuple(
            proposal
            for proposal in state.proposals
            if (proposal.ballot, proposal.choice.digest(self._session.session)) in (voting.proposal, last)
        )
        own = tuple(echo for echo in state.echoes if echo.member == self._member)
        # What the next leader, and who is locked on something else, has to know.
        backed = voting.proposal or max(voting.locked, default=None)
        others = () if backed is None else self._signed_by(state, backed[1], lock=False)
        return SignedStatement(
            proposals=proposals,
            echoes=(*own, *(other for other in others if other.member != self._member)),
            vote=state.votes.get(self._member),
            wants=self._evidence.missing(state),
            sum=state.own_sum,
        )

    def _told_to_all(self, state: CommitteeState, statement: SignedStatement) -> tuple[Message, ...]:
        """Return one message to all, and to who lacks lists those besides."""
        plain, messages = write_statement(statement), []
        answers = {
            other: tuple(state.lists[digest].content for digest in wants if digest in state.lists)[:_MOST_LISTS]
            for other, wants in state.wanted.items()
        }
        usual = tuple(other for other in self._others if not answers.get(other))
        if usual:
            messages.append(self._message(usual, state.round, plain))
        for other, lists in answers.items():
            if lists:
                content = write_statement(self._with_lists(statement, lists))
                messages.append(self._message((other,), state.round, content))
        return tuple(messages)

    @staticmethod
    def _with_lists(statement: SignedStatement, lists: tuple[bytes, ...]) -> SignedStatement:
        return SignedStatement(
            statement.proposals, statement.echoes, statement.vote, statement.wants, lists, statement.sum, statement.result
        )

    def _end(self, state: CommitteeState) -> Step[CommitteeState]:
        if not state.has_result:
            return Step(state)
        checked = check_result(self._session, read_result(self._session, state.result.content))
        return Step(state, release=Release(checked.total, checked.weight))

    def _message(self, recipients: tuple[int, ...], round_: int, content: bytes) -> Message:
        return Message(self._member, recipients, round_, _NOTHING, 0.0, content)


def _first_of_each(received: Sequence[Message], round_: int) -> dict[int, bytes]:
    """The contents of a round by sender, in rising order; of a sender with two messages neither counts."""
    senders = [message.sender for message in received if message.round == round_]
    arrived = {message.sender: message.content for message in received if message.round == round_}
    return {sender: arrived[sender] for sender in sorted(arrived) if senders.count(sender) == 1}


def warnings(parameters: CommitteeParameters, state: CommitteeState) -> tuple[str, ...]:
    """The warnings for a member's user, from its last state: who lied, and why nobody has a result, if so."""
    if state.has_result:
        if not state.withheld:
            return state.remarks
        return (*state.remarks, "this member's own numbers did not fit those of the others, and it published nothing")
    if not state.voting.decided:
        least = f"{count_of(parameters.minimum, 'contribution')} or more"
        reason = f"this member heard in time of fewer than {parameters.votes_needed} members that agree on {least} to open"
    else:
        reason = f"{len(state.sums)} of the {parameters.sums_needed} sums that a result needs arrived"
    again = "what was charged stays charged, as others may have the result; a second run is a new study with new contributions"
    return (*state.remarks, reason, again)
