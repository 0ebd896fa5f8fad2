"""The parameters of packed secret sharing, and what must hold between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.noise_law import NoiseKind
from quietmean.core.party import NoiseGroup, PartyId, Vector
from quietmean.core.schema import OPEN, Configured, is_kind, parameter, wrong_field
from quietmean.graphs import Schedule
from quietmean.protocols.mechanism import Releases
from quietmean.protocols.noise_shares import NoiseInShares, l1_field, rounded_field
from quietmean.protocols.packed_sharing.ballots import LARGEST_BALLOTS, BallotRules
from quietmean.protocols.target import Target
from quietmean.protocols.traits import unit_cube
from quietmean.randomness import laplace_shares
from quietmean.randomness.layered_gaussian import LARGEST_SCALE
from quietmean.transcript import Transcript, TranscriptBuilder

# Both are prime: the larger takes 4 bytes a number, the smaller 2.
LARGE_PRIME, SMALL_PRIME = 2**31 - 1, 65521
BOX, BALL, ANY = "box", "ball", "any"
# Integers are held in 64 bits before they are reduced.
_LARGEST_INTEGER = 2.0**52
_OVERFLOW_CHANCE = 2.0**-40
# The least standard deviation of a party's noise, in steps.
LEAST_SCALE = 2.0
# The most parties between machines, where each is connected to all others.
MOST_PARTIES = 10_000
_POSITIVE = "choose a finite number > 0"
# Fields that execution files may leave out.
DEFAULTS: dict[str, Any] = {"lies": 0, "centre": 0.0, "largest_weight": 1.0, "region": BOX, "prime": LARGE_PRIME}


def _read_parties(raw: Any) -> tuple[int, ...] | None:
    """Read party numbers. Raises :class:`InputError` for anything but a list of party numbers, or nothing."""
    if raw is None:
        return None
    if not (isinstance(raw, list) and all(is_kind(number, int) for number in raw)):
        raise wrong_field("inputs", raw, "a list of party numbers")
    return tuple(sorted(set(raw)))


def _write_parties(value: tuple[int, ...] | None) -> list[int] | None:
    return None if value is None else list(value)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PackedSharingParameters(NoiseInShares, Configured):
    """n parties deal their noisy values to m ``members``; of the parties ``colluding`` (c), of the members
    ``colluding_members`` (c_m) collude at most.

    ``secrets`` (l) numbers lie on one polynomial of degree < ``threshold`` = T = c_m + l modulo ``prime``. There is a result from
    ``minimum`` (u_min) inputs on, ``lies`` (e) wrong sums are corrected, ``gone`` (f) members may leave at any moment, and
    ``ballots`` (B) leaders propose whose inputs count. A value is rounded to whole multiples of ``step``, and each party adds
    discrete Gaussian noise of standard deviation ``sigma``; both in the units of the values. With ``noise`` laplace it adds a
    share of discrete Laplace noise of scale ``sigma``, of which u_min - c are that noise: it hides an L1 change of ``l1``, before
    rounding. That changes ``rounded`` coordinates by a step more, at all parties that one person is at. A value of public weight
    w <= ``largest_weight`` lies within w * ``clip`` of w * ``centre`` in every coordinate: with the ``region`` box, ``clip`` is a
    whole number of steps, so that rounding stays inside; with ball, it is the radius; with any, nothing else is known.

    ``inputs``: whose values were added up, where a receipt knows, and ``sums``: how many members' sums it is from. n is not a
    parameter: :func:`check_numbers` takes it. Raises
    :class:`InputError` for parameters that contradict each other.
    """

    members: int = parameter(help="parties that hold shares: all of them", at_least=2, remedy="choose 2 or more")
    colluding: int = parameter(help="parties that may collude", at_least=0, remedy="choose a number of parties >= 0")
    colluding_members: int = parameter(
        help="members that may collude: so many random points hide a value", at_least=0, remedy="choose a number of members >= 0"
    )
    secrets: int = parameter(
        help="numbers of a value that share one polynomial",
        option=True,
        at_least=1,
        remedy="choose 1 or more",
    )
    minimum: int = parameter(help="least inputs that give a result", option=True, at_least=1, remedy="choose 1 or more")
    lies: int = parameter(
        help="wrong sums that are corrected", option=True, required=False, at_least=0, remedy="choose a number of members >= 0"
    )
    gone: int = parameter(
        help="members that may be gone at any moment", option=True, at_least=0, remedy="choose a number of members >= 0"
    )
    ballots: int = parameter(
        help="leaders that may propose, one after the other", option=True, at_least=1, remedy="choose 1 or more"
    )
    prime: int = parameter(help="modulus of all shares", option=True, required=False)
    step: float = parameter(help="value of one step of the inputs", above=0, remedy=_POSITIVE)
    sigma: float = parameter(
        help="standard deviation of each party's noise, or the scale of Laplace noise", above=0, remedy=_POSITIVE
    )
    noise: NoiseKind = parameter(
        NoiseKind.GAUSSIAN,
        help="kind of noise",
        option=True,
        required=False,
        choices=tuple(NoiseKind),
        written=lambda protocol: protocol.noise != NoiseKind.GAUSSIAN,
    )
    l1: float | None = l1_field()
    rounded: int | None = rounded_field()
    region: str = parameter(
        help="where values lie", option=True, required=False, key="domain", flag="value-domain", choices=(BOX, BALL, ANY)
    )
    centre: float = parameter(help="what is taken off every coordinate", required=False, remedy="choose a finite number")
    clip: float = parameter(help="the largest distance of a coordinate from the centre", above=0, remedy=_POSITIVE)
    largest_weight: float = parameter(
        help="the largest public weight of a party", option=True, required=False, above=0, remedy=_POSITIVE
    )
    dimension: int = parameter(help="coordinates of a value", at_least=1, remedy="choose 1 or more")
    inputs: tuple[int, ...] | None = parameter(
        None, help="parties whose values were added up, where that is known", read=_read_parties, write=_write_parties
    )
    sums: int | None = parameter(
        None, help="members' sums that a result is from, where that is known", at_least=1, remedy="choose 1 or more"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prime is not OPEN and self.prime not in (LARGE_PRIME, SMALL_PRIME):
            raise InputError(f"prime is {self.prime}. Choose {LARGE_PRIME} (4 bytes a number) or {SMALL_PRIME} (2 bytes).")
        if any(getattr(self, name) is OPEN for name in ("sigma", "step", "clip")):
            return
        self._check_noise()
        if self.clip / self.step > _LARGEST_INTEGER:
            raise InputError(f"a step of {self.step:g} is too fine for values up to {self.clip:g}. Raise it.")

    def _check_noise(self) -> None:
        most = LARGEST_SCALE
        if self.noise == NoiseKind.LAPLACE:
            most = laplace_shares.LARGEST_SCALE
            if self.l1 is None:
                raise InputError("noise is laplace without l1. Give the L1 change that it hides, or take noise gaussian.")
            if self.region == BALL:
                raise InputError("noise laplace needs values bounded one by one, and the domain is a ball. Leave domain out.")
            if self.is_whole and (self.region != ANY or self.centre):
                raise InputError("rounded is 0, which needs the domain any around 0. Leave domain and rounded out.")
        elif self.is_whole:
            raise InputError("rounded is 0, which is for Laplace noise only. Leave it out.")
        if not LEAST_SCALE <= self.scale <= most:
            raise InputError(f"sigma is {self.scale:g} steps. Choose {LEAST_SCALE:g}..{most:g} steps, by another step or sigma.")

    @property
    def threshold(self) -> int:
        """T, the number of sums that determine the result."""
        return self.colluding_members + self.secrets

    @property
    def lies_excluded(self) -> int | None:
        """How many wrong sums would have been noticed for certain, and were not; None where nobody says how many sums came.

        Of k sums of which up to e' = min(e, (k - T) / 2) are corrected that is k - T - e'.
        """
        if self.sums is None:
            return None
        spare = self.sums - self.threshold
        return spare - min(self.lies, spare // 2)

    @property
    def votes_needed(self) -> int:
        """q, the number of votes that decide whose inputs count."""
        return (self.members + self.colluding_members) // 2 + 1

    @property
    def moved(self) -> int:
        """How many coordinates rounding may change by a step more, of all parties that one unit is at."""
        return self.dimension if self.rounded is None else self.rounded

    @property
    def grid(self) -> float:
        return self.step

    @property
    def shares(self) -> int:
        # The least honest inputs of a sum.
        return self.minimum - self.colluding if self.noise == NoiseKind.LAPLACE else 0

    @property
    def blocks(self) -> int:
        """Polynomials of one value: the numbers in one share."""
        return -(-self.dimension // self.secrets)

    @property
    def word_bytes(self) -> int:
        """Bytes of one number of a share on the wire."""
        return 2 if self.prime == SMALL_PRIME else 4

    @property
    def rounds(self) -> int:
        """Rounds of the machine: dealing, status, and two for each ballot, which overlap."""
        return 2 * self.ballots + 4

    @property
    def one_unit(self) -> bool:
        """Is a party's whole value within the region of one unit? Else it is a sum over several records."""
        return self.largest_weight <= 1.0

    @property
    def party_variance(self) -> float:
        """Variance per coordinate that one party's noise and rounding add to the sum; of rounding its mean over values."""
        return self.deviation**2 + (0.0 if self.is_whole else self.step**2 / 6)

    @property
    def inputs_range(self) -> int:
        """The largest size of one party's value in whole steps, without noise."""
        return math.ceil(self.largest_weight * self.clip / self.step)

    def rules(self, parties: int) -> BallotRules:
        """The rules of the ballots, for n = ``parties``."""
        return BallotRules(
            parties=parties,
            colluding=self.colluding_members,
            secrets=self.secrets,
            votes_needed=self.votes_needed,
            least=self.minimum,
            gone=self.gone,
            liars=self.lies,
            ballots=self.ballots,
        )


