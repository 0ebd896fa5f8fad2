"""SecAgg behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.codec import digest
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule, complete_pairs
from quietmean.protocols.protocol import Demand, Design, Protocol, Releases, Server
from quietmean.protocols.secagg import spec
from quietmean.protocols.secagg.batch import follow, release
from quietmean.protocols.secagg.client import KEYS_BYTES, Rules
from quietmean.protocols.secagg.design import complete_shape, design
from quietmean.protocols.secagg.keys import SEALED_BYTES
from quietmean.protocols.secagg.party import ROUNDS, AggregatorParty, ClientParty
from quietmean.protocols.secagg.shamir import SHARE_BYTES
from quietmean.protocols.secagg.spec import SecAggParameters
from quietmean.protocols.secagg.wire import REASON_LIMIT, set_size
from quietmean.transcript import Transcript, TranscriptBuilder

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

# Measured on real runs: keys, sealed shares there and back, opened shares; for each partner, and without any.
_BYTES_PER_PARTNER, _OTHER_BYTES = 424, 120


class SecAgg(Protocol[SecAggParameters]):
    """Secure aggregation (Bonawitz et al. 2017) with the distributed discrete Gaussian (Kairouz, Liu and Steinke 2021).

    The declared transcript is the ideal functionality: one sum over the counted parties is told to everybody, with the noise of
    each known to it alone, as continuous Gaussians. That the real run shows no more is the computational claim; certificates do
    not use the continuous noise but the bound for the discrete one in :mod:`~quietmean.protocols.secagg.certificate`.
    """

    name = "secagg"
    summary = "masked inputs, one aggregator that learns only their noisy sum: near central accuracy, secrecy by cryptography"
    server = Server.COLLECTOR
    trust = "an aggregator that follows the protocol"
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement against computationally bounded parties, an upper bound; "
        "assumes X25519, HKDF-SHA256, AES-256 and AES-GCM, and an aggregator that follows the protocol"
    )
    linear = False
    stackable = False
    options = frozenset(
        ["threshold", "minimum", "clip", "bits", "centre", "domain", "largest_weight", "rotation", "aggregator", "noise"],
    )

    def parse(self, raw: Mapping[str, Any], parties: int) -> SecAggParameters:
        return spec.parse(raw, parties, with_neighbours=False)

    def describe(self, parameters: SecAggParameters) -> dict[str, Any]:
        return spec.describe(parameters)

    def remarks(self, parameters: SecAggParameters, state: Any) -> tuple[str, ...]:
        return (state.failure,) if state.failure else ()

    def draft(self, parties: int, options: Mapping[str, Any]) -> SecAggParameters:
        given = {name: option for name, option in options.items() if name != "domain"}
        majority = max(2, parties // 2 + 1)
        defaults = {"threshold": majority, "minimum": majority, "granularity": 2.0**-10, "clip": 0.5}
        return self.parse({"sigma": 1.0, **defaults, **given}, parties)

    def with_noise(self, parameters: SecAggParameters, star: float, delta: float) -> SecAggParameters:
        return replace(parameters, sigma=star)

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[SecAggParameters] | None:
        return design(demand, options, complete_shape(demand, options))

    def rounds(self, parameters: SecAggParameters) -> int:
        return ROUNDS

    def schedule(self, parameters: SecAggParameters, parties: int, seed: Seed) -> Schedule:
        others = [party for party in range(parties) if party != parameters.aggregator]
        inward = [[] if party == parameters.aggregator else [parameters.aggregator] for party in range(parties)]
        outward = [others if party == parameters.aggregator else [] for party in range(parties)]
        star = [inward if round_ % 2 else outward for round_ in range(1, ROUNDS + 1)]
        return Schedule.from_lists(star, parties, self._pairs(parameters, parties, seed))

    def _pairs(self, parameters: SecAggParameters, parties: int, seed: Seed) -> NDArray[np.int64]:
        """Who masks with whom, shape (M, 2): all pairs."""
        return complete_pairs(parties)

    def releasers(self, parameters: SecAggParameters, parties: int) -> frozenset[PartyId]:
        return frozenset({parameters.aggregator})

    def indispensable(self, parameters: SecAggParameters) -> frozenset[PartyId]:
        return frozenset({parameters.aggregator})

    def counted(self, parameters: SecAggParameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        return follow(parameters, schedule, history).counted

    def error_variance(
        self, parameters: SecAggParameters, schedule: Schedule, history: History, weights: NDArray[np.float64]
    ) -> float:
        counted = self.counted(parameters, schedule, history)
        if not counted.any():
            return np.inf
        return float(counted.sum() * parameters.party_variance / weights[counted].sum() ** 2)

    def message_bytes(self, parameters: SecAggParameters, parties: int, dimension: int) -> float:
        """Of all that one party sends and, as its share, what the aggregator sends for it."""
        partners = parties - 1 if parameters.neighbours is None else parameters.neighbours
        masked = (2 if parameters.bits <= 16 else 4) * parameters.words(dimension)
        return (_BYTES_PER_PARTNER * partners + _OTHER_BYTES + masked) / ROUNDS

    def content_limit(self, parameters: SecAggParameters, parties: int, dimension: int) -> int:
        circle = parties if parameters.neighbours is None else parameters.neighbours + 1
        masked = (2 if parameters.bits <= 16 else 4) * parameters.words(dimension)
        items = circle * max(SEALED_BYTES, KEYS_BYTES, 1 + SHARE_BYTES)
        return 1 + max(masked, 2 * set_size(parties) + items, REASON_LIMIT)

    def machine(
        self,
        parameters: SecAggParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> ClientParty | AggregatorParty:
        kind = AggregatorParty if party == parameters.aggregator else ClientParty
        return kind(self.rules(parameters, schedule.parties), schedule, party, value, weight, noise)

    def rules(self, parameters: SecAggParameters, parties: int) -> Rules:
        """What all machines of a run have in common."""
        return Rules(parameters, parties, digest({"protocol": self.name, "parties": parties, **self.describe(parameters)}))

    def transcript(self, parameters: SecAggParameters, schedule: Schedule, history: History) -> Transcript:
        builder = TranscriptBuilder(schedule.parties)
        counted = np.nonzero(self.counted(parameters, schedule, history))[0].tolist()
        if counted:
            noise = {builder.add_noise([party], parameters.sigma, "star"): 1.0 for party in counted}
            values = dict.fromkeys(counted, 1.0)
            builder.add_message(parameters.aggregator, ROUNDS + 1, values=values, noise=noise, released=True)
        return builder.build()

    def loss_conversion(
        self, parameters: SecAggParameters, schedule: Schedule, history: History, weights: NDArray[np.float64], delta: float
    ) -> LossConversion:
        from quietmean.protocols.secagg.certificate import DiscreteLossConversion, stated_dimension

        counted = self.counted(parameters, schedule, history)
        return DiscreteLossConversion(parameters, schedule, counted, stated_dimension(parameters), delta)

    def batch(
        self,
        parameters: SecAggParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        counted = np.nonzero(self.counted(parameters, schedule, history))[0].tolist()
        vector, weight = np.zeros_like(values), np.zeros(len(values))
        by = np.zeros(len(values), dtype=np.bool_)
        if counted:
            server = parameters.aggregator
            vector[server], weight[server] = release(parameters, counted, values, weights, noise)
            by[server] = True
        return Releases(vector, weight, by)
