"""A committee's opening behind the common interface: what is planned, promised and certified of it.

Its parties are the contributors. They send each one file, before anything is computed, so an execution has one round without
messages; the members' own exchange is in :mod:`quietmean.node.committee`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.domain import REPLACED, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.grid import Numbers, RoundedNumbers
from quietmean.core.input_domain import InputDomain
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.core.schema import Configured, parameter
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.committee.design import decode, design, encode, predicted_error, promised, sum_variance
from quietmean.protocols.committee.keys import DIGEST_BYTES, SEAL_BYTES
from quietmean.protocols.committee.layout import layout_of, stated_by
from quietmean.protocols.committee.parameters import CommitteeParameters, wrong_sums_corrected
from quietmean.protocols.committee_size import Committee, Size
from quietmean.protocols.mechanism import Closing, Design, Mechanism, Releases
from quietmean.protocols.packed_sharing.spec import BALL, BOX, input_domain, sum_error, sum_released, sum_transcript, value_region
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Checks, Planning, Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

_POSITIVE = "choose a finite number > 0"
# What a design says besides for how many contributors it is.
DESIGNED = tuple(field.name for field in fields(CommitteeParameters) if field.name != "contributors")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CommitteeFields(Configured):
    """The parameters of a committee but for how many contribute, which the plan's target says."""

    members: int = parameter(help="members of the committee, who hold shares", at_least=1, remedy="choose 4 or more")
    colluding: int = parameter(help="members that may collude", at_least=1, remedy="choose 1 or more")
    gone: int = parameter(help="members that may be gone at any moment", at_least=1, remedy="choose 1 or more")
    size: str = parameter(help="what is done about members that lie", choices=tuple(map(str, Size)))
    minimum: int = parameter(help="least contributions that give a result", at_least=1, remedy="choose 1 or more")
    secrets: int = parameter(help="numbers of a value that share one polynomial", at_least=1, remedy="choose 1 or more")
    ballots: int = parameter(help="leaders that may propose, one after the other", at_least=1, remedy="choose 1 or more")
    region: str = parameter(help="where values lie", key="domain", choices=(BOX, BALL))
    centre: float = parameter(help="what is taken off every coordinate", remedy="choose a finite number")
    clip: float = parameter(help="the largest distance of a coordinate from the centre", above=0, remedy=_POSITIVE)
    step: float = parameter(help="value of one step of the inputs", above=0, remedy=_POSITIVE)
    sigma: float = parameter(help="standard deviation of each member's noise", above=0, remedy=_POSITIVE)
    largest_weight: float = parameter(help="the largest public weight of a contribution", above=0, remedy=_POSITIVE)
    dimension: int = parameter(help="coordinates of a value", at_least=1, remedy="choose 1 or more")
    verified: bool = parameter(
        False,
        help="members check what is stated of contributions and of noise",
        written=lambda value: bool(value.verified),
    )
    bits_of_record: int = parameter(
        0,
        help="bits of a contribution where each is a single record and its products are checked, else 0",
        at_least=0,
        remedy="choose 0 or more",
        written=lambda value: bool(value.bits_of_record),
    )
    rounded: int | None = parameter(
        None,
        help="coordinates of all contributions of a person that rounding may change by a step more; by default of one",
        at_least=1,
        remedy="choose 1 or more",
    )
    sums: int | None = parameter(
        None, help="members' sums that a result is from, where that is known", at_least=1, remedy="choose 1 or more"
    )

    def parameters(self, contributors: int) -> CommitteeParameters:
        """The parameters for so many contributors. Raises :class:`InputError` where they do not go together."""
        values = {name: getattr(self, name) for name in DESIGNED}
        return CommitteeParameters(**values | {"size": Size(self.size)}, contributors=contributors)


_ASSUMPTIONS = (
    Assumption(
        Key.CHANNELS,
        "Each member's part of a contribution is encrypted for that member alone (HPKE with ML-KEM-768 and X25519).",
    ),
    Assumption(
        Key.LOGS,
        "The figures use no report of a member about others, so false reports cannot change them.",
    ),
    Assumption(
        Key.SILENT,
        "Each contributor pays in full even if left out, because members held parts of the contribution.",
    ),
)


def _check_parties(protocol: CommitteeSharing, parties: int) -> None:
    protocol.parameters(parties)


def _noise_variance(protocol: CommitteeSharing, target: Target) -> float:
    return predicted_error(protocol.parameters(target.parties), target.responding)