@dataclass(frozen=True)
class Condition:
    """One inequality: ``purpose`` it serves, whether it ``holds``, and what to say if not, remedy included."""

    purpose: str
    holds: bool
    problem: str


def conditions(parameters: PackedSharingParameters, parties: int) -> Iterator[Condition]:
    """All that must hold for n = ``parties``, in the order in which it is checked; see docs/proofs/packed-sharing.md."""
    yield from _roles(parameters, parties)
    yield from _privacy(parameters, parties)
    yield from _results(parameters)
    room, needed = parameters.prime // 2, largest_sum(parameters, parties)
    yield Condition(
        "the sum is that of whole numbers",
        needed <= room,
        f"a sum over {parties} parties reaches {needed:.6g} steps but modulo {parameters.prime} there is room for {room}. Take "
        f"prime {LARGE_PRIME}, a larger step, a smaller largest_weight, or fewer parties.",
    )


def _roles(parameters: PackedSharingParameters, parties: int) -> Iterator[Condition]:
    m, c, cm = parameters.members, parameters.colluding, parameters.colluding_members
    yield Condition("somebody to add up with", parties >= 2, f"{parties} party has nobody to add up with: at least 2 are needed")
    yield Condition(
        "every party is a member",
        m == parties,
        f"members is {m} of {parties} parties: all parties are members. Choose {parties}.",
    )
    yield Condition(
        "every party is a member",
        cm == c,
        f"colluding_members is {cm} but {c} parties may collude, all of them members. Choose {c}.",
    )
    is_whole = parameters.region != BOX or (parameters.clip / parameters.step).is_integer()
    yield Condition(
        "rounding stays inside the box",
        is_whole,
        f"a box from -{parameters.clip:g} to {parameters.clip:g} around its centre is not a whole number of steps of "
        f"{parameters.step:g}. Choose a step that divides {parameters.clip:g}.",
    )
    yield Condition(
        "a ballot takes one byte",
        parameters.ballots <= LARGEST_BALLOTS,
        f"ballots is {parameters.ballots}. Choose 1..{LARGEST_BALLOTS}.",
    )


