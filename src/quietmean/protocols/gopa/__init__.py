"""GOPA: values are published under noise that pairs share and that cancels in the sum (Sabater, Bellet and Ramon 2022).

Noise levels of GOPA without a collector, by formula: the least error that keeps a target in every history.

A party publishes only where at least m partners are there. Of these h = m - c are honest, and each hides its value by
v b / (v + b) or, if it published nothing or without their noise, by b (v, b: variances of own and of pair noise). So with s the
variance of the Gaussian mechanism, privacy is kept in every history if

    v + h v b / (v + b) = s,    solved by    v = s (1 + e) / (h + 1),    b = s (h - e) (1 + e) / (h + 1)^2 / e,    0 < e <= h.

Of N parties that stay, each holds in the mean w terms that it shares with parties that left after the exchange. The error
(v + w b) / N is least at e^2 = w h / (h + 1 - w), or without pair noise (e = h) where w is h + 1 or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound, round_up
from quietmean.core.domain import GAUSSIAN_GUARANTEE
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, Vector
from quietmean.core.schema import OPEN, filled
from quietmean.graphs import ExecutionTrace, Flow, Schedule
from quietmean.graphs.schedule import check_others
from quietmean.protocols import literature
from quietmean.protocols.discrete import ON_GRID, step_of
from quietmean.protocols.gopa.party import (
    HERE,
    PEER_ROUNDS,
    PUBLISH,
    ROLL_BACK,
    ROUNDS,
    GopaAggregator,
    GopaOutcome,
    GopaParameters,
    GopaParty,
    GopaPeer,
    GopaPeerState,
    PeerOutcome,
    default_partners,
    default_peers,
    draw_pairs,
    exchange_schedule,
    list_bytes,
    pair_chance,
)
from quietmean.protocols.mechanism import Closing, Design, Mechanism, template_of
from quietmean.protocols.publishing import check_collector, from_collector, to_collector, with_collector
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Checks, Planning, Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

# Where no pair noise is left over, the error falls towards an infimum as pair noise grows: the design stops this close.
EXCESS = 0.008
# The chance that some party has too few partners with dropouts as planned, and so publishes nothing.
_TOO_FEW = 1e-3
# One partner in this many may be missing though no dropouts are planned.
_SPARE = 10


@dataclass(frozen=True)
class PeerDesign:
    """``own`` = v and ``pair`` = b: variances per coordinate, in the units of s."""

    own: float
    pair: float


def peer_design(honest: int, left_over: float, unit: float) -> PeerDesign:
    """v and b for ``honest`` = h partners at least, ``left_over`` = w, and ``unit`` = s."""
    h, w = honest, left_over
    if h <= 0:
        return PeerDesign(unit, 0.0)
    excess = h if w >= h + 1 else min(max(math.sqrt(w * h / (h + 1 - w)), EXCESS), h)
    own = unit * (1 + excess) / (h + 1)
    return PeerDesign(own, own * (h - excess) / (h + 1) / excess)


def kept_information(own: float, pair: float, honest: int) -> float:
    """A bound, in every history, for a party with so many honest partners at least: 1 / (v + h v b / (v + b))."""
    hidden = own + max(honest, 0) * own * pair / (own + pair) if own else 0.0
    return 1.0 / hidden if hidden else math.inf


def least_present(target: Target, partners: int) -> int:
    """With how few partners a party publishes: as many as are there if all dropouts are early, and some may be missing anyhow.

    At least 1, so that a party that missed the exchange publishes nothing.
    """
    leaving = target.parties - target.responding
    missing = leaving if partners == target.parties - 1 else _missing(target.parties, leaving, partners)
    return max(partners - max(missing, partners // _SPARE), 1)


def expected_left_over(target: Target, partners: int) -> float:
    """w: with how many parties that leave between exchange and publishing, half of all, a party that stays shares noise."""
    return (target.parties - target.responding) / 2 * pair_chance(target.parties, partners)


def check_partners(partners: int, least_partners: int, parties: int) -> None:
    """Raises :class:`InputError` if a party cannot have as many partners as it must have."""
    most_partners = min(partners, parties - 1)
    if least_partners > most_partners:
        raise InputError(
            f"least_partners is {least_partners} but a party has only {most_partners} for sure. Choose {most_partners} or "
            "fewer, or more partners."
        )


def _missing(parties: int, leaving: int, partners: int) -> int:
    """How many of a party's partners may be in ``leaving`` random parties: of no party more, but with a small chance."""
    counts = np.arange(min(leaving, partners) + 1)

    def choices(of: int, some: Ints | int) -> Array:
        # Impossible ones have no logarithm that is finite.
        return np.asarray(special.gammaln(of + 1) - special.gammaln(some + 1.0) - special.gammaln(of - some + 1.0))

    # Hypergeometric: which of the others are partners, and which of these leave.
    ways = choices(leaving, counts) + choices(parties - 1 - leaving, partners - counts) - choices(parties - 1, partners)
    more = np.cumsum(np.exp(ways)[::-1])[::-1] - np.exp(ways)
    return int(np.argmax(more <= _TOO_FEW / parties))


