"""What is to be known of a protocol besides what it computes: one frozen value, in which its capabilities are values too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption
from quietmean.core.domain import GAUSSIAN_GUARANTEE
from quietmean.core.errors import InputError
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.party import Message, PartyId, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.literature import Publication
from quietmean.protocols.target import Target
from quietmean.randomness import laplace_shares


class Server(StrEnum):
    """The special party that a protocol needs, if any: what a user must accept, in rising order of trust.

    An aggregator ("collector" in files and commands) must stay, but need not be trusted with values. A curator sees them.
    """

    NONE = "none"
    AGGREGATOR = "collector"
    CURATOR = "curator"

    def allows(self, other: Server) -> bool:
        """Does a user who accepts this server also accept ``other``, which needs no more trust?"""
        order = list(Server)
        return order.index(other) <= order.index(self)


ANY_DOMAIN = "any bounded set"
# Of sums that are taken modulo a number: a value beyond the bounds is the same number as one within them.
WRAPS = "a false value far outside the bounds can count as one within them, and nobody notices"
# Of 8 bytes; with what is there anyway these are a gigabyte.
_MOST_NUMBERS, _MOST_SECONDS = 1.1e8, 20.0
# A comparison of all other protocols takes a second.
_DEAR_SECONDS = 0.3

# A message and the parties that received it.
Sent: TypeAlias = tuple[Message, frozenset[PartyId]]


@dataclass(frozen=True, eq=False)
class MessageAttack:
    """One attack on a target, of which many trials are run at once: each in ``together`` coordinates of one long value.

    ``base``, shape (n,): the parties' values in every coordinate in the first world; in the second the target's is larger by
    ``change``. ``stretched``: the protocol for values of so many coordinates. ``read`` gives what a coalition computes of all
    messages of a run on values (n, size), shape (size,), or None if it can read nothing. That holds ``share`` of the target's
    value, and per coordinate noise of standard deviation ``noise`` that the coalition does not know.
    """

    together: int
    base: Vector
    change: float
    share: float
    noise: float
    stretched: Callable[[int], Any] = field(repr=False)
    read: Callable[[list[Sent], int], Vector | None] = field(repr=False)


@dataclass(frozen=True)
class Attack:
    """How messages that are not linear are read; each is a function of the protocol.

    ``linear``: a linear protocol, of whose messages all that this one sends is a function, or None; by default itself if it is
    linear. ``opening``: what a coalition ``corrupt`` computes of a target, of (protocol, schedule, trace, weights, sensitivity,
    corrupt, target); it raises :class:`InputError` where there is nothing for these parameters.
    """

    linear: Callable[[Any], Any] = lambda protocol: protocol if protocol.traits.linear else None
    opening: Callable[..., MessageAttack | None] = lambda protocol, *of_execution: None


@dataclass(frozen=True)
class ReleaseGate:
    """A gate before the release can be held: plans see to it that nearly all histories pass it. Functions of the protocol.

    ``variance``: of the noise on a value in all that every other party together can know of it before its owner's release; per
    coordinate, for every history. ``guarded``: the protocol with so much more noise, cancelled by the release, that it is at
    least a number. ``worst_coalition``: as :meth:`Mechanism.worst_coalition`, for parties that collude with all of ``given``, of
    the parties ``watched``.
    """

    variance: Callable[[Any], float]
    guarded: Callable[[Any, float], Any]
    worst_coalition: Callable[..., Any]


def mean_reach(protocol: Any, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    """How far a mean of values may be from the middle of their domain, in half widths."""
    return 1.0


def usual_tails(protocol: Any, dimension: int) -> float:
    """Tails of sums with Gaussian or Laplace noise; infinite for other noise."""
    law = protocol.traits.checks.noise_law(protocol, 1)
    if law is not None:
        return laplace_shares.tails(law.scale / law.step)
    return 1.0 if protocol.traits.gaussian_noise else math.inf


@dataclass(frozen=True)
class Checks:
    """What receivers can hold releases and results against; functions have the protocol as their first argument.

    ``reach``: how far from its middle a result without noise may be, in half widths of the domain, by (protocol, schedule, trace,
    weights); 1 for means of values. ``tails``: how many stated deviations of a result's noise (d,) a Gaussian has whose tails are
    no lighter in any coordinate, by (protocol, dimension); infinite where nothing is known.
    ``own_release_variance``: per coordinate of all noise on what each party releases of its own value alone, (n,), at most, by
    (protocol, schedule), with what it shares with others; None where no release is of one party's value. ``report_reach``: how
    far from the domain's middle a release without that noise is in any coordinate, in half widths, but for a chance, by
    (protocol, dimension, chance); 1 where it is the value.

    ``released_variance``: per coordinate, of a sum over its weight, before it is decoded, of (protocol, schedule, trace,
    weights). ``rounding_step``: how far rounding moves a coordinate of a party's vector, at most. ``contributions``: what a party
    hands in is checked against the bounds, though nobody learns it. ``by``: of a result that sums of several parties determine,
    how many ``sums`` came, how many are ``needed``, and how many wrong ones would have been noticed for certain,
    ``lies_excluded``.
    ``unnoticed``: what nobody notices of a member that lies, in sentences.
    ``noise_law``: of each coordinate of the sum of so many inputs, in units of values, by (protocol, inputs); None: Gaussian.
    ``weights_are_agreed``: whose values are in a result is agreed on, and so is its weight, also where releases are not public.
    """

    reach: Callable[[Any, Schedule, ExecutionTrace, Array], float] = mean_reach
    tails: Callable[[Any, int], float] = usual_tails
    own_release_variance: Callable[[Any, Schedule], Array | None] = lambda protocol, schedule: None
    report_reach: Callable[[Any, int, float], float] = lambda protocol, dimension, chance: 1.0
    released_variance: Callable[..., float | None] = lambda protocol, *of: protocol.error_variance(*of)
    rounding_step: Callable[[Any], float] = lambda protocol: float(protocol.numbers().step)
    contributions: bool = False
    by: Mapping[str, int] | None = None
    unnoticed: tuple[str, ...] = ()
    weights_are_agreed: bool = False
    noise_law: Callable[[Any, int], NoiseLaw | None] = lambda protocol, inputs: None


def unit_cube(protocol: Any, target: Target) -> InputDomain:
    """The cube from 0 up of the sensitivity's diagonal."""
    return InputDomain.box(target.dimension, 0.0, target.sensitivity / math.sqrt(target.dimension))


