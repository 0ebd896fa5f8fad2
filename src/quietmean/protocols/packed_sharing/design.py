"""From a target to parameters: everything is computed, nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.noise_law import NoiseKind
from quietmean.core.schema import OPEN, given_value
from quietmean.protocols.packed_sharing.ballots import ballots_needed
from quietmean.protocols.packed_sharing.encoding import (
    COARSE,
    Settings,
    chance_of_fewer,
    charge,
    expected_error,
    largest_that_holds,
    least_inputs,
    least_mu,
    leaving,
    on_grid,
    shares_distance,
    wanted_fineness,
)
from quietmean.protocols.packed_sharing.spec import (
    ANY,
    BALL,
    BOX,
    LARGE_PRIME,
    SMALL_PRIME,
    PackedSharingParameters,
    check_numbers,
    largest_sum,
)
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
    """A committee that is drawn at random from all parties.

    ``members`` (m) of whom ``colluding`` (c_m) collude and ``gone`` (f) leave at most.

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
        "is": "an estimate for a committee drawn from the parties; the parties of this version are all members",
    }


# The factor of the error that is accepted for half of the traffic.
_FOR_HALF = 1.001
_LARGEST_WEIGHT = 2.0**20
# How many times the bytes it may take to correct one wrong sum where nobody asked for it.
_MOST_FOR_A_LIE = 1.05
# The number of records of a party that there is room for, where none is stated.
_USUAL_WEIGHT = 2.0**15


def designed(requested: Settings, target: Target, largest: float | None = None) -> tuple[Settings, float, float, str]:
    """Parameters with the least expected error; that error (noise; lost values) per coordinate; and the certificate in words.

    ``largest``: what coordinates reach in size where nothing else is known of the domain, by default the sensitivity.
    A run has too few inputs with a chance of 1e-3 at most, and all its leaders are gone with one of 1e-5. Raises
    :class:`InputError` where a result, or the target, is impossible.
    """
    shape = _shaped(requested, target, largest)
    parameters = _of_less_error(shape, target) if requested.prime is OPEN else _settled(shape, target)
    noise, lost = expected_error(target, parameters.minimum, parameters.party_variance)
    laplace = ", together Laplace noise" if parameters.shares else ""
    certificate = (
        f"by formula, against any coalition of {target.colluding}, which may do anything. "
        f"A sum of {parameters.minimum} inputs or more has {parameters.minimum - target.colluding} noises that it does not know "
        f"(upper bound{laplace}). It is assumed that AES-256 gives true random numbers. There are too few inputs with a "
        f"chance of {chance_of_fewer(target, parameters.minimum):.1g}"
    )
    return parameters, noise, lost, certificate


def _of_less_error(shape: Settings, target: Target) -> Settings:
    """The settings with numbers of 2 bytes where these cost next to no error, else of 4."""
    small: Settings | None
    try:
        small = _settled(replace(shape, prime=SMALL_PRIME), target)
    except InputError:
        small = None
    large = _settled(replace(shape, prime=LARGE_PRIME), target)
    if small and shape.largest_weight is OPEN and small.largest_weight < _USUAL_WEIGHT:
        return large
    return small if small and small.party_variance <= _FOR_HALF * large.party_variance else large


def _shaped(requested: Settings, target: Target, largest: float | None) -> Settings:
    """Everything but grid and noise, with defaults for open numbers; ``clip`` is what there should be room for."""
    n, c = target.parties, target.colluding
    gone = given_value(requested.gone, leaving(target))
    if gone >= n:
        raise InputError(f"gone is {gone}, but there are {n} members. Choose fewer than these.")
    lies = given_value(requested.lies, _lies_for_next_to_nothing(target, gone) if requested.secrets is OPEN else 0)
    most_secrets = _most_secrets(target, gone, lies)
    is_laplace = requested.noise == NoiseKind.LAPLACE
    is_whole = is_laplace and target.rounded == 0
    region = given_value(requested.region, ANY if is_whole else BOX)
    if largest is None:
        # Of one table replacing a record changes two cells; the cube that is taken for the domain, all numbers.
        cells = max(target.l1_change / 2, target.sensitivity / math.sqrt(target.dimension)) if is_whole else 0.0
        largest = cells or target.sensitivity
    half = target.sensitivity / 2
    in_box = half / math.sqrt(target.dimension)
    weight = 1.0 if target.unit == PrivacyUnit.PARTY else OPEN
    shaped = replace(
        requested,
        members=n,
        colluding=c,
        colluding_members=c,
        secrets=given_value(requested.secrets, max(most_secrets, 1)),
        minimum=given_value(requested.minimum, max(least_inputs(target), c + 1)),
        lies=lies,
        gone=gone,
        ballots=given_value(requested.ballots, ballots_needed(n, gone)),
        region=region,
        centre=in_box if region == BOX else 0.0,
        clip=in_box if region == BOX else half if region == BALL else largest,
        largest_weight=given_value(requested.largest_weight, weight),
        dimension=target.dimension,
        l1=target.l1_change if is_laplace else None,
        rounded=target.rounded if is_laplace else target.rounded or None,
    )
    guess = replace(
        shaped,
        prime=given_value(requested.prime, LARGE_PRIME),
        largest_weight=given_value(shaped.largest_weight, 1.0),
        step=1.0,
        sigma=COARSE,
        clip=1.0,
    )
    check_numbers(guess, n)
    return shaped