def population(
    parameters: GopaParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """``values`` have n rows (d,), ``weights`` the shape (n,)."""
    program = _published if parameters.aggregator is None else _collected
    return program(parameters, schedule, trace, values, weights, noise, out)


def _published(
    parameters: GopaParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Every party publishes its value under its own noise and that of the pairs whose other end is there.

    What parties say in the first round depends on no value and on no noise.
    """
    happened = PeerOutcome.of(parameters.least_partners, schedule, trace)
    used = happened.added.any(axis=1)
    pairs, added = schedule.pairs[used], happened.added[used]
    # The larger number adds what a pair shares, the smaller subtracts it.
    term, end = added.nonzero()
    masks = Flow.of((schedule.parties, len(pairs)), pairs[term, end], term, np.where(end == 1, 1.0, -1.0))
    noisy = values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_star)
    noisy += masks @ noise.shared_normal(pairs, NoiseGroup.CANCELLING, 0, parameters.sigma_delta)
    released = out.release(noisy, happened.published, PEER_ROUNDS + 1)
    return Results(released, weights * happened.published, happened.published)


def _collected(
    parameters: GopaParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Masked values go to the aggregator; then the rollbacks, which remove the noise shared with parties whose value is missing.

    Every adversary knows which parties were online, and so which of them roll back: the aggregator's list reveals nothing new.
    """
    parties, pairs, aggregator = schedule.parties, schedule.pairs, parameters.collector
    happened = GopaOutcome.of(aggregator, schedule, trace)
    is_aggregator = np.arange(parties) == aggregator
    # Each pair twice, once from either end: the larger number adds what they share, the smaller subtracts it.
    party, partner = (np.concatenate([pairs[:, end], pairs[:, 1 - end]]) for end in (0, 1))
    term, sign = np.tile(np.arange(len(pairs)), 2), np.repeat([-1.0, 1.0], len(pairs))
    absent = ~happened.arrived[partner]
    missing = np.bincount(party[absent], minlength=parties) > 0

    noisy = out.keep(values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_star), np.ones(parties, dtype=np.bool_), 0)
    shared = noise.shared_normal(pairs, NoiseGroup.CANCELLING, 0, parameters.sigma_delta)
    masks = Flow.of((parties, len(pairs)), party, term, sign) @ shared
    rollbacks = Flow.of((parties, len(pairs)), party[absent], term[absent], -sign[absent]) @ shared

    def collected(rows: Rows, senders: Mask, arrived: Mask, round_: int) -> Rows:
        """The sum, in the aggregator's row, of the rows of ``senders`` that ``arrived`` there, and of its own."""
        arrived_from = np.nonzero(arrived & ~is_aggregator)[0]
        sent = out.send(rows, senders & ~is_aggregator, round_, (arrived_from, np.full(arrived_from.size, aggregator)))
        added = np.append(arrived_from, aggregator)
        return Flow.of((parties, parties), np.full(added.size, aggregator), added) @ sent

    # A message that did not arrive in time may have been read.
    total = collected(noisy + masks, trace.online[PUBLISH], happened.arrived, PUBLISH)
    rolling = happened.informed & trace.online[ROLL_BACK] & missing
    total += collected(rollbacks, rolling, happened.rolled_back & missing, ROLL_BACK)
    releases = is_aggregator & happened.released
    return Results(out.release(total, releases, ROUNDS + 1), is_aggregator * weights[happened.arrived].sum(), releases)


# Why an eavesdropper learns no more than the public, without a collector.
_PUBLISHED = "all that a party sends is published, but for a word that it is there"
_SILENT = Assumption(
    Key.SILENT,
    "A party that fell silent after publishing counts as sharing noise with each partner that heard it (realised figures only).",
)


def _own_variance(protocol: GopaParameters, schedule: Schedule) -> Array | None:
    """With all partners there, who are no fewer than those that were; with a collector nobody sees a release alone."""
    if protocol.aggregator is not None:
        return None
    variance: Array = protocol.sigma_star**2 + schedule.partner_counts * protocol.sigma_delta**2
    return variance


def _check_parties(protocol: GOPA, parties: int) -> None:
    check_collector(protocol.aggregator, parties)
    if protocol.aggregator is None:
        check_partners(protocol.partners, protocol.least_partners, parties)
    elif protocol.least_partners:
        raise InputError(
            f"least_partners is {protocol.least_partners} but party {protocol.aggregator} collects: what it publishes "
            "is the total. Leave one of the two out."
        )


def _finalised(protocol: GOPA, target: Target) -> GOPA:
    """The parameters on a grid, with as much more noise as whole numbers need."""
    from quietmean.privacy import GridLossConversion, mu_of_budget

    gridded = replace(protocol, **protocol.on_grid(target, [protocol.sigma_star, protocol.sigma_delta]))
    conversion = gridded._with_everyone(target.parties)
    if not isinstance(conversion, GridLossConversion):
        return gridded
    more = conversion.inflation(mu_of_budget(target.epsilon, target.delta), target.parties)
    return replace(gridded, sigma_star=round_up(protocol.sigma_star * more), sigma_delta=round_up(protocol.sigma_delta * more))


class GOPA(GopaParameters, Mechanism):
    """Without a collector two rounds: pairs tell each other that they share noise; then every party publishes its value.

    The noise shared with a party that was not there is left out before it is published, so that no rollback is seen. Everything
    published is public: the papers' reading. A party that leaves between the rounds leaves its noise with its partners.

    With a collector three rounds: send to it; receive the list of those that did; roll back the noise shared with the others.
    Only the collector and its coalition see what a party sends; the total is public. Calibration tries coalitions with it. It
    must stay, and its list of those that sent must be true: like all parties here it is honest but curious.
    """

    name = "gopa"
    TRAITS = Traits(
        summary="values are published under noise that pairs share; who stays takes out what absent partners left",
        sources=(literature.GOPA,),
        trust_with_collector="a collector that stays and says truly who published; it is not trusted with values",
        shares_noise=True,
        keeps_target=True,
        batchable=False,
        checks=Checks(own_release_variance=_own_variance),
        guarantee=(f"{GAUSSIAN_GUARANTEE}. A collector, where there is one, must say truly who published"),
        unpromised_if_read="what whole numbers cost is proven for messages that only its collector sees, or everybody",
        grid=step_of,
        inputs=ON_GRID,
        check_parties=_check_parties,
        planning=Planning(finalised=_finalised),
    )

    @cached_property
    def traits(self) -> Traits:
        if self.aggregator is None:
            # Of a party that published and then left, the number of partners that it shared noise with is not known.
            return replace(self.TRAITS, refunds=False, already_public=_PUBLISHED, assumptions=(_SILENT,))
        sentence = f"The collector (party {self.aggregator}) stays to the end and says truly who published. It may collude."
        return replace(
            with_collector(self.TRAITS, self.aggregator),
            keeps_target=False,
            promising_options="without aggregator",
            assumptions=(Assumption(Key.AGGREGATOR, sentence),),
        )

    @property
    def rounds(self) -> int:
        return PEER_ROUNDS if self.aggregator is None else ROUNDS

    def resolved(self, parties: int) -> Self:
        return super(GOPA, filled(self, partners=max(1, default_partners(parties)), least_partners=0)).resolved(parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        if self.partners is not OPEN:
            check_others("partners", self.partners, target.parties)
        if self.aggregator is not None:
            return {"partners": max(1, default_partners(target.parties, target.colluding))}
        partners = filled(self, partners=default_peers(target.parties, target.colluding)).partners
        return {"partners": partners, "least_partners": least_present(target, min(partners, target.parties - 1))}

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        pairs = draw_pairs(parties, self.partners, seed)
        if self.aggregator is None:
            return exchange_schedule(parties, pairs)
        to, back = to_collector(parties, self.aggregator), from_collector(parties, self.aggregator)
        return Schedule.from_lists([to, back, to], parties, pairs)

    def traffic(self, parties: int, dimension: int) -> Volume:
        if self.aggregator is None:
            here = len(HERE)
            return Volume(float(here), pair_chance(parties, self.partners) * (parties - 1), here)
        return replace(super().traffic(parties, dimension), content_limit=list_bytes(parties))

    def ending(self, state: Any) -> Closing:
        least_partners = self.least_partners
        if not isinstance(state, GopaPeerState) or len(state.sharing) >= least_partners:
            return Closing(self)
        warning = (
            f"only {len(state.sharing)} partners were there to share noise: with fewer than {least_partners} a party "
            "publishes nothing"
        )
        return Closing(self, (warning,))

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        if self.aggregator is None:
            honest = self.least_partners - size
            information = kept_information(self.sigma_star**2, self.sigma_delta**2, honest)
            return self._with_everyone(parties).promise(
                sensitivity * math.sqrt(information),
                f"noise shared with {self.least_partners} partners: with fewer that are there a party publishes nothing"
                if honest > 0
                else "each party's own noise: the partners without whom it publishes nothing are no more than may collude",
            )
        # The party's own noise moves by the change itself, which is whole: nothing is rounded.
        draws = parties + (parties * (parties - 1) // 2 if self.sigma_delta else 0)
        why = "each party's own noise: a value that comes too late is seen, and others have taken its cover out"
        return self.own_promise(sensitivity, self.sigma_star, draws, why)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        from quietmean.protocols.gopa.loss import worst_coalition

        return worst_coalition(self, schedule, trace, sensitivity, size)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        if self.aggregator is None:
            return PeerOutcome.of(self.least_partners, schedule, trace).published
        return GopaOutcome.of(self.aggregator, schedule, trace).arrived

    def machine(
        self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> GopaPeer | GopaParty | GopaAggregator:
        self.TRAITS.inputs.check(self, value)
        if self.aggregator is None:
            return GopaPeer(self, schedule, party, value, weight, noise)
        kind = GopaAggregator if party == self.aggregator else GopaParty
        return kind(self, schedule, party, value, weight, noise)

    population = population

    def design(self, target: Target) -> Design | None:
        """The optimum by formula, for every history; with a collector noise is calibrated."""
        if self.aggregator is not None:
            return None
        from quietmean.privacy import mu_of_budget

        start: GOPA = template_of(self, target)
        unit = (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2
        left_over = expected_left_over(target, start.partners)
        levels = peer_design(start.least_partners - target.colluding, left_over, unit)
        noisy = start.with_noise(round_up(math.sqrt(levels.own)), round_up(math.sqrt(levels.pair)))
        parameters = _finalised(noisy, target)
        noise = (parameters.sigma_star**2 + left_over * parameters.sigma_delta**2) / target.responding
        certificate = (
            f"any coalition of {target.colluding}, by formula, in every history: {parameters.least_partners} partners or more"
        )
        return Design(parameters, noise, target.dropout_bias(target.responding), certificate)

    def _with_everyone(self, parties: int) -> LossConversion:
        """The bound for whole numbers if everybody is there; without a collector that for every history."""
        from quietmean.protocols.gopa.loss import masked_loss, star_loss

        if self.aggregator is None:
            return star_loss(self, parties)
        schedule = self.draw_schedule(parties, Seed.public("figures"))
        return masked_loss(self, schedule, ExecutionTrace.everyone(self.rounds, parties))

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        from quietmean.protocols.gopa.loss import masked_loss

        return masked_loss(self, schedule, trace)


__all__ = ["GOPA", "PROTOCOL", "GopaParameters"]

PROTOCOL = GOPA
