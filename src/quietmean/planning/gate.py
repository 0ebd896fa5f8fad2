"""The gate before the release: what a history lets every coalition know must stay below the target, or nothing is released.

A protocol with a gate (:attr:`~quietmean.protocols.Protocol.gated`) hides every value before the release, in every history, as
its ``variance_before_release`` says. What the releases add depends on who was online and on which shares arrived. So the parties
certify the history that they have, releases included, against every coalition of the planned size, and release only if its mu is
below that of the target. A release that is missing afterwards only takes something away from the view. So the mu of any history
is at most :func:`a_priori_mu`. The decision follows from public records alone, and reveals nothing else. Simulations hold the
gate; the nodes of a study certify after the release.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quietmean.planning.plan import Plan
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import CONFIDENCE, exceed_bound
from quietmean.privacy.information import one_thread
from quietmean.protocols import Protocol, Target
from quietmean.protocols.execution import Execution

# So many coalitions are tried one by one; against more, a bound for all of them counts.
EXHAUSTIVE = 500
# Digits to which all parties compute the same number.
_DIGITS = 6


@dataclass(frozen=True)
class Decision:
    """``mu``: an upper bound for every coalition of the planned size, releases included; ``limit``: that of the target.

    ``exhaustive``: every coalition was tried; else a bound for all of them was computed. No units.
    """

    mu: float
    limit: float
    exhaustive: bool

    @property
    def passes(self) -> bool:
        """Is mu below the limit, to 6 digits? Equal numbers do not pass: machines could differ in the last bits."""
        return _rounded(self.mu) < _rounded(self.limit)


def decide(plan: Plan, execution: Execution) -> Decision:
    """May the parties that are online in the last round release what they hold? All of them count as releasing."""
    return decide_for(plan.target, execution)


def decide_for(target: Target, execution: Execution) -> Decision:
    """As :func:`decide`, for a target."""
    parties, size = execution.parties, target.colluding
    limit = mu_of_budget(target.epsilon, target.delta)
    exhaustive = math.comb(parties, size) <= EXHAUSTIVE
    privacy = execution.privacy(target.delta)
    if exhaustive:
        mu = privacy.coalitions(size, limit=EXHAUSTIVE).max_mu
    else:
        known, conversion = privacy.bound(size), privacy.terms.conversion
        view = np.full(parties, np.inf) if known is None else known.mu
        mu = float(conversion.mu_against_any(size, view, execution.sensitivity).max())
    return Decision(mu, limit, exhaustive)


def mu_before_release(protocol: Protocol, sensitivity: float) -> float:
    """mu of what all others together know of a party before it releases anything, at most, in every history."""
    return sensitivity / math.sqrt(protocol.variance_before_release())


def a_priori_mu(plan: Plan) -> float:
    """The mu that no history exceeds, against any coalition of the planned size, if all honest parties keep to the gate."""
    before = mu_before_release(plan.protocol, plan.target.sensitivity)
    return max(before, mu_of_budget(plan.target.epsilon, plan.target.delta))


@dataclass(frozen=True)
class GateTrials:
    """Simulated histories, dropouts as planned: the largest ``mu`` at the gate, and how many of them were ``refused``.

    ``attempt``: which plan this was the trial of, if earlier ones were given up after theirs.
    """

    mu: float
    trials: int
    refused: int
    attempt: int = 1

    @property
    def no_result(self) -> float:
        """An upper bound on the chance of no result (Clopper-Pearson, 95 % confidence, for all attempts at once)."""
        return exceed_bound(self.trials, self.refused, choices=self.attempt)

    def describe(self) -> dict[str, object]:
        """For the prediction of a plan."""
        bound = float(f"{self.no_result:.3g}")
        return {
            "no_result_probability": bound,
            "gate": f"the release is refused with a chance of at most {bound:.2g} ({self.refused} of {self.trials} simulated "
            f"histories, {CONFIDENCE:.0%} confidence), where dropouts are as planned",
        }


def try_gate(target: Target, executions: Iterable[Execution], attempt: int = 1) -> GateTrials:
    """The gate's decisions on histories."""
    with one_thread():
        decisions = [decide_for(target, execution) for execution in executions]
    refused = sum(not decision.passes for decision in decisions)
    return GateTrials(max(decision.mu for decision in decisions), len(decisions), refused, attempt)


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
