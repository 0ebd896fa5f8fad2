"""Certificates: what one execution cost each honest party against one adversary, with all assumptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.privacy.accounting import EXACT, GAUSSIAN, Accounting
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information import InformationMatrix
from quietmean.privacy.solver import information_matrix
from quietmean.transcript import Transcript

Array = NDArray[np.float64]

# The solver's error estimate is widened by this factor, and by this much relative, before it becomes the upper bound.
_ERROR_FACTOR, _ERROR_FLOOR = 10.0, 1e-10

ASSUMPTIONS = (
    "passive adversary that knows who sent to whom and who was online",
    "replacement of one unit's value, L2 sensitivity as stated",
)


def assumptions(accounting: Accounting) -> list[str]:
    """All that a certificate takes for granted, one clause each."""
    return [*ASSUMPTIONS, *accounting.notes]


@dataclass(frozen=True, eq=False)
class Certificate:
    """mu-GDP per honest party, exact up to rounding: ``mu`` is the estimate, ``mu_upper`` the bound that counts.

    Where the noise is not Gaussian, both are the upper bound of ``accounting``. Neighbouring relation: replacement of one party's
    value by another at L2 distance <= ``sensitivity``.
    """

    adversary: Adversary
    sensitivity: float
    information: InformationMatrix = field(repr=False)
    accounting: Accounting = field(default=GAUSSIAN, repr=False)

    @property
    def honest(self) -> tuple[PartyId, ...]:
        return self.information.honest

    @property
    def mu(self) -> Array:
        return self._counting(self.information.mu(self.sensitivity))

    @property
    def mu_upper(self) -> Array:
        widened = 1.0 + _ERROR_FLOOR + _ERROR_FACTOR * self.information.relative_error
        return self._counting(self.information.mu(self.sensitivity) * widened)

    def _counting(self, view: Array) -> Array:
        return self.accounting.mu(self.adversary, self.honest, view, self.sensitivity)

    @property
    def max_mu(self) -> float:
        return float(self.mu_upper.max(initial=0.0))

    def epsilon(self, delta: float) -> Array:
        """Per honest party, rounded up: shape (n_H,)."""
        return np.array([self.accounting.epsilon(float(mu), delta) for mu in self.mu_upper])

    def delta(self, epsilon: float) -> Array:
        """Per honest party, rounded up: shape (n_H,)."""
        return np.array([self.accounting.delta(float(mu), epsilon) for mu in self.mu_upper])

    def max_epsilon(self, delta: float) -> float:
        return self.accounting.epsilon(self.max_mu, delta)

    def to_json(
        self, *, epsilon: float | None = None, delta: float | None = None, prior_sd: float | None = None, matrix: bool = False
    ) -> dict[str, Any]:
        """The answer of ``quietmean certify`` against one adversary. Raises :class:`InputError` for what bounds do not give."""
        if self.accounting.kind != EXACT and (prior_sd is not None or matrix):
            raise InputError(
                "mutual information and the information matrix are those of Gaussian noise, which this protocol does not have: "
                "leave prior-sd and matrix out"
            )
        document: dict[str, Any] = {
            "adversary": self.adversary.describe(),
            "corrupt": sorted(self.adversary.corrupt),
            "sensitivity": self.sensitivity,
            "honest": list(self.honest),
            "mu": self.mu,
            "mu_upper": self.mu_upper,
            "disclosures": self.information.disclosures(),
            "numbers": self.accounting.kind,
            "definition": self.accounting.definition,
            "assumptions": assumptions(self.accounting),
        }
        if delta is not None:
            document |= {"at_delta": delta, "epsilon": self.epsilon(delta), "max_epsilon": self.max_epsilon(delta)}
        if epsilon is not None:
            document |= {"at_epsilon": epsilon, "delta": self.delta(epsilon)}
        if prior_sd is not None:
            document["mutual_information_nats"] = self.information.mutual_information(prior_sd)
        if matrix:
            document["information_matrix"] = self.information.dense()
        return document


def certify(
    transcript: Transcript,
    adversary: Adversary,
    sensitivity: float,
    method: str = "auto",
    accounting: Accounting = GAUSSIAN,
) -> Certificate:
    """What the adversary's view of this execution is worth, per honest party. ``accounting``: that of the execution."""
    return Certificate(adversary, sensitivity, information_matrix(transcript, adversary, method), accounting)
