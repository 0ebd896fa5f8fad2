"""Plans: frozen, calibrated, serialisable. Parties agree on a plan by its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quietmean.core import lazy
from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, any_coalition, for_unit
from quietmean.core.bounds import APriori, round_up
from quietmean.core.codec import digest
from quietmean.core.domain import Neighbouring
from quietmean.core.errors import InputError, named
from quietmean.core.grid import LARGEST_UNITS, on_grid, towards_zero
from quietmean.core.input_domain import Ball, InputDomain
from quietmean.core.keywords import python_call
from quietmean.core.output import Output, require_version
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, Release, Vector
from quietmean.core.readable import epsilon_text, error_text, nats_promised
from quietmean.core.schema import options_of, parameters_of, refuse_unknown
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import Mechanism, get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.interception import Interception, require_promise_if_read, whichever_are_read
from quietmean.protocols.mechanism import is_private
from quietmean.protocols.result_broadcast import CannotBe, ResultBroadcast
from quietmean.protocols.target import Target, is_random
from quietmean.protocols.traits import ANY_DOMAIN, AcceptedValues, check_weight, grid_of
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.privacy import Charge

FORMAT = "quietmean-plan-1"
# Relative rounding of a diameter that is computed from parts.
_ROUNDING = 1e-9
# What rounding up may add to a promised epsilon, relatively.
_ABOVE = 1e-6
# Options of protocols that say where values lie.
_PLACES = ("centre", "clip", "radius", "domain", "bound", "largest_value")


class Integers(Protocol):
    """A source of random whole numbers, such as a numpy Generator."""

    def integers(self, low: int, /) -> Any:
        """Draw whole numbers uniformly below ``low``."""


@dataclass(frozen=True, slots=True, eq=False)
class Admitted:
    """A party's private ``vector`` (d,) as it enters a study, and its public ``weight``. Only :meth:`Plan.admit` makes one.

    Who takes one need not ask again for its shape, its domain and its grid. NumPy reads it as its vector.
    """

    vector: Vector = field(repr=False)
    weight: float
    plan: Plan = field(repr=False)

    def require_of(self, plan: Plan) -> None:
        """Raises :class:`InputError` where another plan admitted it, whose domain and grid may be others."""
        if self.plan is not plan and self.plan.digest != plan.digest:
            raise InputError("another plan has admitted this vector. Let the plan of the study do so.")

    def wipe(self) -> None:
        """Overwrite the vector with zeros, and let go of its memory: from now on it is a zero that is repeated."""
        if any(self.vector.strides):
            self.vector.fill(0.0)
            object.__setattr__(self, "vector", np.broadcast_to(0.0, self.vector.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.vector, dtype=dtype) if copy else np.asarray(self.vector, dtype=dtype)


@dataclass(frozen=True, repr=False)
class Plan:
    """A protocol calibrated for a target.

    ``context`` states what the coordinates mean (columns, bounds, unit): parties that disagree on it must not compute together.
    ``domain`` states where the vector of one unit lies; None means the protocol's own (:attr:`input_domain`). Every input
    of a study is held against it (:meth:`admit`). Raises :class:`InputError` for a domain wider than the sensitivity.
    ``prediction`` states what was predicted and how it was certified (see :mod:`quietmean.planning.calibrate`).
    ``gated``: the parties hold a gate before the release (see :mod:`quietmean.planning.gate`); calibration asks for it where
    simulated histories pass. Raises :class:`InputError` for a gate of a protocol that has none.
    """

    target: Target
    protocol: Mechanism
    dissemination: ResultBroadcast = field(default_factory=ResultBroadcast)
    prediction: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    domain: InputDomain | None = None
    gated: bool = False

    def __post_init__(self) -> None:
        # What is left open is filled as a reader of the plan's file fills it: both have one digest.
        object.__setattr__(self, "protocol", self.protocol.resolved(self.target.parties))
        if self.gated and self.protocol.TRAITS.gate is None:
            raise InputError(f"protocol {self.protocol.name} has no gate before its release. Leave gated out.")
        require_promise_if_read(self.protocol, self.target.eavesdropping)
        if self.gated:
            require_foreseen(self.target)
        if self.target.neighbouring == Neighbouring.ADD_REMOVE and not self.protocol.traits.hides_counts:
            raise InputError(
                f"protocol {self.protocol.name} bounds a value by the public number of its records, but counts are private. Name "
                "another, such as packed-sharing, or let count be public."
            )
        if self.domain is None:
            return
        self._require_region(self.domain)
        if not is_private(self.protocol):
            return
        if self.domain.size != self.target.dimension:
            raise InputError(f"the domain has {self.domain.size} coordinates, the plan {self.target.dimension}. Make them agree.")
        if self.domain.diameter > self.target.sensitivity * (1 + _ROUNDING):
            raise InputError(
                f"the domain has a diameter of {self.domain.diameter:g}, more than the sensitivity {self.target.sensitivity:g}. "
                "Plan for the sensitivity of the domain, or choose a smaller one."
            )

    def _require_region(self, domain: InputDomain) -> None:
        """Raises :class:`InputError` for a stated domain of which the protocol would move some values."""
        name = self.protocol.name
        if self.protocol.traits.domain != ANY_DOMAIN:
            raise InputError(
                f"protocol {name} takes {self.protocol.traits.domain} only, and the domain has others. Name another protocol."
            )
        region = self._inputs.region(self.protocol, self.target, 1.0)
        if region is not None and not region.contains(domain):
            places = [option.named for key, option in options_of(type(self.protocol)).items() if key in _PLACES]
            options = ", ".join(places) or "none of this protocol"
            if isinstance(region, Ball):
                least = f"{round_up(domain.farthest(region.centre)):g}"
                held = f"the domain reaches to {least}. Leave out {options}, choose {least} at least"
            else:
                held = (
                    f"the domain reaches beyond that, with coordinates from {domain.low:g} to {domain.high:g}. Leave "
                    f"out the options that say where values lie ({options})"
                )
            raise InputError(f"protocol {name} holds {region.text}, but {held}, or name another protocol.")

    @property
    def _inputs(self) -> AcceptedValues:
        return self.protocol.TRAITS.inputs

    @property
    def input_domain(self) -> InputDomain:
        """Where the vector of one unit lies: the stated ``domain``, or the protocol's (:class:`.AcceptedValues`)."""
        return self._inputs.domain(self.protocol, self.target) if self.domain is None else self.domain

    def with_domain(self, domain: InputDomain) -> Plan:
        """The plan for another domain. Raises :class:`InputError` if it is wider than the sensitivity, or of another size."""
        if domain == self._inputs.domain(self.protocol, self.target):
            return replace(self, domain=None)
        protocol = self._inputs.planned_for(self.protocol, self.target, domain)
        noise = None if protocol is self.protocol else protocol.TRAITS.planning.noise_variance(protocol, self.target)
        prediction = self.prediction if noise is None else {**self.prediction, "mse_noise": float(f"{noise:.6g}")}
        return replace(self, protocol=protocol, prediction=prediction, domain=domain)

    def admit(self, value: Vector, weight: float = 1.0, *, wipe: bool = False) -> Admitted:
        """A party's private vector (d,) as it enters a study: itself where it lies in the domain, else moved into it.

        ``weight`` is its public weight: the vector of a party whose records are protected is a sum over that many. A protocol
        without privacy takes any vector, if its numbers have room for any. ``wipe``: where another array enters, the given one is
        overwritten with zeros. Raises :class:`InputError` for another shape, for a weight beyond the room of the plan, and for
        what :meth:`require_rounded` refuses; never because of a value.
        """
        if not (np.isfinite(weight) and (weight > 0 or (weight == 0 and self.target.unit.within_party))):
            raise InputError(f"weight is {weight:g}. Choose a finite number > 0, or 0 for a party without records.")
        moved = self._moved(value, weight)
        if wipe and moved is not value:
            value.fill(0.0)
        return Admitted(moved, weight, self)

    def _moved(self, value: Vector, weight: float) -> Vector:
        if value.shape != (self.target.dimension,):
            raise InputError(
                f"the value has shape {value.shape}, but the plan is for {self.target.dimension} coordinates. Correct it."
            )
        scale, domain = self._units(weight), self.input_domain
        # The room is that of the domain, not of the value: whether a study goes on does not depend on private data.
        self.require_room(weight)
        self.require_rounded(value)
        if not scale:
            # The sum over no units.
            return np.zeros_like(value) if value.any() else value
        if not is_private(self.protocol) and self._inputs.region(self.protocol, self.target, weight) is None:
            return value
        inside = domain.moved(value, scale)
        if self.protocol.traits.domain != ANY_DOMAIN:
            inside = self._inputs.fitted(self.protocol, inside[None], np.array([weight]))[0]
        step = self.value_step
        return inside if not step or on_grid(inside, step) else towards_zero(inside, step)

    def require_room(self, weight: float) -> None:
        """Raises :class:`InputError` where the vector of a party of that public weight may have no room."""
        units, domain = self._units(weight), self.input_domain
        if weight == 0 and self.protocol.traits.needs_records:
            raise InputError("this party has no record, and the study needs at least one of each. Take no part.")
        check_weight(weight, self.protocol.traits.largest_weight)
        self._inputs.check(self.protocol, np.full(1, units * domain.largest))
        # The sum over no units has room anywhere.
        region = self._inputs.region(self.protocol, self.target, weight) if units else None
        if region is not None and not region.contains(domain.times(units)):
            raise InputError(
                f"protocol {self.protocol.name} holds {region.text} of a party of weight {weight:g}, but its vector may reach "
                f"from {units * domain.low:g} to {units * domain.high:g}. Give it weight 1, or name another protocol."
            )

    def _units(self, weight: float) -> float:
        """How many units a party of that public weight has: the vector of one whose records are protected is a sum over them."""
        return weight if self.target.unit.within_party else 1.0

    def __repr__(self) -> str:
        target, predicted = self.target, self.prediction
        budget = target.in_words if target.nats is not None or is_private(self.protocol) else "no privacy"
        squared = predicted.get("mse_noise", 0.0) + predicted.get("mse_dropout_bias", 0.0)
        error = f", predicted error {error_text(squared**0.5)} (root mean squared)" if squared > 0 else ""
        return f"Plan({self.protocol.name}, {target.parties} parties, {target.colluding} may collude, {budget}{error})"

    def simulate(
        self,
        values: Vector | None = None,
        *,
        runs: int = 1000,
        rng: int | Integers = 0,
        dropouts: float | None = None,
        gate: bool = False,
        workers: int | str = 1,
    ) -> Any:
        """A :class:`~quietmean.simulation.SimulationResult`: ``runs`` independent runs of a simulated population, insecure
        randomness.

        ``values``: (n, d), or (n,) for one coordinate; without them every run draws its own. ``rng``: a whole number or a numpy
        Generator. ``dropouts``: by default as planned. ``gate``: see :func:`quietmean.simulation.simulate`. ``workers``: a number
        of processes, or the address of a Dask scheduler. Raises
        :class:`InputError` for values of another shape.
        """
        if values is not None:
            values = np.asarray(values, dtype=np.float64)
            values = values[:, None] if values.ndim == 1 else values
        seed = int(rng) if isinstance(rng, int | Integral) else int(rng.integers(2**62))
        return lazy.simulate(self, values, runs=runs, seed=seed, dropouts=dropouts, gate=gate, workers=workers)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.target.describe(),
            "protocol": self.protocol.name,
            "parameters": self.protocol.describe(),
            "dissemination": self.dissemination.describe(),
            "prediction": dict(self.prediction),
            "context": dict(self.context),
            **({} if self.domain is None else {"domain": self.domain.describe()}),
            **({"gated": True} if self.gated else {}),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`to_json`. Raises :class:`InputError` for another version, and a missing or unknown field."""
        require_version(raw.get("format"), FORMAT, "the plan")
        if raw.get("format") != FORMAT:
            raise InputError("this is not a plan of this version. Make one with quietmean plan.")
        for name in ("target", "parameters", "dissemination", "prediction", "context"):
            if not isinstance(raw.get(name), Mapping):
                raise InputError(f"field {name!r} of the plan is missing or no object. Make a new plan with quietmean plan.")
        fields = ("format", "protocol", "target", "parameters", "dissemination", "prediction", "context", "domain", "gated")
        refuse_unknown("a plan", raw, fields)
        target = Target.parse(raw["target"])
        kind = get_protocol(required_field(raw, "protocol", str))
        refuse_unknown(f"protocol {kind.name}", raw["parameters"], [parameter.key for parameter in parameters_of(kind).values()])
        protocol = kind.read(raw["parameters"]).resolved(target.parties)
        dissemination = ResultBroadcast.parse(raw["dissemination"])
        domain = InputDomain.parse(raw["domain"]) if "domain" in raw else None
        gated = optional_field(raw, "gated", bool, False)
        return cls(target, protocol, dissemination, raw["prediction"], raw["context"], domain, gated)

    @python_call
    def save(self, path: str | Path) -> None:
        """Write the plan to a file. Raises :class:`InputError` for another file that is there."""
        Output(Path(path), "the plan", "").write_json(self.to_json())

    @property
    def releases_are_copies(self) -> bool:
        """Does each party send its release itself to the others, rather than parts of sums?"""
        return self.protocol.traits.releases_are_public and not self.dissemination.transfers_mass

    @cached_property
    def digest(self) -> str:
        """What the parties agree on: SHA-256, hexadecimal."""
        return digest(self.to_json())

    @property
    def a_priori(self) -> APriori:
        """What any execution of this plan costs at most, against as many colluders as planned."""
        target = self.target
        if self.gated:
            from quietmean.planning.gate import a_priori_at_gate

            return a_priori_at_gate(target, self.protocol)
        promised = self.protocol.a_priori(target.parties, target.colluding, target.sensitivity, target.delta)
        return whichever_are_read(self.protocol, promised, target.eavesdropping)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """All that the figures of an execution of this plan take for granted, in which everybody stays: for what is agreed on."""
        target, everyone = self.target, ExecutionTrace.everyone(self.protocol.rounds, self.target.parties)
        colluding = any_coalition(target.colluding, target.parties, self.protocol.traits.trusted)
        assumed = self.execution(Seed.public("assumptions"), everyone).terms(target.delta).assumptions(colluding)
        return for_unit(assumed, target.unit, self.context.get("sites_per_person", 1))

    @property
    def charge(self) -> Charge:
        """The promise as the columns of a ledger: what is reserved for a study before it starts."""
        from quietmean.privacy import Charge

        return Charge.promised(self.a_priori)

    @property
    def epsilon_a_priori(self) -> float:
        """What any execution costs at most, against any coalition of the planned size, at the target's delta; rounded up."""
        return self.charge.epsilon(self.target.delta)

    @property
    def nats_kept(self) -> str | None:
        """A sentence about a target in nats that is promised. None without one, or where :attr:`above_target` speaks."""
        if self.target.nats is None or self.above_target is not None:
            return None
        promised = self.a_priori
        return (
            f"{nats_promised(promised.nats, self.target.dimension, promised.enforced_by)}; an average over values and no "
            "differential privacy; less noise would not lower the error: the mean is exact"
        )

    @property
    def above_target(self) -> str | None:
        """What a person has to know first: a guaranteed figure above the target, and the alternative. None if it is kept."""
        target, why = self.target, self.a_priori.enforced_by
        if target.nats is not None:
            if self.a_priori.nats <= target.nats:
                return None
            certified = self.prediction.get("certificate", "not known")
            return f"guaranteed before the start: no bound in nats ({why}). If all first messages arrive: {certified}"
        promised = self.epsilon_a_priori
        if not is_private(self.protocol) or promised <= target.epsilon * (1 + _ABOVE):
            return None
        why += "; a study that ends without a result may show as much" if self.protocol.TRAITS.gate is not None else ""
        return f"guaranteed before the start: epsilon {epsilon_text(promised)}, more than the target {target.epsilon:g}: {why}"

    @python_call
    def require_target_kept(self, a_priori_above_target: bool) -> None:
        """Raises :class:`InputError` for a guaranteed figure above the target's epsilon, unless that is accepted.

        A target in nats has no epsilon: its rules are the policy's and the ledger's.
        """
        if self.target.nats is None and self.above_target is not None and not a_priori_above_target:
            promising = self.protocol.traits.promising_options
            raise InputError(
                f"{self.above_target}. Choose another protocol, or options of it that promise the target"
                f"{promising and f' ({promising})'}, or accept it with {named('a-priori-above-target', 'True')}."
            )

    @property
    def promises_target(self) -> bool:
        """Does it promise :attr:`epsilon_a_priori` of at most the target's epsilon?"""
        protocol = self.protocol
        return is_private(protocol) and protocol.traits.keeps_target and (self.gated or protocol.traits.gate is None)

    @property
    def grid(self) -> float:
        """The step of the public grid on which all vectors lie that are sent, 32 bits each; 0 where they are float64."""
        return grid_of(self.protocol)

    @property
    def value_step(self) -> float:
        """The step of the public grid to which values are rounded before they are used; 0 where they are float64."""
        return self.protocol.numbers().value_step

    def require_rounded(self, value: Vector) -> None:
        """Raises :class:`InputError` for a sum over records, (d,), that is not on the grid; the error does not contain it.

        Each record must have been rounded before they were added up: a sum that is rounded later can change by more than the
        sensitivity. Whether it was depends on the program that made the sum, not on the records.
        """
        step = self.value_step
        if not step or not self.target.unit.within_party or on_grid(value, step):
            return
        # A vector that is not finite, or too large for the grid, lies outside every domain.
        if not on_grid(value[np.abs(value) < LARGEST_UNITS * step], step):
            raise InputError(
                f"the vector is not a multiple of {step:g}, the plan's grid. Round each record to it before adding "
                "up (towards the centre of its domain), or protect unit party."
            )

    def schedule(self, seed: Seed) -> Schedule:
        """The schedule under the study's public seed."""
        return self.protocol.draw_schedule(self.target.parties, seed)

    def execution(self, seed: Seed, trace: ExecutionTrace, weights: Array | None = None) -> Execution:
        """The execution under a public seed and a history. ``weights``: public weights, shape (n,); by default 1 per party."""
        weights = np.ones(self.target.parties) if weights is None else weights
        target, schedule = self.target, self.schedule(seed)
        return Execution(
            self.protocol,
            schedule,
            trace,
            target.sensitivity,
            weights,
            neighbouring=target.neighbouring,
            interception=Interception.of(self.protocol, target.eavesdropping, schedule, seed),
        )

    @property
    def refunds(self) -> bool:
        """Whether an execution that cost less than was reserved gives the difference back; see :class:`Traits`.

        What a random eavesdropper cost is known of one draw only.
        """
        counted = is_random(self.target.eavesdropping) and self.protocol.traits.counts_intercepted
        return self.protocol.traits.refunds and not counted

    def machine(self, schedule: Schedule, party: PartyId, value: Admitted, noise: NoiseSource) -> PartyMachine[Any]:
        """First phase: the private mixing, up to this party's release. ``value``: its private vector."""
        return self.protocol.machine(schedule, party, value.vector, value.weight, noise)

    def dissemination_machine(
        self, party: PartyId, release: Release | None, seed: Seed, cannot_be: CannotBe | None = None
    ) -> PartyMachine[Any]:
        """Second phase: spread the releases. ``cannot_be``: which are left out where each is seen alone."""
        target, releasers = self.target, self.protocol.traits.releasers(self.target.parties)
        return self.dissemination.machine(target.parties, releasers, party, release, target.dimension, seed, self.grid, cannot_be)


def require_foreseen(target: Target) -> None:
    """Raises :class:`InputError` for a gate against an eavesdropper of whom nobody knows what it reads."""
    if is_random(target.eavesdropping):
        raise InputError(
            f"no gate can keep a target where each message is read with a chance of {target.eavesdropping:g}, since nobody knows "
            "which. Plan without gate and trials, or with eavesdropping all-after-first."
        )