@dataclass(frozen=True)
class AcceptedValues:
    """Which values a protocol takes, in functions of it; by default any bounded set of vectors, of any public weight.

    ``domain``: where the vector of one unit lies if no domain is stated, by (protocol, target). ``region``: where a vector of a
    public weight is held as it is, for clips and limits, by (protocol, target, weight), or None; a plan refuses any other domain.
    ``fitted``: values (n, d) made to fit, for simulations and tests, by (protocol, values, weights). ``check`` raises
    :class:`InputError` for values, (d,) or (n, d), that do not fit the plan, by (protocol, values); the error does not contain
    them. ``planned_for``: the protocol planned for a target with a region that holds a domain of one unit, unless another was
    asked for, by (protocol, target, domain).
    """

    domain: Callable[[Any, Target], InputDomain] = unit_cube
    region: Callable[[Any, Target, float], Box | Ball | None] = lambda protocol, target, weight: None
    fitted: Callable[[Any, Vector, Array], Vector] = lambda protocol, values, weights: values
    check: Callable[[Any, Vector], None] = lambda protocol, values: None
    planned_for: Callable[[Any, Target, InputDomain], Any] = lambda protocol, target, domain: protocol


@dataclass(frozen=True)
class Planning:
    """What plans ask of a protocol besides its noise, in functions of (protocol, target).

    ``alternatives``: it with something filled in that is open, in several ways to try, fewest messages first; else empty.
    ``finalised``: with the fields filled in that depend on the calibrated noise; raises :class:`InputError` if no value is
    possible. ``noise_variance``: of noise in the mean, expected, per coordinate, where parameters tell it without simulation.
    ``figures``: further ones of a plan, in the terms of the protocol's own paper: plain JSON data. ``least_mse``: a lower bound
    on the mean squared error per coordinate of every plan, before any margin, in squared units of values; None where none is
    known.
    """

    alternatives: Callable[[Any, Target], list[Any]] = lambda protocol, target: []
    finalised: Callable[[Any, Target], Any] = lambda protocol, target: protocol
    noise_variance: Callable[[Any, Target], float | None] = lambda protocol, target: None
    figures: Callable[[Any, Target], dict[str, Any]] = lambda protocol, target: {}
    least_mse: Callable[[Any, Target], float | None] = lambda protocol, target: None


