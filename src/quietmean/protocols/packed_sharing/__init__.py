"""Packed secret sharing between peers: the sum with near-central noise, nobody collects, and the guarantee is known beforehand.

Ben-Or, Goldwasser and Wigderson 1988; packed by Franklin and Yung 1992.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.domain import REPLACED
from quietmean.core.errors import InputError
from quietmean.core.grid import Numbers, WholeNumbers
from quietmean.core.input_domain import InputDomain
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, PopulationNoise, Units, Vector
from quietmean.core.schema import OPEN, filled
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.mechanism import Closing, Design, Mechanism, Releases
from quietmean.protocols.packed_sharing.ballots import members_of, unpack
from quietmean.protocols.packed_sharing.design import designed, figures
from quietmean.protocols.packed_sharing.encoding import USUAL_ROUNDS, decode_sum, draw_schedule, expected_error, is_drawn, rounded
from quietmean.protocols.packed_sharing.messages import (
    Codec,
    FollowedOutcome,
    ShareReader,
    follow,
    known_share,
    reach,
    unknown_noise,
)
from quietmean.protocols.packed_sharing.party import PackedSharingParty, PackedSharingState, nothing_published, warnings
from quietmean.protocols.packed_sharing.spec import (
    ANY,
    BALL,
    BOX,
    DEFAULTS,
    MOST_PARTIES,
    PackedSharingParameters,
    check_numbers,
    input_domain,
    sum_error,
    sum_released,
    sum_transcript,
    value_region,
)
from quietmean.protocols.target import Target
from quietmean.protocols.traits import WRAPS, AcceptedValues, Attack, Checks, MessageAttack, Planning, Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion


def opened_sum(
    parameters: PackedSharingParameters, inputs: Mask, values: Vector, weights: Array, noise: PopulationNoise
) -> tuple[Vector, float]:
    """The decoded sum of the ``inputs``, (n,), shape (d,), and their total weight: what T members' sums open, exactly.

    ``values`` have shape (n, d), ``weights`` (n,).
    """
    drawn = noise.discrete(NoiseGroup.INDEPENDENT, 0, parameters.scale, values.shape[1], parameters.shares)
    total = drawn[inputs].sum(axis=0)
    for party in np.nonzero(inputs)[0].tolist():
        seed = Seed(noise.party(party).secret("rounding", 0))
        total += rounded(parameters, values[party], float(weights[party]), seed)
    # Added one by one, as the machines do.
    weight = float(sum(weights[inputs].tolist()))
    return decode_sum(parameters, _modulo(parameters, total), weight), weight


def _modulo(parameters: PackedSharingParameters, total: Units) -> Units:
    """The sum as it comes out of arithmetic modulo p, between -p/2 and p/2."""
    half = parameters.prime // 2
    return (total + half) % parameters.prime - half


# Messages of a usual run to each of the other parties.
_USUAL_MESSAGES = 4


_ATTENDANCE = Assumption(
    Key.ATTENDANCE,
    "An honest party sends, fails or is late independently of its data and noise, and never continues from an old copy of "
    "its store.",
)


def _opening(
    protocol: PackedSharing,
    schedule: Schedule,
    trace: ExecutionTrace,
    weights: Vector,
    sensitivity: float,
    corrupt: frozenset[PartyId],
    target: PartyId,
) -> MessageAttack:
    """In a box on all coordinates at once, else on one. Raises :class:`InputError` in a ball."""
    if protocol.region == BALL:
        raise InputError(
            f"The attack needs values bounded one by one, and {protocol.name} here bounds them together in a "
            "ball. Attack an execution whose domain is a box."
        )
    counted, together = protocol.contributors(schedule, trace), protocol.dimension if protocol.region == BOX else 1
    half, base = reach(protocol, together, float(weights[target]), sensitivity), weights * protocol.centre
    base[target] -= half
    return MessageAttack(
        together=together,
        base=base,
        change=2 * half,
        share=known_share(protocol, counted, corrupt, target),
        noise=unknown_noise(protocol, counted, corrupt),
        stretched=lambda size: replace(protocol, dimension=size),
        read=ShareReader(protocol, corrupt, target).read,
    )


def _planned_for(protocol: PackedSharing, target: Target, domain: InputDomain) -> PackedSharing:
    """Itself where the domain lies in its region, else on a grid for any domain as large as this one."""
    if value_region(protocol, target, 1.0).contains(domain):
        return protocol
    region = BALL if _is_in_ball(protocol, target, domain) else ANY
    gridless = replace(protocol, region=region, **dict.fromkeys(("prime", "step", "sigma", "clip"), OPEN))
    return designed(gridless, target, domain.largest)[0]


def _is_in_ball(protocol: PackedSharing, target: Target, domain: InputDomain) -> bool:
    """Is a whole value in the ball around 0 whose diameter is the sensitivity? What rounding adds to its norm is bounded then."""
    if not protocol.one_unit or protocol.shares:
        return False
    ball = replace(protocol, region=BALL, centre=0.0, clip=target.sensitivity / 2)
    return value_region(ball, target, 1.0).contains(domain)


def _noise_variance(protocol: PackedSharing, target: Target) -> float:
    return expected_error(target, protocol.minimum, protocol.party_variance)[0]


def _fitted(protocol: PackedSharing, values: Vector, weights: Array) -> Vector:
    """Values with as many coordinates as the plan has: some left out, or all repeated."""
    return values[:, np.arange(protocol.dimension) % values.shape[1]]


def _noise_law(protocol: PackedSharing, inputs: int) -> NoiseLaw | None:
    return protocol.law(inputs)


def _rounding_step(protocol: PackedSharing) -> float:
    return protocol.step


class PackedSharing(PackedSharingParameters, Mechanism):
    """Secret sharing between peers (Ben-Or, Goldwasser and Wigderson 1988; packed: Franklin and Yung 1992) of noisy values.

    The declared transcript is the ideal functionality: one sum over the inputs that were decided on, with the noise of each known
    to it alone. That members see no more is exact up to random points from a stream; certificates use the bound for discrete
    noise in :mod:`~quietmean.protocols.packed_sharing.encoding`.
    """

    name = "packed-sharing"
    TRAITS = Traits(
        summary="everybody holds shares of everybody's noisy value, and only their sum is opened: error near a curator's, no "
        "server",
        sources=(literature.SHARING, literature.PACKED_SHARING),
        keeps_target=True,
        guarantee=(
            f"{REPLACED}, against any coalition of the planned size. The coalition may do anything. "
            "It is an upper bound that holds before the start. It assumes true random numbers (AES-256) and private channels. "
            "It assumes that parties send, leave or are late independently of values and noise"
        ),
        linear=False,
        unpromised_if_read="its claim takes for granted that nobody reads shares, which would add up to values",
        releases_are_public=False,
        refuses_messages=True,
        sends_to_all=True,
        deals_value=True,
        batchable=False,
        # Only one sum becomes public: shares and votes that arrived and were not used disclose nothing more.
        ignores_unused=True,
        can_draw=lambda protocol, drawn: is_drawn(drawn),
        usual_rounds=USUAL_ROUNDS,
        attack=Attack(opening=_opening),
        check_parties=check_numbers,
        inputs=AcceptedValues(input_domain, value_region, _fitted, planned_for=_planned_for),
        planning=Planning(noise_variance=_noise_variance, figures=lambda protocol, target: dict(figures(protocol, target))),
        # Whose inputs are in the sum is agreed on.
        checks=Checks(rounding_step=_rounding_step, weights_are_agreed=True, noise_law=_noise_law),
    )

    @cached_property
    def traits(self) -> Traits:
        assumptions = (
            Assumption(
                Key.PASSIVE,
                f"Colluding parties may lie, falsify or stop the result, and leave out inputs down to {self.minimum}. "
                "They learn no more by it (active adversary).",
            ),
            _ATTENDANCE,
        )
        checks = replace(self.TRAITS.checks, by=self._checked_by, unnoticed=self._unnoticed)
        return replace(self.TRAITS, assumptions=assumptions, checks=checks, largest_weight=self.largest_weight)

    @property
    def _checked_by(self) -> Mapping[str, int] | None:
        if self.sums is None or self.lies_excluded is None:
            return None
        return {"sums": self.sums, "needed": self.threshold, "lies_excluded": self.lies_excluded}

    @property
    def _unnoticed(self) -> tuple[str, ...]:
        # How many sums a result had is said by its check.
        if self.members is OPEN or self._checked_by is not None or self.threshold < self.members:
            return (WRAPS,)
        return (WRAPS, f"the result needs the sums of all {self.members} members, so nobody notices a wrong one")

    def resolved(self, parties: int) -> Self:
        return super(PackedSharing, filled(self, **DEFAULTS)).resolved(parties)

    def numbers(self) -> Numbers:
        return WholeNumbers(self.step) if self.is_whole else super().numbers()

    def design(self, target: Target) -> Design:
        return Design(*designed(self, target))

    # --- what happens ---

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        """Draw the schedule. Raises :class:`InputError` where everybody cannot be connected to everybody any more."""
        if parties > MOST_PARTIES:
            raise InputError(
                f"everybody deals to everybody, which is for up to {MOST_PARTIES} parties, not {parties}. Name another protocol, "
                "such as inca."
            )
        return draw_schedule(parties, self.rounds, seed)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PackedSharingParty:
        return PackedSharingParty(self, schedule, party, value, weight, noise)

    def ending(self, state: PackedSharingState) -> Closing:
        rules, carried_out = self.rules(self.members), self
        if state.has_result:
            carried_out = replace(self, inputs=members_of(unpack(state.inputs)), sums=state.counted or None)
        return Closing(carried_out, warnings(rules, state), nothing_published(rules, state))

    def outcome(self, schedule: Schedule, trace: ExecutionTrace) -> FollowedOutcome:
        """Whose inputs are in the sum, and who has it: replayed, or as the receipt states."""
        replayed = follow(self.rules(schedule.parties), schedule, trace)
        if self.inputs is None:
            return replayed
        stated = np.zeros(schedule.parties, dtype=np.bool_)
        stated[list(self.inputs)] = True
        return replace(replayed, inputs=stated)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return self.outcome(schedule, trace).inputs

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        counted = self.contributors(schedule, trace)
        return sum_error(counted, weights, counted.sum() * self.party_variance)

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        outcome = self.outcome(schedule, trace)
        nothing = np.zeros(values.shape[1]), 0.0
        opened = opened_sum(self, outcome.inputs, values, weights, noise) if outcome.inputs.any() else nothing
        return sum_released(outcome.concluded, values, *opened)

    # --- privacy ---

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        return sum_transcript(schedule, self.contributors(schedule, trace), self.deviation)

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        from quietmean.protocols.packed_sharing.encoding import PackedLossConversion

        return PackedLossConversion(self, self.contributors(schedule, trace))

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        from quietmean.protocols.packed_sharing.encoding import promised

        return promised(self, parties, size, sensitivity)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        from quietmean.protocols.packed_sharing.encoding import PackedLossConversion

        conversion = PackedLossConversion(self, self.contributors(schedule, trace))
        hidden = conversion.mu_against_any(size, np.zeros(schedule.parties), sensitivity)
        return CoalitionBound(hidden, "one sum of noises of which a coalition knows its own, or each party's own noise")

    # --- what is sent ---

    def traffic(self, parties: int, dimension: int) -> Volume:
        """A usual run, in which the first leader stays: a share, status, vote and sum to everybody, and one proposal."""
        rules = self.rules(parties)
        codec, messages = Codec.of(self, rules), _USUAL_MESSAGES * (parties - 1) + (parties - 1) / parties
        seeds = self.colluding_members / (parties - 1)
        dealt = seeds * 32 + (1 - seeds) * codec.share_bytes
        vote_bytes = 4 * (2 * rules.set_bytes + 16)
        return Volume((dealt + codec.share_bytes + vote_bytes) * (parties - 1) / messages, messages, codec.limit)


PROTOCOL = PackedSharing

__all__ = ["PROTOCOL", "PackedSharing"]
