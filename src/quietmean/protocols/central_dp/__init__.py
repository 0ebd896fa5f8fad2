"""Central DP: a trusted curator sees every value and publishes the noisy sum. For comparison.

Dwork, McSherry, Nissim and Smith 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import curator
from quietmean.core.bounds import APriori, CoalitionBound, round_up
from quietmean.core.domain import GAUSSIAN_GUARANTEE
from quietmean.core.errors import InputError
from quietmean.core.grid import LaplaceNumbers, Numbers, numbers_for
from quietmean.core.noise_law import NoiseKind, NoiseLaw
from quietmean.core.party import Message, NoiseGroup, NoiseSource, PartyId, Release, Step, Vector, total_weight
from quietmean.core.schema import OPEN, parameter
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals
from quietmean.protocols import literature
from quietmean.protocols.discrete import (
    NOISE_HELP,
    ON_GRID,
    DiscreteNoise,
    NoiseNumbers,
    l1_in_steps,
    laplace_steps,
    least_deviation,
    stated_l1,
    step_of,
)
from quietmean.protocols.mechanism import Design, Mechanism
from quietmean.protocols.packed_sharing.spec import sum_error
from quietmean.protocols.publishing import check_collector, to_collector, with_collector
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Checks, Server, Traits
from quietmean.randomness import Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import Charge, LossConversion


@dataclass(frozen=True, slots=True)
class CentralDpState:
    """The round in progress, nothing else."""

    round: int


class CentralDpParty:
    """A party or, if its number is that of the curator, the curator; its value has shape (d,)."""

    rounds = 1
    state_type = CentralDpState

    def __init__(
        self,
        sigma: float,
        numbers: Numbers,
        curator: PartyId,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._sigma = sigma
        self._is_curator = party == curator
        self._schedule = schedule
        self._party = party
        self._numbers = numbers_for(value, numbers)
        self._value = self._numbers.value(value)
        self._weight = weight
        self._noise = noise

    def start(self) -> Step[CentralDpState]:
        if self._is_curator:
            return Step(CentralDpState(1))
        recipients = self._schedule.recipients(1, self._party)
        return Step(CentralDpState(1), (Message(self._party, recipients, 1, self._value, self._weight),))

    def end_round(
        self, state: CentralDpState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[CentralDpState]:
        if not self._is_curator:
            return Step(CentralDpState(2))
        messages = sorted(received, key=lambda message: message.sender)
        weight = total_weight(self._weight, messages)
        noise = self._numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, self._sigma, self._value.size)
        total = self._numbers.total([self._value, *(message.vector for message in messages), noise])
        return Step(CentralDpState(2), release=Release(total, weight))

    def miss_round(self, state: CentralDpState) -> Step[CentralDpState]:
        return Step(CentralDpState(2))

    def expects(self, state: CentralDpState) -> frozenset[PartyId]:
        return self._schedule.senders(1, self._party)


# A margin for float64.
_SLACK = 1e-9


def _check_parties(protocol: CentralDP, parties: int) -> None:
    check_collector(protocol.aggregator, parties, "curator")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CentralDP(DiscreteNoise, Mechanism):
    """One release of the sum with Gaussian or Laplace noise by the trusted party ``aggregator``, the curator."""

    name = "central-dp"
    TRAITS = Traits(
        summary="a curator sees every value and must be trusted: most accurate, for comparison",
        sources=(literature.CENTRAL,),
        unpromised_if_read="values are sent to the curator as they are",
        keeps_target=True,
        server=Server.CURATOR,
        guarantee=(f"{GAUSSIAN_GUARANTEE}. It holds against everybody but the curator, who sees every value"),
        trust="the curator sees every value",
        can_draw=lambda protocol, drawn: drawn.to_lists() == [to_collector(drawn.parties, protocol.aggregator)],
        exposed=True,
        grid=step_of,
        inputs=ON_GRID,
        checks=Checks(noise_law=lambda protocol, inputs: protocol.law),
        check_parties=_check_parties,
    )
    rounds = 1

    noise: NoiseNumbers | None = parameter(None, help=NOISE_HELP, option=True, choices=tuple(NoiseNumbers))
    sigma: float = parameter(
        help="standard deviation of the noise on the sum, per coordinate, or the scale of Laplace noise",
        at_least=0,
        remedy="choose a finite number >= 0",
    )
    l1: float | None = parameter(
        None, help="L1 change of a value that Laplace noise hides", above=0, remedy="choose a finite number > 0"
    )
    rounded: int | None = parameter(
        None,
        help="coordinates that rounding may change by a step more, for Laplace noise; by default all",
        at_least=0,
        remedy="choose 0 or more",
    )
    aggregator: PartyId = parameter(0, help="the trusted party that sees every value", option=True, key="curator", flag="curator")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_laplace and self.sigma is not OPEN and not (self.step and self.l1 and self.sigma):
            raise InputError("noise is laplace without sigma, grid and l1. Give all three, or leave noise out.")
        if self.rounded is not None and not self.is_laplace:
            raise InputError("rounded is for Laplace noise only. Leave it out.")

    @property
    def is_laplace(self) -> bool:
        """Is the noise Laplace noise?"""
        return self.noise == NoiseNumbers.LAPLACE

    @property
    def own_deviation(self) -> float:
        law = self.law
        return self.sigma if law is None else math.sqrt(law.variance)

    @property
    def law(self) -> NoiseLaw | None:
        """The law of the noise on the sum; None where it is Gaussian."""
        return NoiseLaw(NoiseKind.LAPLACE, self.sigma, step=self.step) if self.is_laplace and self.sigma else None

    def numbers(self) -> Numbers:
        return LaplaceNumbers(self.step, each=self.rounded == 0) if self.is_laplace else super().numbers()

    @cached_property
    def traits(self) -> Traits:
        to = self.aggregator
        return replace(with_collector(self.TRAITS, to), trusted=frozenset({to}), assumptions=(curator(to),))

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma=star)

    def design(self, target: Target) -> Design:
        """sigma^2 = (sensitivity / mu)^2 and 8 squared steps, if the curator does not collude.

        The error is for a curator that never drops out.
        """
        from quietmean.privacy import mu_of_budget

        check_collector(self.aggregator, target.parties, "curator")
        if self.is_laplace:
            return self._with_laplace(target)
        mu = mu_of_budget(target.epsilon, target.delta)
        grid = self.on_grid(target, [least_deviation(target.sensitivity, mu)])
        sigma = least_deviation(target.sensitivity, mu, grid.get("step", 0.0))
        return self._designed(target, "Gaussian", sigma=sigma, **grid)

    def _with_laplace(self, target: Target) -> Design:
        """b = L1 change in steps after rounding / epsilon, with the finest grid that the sampler has.

        Raises :class:`InputError` where the sampler has no such scale, or its distance uses up delta.
        """
        l1, dimension = target.l1_change, target.dimension
        rounded = dimension if target.rounded is None else target.rounded
        step = 2.0 ** math.ceil(math.log2(l1 / laplace_steps(target, rounded)))
        fields = {"step": step, "dimension": dimension, "l1": l1, "rounded": target.rounded}
        scale = l1_in_steps(l1, step, rounded) / target.epsilon * (1 + _SLACK)
        design = self._designed(target, "Laplace", sigma=round_up(scale * step), **fields)
        protocol = design.protocol
        assert isinstance(protocol, CentralDP)  # noqa: S101
        if not protocol.laplace_charge(target.sensitivity).epsilon(target.delta) <= target.epsilon:
            raise InputError(f"delta {target.delta:g} is below what drawing noise costs. Plan with a larger delta.")
        return design

    def _designed(self, target: Target, kind: str, **fields: Any) -> Design:
        protocol, chances = replace(self, **fields), target.responding_with(indispensable=1)
        noise = sum(chance * (protocol.own_deviation / count) ** 2 for count, chance in chances.items())
        lost = sum(chance * target.dropout_bias(count) for count, chance in chances.items())
        certificate = f"by formula: one {kind} release of the sum, any colluders but the curator"
        return Design(protocol, noise, lost, certificate)

    def laplace_charge(self, sensitivity: float) -> Charge:
        """The charge of a release with Laplace noise; ``sensitivity``: the L2 change, as stated with :attr:`l1`."""
        # Running parties do not need it.
        from quietmean.privacy.loss import laplace_charge

        size = self.dimension or 1
        rounded = size if self.rounded is None else self.rounded
        steps = l1_in_steps(stated_l1(self.l1, sensitivity, size), self.step, rounded)
        return laplace_charge(self.sigma / self.step, steps, size, shares=1, unknown=1, drawn=1)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return Schedule.from_lists([to_collector(parties, self.aggregator)], parties)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        counted: Mask = trace.delivered(schedule)[0].any(axis=1)
        counted[self.aggregator] = True
        # Without the curator nobody has a result.
        counted &= trace.finished[self.aggregator]
        return counted

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        why = "the curator, who must be trusted and adds the noise"
        if not self.is_laplace:
            return self.own_promise(sensitivity, self.sigma, 1, why)
        cost = self.laplace_charge(sensitivity)
        return APriori(cost.mu, why, cost.beta, cost.tv, cost.pure, rho=cost.rho)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        if self.is_laplace:
            return CoalitionBound(np.full(schedule.parties, self.laplace_charge(sensitivity).mu), "the curator's noise")
        return self.own_bound(schedule.parties, sensitivity, "the curator's noise")

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float | None:
        if not self.is_laplace:
            return None
        return sum_error(self.contributors(schedule, trace), weights, self.own_deviation**2)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> CentralDpParty:
        self.TRAITS.inputs.check(self, value)
        return CentralDpParty(self.sigma, self.numbers(), self.aggregator, schedule, party, value, weight, noise)

    def population(
        self, schedule: Schedule, trace: ExecutionTrace, values: Rows, weights: Array, noise: PopulationTerms, out: Reading
    ) -> Results[Rows]:
        """The curator receives the values without noise, and releases the noisy sum of those that arrived and its own."""
        parties, curator = schedule.parties, np.array([self.aggregator])
        is_curator = np.arange(parties) == curator
        sender, receiver = arrivals(schedule, trace.delivered(schedule), 1)
        handed = out.send(values, trace.online[1] & ~is_curator, 1, (sender, receiver))
        star = noise.normal_of(curator, NoiseGroup.INDEPENDENT, np.zeros(1, dtype=np.int64), np.array([self.sigma]))
        counted = Flow.of((parties, parties), np.append(receiver, curator), np.append(sender, curator))
        total = counted @ handed + Flow.of((parties, 1), curator, np.zeros(1, dtype=np.int64)) @ star
        releases = trace.finished & is_curator
        return Results(out.release(total, releases, 2), counted.numbers(weights), releases)

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        if not self.is_laplace:
            return self.grid_loss([self.sigma], 1)
        from quietmean.privacy import LaplaceLossConversion

        return LaplaceLossConversion(self.laplace_charge(0.0), self.sigma)


__all__ = ["PROTOCOL", "CentralDP"]

PROTOCOL = CentralDP