def _most_secrets(target: Target, gone: int, lies: int) -> int:
    """How many numbers one polynomial may hide, with a result though ``gone`` leave and ``lies`` sums are wrong."""
    return min(target.dimension, target.parties - gone - target.colluding - 2 * lies)


def _lies_for_next_to_nothing(target: Target, gone: int) -> int:
    """One wrong sum is corrected where that takes little more bytes; the error does not depend on it."""
    secrets, fewer = _most_secrets(target, gone, 0), _most_secrets(target, gone, 1)
    if fewer < 1:
        return 0
    blocks, more = (-(-target.dimension // each) for each in (secrets, fewer))
    return int(more <= _MOST_FOR_A_LIE * blocks)


def _settled(shape: Settings, target: Target) -> Settings:
    """The finest grid of use for which there is room, and the least noise on it. Raises :class:`InputError` if there is none."""
    is_open = shape.largest_weight is OPEN
    # Whether a party is one unit decides what rounding costs; the room is for the weight that is known, or for a usual one.
    unit = replace(shape, largest_weight=2.0) if is_open else shape
    is_laplace = shape.noise == NoiseKind.LAPLACE
    mu = math.inf if is_laplace else least_mu(target, shares_distance(unit, target.parties))

    def made(fineness: int, weight: float) -> Settings:
        return replace(on_grid(unit, target, mu, fineness), largest_weight=weight)

    def fits(fineness: int, weight: float) -> bool:
        return largest_sum(made(fineness, weight), target.parties) <= shape.prime // 2

    coarse, fine = wanted_fineness(unit, target, mu)
    weights = (_USUAL_WEIGHT, 1.0) if is_open else (shape.largest_weight,)
    weight = next((candidate for candidate in weights if fits(coarse, candidate)), None)
    if weight is None:
        raise InputError(
            f"a sum of {target.parties} values of {target.dimension} coordinates has no room modulo {shape.prime}: "
            + (f"choose prime {LARGE_PRIME}, " if shape.prime != LARGE_PRIME else "")
            + "plan for fewer parties or coordinates, a smaller largest_weight, or a larger epsilon"
        )
    parameters = made(largest_that_holds(lambda fineness: fits(fineness, weight), coarse, fine), 1.0 if is_open else weight)
    if is_open:
        parameters = replace(parameters, largest_weight=_headroom(parameters, target.parties))
    check_numbers(parameters, target.parties)
    _check_target(parameters, target)
    return parameters


def _headroom(parameters: PackedSharingParameters, parties: int) -> float:
    """The largest weight, a whole number, for which sums still fit: parties of many records need more than one of one."""
    room, per_unit = parameters.prime // 2, parties * parameters.clip / parameters.step
    noise = largest_sum(parameters, parties) - parties * parameters.inputs_range
    return float(max(1, min(math.floor((room - noise) / per_unit), _LARGEST_WEIGHT)))


def _check_target(parameters: PackedSharingParameters, target: Target) -> None:
    """Noise for privacy: s^2 (u_min - c) is at least the variance needed. A proof by the charge itself."""
    spent = charge(parameters, target.sensitivity, target.parties, parameters.minimum - target.colluding)
    if not spent.epsilon(target.delta) <= target.epsilon:
        raise InputError(f"noise of {parameters.sigma:g} keeps no epsilon of {target.epsilon:g}. Plan with a larger delta.")


def chance_of_another_run(parameters: PackedSharingParameters, target: Target) -> float:
    """The chance of no result: too few inputs, or all leaders gone."""
    # A small committee has fewer leaders than ballots: all of it.
    leaders = min(parameters.ballots, parameters.members)
    leaderless = math.comb(parameters.gone, leaders) / math.comb(parameters.members, leaders)
    return min(1.0, chance_of_fewer(target, parameters.minimum) + leaderless)


def figures(parameters: PackedSharingParameters, target: Target) -> Mapping[str, Any]:
    """Further figures of a plan: thresholds, the error if half of all dropouts hit dealing, and what a committee would take."""
    noise, lost = expected_error(target, least_inputs(target, 0.5), parameters.party_variance, 0.5)
    return {
        "threshold": parameters.threshold,
        "quorum": parameters.votes_needed,
        "minimum": parameters.minimum,
        "chance_of_another_run": chance_of_another_run(parameters, target),
        "word_bytes": parameters.word_bytes,
        "mse_if_half_leave_while_dealing": noise + lost,
        "committee": described(target, parameters.word_bytes),
    }
