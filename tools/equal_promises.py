"""Plans that promise the same before the first message, for pages that compare protocols.

What some protocols plan for is what is expected to happen; whatever happens they promise more. Such a plan is made anew, so that
it promises the target whatever happens: by telling nothing before all edges are open where the protocol has edges, by a gate
before the release where it has one, or by so much noise of each party's own; by what costs less. So the cost of the promise is in
the error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from page_parts import resumed

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.privacy import mu_of_budget
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols import Target, configure

# Simulated histories on which a gate is tried where the default plan has none. They decide the noise to a few percent; of the
# chance of no result they show next to nothing.
TRIALS = 3
# Beyond so many parties only gates are tried that a plan has by default: a bound for one history then takes half a minute.
MOST_GATED = 60
BY_PLAN, BY_GATE, BY_NOISE = "guaranteed", "guaranteed, by a gate", "guaranteed, by own noise"
# Of an epsilon, what rounding up may add. How often noise is raised, and by how much more than is needed.
_ROUNDED, _ATTEMPTS, _MORE = 1e-9, 5, 1e-3


@dataclass(frozen=True)
class Promised:
    """The plan that is made by default, one that keeps its target whatever happens, and ``how`` that one does."""

    usual: Plan
    kept: Plan
    how: str

    @property
    def promise_of_usual(self) -> str:
        """Whether the epsilon of the plan that is made by default is promised, or only known once it has happened."""
        if self.usual is self.kept:
            return self.how
        return f"realised; guaranteed {self.usual.epsilon_a_priori:.3g}"


def promised(target: Target, name: str, folder: Path | None = None) -> Promised:
    """The plans of a protocol with default options; those that are in the ``folder`` are not made again.

    Raises :class:`InputError` where it cannot have this target.
    """
    usual = planned(target, name, None, folder)
    if _keeps(usual, target):
        return Promised(usual, usual, BY_GATE if usual.gated else BY_PLAN)
    noisy = Promised(usual, _with_more_noise(usual, folder), BY_NOISE)
    if not (usual.protocol.TRAITS.gate is not None) or target.parties > MOST_GATED:
        return noisy
    # By a gate, or by own noise alone where that costs less.
    tried = planned(target, name, TRIALS, folder)
    return min(Promised(usual, tried, BY_GATE if tried.gated else BY_NOISE), noisy, key=lambda one: error(one.kept))


def error(plan: Plan) -> float:
    """The predicted mean squared error per coordinate, lost values included."""
    return float(plan.prediction["mse_noise"] + plan.prediction["mse_dropout_bias"])


def central(target: Target) -> float:
    """That of a trusted curator from whom nobody leaves: one release, exact Gaussian noise."""
    return (target.sensitivity / mu_of_budget(target.epsilon, target.delta) / target.parties) ** 2


def planned(target: Target, name: str, trials: int | None, folder: Path | None = None) -> Plan:
    """With default options. Raises :class:`InputError` where the protocol cannot have this target."""
    key = digest({"target": target.describe(), "protocol": name, "trials": trials})

    def made() -> str:
        return json.dumps(calibrate(target, configure(name), trials=trials).to_json()) + "\n"

    return Plan.from_json(json.loads(resumed(folder, f"plan-{key[:16]}", made, quiet=True)))


def _keeps(plan: Plan, target: Target) -> bool:
    return plan.epsilon_a_priori <= target.epsilon * (1 + _ROUNDED)


def _with_more_noise(plan: Plan, folder: Path | None) -> Plan:
    """Planned for less, until the noise of each party's own keeps the target."""
    target, name = plan.target, plan.protocol.name
    limit = asked = mu_of_budget(target.epsilon, target.delta)
    for _ in range(_ATTEMPTS):
        asked *= limit / mu_of_budget(plan.epsilon_a_priori, target.delta) * (1 - _MORE)
        plan = planned(replace(target, epsilon=epsilon_of_mu(asked, target.delta)), name, 0, folder)
        if _keeps(plan, target):
            return plan
    raise InputError(f"no noise was found with which {name} promises epsilon {target.epsilon:g} before the first message")