def _planned_for(protocol: CommitteeSharing, target: Target, domain: InputDomain) -> CommitteeSharing:
    """Itself where the domain lies in its region, else on a grid for the box around the domain."""
    same_numbers = bool(domain.statement.records) == bool(protocol.bits_of_record)
    if (same_numbers and value_region(protocol, target, 1.0).contains(domain)) or target.committee is None:
        return protocol
    return CommitteeSharing.of(_designed(target, target.committee, domain))


def _rounding_step(protocol: CommitteeSharing) -> float:
    return protocol.step


class CommitteeSharing(CommitteeFields, Mechanism):
    """Contributions in one message each, whose sum members of a committee open with noise of their own."""

    name = "packed-sharing-committee"
    TRAITS = Traits(
        summary="each contributes one file, and a committee opens one noisy sum of its shares: error near a curator's, no server",
        sources=(literature.SHARING, literature.PACKED_SHARING),
        keeps_target=True,
        guarantee=(
            f"{REPLACED}, against all other contributors with the planned number of members. They may do anything. "
            "It is an upper bound that holds before the start. It assumes true random numbers (AES-256), and hybrid "
            "encryption to members"
        ),
        trust="at most the planned number of the committee's members collude; they may collude with all other contributors",
        linear=False,
        batchable=False,
        releases_are_public=False,
        ignores_unused=True,
        fixed_schedule=True,
        unpromised_if_read="a contribution is encrypted to members, and nobody else reads it",
        check_parties=_check_parties,
        inputs=AcceptedValues(input_domain, value_region, planned_for=_planned_for),
        planning=Planning(noise_variance=_noise_variance),
        # Whose contributions are in the sum is agreed on.
        checks=Checks(rounding_step=_rounding_step, weights_are_agreed=True),
    )
    rounds = 1

    @classmethod
    def of(cls, parameters: CommitteeParameters) -> Self:
        """The protocol with the parameters of a design."""
        values = {name: getattr(parameters, name) for name in DESIGNED}
        return cls(**values | {"size": str(parameters.size)})

    @classmethod
    def planned(cls, target: Target, committee: Committee, domain: InputDomain | None = None) -> Design:
        """The protocol as planned for a target. Raises :class:`InputError` where none keeps it, or the sum has no room."""
        parameters = _designed(target, committee, domain)
        noise = predicted_error(parameters, target.responding)
        known, dealt = committee.colluding, committee.dealings
        certificate = (
            f"by formula, against all other contributors with any {known} members, who may do anything. "
            f"The sum has the noise of {dealt} members, of which they do not know {dealt - known} (upper bound). "
            "It is assumed that AES-256 gives true random numbers"
        )
        return Design(cls.of(parameters), noise, target.dropout_bias(target.responding), certificate)

    def design(self, target: Target) -> Design:
        if target.committee is None:
            raise InputError("the target has no committee. Say how many members it has.")
        return self.planned(target, target.committee)

    @cached_property
    def traits(self) -> Traits:
        within = " Proofs keep each number within its bounds." if self.verified else ""
        assumptions = (
            Assumption(
                Key.PASSIVE,
                f"Up to {self.colluding} of {self.members} members and all contributors may lie. "
                f"They learn no more by it (active adversary).{within}",
            ),
            *_ASSUMPTIONS,
            Assumption(
                Key.COLLUDING,
                f"At most {self.colluding} of the committee's {self.members} members share what they see (collude), also "
                "with contributors; more members can read every contribution.",
            ),
        )
        checks = replace(self.TRAITS.checks, contributions=self.verified, by=self._checked_by)
        # Where products are checked, a contribution is one record.
        records, largest = self.bits_of_record > 0, self.largest_weight
        return replace(self.TRAITS, assumptions=assumptions, checks=checks, needs_records=records, largest_weight=largest)

    @property
    def _checked_by(self) -> Mapping[str, int] | None:
        if self.sums is None:
            return None
        needed = self.colluding + self.secrets
        corrected = wrong_sums_corrected(self.sums, needed, self.colluding)
        return {"sums": self.sums, "needed": needed, "lies_excluded": self.sums - needed - corrected}

    @property
    def noise_of_sum(self) -> float:
        """The standard deviation of the noise in the opened sum."""
        return float(np.sqrt((self.members - self.gone) * self.sigma**2))

    # --- what happens: who is counted is in the trace ---

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return Schedule.from_lists([[[] for _ in range(parties)]], parties)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """Make no machine. Raises :class:`InputError`: contributors send one file, and members have no value."""
        raise InputError(
            "contributors to a committee send one file each, and its members open the sum. Take part with quietmean send "
            "and quietmean join --contributions FOLDER."
        )

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        """The sum that members open, published by the first contributor; nothing if fewer than the minimum contribute.

        Which member's noise is the k-th makes no difference: they are drawn from the sources of contributors, which have none.
        """
        parameters, counted = self.parameters(schedule.parties), np.nonzero(self.contributors(schedule, trace))[0].tolist()
        total, opens = np.zeros(self.dimension, dtype=np.int64), len(counted) >= self.minimum
        if opens:
            for place in counted:
                total += encode(parameters, values[place], float(weights[place]), Seed(noise.party(place).secret("rounding", 0)))
            for first in range(0, parameters.dealings, len(values)):
                drawn = noise.discrete(NoiseGroup.INDEPENDENT, first, parameters.scale, self.dimension)
                total += drawn[: parameters.dealings - first].sum(axis=0)
        by = (np.arange(len(values)) == counted[0]) if opens else np.zeros(len(values), dtype=np.bool_)
        vector = decode(parameters, total, weights[counted].tolist()) if opens else np.zeros(self.dimension)
        return sum_released(by, values, vector, weights[counted].sum())

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return trace.finished

    def numbers(self) -> Numbers:
        """Values are real until they are dealt. Where products are checked, what they are is known on the grid only."""
        return RoundedNumbers(self.step) if self.bits_of_record else super().numbers()

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        counted = self.contributors(schedule, trace)
        return sum_error(counted, weights, sum_variance(self.parameters(schedule.parties), int(counted.sum())))

    # --- privacy ---

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """One sum, whose noise no contributor has."""
        return sum_transcript(schedule, self.contributors(schedule, trace), self.noise_of_sum, owned=False)

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        from quietmean.protocols.committee.design import CommitteeLossConversion

        return CommitteeLossConversion(self.parameters(schedule.parties))

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        return promised(self.parameters(parties), sensitivity)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        cost = promised(self.parameters(schedule.parties), sensitivity)
        return CoalitionBound(np.full(schedule.parties, cost.mu), "noise of members that no contributor knows")

    def traffic(self, parties: int, dimension: int) -> Volume:
        """One file of each: of each member a seed or a share, masks and keys, and 200 bytes."""
        parameters = self.parameters(parties)
        numbers = self.bits_of_record or -(-dimension // self.secrets)
        if self.verified and not self.bits_of_record:
            # As many bits of each number as the plan's range has.
            numbers = layout_of(parameters, stated_by(parameters), 1.0).bits
        shares = (self.members - self.colluding) * 4 * numbers
        masks = self.members * (SEAL_BYTES + DIGEST_BYTES + 4 * parameters.checks)
        return Volume(200 + shares + 32 * self.colluding + masks, 1.0)

    def ending(self, state: Any) -> Closing:
        """``state``: the result that was checked."""
        return Closing(replace(self, sums=state.sums))


# Of records that a contributor may have, where nothing is stated: the largest of these for which there is room.
_USUAL_WEIGHTS = (2.0**15, 2.0**12, 2.0**9, 2.0**6, 1.0)


def _designed(target: Target, committee: Committee, domain: InputDomain | None = None) -> CommitteeParameters:
    """The design on the finest grid, for the box around ``domain``; by default for a box as wide as the sensitivity."""
    place: dict[str, Any] = {}
    if domain is not None:
        place = {"centre": (domain.low + domain.high) / 2, "clip": (domain.high - domain.low) / 2}
        if committee.verified:
            if domain.statement.records:
                return _designed_for_records(target, committee, domain)
            place["relations"] = domain.statement.relations
    stated = 1.0 if target.unit == PrivacyUnit.PARTY and committee.largest_weight is None else committee.largest_weight
    weights = _USUAL_WEIGHTS if stated is None else (stated,)
    for weight in weights[:-1]:
        with suppress(InputError):
            return design(target, committee, largest_weight=weight, **place)
    return design(target, committee, largest_weight=weights[-1], **place)


# How much wider than its domain a plan for products is: rounded up, a number may be a step beyond.
_WIDER = 1.02


def _designed_for_records(target: Target, committee: Committee, domain: InputDomain) -> CommitteeParameters:
    """Design for contributions of single records, of which products are checked."""
    statement, widest = domain.statement, _WIDER * max(-domain.low, domain.high)
    parameters = design(
        target,
        committee,
        largest_weight=1.0,
        centre=0.0,
        clip=widest,
        relations=statement.relations,
        records=[record for _, record in statement.records],
    )
    return replace(parameters, bits_of_record=layout_of(parameters, statement, 1.0).bits)
