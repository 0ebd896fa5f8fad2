"""Plans: frozen, calibrated, serialisable. Parties agree on a plan by its digest."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.codec import canonical_json, digest
from quietmean.core.errors import InputError
from quietmean.core.late import from_above
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, Release, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import Protocol, get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.fields import required_field
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.protocols.target import Target
from quietmean.randomness import Seed

FORMAT = "quietmean-plan-1"


class Integers(typing.Protocol):
    """A source of random whole numbers, such as a numpy Generator."""

    def integers(self, low: int, /) -> Any:
        """Uniform below ``low``."""


@dataclass(frozen=True, repr=False)
class Plan:
    """A protocol calibrated for a target.

    ``context`` states what the coordinates mean (columns, bounds, unit): parties that disagree on it must not compute together.
    ``prediction`` states what was predicted and how it was certified (see :mod:`quietmean.planning.calibrate`).
    """

    target: Target
    protocol: Protocol
    dissemination: ResultBroadcast = field(default_factory=ResultBroadcast)
    prediction: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        target = self.target
        return f"Plan({self.protocol!r}, {target.parties} parties, epsilon {target.epsilon:g} at delta {target.delta:g})"

    def simulate(
        self,
        values: Vector | None = None,
        *,
        runs: int = 1000,
        rng: int | Integers = 0,
        dropouts: float | None = None,
        gate: bool = False,
    ) -> Any:
        """A :class:`~quietmean.simulation.SimulationResult`: ``runs`` independent runs in this process, insecure randomness.

        ``values``: (n, d), or (n,) for one coordinate; without them every run draws its own. ``rng``: a whole number or a numpy
        Generator. ``dropouts``: by default as planned. ``gate``: see :func:`quietmean.simulation.simulate`. Raises
        :class:`InputError` for values of another shape.
        """
        if values is not None:
            values = np.asarray(values, dtype=np.float64)
            values = values[:, None] if values.ndim == 1 else values
        seed = rng if isinstance(rng, int) else int(rng.integers(2**62))
        return from_above("quietmean.simulation", "simulate")(self, values, runs=runs, seed=seed, dropouts=dropouts, gate=gate)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.target.describe(),
            "protocol": self.protocol.name,
            "parameters": self.protocol.describe(),
            "dissemination": self.dissemination.describe(),
            "prediction": dict(self.prediction),
            "context": dict(self.context),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`to_json`. Raises :class:`InputError` for a plan of another version or with a missing field."""
        if raw.get("format") != FORMAT:
            raise InputError(f"this is not a plan of this version (format {raw.get('format')!r}): make one with quietmean plan")
        for name in ("target", "parameters", "dissemination", "prediction", "context"):
            if not isinstance(raw.get(name), Mapping):
                raise InputError(f"field {name!r} of the plan is missing or no object: make the plan anew with quietmean plan")
        target = Target.parse(raw["target"])
        protocol = get_protocol(required_field(raw, "protocol", str)).parse(raw["parameters"], target.parties)
        dissemination = ResultBroadcast.parse(raw["dissemination"])
        return cls(target, protocol, dissemination, raw["prediction"], raw["context"])

    def save(self, path: Path) -> None:
        path.write_bytes(canonical_json(self.to_json()) + b"\n")

    @property
    def digest(self) -> str:
        """What the parties agree on: SHA-256, hexadecimal."""
        return digest(self.to_json())

    @property
    def grid(self) -> float:
        """The step of the public grid on which all vectors lie that are sent, 32 bits each; 0 where they are float64."""
        return self.protocol.grid

    def schedule(self, seed: Seed) -> Schedule:
        """The schedule under the study's public seed."""
        return self.protocol.draw_schedule(self.target.parties, seed)

    def execution(self, seed: Seed, trace: ExecutionTrace, weights: NDArray[np.float64] | None = None) -> Execution:
        """The execution under a public seed and a history. ``weights``: public weights, shape (n,); by default 1 per party."""
        weights = np.ones(self.target.parties) if weights is None else weights
        return Execution(self.protocol, self.schedule(seed), trace, self.target.sensitivity, weights)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """First phase: the private mixing, up to this party's release. ``value``: its private vector, shape (d,)."""
        return self.protocol.machine(schedule, party, value, weight, noise)

    def dissemination_machine(self, party: PartyId, release: Release | None, seed: Seed) -> PartyMachine[Any]:
        """Second phase: spread the releases."""
        releasers = self.protocol.releasers(self.target.parties)
        return self.dissemination.machine(self.target.parties, releasers, party, release, self.target.dimension, seed, self.grid)
