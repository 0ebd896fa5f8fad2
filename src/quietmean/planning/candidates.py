"""Candidates: every protocol calibrated for one target, with its predicted error and cost, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quietmean.core.errors import InputError
from quietmean.entropy import Seed
from quietmean.planning.calibrate import Calibration, calibrate, demand_of
from quietmean.planning.plan import Plan, Target
from quietmean.privacy import mu_of_budget
from quietmean.protocols import Protocol, get_protocol, registry
from quietmean.protocols.protocol import ANY_DOMAIN

# Header and framing of one message besides its float64 vector.
_OVERHEAD_BYTES = 40


@dataclass(frozen=True)
class Candidate:
    """``mse`` per coordinate, predicted, dropouts included; ``messages`` and ``bytes_sent`` per party, on average."""

    plan: Plan
    messages: float

    @property
    def mse(self) -> float:
        return float(self.plan.prediction["mse_noise"] + self.plan.prediction["mse_dropout_bias"])

    @property
    def rounds(self) -> int:
        protocol = self.plan.protocol
        telling = self.plan.dissemination.rounds if protocol.releases_are_public else 0
        return protocol.rounds(self.plan.parameters) + telling

    @property
    def bytes_sent(self) -> float:
        return self.messages * (8 * self.plan.target.dimension + _OVERHEAD_BYTES)

    def to_json(self) -> dict[str, Any]:
        target = self.plan.target
        # What one release of one value, and what a curator, would need; exact Gaussian, no colluders.
        one = (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2
        return {
            "protocol": self.plan.protocol.name,
            "parameters": self.plan.protocol.describe(self.plan.parameters),
            "trust": self.plan.protocol.trust,
            "mse": self.mse,
            "mse_central": one / target.parties**2,
            "mse_local": one / target.parties,
            "messages_per_party": self.messages,
            "bytes_per_party": self.bytes_sent,
            "rounds": self.rounds,
            "certificate": dict(self.plan.prediction),
            "digest": self.plan.digest,
            **self.plan.protocol.figures(self.plan.parameters, demand_of(target)),
        }


def rank(
    target: Target,
    names: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    calibration: Calibration = Calibration.EXACT,
) -> list[Candidate]:
    """Calibrated candidates, least predicted error first. By default all that need no server and take any bounded values."""
    chosen = names or [name for name, protocol in registry().items() if _is_general(protocol)]
    if not chosen:
        raise InputError("no protocol is left to choose from: name one with --protocol")
    candidates, refusals = [], []
    for name in chosen:
        protocol = get_protocol(name)
        known = {key: value for key, value in (options or {}).items() if key in protocol.options}
        try:
            plan = calibrate(target, protocol, known, calibration=calibration)
        except InputError as error:
            # Not every protocol can do what is asked; only who named one wants to know why.
            refusals.append(error)
            if names:
                raise
        else:
            candidates.append(Candidate(plan, _messages(plan)))
    if not candidates:
        raise refusals[0]
    return sorted(candidates, key=lambda candidate: candidate.mse)


def _is_general(protocol: Protocol[Any]) -> bool:
    return protocol.private and protocol.trust == "no server" and protocol.domain == ANY_DOMAIN


def _messages(plan: Plan) -> float:
    parties = plan.target.parties
    mixing = float(plan.schedule(Seed.public("cost")).out_degree.sum()) / parties
    if not plan.protocol.releases_are_public:
        return mixing
    releasers = len(plan.protocol.releasers(plan.parameters, parties))
    spread = plan.dissemination
    telling = releasers * (parties - 1) / parties if spread.kind == "broadcast" else float(spread.rounds * spread.out_degree)
    return mixing + telling
