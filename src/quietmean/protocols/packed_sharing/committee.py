"""A committee drawn from many parties: how large it has to be, what it may cost in delta, and what it would send.

The committee is drawn from the public seed, after it is fixed who colludes. With a small chance more of its members collude than
planned; that chance is the same whatever the values are, so it is added to delta (the column beta of a charge). All of this is
computed only: the parties of this version are all members, see docs/scale.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quietmean.protocols.packed_sharing.inputs import leaving
from quietmean.protocols.target import Target

# The chance that a drawn committee has more colluders than planned: at most, and as a part of delta.
FAILURE, FAILURE_OF_DELTA = 1e-8, 0.01
# Redraws of the committee that the bound counts: a party that withholds its committed value forces one.
REDRAWS = 10
# The chance that more members leave than a result can do without.
TOO_FEW_MEMBERS = 1e-4
# The largest committee that is looked for; beyond the first number sizes are tried in steps of 2 %.
_LARGEST, _ONE_BY_ONE = 600, 150
# Rounds: dealing, status, proposal, votes, sums, and the result to everybody.
ROUNDS = 6
# From this many parties on a committee is worth drawing.
MANY = 500
# Bytes of a message besides its content.
_OVERHEAD = 40
# The link of a party that predicted times assume: bytes a second each way, and seconds to another party.
BANDWIDTH, LATENCY = 12.5e6, 0.05


@dataclass(frozen=True)
class DrawnCommittee:
    """``members`` (m) of whom ``colluding`` (c_m) collude and ``gone`` (f) leave at most.

    ``secrets`` (l) numbers lie on a polynomial. ``beta``: the chance that more collude, all draws together, rounded up.
    ``chance_of_too_few``: that more than f leave.
    """

    members: int
    colluding: int
    gone: int
    secrets: int
    beta: float
    chance_of_too_few: float

    @property
    def votes_needed(self) -> int:
        """q, the number of votes that decide whose inputs count."""
        return (self.members + self.colluding) // 2 + 1


def upper_tail(population: int, marked: int, drawn: int, limit: int) -> Fraction:
    """P[more than ``limit`` of ``drawn`` are marked] if ``marked`` of the ``population`` are: hypergeometric, exact."""
    weights = _weights(population, marked, drawn)
    return Fraction(sum(weights[limit + 1 :]), math.comb(population, drawn))


def committee_for(target: Target, share: float = 0.0) -> DrawnCommittee | None:
    """The smallest committee for a target with at least ``share`` * m secrets a polynomial; None if none of up to 600 will do.

    The chance, a draw, that more members collude than planned is at most 1e-8, and 1 % of delta.
    """
    failure = min(FAILURE, FAILURE_OF_DELTA * target.delta)
    committees = (_committee(target, members, failure) for members in _sizes(min(_LARGEST, target.parties - 1)))
    return next(
        (
            committee
            for committee in committees
            if committee is not None and committee.secrets >= max(1.0, share * committee.members)
        ),
        None,
    )


def _sizes(largest: int) -> Iterator[int]:
    size = 2
    while size <= largest:
        yield size
        size += 1 if size < _ONE_BY_ONE else size // 50


def _committee(target: Target, members: int, failure: float) -> DrawnCommittee | None:
    """A committee of this size, with the least numbers of colluders and leavers to plan for; None if it has no result."""
    colluding, chance = _least(target.parties, target.colluding, members, failure)
    leaving_members, too_few = _least(target.parties, leaving(target), members, TOO_FEW_MEMBERS)
    secrets = min(members - leaving_members - colluding, target.dimension)
    beta = min(1.0, math.nextafter(float((1 + REDRAWS) * chance), 1.0))
    committee = DrawnCommittee(members, colluding, leaving_members, secrets, beta, float(too_few))
    return committee if secrets >= 1 and committee.votes_needed <= members - leaving_members else None


def _least(population: int, marked: int, drawn: int, chance: float) -> tuple[int, Fraction]:
    """The least number that is exceeded with at most this chance, and with which it is."""
    weights, total, above = _weights(population, marked, drawn), math.comb(population, drawn), 0
    limit = Fraction(chance) * total
    for number in range(drawn, 0, -1):
        if above + weights[number] > limit:
            return number, Fraction(above, total)
        above += weights[number]
    return 0, Fraction(above, total)


def _weights(population: int, marked: int, drawn: int) -> list[int]:
    """In how many ways 0, 1, ... ``drawn`` marked ones can be drawn; exact."""
    lowest = max(0, drawn - (population - marked))
    ways = math.comb(marked, lowest) * math.comb(population - marked, drawn - lowest)
    weights = [0] * lowest
    for count in range(lowest, drawn + 1):
        weights.append(ways)
        ways = ways * (marked - count) * (drawn - count) // ((count + 1) * (population - marked - drawn + count + 1))
    return weights


@dataclass(frozen=True)
class Cost:
    """What a run takes: bytes of messages with 40 of framing each, and seconds on the links alone, without computing."""

    dealer_sends: float
    member_sends: float
    member_receives: float
    party_receives: float
    seconds: float
    rounds: int = ROUNDS


def cost(committee: DrawnCommittee, target: Target, word_bytes: int) -> Cost:
    """Estimates for a usual run: everybody deals, members publish to each other, each party hears the result.

    A party accepts what c_m + 1 members send alike, and f of the senders may have left. Seconds are those of the links that
    everybody is assumed to have (100 Mbit a second each way, 50 ms): each round lasts as long as its busiest party takes.
    """
    n, m, d = target.parties, committee.members, target.dimension
    share = -(-d // committee.secrets) * word_bytes + _OVERHEAD
    dealt = (m - committee.colluding) * share + committee.colluding * (32 + _OVERHEAD)
    held = n * (dealt / m)
    # Status, proposal and vote are sets of dealers and members.
    talk = (m - 1) * (3 * math.ceil(n / 8) + 2 * math.ceil(m / 8) + 3 * _OVERHEAD)
    published = (m - 1) * share
    result_bytes = min(committee.colluding + 1 + committee.gone, m) * (word_bytes * d + _OVERHEAD)
    relayed = (n - m) * result_bytes / m
    slowest = max(dealt, held) + talk + published + max(relayed, result_bytes)
    return Cost(
        dealt, dealt + talk + published + relayed, held + talk + published, result_bytes, ROUNDS * LATENCY + slowest / BANDWIDTH
    )


def described(target: Target, word_bytes: int) -> dict[str, Any] | None:
    """What a plan says of a committee for this target: an estimate; None where there is none, or fewer than 500 parties.

    ``mse_times``: how many times the noise variance grows as beta is taken from delta.
    """
    from quietmean.privacy import mu_of_budget

    if target.parties < MANY:
        return None
    # For long vectors, a larger committee pays for itself by shorter shares.
    committee = (
        committee_for(target) if target.dimension < target.parties else committee_for(target, 0.5) or committee_for(target)
    )
    if committee is None or committee.beta >= target.delta:
        return None
    spent = cost(committee, target, word_bytes)
    noise = (mu_of_budget(target.epsilon, target.delta) / mu_of_budget(target.epsilon, target.delta - committee.beta)) ** 2
    return {
        "members": committee.members,
        "colluding_members": committee.colluding,
        "gone": committee.gone,
        "quorum": committee.votes_needed,
        "secrets": committee.secrets,
        "beta": committee.beta,
        "chance_of_too_few_members": committee.chance_of_too_few,
        "mse_times": noise,
        "rounds": spent.rounds,
        "bytes_party_sends": spent.dealer_sends,
        "bytes_party_receives": spent.party_receives,
        "bytes_member_sends": spent.member_sends,
        "bytes_member_receives": spent.member_receives,
        "seconds_on_links": spent.seconds,
        "is": "an estimate for a committee drawn among the parties; the parties of this version are all members",
    }
