"""Plans: frozen, calibrated, serialisable. Parties agree on a plan by its digest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.codec import canonical_json, digest
from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, Release, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols import Protocol, get_protocol
from quietmean.protocols.dissemination import Dissemination
from quietmean.protocols.execution import Execution
from quietmean.protocols.fields import optional_field, required_field

FORMAT = "quietmean-plan-1"


@dataclass(frozen=True)
class Target:
    """What is asked for. ``sensitivity``: L2 change of a party's value when one protected unit is replaced.

    ``colluding`` parties pool all they see; a fraction ``dropouts`` of the parties leaves for good during the study.
    """

    parties: int
    epsilon: float
    delta: float
    dimension: int = 1
    sensitivity: float = 1.0
    colluding: int = 1
    dropouts: float = 0.0
    unit: PrivacyUnit = PrivacyUnit.PARTY
    neighbouring: Neighbouring = Neighbouring.REPLACEMENT

    def __post_init__(self) -> None:
        if self.parties < 2:
            raise InputError(f"{self.parties} party has nobody to compute with: at least 2 parties are needed")
        if not (np.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon is {self.epsilon:g}: choose a finite number > 0, for example 1")
        if not 0 < self.delta < 1:
            raise InputError(f"delta is {self.delta:g}: choose 0 < delta < 1, for example 1e-6")
        if self.dimension < 1:
            raise InputError(f"dimension is {self.dimension}: a value has at least 1 coordinate")
        if not (np.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise InputError(f"sensitivity is {self.sensitivity:g}: choose a finite number > 0")
        if not 0 <= self.colluding < self.parties:
            raise InputError(
                f"{self.colluding} of {self.parties} parties colluding leaves nobody honest: choose 0..{self.parties - 1}"
            )
        if not 0 <= self.dropouts < 1:
            raise InputError(f"dropouts of {self.dropouts:g} are not a fraction: choose 0 <= dropouts < 1")

    def describe(self) -> dict[str, Any]:
        return {
            "parties": self.parties,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "dimension": self.dimension,
            "sensitivity": self.sensitivity,
            "colluding": self.colluding,
            "dropouts": self.dropouts,
            "unit": str(self.unit),
            "neighbouring": str(self.neighbouring),
        }

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Target:
        return cls(
            parties=required_field(raw, "parties", int),
            epsilon=required_field(raw, "epsilon", float),
            delta=required_field(raw, "delta", float),
            dimension=optional_field(raw, "dimension", int, 1),
            sensitivity=optional_field(raw, "sensitivity", float, 1.0),
            colluding=optional_field(raw, "colluding", int, 1),
            dropouts=optional_field(raw, "dropouts", float, 0.0),
            unit=PrivacyUnit(optional_field(raw, "unit", str, "party")),
            neighbouring=Neighbouring(optional_field(raw, "neighbouring", str, "replacement")),
        )


def colluding_count(parties: int, colluding: float) -> int:
    """A count of colluders from a count, or from a fraction below 1 (rounded up)."""
    if colluding < 1:
        return math.ceil(parties * colluding - 1e-9)
    if colluding != int(colluding):
        raise InputError(f"{colluding:g} colluding parties are neither a whole number nor a fraction below 1: choose one")
    return int(colluding)


@dataclass(frozen=True)
class Plan:
    """A protocol calibrated for a target.

    ``context`` says what the coordinates mean (columns, bounds, unit): parties that disagree on it must not compute together.
    ``prediction`` says what was predicted and how it was certified (see :mod:`quietmean.planning.calibrate`).
    """

    target: Target
    protocol: Protocol[Any]
    parameters: Any
    dissemination: Dissemination = field(default_factory=Dissemination)
    prediction: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.target.describe(),
            "protocol": self.protocol.name,
            "parameters": self.protocol.describe(self.parameters),
            "dissemination": self.dissemination.describe(),
            "prediction": dict(self.prediction),
            "context": dict(self.context),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Plan:
        if raw.get("format") != FORMAT:
            raise InputError(f"this is not a plan of this version (format {raw.get('format')!r}): make one with quietmean plan")
        for name in ("target", "parameters", "dissemination", "prediction", "context"):
            if not isinstance(raw.get(name), Mapping):
                raise InputError(f"field {name!r} of the plan is missing or no object: make the plan anew with quietmean plan")
        target = Target.parse(raw["target"])
        protocol = get_protocol(required_field(raw, "protocol", str))
        parameters = protocol.parse(raw["parameters"], target.parties)
        dissemination = Dissemination.parse(raw["dissemination"])
        return cls(target, protocol, parameters, dissemination, raw["prediction"], raw["context"])

    def save(self, path: Path) -> None:
        path.write_bytes(canonical_json(self.to_json()) + b"\n")

    @property
    def digest(self) -> str:
        """What the parties agree on: SHA-256, hexadecimal."""
        return digest(self.to_json())

    @property
    def grid(self) -> float:
        """The step of the public grid on which all vectors lie that are sent, 32 bits each; 0 where they are float64."""
        return self.protocol.grid(self.parameters)

    def schedule(self, seed: Seed) -> Schedule:
        """The schedule under the study's public seed."""
        return self.protocol.schedule(self.parameters, self.target.parties, seed)

    def execution(self, seed: Seed, history: History, weights: NDArray[np.float64] | None = None) -> Execution:
        """The execution under a public seed and a history."""
        weights = np.ones(self.target.parties) if weights is None else weights
        return Execution(self.protocol, self.parameters, self.schedule(seed), history, self.target.sensitivity, weights)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """First phase: the private mixing, up to this party's release."""
        return self.protocol.machine(self.parameters, schedule, party, value, weight, noise)

    def dissemination_machine(self, party: PartyId, release: Release | None, seed: Seed) -> PartyMachine[Any]:
        """Second phase: spread the releases."""
        releasers = self.protocol.releasers(self.parameters, self.target.parties)
        return self.dissemination.machine(self.target.parties, releasers, party, release, self.target.dimension, seed, self.grid)
