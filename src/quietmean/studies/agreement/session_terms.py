r"""What the parties of a session agree on once: a budget for at most T means, and the plan that every round has.

Every round releases one mean of vectors in the unit ball, by the same plan with noise of its own. If a round costs
(mu, beta, tv) at most, T rounds cost (sqrt(T) mu, T beta, T tv), also where what is asked in later rounds depends
on what earlier ones released (Smith and Thakurta 2022): mu adds in squares, against any one coalition for all rounds. The noise
of a round follows from that at the start and never changes.

Neighbouring relation: replacement of one unit, in all rounds at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Required, Self, TypedDict

from quietmean.core.codec import digest
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.readable import count_of
from quietmean.planning.automatic import AUTO, choose
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge, compose, mu_of_budget
from quietmean.privacy.composition import epsilon_within
from quietmean.protocols import Mechanism, Target, configure, resolve
from quietmean.protocols.mechanism import is_private, unprotected
from quietmean.protocols.target import colluding_count

# Each round is a term of sums in exact arithmetic.
MOST_ROUNDS = 10_000
# Of two points in the unit ball.
_DIAMETER = 2.0
# What is taken off mu if the sum of all rounds is above the budget by rounding or by the additive columns.
_MARGINS = (0.0, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.2, 0.4)


class BudgetKeywords(TypedDict, total=False):
    """Fields of :class:`SessionTerms`; ``colluding`` may be a fraction of the parties."""

    epsilon: Required[float]
    delta: Required[float]
    rounds: Required[int]
    colluding: float
    dropouts: float
    options: Mapping[str, Any] | None


class RoundsKeywords(BudgetKeywords, total=False):
    """What a session is given whose dimension follows from a model."""

    unit: str
    protocol: str


class TermsKeywords(RoundsKeywords, total=False):
    """All fields of a session."""

    dimension: Required[int]


@dataclass(frozen=True, kw_only=True)
class SessionTerms:
    """What the parties of a session agree on.

    ``epsilon`` and ``delta``: the budget of one ``unit`` over all ``rounds``; ``dimension`` d: coordinates of a vector.

    ``colluding`` parties put together what they see in all rounds; a fraction ``dropouts`` may be missing in each round, other
    ones each time. ``by_folder``: messages are files in a folder. Raises :class:`InputError` for terms that nobody can keep.
    """

    parties: int
    dimension: int
    epsilon: float
    delta: float
    rounds: int
    unit: PrivacyUnit = PrivacyUnit.PARTY
    colluding: int = 1
    dropouts: float = 0.0
    protocol: str = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    by_folder: bool = False

    def __post_init__(self) -> None:
        for name, resolved in zip(("protocol", "options"), resolve(self.protocol, self.options), strict=True):
            object.__setattr__(self, name, resolved)
        if self.unit == PrivacyUnit.PERSON:
            raise InputError(
                "a session has vectors and does not know whose rows they are computed from, so the unit cannot be person. Choose "
                "party, or record with one vector for each person."
            )
        if self.rounds < 1:
            raise InputError(f"a session of {self.rounds} rounds releases nothing. Choose at least 1.")
        if self.rounds > MOST_ROUNDS:
            raise InputError(f"{self.rounds} rounds are too many for one session. Choose at most {MOST_ROUNDS}.")
        # Checks every other number.
        self._target(self.epsilon, self.delta)

    @classmethod
    def stated(cls, parties: int, terms: TermsKeywords) -> Self:
        """The terms as a person states them. Raises :class:`InputError` for terms that nobody can keep."""
        unit, fields = terms.get("unit", str(PrivacyUnit.PARTY)), dict[str, Any](terms)
        if unit not in list(PrivacyUnit):
            raise InputError(f"unit is {unit!r}. Choose party or record.")
        fields |= {"unit": PrivacyUnit(unit), "options": dict(terms.get("options") or {})}
        return cls(parties=parties, **fields | {"colluding": colluding_count(parties, terms.get("colluding", 0.1))})

    def __hash__(self) -> int:
        return hash(self.digest)

    def describe(self) -> dict[str, Any]:
        """Plain JSON data: what the parties agree on, the plan of a round with it."""
        return {
            "format": "quietmean-session-1",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rounds": self.rounds,
            "plan": self.plan.to_json(),
        }

    @cached_property
    def digest(self) -> str:
        """The SHA-256 digest of the terms, hexadecimal."""
        return digest(self.describe())

    @cached_property
    def plan(self) -> Plan:
        """The plan of every round, for vectors in the unit ball. Raises :class:`InputError` if the budget cannot be kept."""
        share, spare = 1.0, 0.0
        for margin in _MARGINS:
            mu = self._whole_mu(spare) / math.sqrt(self.rounds) * (1 - margin)
            plan = self._planned(mu, min(self.delta * share, mu / 100))
            total = compose([plan.charge] * self.rounds)
            # By mu, as accounts count it: who has a budget of this epsilon has room for all rounds.
            if Charge(total.mu, total.beta, total.tv).epsilon(self.delta) <= self.epsilon:
                return plan
            # What each round takes of delta besides mu has to fit as often as there are rounds.
            share = 1 / (2 * self.rounds) if plan.charge.beta else 1.0
            spare = float(total.additive(self.epsilon))
        raise InputError(
            f"{count_of(self.rounds, 'round')} of {plan.protocol.name} cannot fit into epsilon {self.epsilon:g} at "
            f"delta {self.delta:g}. "
            "Plan fewer rounds, or a larger delta."
        )

    def charge(self, rounds: int) -> Charge:
        """What so many rounds cost at most."""
        return compose([self.plan.charge] * rounds)

    def spent_epsilon(self, rounds: int) -> float:
        """What so many rounds cost at the session's delta; rounded up."""
        return self.charge(rounds).epsilon(self.delta) if rounds else 0.0

    def noise(self, clip: float) -> float:
        """The standard deviation of the noise in a mean of all parties' vectors, per coordinate, as planned: an estimate."""
        return math.sqrt(float(self.plan.prediction["mse_noise"])) * clip

    @property
    def whole_target(self) -> Target:
        """The target of all rounds together."""
        return self._target(self.epsilon, self.delta)

    def _whole_mu(self, spare: float) -> float:
        remaining = self.delta - spare
        if remaining <= 0:
            raise InputError(
                f"delta {self.delta:g} is below what {count_of(self.rounds, 'round takes', 'rounds take')} of it. Choose "
                "a larger delta."
            )
        return mu_of_budget(self.epsilon, remaining)

    def _planned(self, mu: float, delta: float) -> Plan:
        target = self._target(max(epsilon_within(mu, delta), 1e-12), delta)
        domain = InputDomain.ball(self.dimension, _DIAMETER / 2)
        if self.protocol == AUTO:
            return choose(target, self.options, domain).plan.with_domain(domain)
        protocol = configure(self.protocol, self.options)
        require_private(protocol)
        return calibrate(target, protocol).with_domain(domain)

    def _target(self, epsilon: float, delta: float) -> Target:
        return Target(
            parties=self.parties,
            epsilon=epsilon,
            delta=delta,
            dimension=self.dimension,
            sensitivity=_DIAMETER,
            colluding=self.colluding,
            dropouts=self.dropouts,
            unit=self.unit,
            by_folder=self.by_folder,
        )


def require_private(protocol: Mechanism) -> None:
    """Raises :class:`InputError` for a protocol without privacy: nobody can ask for that where all rounds have one budget."""
    if not is_private(protocol):
        raise InputError(f"{unprotected(protocol)}. A session needs a bound on its cost. Choose another protocol.")