@dataclass(frozen=True)
class PlanningCost:
    """Memory and time of one core that making a plan takes besides what every plan does: about, measured on one machine.

    ``numbers`` of 8 bytes and ``seconds`` for each pair of parties, ``seconds_a_party``, and ``seconds_of_any`` plan.
    """

    numbers: float = 0.0
    seconds: float = 0.0
    seconds_a_party: float = 0.0
    seconds_of_any: float = 0.0

    def is_dear(self, parties: int) -> bool:
        """Does a plan for so many parties take longer than all else that a comparison of protocols does?"""
        return self._taken(parties) > _DEAR_SECONDS

    def _taken(self, parties: int) -> float:
        return self.seconds * parties**2 + self.seconds_a_party * parties + self.seconds_of_any

    def too_much(self, parties: int) -> str:
        """What a plan for so many parties takes that is more than a gigabyte, or than twenty seconds; "" where it is less."""
        numbers, seconds = self.numbers * parties**2, self._taken(parties)
        needed = [f"{8 * numbers / 1e9:.2g} GB"] * (numbers > _MOST_NUMBERS)
        return " and ".join(needed + [f"{seconds:.2g} s of one core"] * (seconds > _MOST_SECONDS))


@dataclass(frozen=True)
class Volume:
    """Messages that a party sends on average before the result is sent to all, and what is in them.

    ``message_bytes``: of one of these messages on average, without framing. ``messages``: an estimate where runs differ in
    length; None for those of a schedule. ``content_limit``: the most bytes of content that any message has; 0 where messages are
    vectors.
    """

    message_bytes: float
    messages: float | None = None
    content_limit: int = 0


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What holds of a protocol; the defaults are those of one that adds vectors over connections and trusts nobody.

    ``summary``, ``sources``: one line, and the publications that it comes from, its own first. ``aliases``: other names, each
    with the options that it means.

    Whom one must trust: ``server``, ``trust``, and ``trust_with_collector`` where a collector is asked for that need not be;
    ``trusted`` parties, which the claim needs honest, and the ``collector``, which gathers what the others send, and releases.
    ``guarantee``: what is promised, one clause, which every certificate prints. ``private``: false where nothing protects values,
    and then ``reveals`` says what is revealed and to whom. ``keeps_target``: a plan promises beforehand, in every history, no
    more than its target; where it has a gate, with the gate. ``promising_options``: those with which it does where these do not.
    ``keeps_nats``: it can be planned for a target in nats. ``refunds``: a ledger gets back what an execution cost less than was
    charged. ``assumptions``: what is taken for granted besides; one with the key of a usual assumption takes its place.

    ``linear``: machines only add, subtract and scale, so that the declared transcript can be traced. If false, it describes what
    the own (computational) claim leaves visible. ``has_transcript``: false where a view has no linear-Gaussian description; then
    only the guarantee is certified. ``transcript_is_full``: if false, the transcript leaves out what follows from the rest.
    ``gaussian_noise``: of a result, or sums of discrete Gaussians. ``exposed``: without a grid, single messages are one value
    plus noise, of which low bits are known to tell two values apart.

    ``releases_are_public``: if false, every party computes a result for itself. ``tolerates_dropouts``: parties may drop out
    permanently without being exposed; if false, it is planned only if it is named. ``batchable``: independent executions may be
    run as one large one; false where party numbers carry roles, as they do where some party is ``collector`` or ``trusted``.

    ``transfers_mass``: what a party sends is subtracted from what it holds, and must be added again if it does not arrive.
    ``refuses_messages``: a party may stop accepting messages of its schedule; if false, it must expect all of them.
    ``sends_to_all``: in nearly all rounds everybody may send to all others; execution files then do not list these messages.
    ``overheard``: messages after the first round are sent over open channels, so that every party is assumed to know them.
    ``ignores_unused``: what receivers saw and did not use tells nothing more. ``shares_noise``: pairs draw the same noise,
    from keys that they agreed on before. ``agrees_on_keys``: messages carry keys of X25519, through one of the parties.
    ``deals_value``: a machine needs its value for its first step alone, and has a method ``forget_value`` for when that is
    durable. ``by_file``: a release follows from a party's value, its noise and the parties' keys alone: a file can carry it.
    ``grid``: the step of the public grid of all vectors that are sent or released, by the protocol; 0 for float64.
    ``coordinate_bytes``: of a vector that is sent, by the protocol. ``can_draw``: whether a schedule is one of its own, by
    (protocol, schedule). ``fixed_schedule``: no seed has a part in it, so that files leave it out. ``usual_rounds``: those of a
    run in which nothing is repeated, 0 for all; dropouts spread over these.

    ``check_parties`` raises :class:`InputError` for parameters that do not fit the number of parties, by (protocol, parties).
    ``parts``: how much of each party's value is in the result, (n,), up to a common factor, by (protocol, schedule, trace); by
    default all or nothing. ``decode``: the estimate, (d,), from the sums of the releases of so many ``counted`` parties, by
    (protocol, parties, vector, weight, counted): post-processing.

    ``inputs``, ``domain``: the values that it takes; if these are not any bounded set, it is planned only if it is named.
    ``hides_counts``: it takes sums over private numbers of records. ``needs_records``: no party can have weight 0.
    ``largest_weight``: for which a plan has room.

    ``counts_intercepted``: plans and certificates count messages that are read, and what is guaranteed holds whichever
    these are. Where not, ``unpromised_if_read`` says why nothing is promised. ``already_public``: why an eavesdropper learns
    nothing that does not count as known to everybody already; ``after_first_public``: one that reads all but first messages.
    """

    summary: str = ""
    sources: tuple[Publication, ...] = ()
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    server: Server = Server.NONE
    trust: str = "no server"
    trust_with_collector: str = "a collector that stays and adds up truly; it is not trusted with values"
    trusted: frozenset[PartyId] = frozenset()
    collector: PartyId | None = None
    guarantee: str = GAUSSIAN_GUARANTEE
    private: bool = True
    reveals: str = "every party's value"
    keeps_target: bool = False
    promising_options: str = ""
    keeps_nats: bool = False
    refunds: bool = True
    assumptions: tuple[Assumption, ...] = ()
    linear: bool = True
    has_transcript: bool = True
    transcript_is_full: bool = True
    gaussian_noise: bool = True
    exposed: bool = False
    releases_are_public: bool = True
    tolerates_dropouts: bool = True
    batchable: bool = True
    transfers_mass: bool = False
    refuses_messages: bool = False
    sends_to_all: bool = False
    overheard: bool = False
    ignores_unused: bool = False
    shares_noise: bool = False
    agrees_on_keys: bool = False
    deals_value: bool = False
    by_file: bool = False
    fixed_schedule: bool = False
    grid: Callable[[Any], float] = lambda protocol: 0.0
    coordinate_bytes: Callable[[Any], float] = lambda protocol: 4.0 if grid_of(protocol) else 8.0
    can_draw: Callable[[Any, Schedule], bool] = lambda protocol, schedule: True
    usual_rounds: int = 0
    check_parties: Callable[[Any, int], None] = lambda protocol, parties: None
    inputs: AcceptedValues = AcceptedValues()
    planning: Planning = Planning()
    parts: Callable[[Any, Schedule, ExecutionTrace], Array] = lambda protocol, *of: protocol.contributors(*of).astype(float)
    decode: Callable[..., Vector] = lambda protocol, parties, vector, weight, counted: vector / weight
    domain: str = ANY_DOMAIN
    hides_counts: bool = True
    needs_records: bool = False
    largest_weight: float = math.inf
    planning_cost: PlanningCost = PlanningCost()
    counts_intercepted: bool = False
    unpromised_if_read: str = "what its messages would tell is not known"
    already_public: str | None = None
    after_first_public: str | None = None
    gate: ReleaseGate | None = None
    attack: Attack = Attack()
    checks: Checks = Checks()

    @property
    def stackable(self) -> bool:
        """Whether independent executions may be run as one large one: no party number carries a role."""
        return self.batchable and not self.indispensable

    @property
    def indispensable(self) -> frozenset[PartyId]:
        """Parties without which nobody has a result: plans and simulations assume that they stay."""
        return self.trusted if self.collector is None else self.trusted | {self.collector}

    def releasers(self, parties: int) -> frozenset[PartyId]:
        """The parties that release something at the end if they stay online."""
        return frozenset(range(parties) if self.collector is None else {self.collector})

    @property
    def weight_is_known(self) -> bool:
        """Whether the weight in a result is that of those who count, as each stated it."""
        return self.releases_are_public or self.checks.weights_are_agreed


def grid_of(protocol: Any) -> float:
    """The step of the public grid of all vectors that a protocol sends or releases; 0 for float64."""
    return float(protocol.TRAITS.grid(protocol))


def check_weight(weight: float, largest: float) -> None:
    """Raises :class:`InputError` for a weight beyond the plan's."""
    if weight > largest:
        raise InputError(
            f"the party's weight is {weight:g} but the plan leaves room for {largest:g}. "
            f"Plan with the option largest_weight={math.ceil(weight)} or more."
        )