def _privacy(parameters: PackedSharingParameters, parties: int) -> Iterator[Condition]:
    m, c, u = parameters.members, parameters.colluding, parameters.minimum
    yield Condition(
        "secrecy: every secret and every member has a point of its own",
        m + parameters.secrets < parameters.prime,
        f"{m} members and {parameters.secrets} secrets need more points than {parameters.prime} has. Choose fewer secrets.",
    )
    yield Condition(
        "privacy before the start: somebody's noise is unknown to all colluders",
        u >= c + 1,
        f"minimum is {u} inputs, of which {c} may be the colluders' own: nobody's noise is left. Choose {c + 1} or more.",
    )
    yield Condition(
        "inputs",
        u <= parties,
        f"minimum is {u} inputs of {parties} parties: there would never be a result. Choose {parties} or fewer.",
    )
    yield Condition(
        "one sum, even if members lie",
        2 * parameters.votes_needed > m + parameters.colluding_members,
        f"a quorum of {parameters.votes_needed} of {m} members is too small: two sums could be decided on",
    )


def _results(parameters: PackedSharingParameters) -> Iterator[Condition]:
    m, f, e = parameters.members, parameters.gone, parameters.lies
    staying = m - f
    yield Condition(
        "a decision with f members gone at any moment",
        parameters.votes_needed <= staying,
        f"a decision needs {parameters.votes_needed} of {m} "
        f"votes as {parameters.colluding_members} members may collude, but with {f} "
        f"gone there are {staying}. Plan for fewer dropouts, or for fewer colluding parties.",
    )
    needed = parameters.threshold + 2 * e
    yield Condition(
        "a result with f members gone at any moment, and e sums wrong",
        needed <= staying,
        f"a result needs {needed} sums ({parameters.colluding_members} colluding, {parameters.secrets} secrets, 2 for each of "
        f"{e} wrong sums), but with {f} of {m} members gone there are {staying}. Choose fewer secrets or lies, or plan for fewer "
        "dropouts.",
    )


