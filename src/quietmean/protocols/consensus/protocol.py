"""Average consensus behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.graphs.undirected import components, static_schedule
from quietmean.protocols.consensus.parsing import (
    default_iterations,
    parse_choice,
    parse_edges,
    parse_quantisation,
    parse_sigma_z,
    parse_step,
)
from quietmean.protocols.consensus.party import ConsensusParty
from quietmean.protocols.consensus.population import population
from quietmean.protocols.consensus.quantiser import packed_size
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.protocols.fields import optional_field
from quietmean.protocols.protocol import Demand, Design, Protocol
from quietmean.transcript import Transcript
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


class Consensus(Protocol[ConsensusParameters]):
    name = "consensus"
    # Not among the protocols that are compared by default: a plan with dropouts is refused.
    lets_go = False
    trust = "no server; parties must stay to the end"
    summary = "PDMM or ADMM on a graph with noise that never reaches the result; no party may leave for good early"
    guarantee = (
        "component sums are exact; all else as the information matrix says: (epsilon, delta) only with Gaussian local noise, "
        "mutual information in any case; an upper bound where messages are quantised"
    )
    options = frozenset(
        {
            *(
                "graph",
                "graph_seed",
                "radius",
                "connectivity",
                "edges",
                "theta",
                "c",
                "sigma_z",
                "iterations",
                "mode",
                "patience",
            ),
            *("bits", "gamma", "delta_0", "delta_min", "two_step", "dither_seed", "local_noise", "sigma_local", "value_sd"),
        }
    )
    releases_are_public = False
    # Over an edge that it has given up, though the other end may not have.
    refuses_messages = True
    stackable = False

    def parse(self, raw: Mapping[str, Any], parties: int) -> ConsensusParameters:
        edges = parse_edges(raw, parties)
        theta = optional_field(raw, "theta", float, 0.0)
        if not 0 <= theta < 1:
            raise InputError(f"theta is {theta:g}: choose 0 <= theta < 1 (0 is PDMM, 0.5 ADMM)")
        c = parse_step(raw, edges, parties, theta)
        broadcast = parse_choice(raw, "mode", ("unicast", "broadcast")) == "broadcast"
        parameters = ConsensusParameters(
            edges,
            parties,
            theta,
            c,
            parse_sigma_z(raw, len(edges)),
            iterations=optional_field(raw, "iterations", int, 1),
            broadcast=broadcast,
            local_noise=optional_field(raw, "local_noise", str, "none"),
            sigma_local=optional_field(raw, "sigma_local", float, 0.0),
            patience=optional_field(raw, "patience", int, 3),
        )
        if "bits" in raw:
            parameters = replace(parameters, quantisation=parse_quantisation(raw, parameters))
        if "iterations" not in raw:
            parameters = replace(parameters, iterations=default_iterations(parameters))
        return parameters

    def describe(self, parameters: ConsensusParameters) -> dict[str, Any]:
        sigma_z = parameters.sigma_z
        same = bool(sigma_z.size) and bool((sigma_z == sigma_z[0, 0]).all())
        document: dict[str, Any] = {
            "edges": parameters.edges.tolist(),
            "theta": parameters.theta,
            "c": parameters.c,
            "sigma_z": float(sigma_z[0, 0]) if same else sigma_z.tolist(),
            "iterations": parameters.iterations,
            "mode": "broadcast" if parameters.broadcast else "unicast",
            "patience": parameters.patience,
        }
        if parameters.local_noise != "none":
            document |= {"local_noise": parameters.local_noise, "sigma_local": parameters.sigma_local}
        if parameters.quantisation is not None:
            document |= parameters.quantisation.describe()
        return document

    def draft(self, parties: int, options: Mapping[str, Any]) -> ConsensusParameters:
        defaults: dict[str, Any] = {"theta": 0.2, "c": "auto", "sigma_z": 1.0, "local_noise": "gaussian", "sigma_local": 1.0}
        if "edges" not in options and "graph" not in options:
            defaults["graph"] = "geometric"
        parameters = self.parse({**defaults, **options}, parties)
        self.refuse_overload(parameters, options)
        return parameters

    def refuse_overload(self, parameters: ConsensusParameters, options: Mapping[str, Any]) -> None:
        """Plans are refused where files are not: what was chosen may be run all the same. Raises :class:`InputError`."""
        from quietmean.protocols.consensus.trial import refuse_overload

        if options.get("bits", "auto") != "auto":
            refuse_overload(parameters, optional_field(options, "value_sd", float, 1.0))

    def with_noise(self, parameters: ConsensusParameters, star: float, delta: float) -> ConsensusParameters:
        local = parameters.local_noise if star > 0 else "none"
        return replace(
            parameters,
            sigma_local=star,
            local_noise="gaussian" if star > 0 and local == "none" else local,
            sigma_z=np.full_like(parameters.sigma_z, delta),
        )

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[ConsensusParameters] | None:
        from quietmean.protocols.consensus.design import design

        return design(self, demand, options)

    def is_linear(self, parameters: ConsensusParameters) -> bool:
        return parameters.quantisation is None and parameters.local_noise in ("none", "gaussian")

    def is_overheard(self, parameters: ConsensusParameters, round_: int) -> bool:
        return round_ > 1

    def remarks(self, parameters: ConsensusParameters, state: Any) -> tuple[str, ...]:
        if not state.overloads:
            return ()
        return (
            f"{state.overloads} entries overloaded this party's quantisers, the last in iteration {state.last_overload}: "
            "its error is larger than predicted, take more bits or a slower gamma",
        )

    def error_variance(
        self, parameters: ConsensusParameters, schedule: Schedule, history: History, weights: NDArray[np.float64]
    ) -> float:
        from quietmean.protocols.consensus.design import quantisation_error
        from quietmean.protocols.consensus.error import error_variance

        return error_variance(parameters, schedule, history, weights) + quantisation_error(parameters)

    def counted(self, parameters: ConsensusParameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        """The largest group of parties that are connected by edges in use at the end: they end with their common mean."""
        from quietmean.protocols.consensus.edges_in_use import edges_in_use

        # An edge to a party that left is in use until it has been silent for long enough: who left is not counted.
        used = edges_in_use(parameters, schedule, history)
        stayed = history.finished[parameters.edges].all(axis=1)
        group = components(parameters.edges[used & stayed], parameters.parties)
        sizes = np.bincount(group[history.finished], minlength=parameters.parties)
        together: NDArray[np.bool_] = history.finished & (group == int(np.argmax(sizes)))
        return together

    def message_bytes(self, parameters: ConsensusParameters, parties: int, dimension: int) -> float:
        if parameters.quantisation is None:
            return 8.0 * dimension
        packed = packed_size(parameters.quantisation.bits, dimension)
        return (8.0 * dimension + (parameters.rounds - 1) * packed) / parameters.rounds

    def content_limit(self, parameters: ConsensusParameters, parties: int, dimension: int) -> int:
        return 0 if parameters.quantisation is None else packed_size(parameters.quantisation.bits, dimension)

    def rounds(self, parameters: ConsensusParameters) -> int:
        return parameters.rounds

    def schedule(self, parameters: ConsensusParameters, parties: int, seed: Seed) -> Schedule:
        return self.fixed_schedule(parameters, parties)

    def fixed_schedule(self, parameters: ConsensusParameters, parties: int) -> Schedule:
        return static_schedule(parameters.edges, parties, parameters.rounds)

    def machine(
        self,
        parameters: ConsensusParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> ConsensusParty:
        return ConsensusParty(parameters, party, value, weight, noise)

    def transcript(self, parameters: ConsensusParameters, schedule: Schedule, history: History) -> Transcript:
        # Running parties need no matrices: they start without this import.
        from quietmean.protocols.consensus.transcript import least_transcript

        return least_transcript(parameters, schedule, history)

    def full_transcript(self, parameters: ConsensusParameters, schedule: Schedule, history: History) -> Transcript:
        return super().transcript(parameters, schedule, history)

    def population(
        self,
        parameters: ConsensusParameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(parameters, schedule, history, values, weights, noise, out)
