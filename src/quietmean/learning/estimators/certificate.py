"""What a fit cost, and the public records that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.readable import epsilon_text
from quietmean.learning.sites import SiteRounds
from quietmean.privacy import Charge, CoalitionCertificate, compose
from quietmean.protocols.execution import Execution
from quietmean.studies.outcome.outcome import StudyOutcome


@dataclass(frozen=True, eq=False, repr=False)
class FitCertificate:
    """``epsilon`` at ``delta``: an upper bound for one ``unit``, under replacement, against ``colluding`` parties who put
    together all that they see. ``charge``: the same as a ledger adds it up. ``executions``: what happened, one for each release.
    """

    unit: PrivacyUnit
    delta: float
    colluding: int
    charge: Charge
    executions: tuple[Execution, ...]

    @classmethod
    def of_study(cls, outcome: StudyOutcome) -> Self:
        """The certificate of one release: what its certificate says, or what was promised where that is less."""
        worst = int(outcome.certificate.mu.argmax())
        target = outcome.target
        return cls(target.unit, target.delta, target.colluding, outcome.charge(worst), (outcome.execution,))

    @classmethod
    def of_session(cls, session: SiteRounds, executions: Sequence[Execution]) -> Self:
        """The certificate of the rounds that began, with a result or not; ``executions``: those that this process has seen."""
        terms = session.terms
        return cls(terms.unit, terms.delta, terms.colluding, terms.charge(session.begun), tuple(executions))

    def after(self, before: FitCertificate) -> FitCertificate:
        """The certificate of this fit and one ``before`` it of the same data, against any one coalition for both."""
        return FitCertificate(
            self.unit,
            self.delta,
            max(self.colluding, before.colluding),
            compose([before.charge, self.charge]),
            (*before.executions, *self.executions),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Executions as the plain data that receipts have: a copy of an estimator can go to another process."""
        return {**self.__dict__, "executions": [execution.to_json() for execution in self.executions]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, executions=tuple(map(Execution.from_json, state["executions"])))

    def __repr__(self) -> str:
        cost = f"epsilon {epsilon_text(self.epsilon)} at delta {self.delta:g} for one {self.unit} under {self.neighbouring}"
        return f"FitCertificate({cost}, {len(self.executions)} releases, {self.colluding} colluding)"

    @cached_property
    def epsilon(self) -> float:
        """Rounded up."""
        return self.charge.epsilon(self.delta)

    @property
    def neighbouring(self) -> str:
        return str(Neighbouring.REPLACEMENT)

    def of_release(self, number: int) -> CoalitionCertificate:
        """The certificate of one release by itself, from 0, against every coalition of the size: exact, and takes its time."""
        return self.executions[number].privacy(self.delta).coalitions(self.colluding)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, without the executions."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": str(self.unit),
            "neighbouring": self.neighbouring,
            "colluding": self.colluding,
            "mu": self.charge.mu,
            "releases": len(self.executions),
        }