def largest_sum(parameters: PackedSharingParameters, parties: int) -> float:
    """What the sum over all ``parties`` does not exceed in steps, but for a chance of 2^-40, whatever the values are."""
    chance = _OVERFLOW_CHANCE / (2 * parameters.dimension)
    if parameters.shares:
        tail = laplace_shares.reach(parameters.scale, parties / parameters.shares, chance)
    else:
        # A discrete Gaussian's tails are no heavier than a Gaussian's of the same scale (Canonne, Kamath and Steinke 2020).
        tail = math.sqrt(-2 * math.log(chance)) * math.sqrt(parties) * parameters.scale
    return parties * parameters.inputs_range + tail


def check_numbers(parameters: PackedSharingParameters, parties: int) -> None:
    """Raises :class:`InputError` for the first of the :func:`conditions` that does not hold."""
    for condition in conditions(parameters, parties):
        if not condition.holds:
            raise InputError(condition.problem)


def sum_transcript(
    schedule: Schedule, counted: Mask, sigma: float, *, by: PartyId | None = None, owned: bool = True
) -> Transcript:
    """The transcript of one sum over the parties ``counted``, (n,), published ``by`` a party: by default the first of them.

    Each has noise of standard deviation ``sigma``, known to it alone; if it is not ``owned``, all have one that nobody knows.
    """
    builder, parties = TranscriptBuilder(schedule.parties), np.nonzero(counted)[0].tolist()
    if parties:
        owners = [[party] for party in parties] if owned else [[]]
        noise = {builder.add_noise(own, sigma, NoiseGroup.INDEPENDENT): 1.0 for own in owners}
        sender = parties[0] if by is None else by
        builder.add_message(sender, schedule.rounds + 1, values=dict.fromkeys(parties, 1.0), noise=noise, released=True)
    return builder.build()


def sum_error(counted: Mask, weights: Array, variance: float) -> float:
    """Variance of the mean of the parties ``counted``, (n,), from that of their sum; infinite without any. Weights (n,)."""
    return float(variance / weights[counted].sum() ** 2) if counted.any() else np.inf


def sum_released(by: Mask, values: Vector, vector: Vector, weight: float) -> Releases:
    """The releases of a sum, ``vector`` (d,) of this weight, of all parties ``by``, (n,). Values (n, d)."""
    return Releases(np.where(by[:, None], vector, np.zeros_like(values)), np.where(by, weight, 0.0), by)


def value_region(protocol: Any, target: Target, weight: float) -> Box | Ball:
    """The box or the ball around the ``centre`` of a protocol, of half width or radius ``clip``, for a public weight."""
    middle, reach = weight * protocol.centre, weight * protocol.clip
    if protocol.region == BALL:
        return Ball(size=target.dimension, radius=reach, centre=middle)
    return Box(size=target.dimension, low=middle - reach, high=middle + reach)


def input_domain(protocol: Any, target: Target) -> InputDomain:
    """The ball or the box of the region, no wider than the sensitivity."""
    if protocol.region == BALL:
        return InputDomain.ball(target.dimension, min(protocol.clip, target.sensitivity / 2), protocol.centre)
    return unit_cube(protocol, target)
