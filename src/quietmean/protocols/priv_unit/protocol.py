"""PrivUnitG behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.priv_unit.party import PrivUnitParty, private_report
from quietmean.protocols.priv_unit.spec import PrivUnitParameters
from quietmean.protocols.protocol import Demand, Design, Protocol, Releases
from quietmean.transcript import Transcript

# Replacement of a unit vector by its opposite.
_DIAMETER = 2.0
# Where a file names no probability: the best one in so many dimensions. It depends on them very little.
_DIMENSION = 100


class PrivUnitG(Protocol[PrivUnitParameters]):
    """Not Gaussian, so no transcript describes it: the guarantee is pure and holds against everybody else together."""

    name = "priv-unit-g"
    summary = "every party publishes a private report of its unit vector: pure local differential privacy"
    guarantee = "epsilon-differential privacy (delta = 0) under replacement of a unit vector, local, unconditional, exact"
    domain = "unit vectors"
    linear = False
    has_transcript = False

    def parse(self, raw: Mapping[str, Any], parties: int) -> PrivUnitParameters:
        epsilon = required_field(raw, "epsilon", float)
        if "probability" not in raw:
            return PrivUnitParameters.best(epsilon, _DIMENSION)
        return PrivUnitParameters(epsilon, optional_field(raw, "probability", float, 0.5))

    def describe(self, parameters: PrivUnitParameters) -> dict[str, Any]:
        return {"epsilon": parameters.epsilon, "probability": parameters.probability}

    def draft(self, parties: int, options: Mapping[str, Any]) -> PrivUnitParameters:
        return self.parse({"epsilon": 1.0, **options}, parties)

    def with_noise(self, parameters: PrivUnitParameters, star: float, delta: float) -> PrivUnitParameters:
        return parameters

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[PrivUnitParameters]:
        """For the epsilon demanded; its delta is not used, since this guarantee is pure."""
        if abs(demand.sensitivity - _DIAMETER) > 1e-9:
            raise InputError(
                f"sensitivity is {demand.sensitivity:g}: PrivUnitG takes unit vectors only, for which it is {_DIAMETER:g}; scale "
                "the values to length 1, or choose another protocol"
            )
        parameters = PrivUnitParameters.best(demand.epsilon, demand.dimension)
        responding = demand.responding
        error = parameters.error(demand.dimension) / (demand.dimension * responding)
        lost = demand.dropout_bias(responding)
        return Design(parameters, error, lost, f"pure {demand.epsilon:g}-DP of each report (delta = 0), whoever colludes")

    def accepted(self, values: Vector, weights: NDArray[np.float64]) -> Vector:
        length = np.linalg.norm(values, axis=1)
        first = np.eye(1, values.shape[1])
        # Divided twice, so that the squares of tiny entries do not vanish.
        largest = np.abs(values).max(axis=1)
        scaled = np.where(length[:, None] > 0, values / np.where(largest > 0, largest, 1.0)[:, None], first)
        fitting: Vector = scaled / np.linalg.norm(scaled, axis=1)[:, None] * weights[:, None]
        return fitting

    def rounds(self, parameters: PrivUnitParameters) -> int:
        return 1

    def schedule(self, parameters: PrivUnitParameters, parties: int, seed: Seed) -> Schedule:
        return Schedule.silent(1, parties)

    def fixed_schedule(self, parameters: PrivUnitParameters, parties: int) -> Schedule:
        return Schedule.silent(1, parties)

    def machine(
        self,
        parameters: PrivUnitParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> PrivUnitParty:
        return PrivUnitParty(parameters, value, weight, noise)

    def transcript(self, parameters: PrivUnitParameters, schedule: Schedule, history: History) -> Transcript:
        raise InputError(
            "PrivUnitG adds no Gaussian noise, so there is nothing to certify from a transcript: every report is "
            f"{parameters.epsilon:g}-DP with delta = 0 under replacement of a unit vector, whoever colludes"
        )

    def batch(
        self,
        parameters: PrivUnitParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        reports = [
            private_report(parameters, value, float(weight), noise.party(party)).vector
            for party, (value, weight) in enumerate(zip(values, weights, strict=True))
        ]
        return Releases(np.array(reports), weights, history.finished)
