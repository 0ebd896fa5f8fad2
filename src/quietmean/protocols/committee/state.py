"""What a member has to remember between two rounds: all of it durable before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from quietmean.core.codec import StableBytes
from quietmean.protocols.committee.choice import OpeningChoice
from quietmean.protocols.committee.messages import ChoiceProposal, ChoiceVote, Echo, MemberSum
from quietmean.protocols.committee.voting import NOISE, VotingState


@dataclass(frozen=True, slots=True)
class CommitteeState:
    """``noise``: of each member, by number, the excerpt of its noise dealing, until the sum is made. ``own_list``: signed, once.

    ``lists``: all that came, by digest; of one member two if it lies. ``voting``: on digests of choices, with the ``choices``
    themselves, and what was signed: ``proposals``, ``echoes`` of others and own ones, ``votes`` by member. ``own_sum``: published
    once. ``sums``: of each member the first that came. ``wanted``: which lists each member lacks. ``undelivered``: whom the own
    sum has not reached. ``result``: the bytes of the result, empty until it is known. ``left_out``: contributors whose
    contributions came and do not count, and why. ``withheld``: its own numbers did not fit. ``remarks``: who lied, in sentences.
    """

    round: int = NOISE
    noise: dict[int, StableBytes] = field(default_factory=dict, repr=False)
    own_list: StableBytes = field(default=StableBytes(b""), repr=False)
    lists: dict[bytes, StableBytes] = field(default_factory=dict, repr=False)
    voting: VotingState = field(default_factory=VotingState)
    choices: dict[bytes, OpeningChoice] = field(default_factory=dict)
    proposals: tuple[ChoiceProposal, ...] = ()
    echoes: tuple[Echo, ...] = ()
    votes: dict[int, ChoiceVote] = field(default_factory=dict)
    wanted: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    own_sum: MemberSum | None = None
    withheld: bool = False
    sums: dict[int, MemberSum] = field(default_factory=dict, repr=False)
    undelivered: tuple[int, ...] = ()
    result: StableBytes = field(default=StableBytes(b""), repr=False)
    left_out: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def has_result(self) -> bool:
        return bool(self.result.content)
