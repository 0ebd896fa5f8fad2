r"""Families of outcomes: the score and the information that a record adds at a public linear predictor, within public bounds.

A record with terms x, outcome y and predictor :math:`\eta` adds the score r x and the information v x x', with the mean m of the
link, :math:`r = (y - m)\, m'(\eta) / V(m)` (McCullagh and Nelder 1989) and v the slope of -r, which is never below 0 here: the
observed information, with which variances hold where the model does not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.statistics import Column


@dataclass(frozen=True)
class Family(ABC):
    """A family of generalised linear models: how a predictor and an outcome give a residual r and an information v.

    ``low``, ``high``: the public bounds of the outcome.
    """

    low: float
    high: float

    # How far a predictor without its offset goes either way.
    farthest: ClassVar[float] = 30.0
    # Ratio of means for one unit of a term: what exp of a coefficient is called.
    ratio: ClassVar[str] = "rate ratio"
    # How many rounds a fit has by default.
    rounds: ClassVar[int] = 6
    # Whether a level may tell the outcome without error, so that its coefficient may be any distance away.
    separates: ClassVar[bool] = True

    @abstractmethod
    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        """r and v, (N,) each."""

    def beyond(self, eta: Array) -> NDArray[np.bool_]:
        """Which records count as at a bound of the mean, (N,)."""
        return np.zeros(len(eta), dtype=np.bool_)

    @property
    def begin(self) -> float:
        """The predictor of all records to begin with."""
        return 0.0


@dataclass(frozen=True)
class Scaled(Family):
    """A family whose residuals have a scale of their own, which rounds find: noise is at that, and not at the public bounds."""

    rounds = 12
    # The least variance of scores over their information.
    dispersed: ClassVar[float] = 1.0

    @classmethod
    @abstractmethod
    def of(cls, outcome: Column, dispersion: float) -> Scaled:
        """The family for such an outcome. Raises :class:`InputError` for one that it is not for."""

    @abstractmethod
    def expected(self, eta: Array) -> Array:
        """The information that is expected at a predictor, (N,): v in the mean over outcomes."""

    def reach(self, predictor: float) -> float:
        """The largest r that counts, where all records have such a ``predictor`` or one that is not far away."""
        return self.high


@dataclass(frozen=True)
class Binomial(Family):
    """Yes or no, with log odds that are linear in the terms. No residual is above 1, which is about their scale."""

    farthest = 8.0
    ratio = "odds ratio"
    # What score, information and, in the last round, squared scores weigh in a vector beside each other.
    weights: ClassVar[tuple[float, float, float]] = (1.0, 0.83, 0.5)
    # The largest v.
    most: ClassVar[float] = 0.25

    @classmethod
    def of(cls, outcome: Column, dispersion: float) -> Binomial:
        """The family for such an outcome. Raises :class:`InputError` for one that is not of yes and no."""
        outcome.require_boolean("is the outcome of a binomial model")
        return cls(0.0, 1.0)

    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        mean = expit(eta)
        return outcome - mean, mean * (1 - mean)

    def length(self, score: float, information: float, squares: float) -> float:
        """How long (score r, information v / most, squares r^2) may be; what is longer is cut."""
        # Who is far off has little information: v = m (1 - m) where r is m.
        far = np.linspace(0.5, 1.0, 501)
        parts = (score * far) ** 2 + (information * far * (1 - far) / self.most) ** 2 + (squares * far**2) ** 2
        return math.sqrt(float(parts.max()))

    def null(self, begin: float, constant: Array, score: Array, information: Array) -> tuple[float, Array, Array]:
        """The predictor of the model without terms, and score and information there, from those at ``begin`` for all records."""
        mean = float(expit(begin))
        products = information / (mean * (1 - mean))
        everybody = products @ constant
        records = float(constant @ everybody)
        part = mean + float(constant @ score) / records if records > 0 else mean
        part = min(max(part, 0.005), 0.995)
        return float(logit(part)), score + (mean - part) * everybody, part * (1 - part) * products


# The largest residual of a record that counts in full, in events.
_MOST_EVENTS = 4.0


@dataclass(frozen=True)
class Hazard(Scaled):
    """Whether the event happens in an interval of time, for who is in it: the complementary log-log link, whose coefficients are
    those of proportional hazards (Prentice and Gloeckler 1978)."""

    farthest = 12.0
    ratio = "hazard ratio"

    @classmethod
    def of(cls, outcome: Column, dispersion: float) -> Hazard:
        outcome.require_boolean("is the outcome of a proportional hazards model")
        return cls(0.0, 1.0)

    @property
    def begin(self) -> float:
        return math.log(0.1)

    def reach(self, predictor: float) -> float:
        return _MOST_EVENTS

    def expected(self, eta: Array) -> Array:
        hazard = np.maximum(_hazard(eta), 1e-12)
        return np.asarray(hazard**2 / np.expm1(hazard), dtype=np.float64)

    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        hazard = _hazard(eta)
        # Of an event exp(eta) (1 - h) / h, with h = 1 - exp(-exp(eta)).
        beyond = np.expm1(hazard)
        happened, slope = hazard / beyond, hazard * (hazard * (beyond + 1) - beyond) / beyond**2
        return np.where(outcome > 0.5, happened, -hazard), np.where(outcome > 0.5, slope, hazard)


def _hazard(eta: Array) -> Array:
    return np.asarray(np.exp(np.minimum(eta, 3.0)), dtype=np.float64)


class _Log(Scaled):
    """A family whose means are products of the terms' effects: the predictor is the logarithm of the mean."""

    @property
    def begin(self) -> float:
        return math.log(max((self.low + self.high) / 4, 1e-9)) if self.high > 4 else 0.0

    def mean(self, eta: Array) -> Array:
        return np.minimum(_exponential(eta), self.high)

    def beyond(self, eta: Array) -> NDArray[np.bool_]:
        return np.asarray(_exponential(eta) > self.high)


@dataclass(frozen=True)
class Poisson(_Log):
    """Counts, or rates with an offset."""

    @classmethod
    def of(cls, outcome: Column, dispersion: float) -> Poisson:
        return cls(*_counts(outcome, "Poisson"))

    def expected(self, eta: Array) -> Array:
        return self.mean(eta)

    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        mean = self.mean(eta)
        return outcome - mean, mean


@dataclass(frozen=True)
class NegativeBinomial(_Log):
    """Counts whose variance is m + ``dispersion`` m^2, the dispersion public."""

    dispersion: float = 1.0

    @classmethod
    def of(cls, outcome: Column, dispersion: float) -> NegativeBinomial:
        low, high = _counts(outcome, "negative binomial")
        if not (math.isfinite(dispersion) and dispersion > 0):
            raise InputError(f"dispersion is {dispersion:g}. Choose a finite number > 0, of the variance m + dispersion m^2.")
        return cls(low, high, dispersion)

    def expected(self, eta: Array) -> Array:
        mean = self.mean(eta)
        return mean / (1 + self.dispersion * mean)

    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        mean = self.mean(eta)
        more = 1 + self.dispersion * mean
        return (outcome - mean) / more, mean * (1 + self.dispersion * outcome) / more**2


# How far below the mean of all records that of a record may be, for its score to count in full.
_BEYOND = 4.0


@dataclass(frozen=True)
class Gamma(_Log):
    """Positive numbers such as costs, with a standard deviation proportional to the mean."""

    ratio = "ratio of means"
    dispersed = 0.0

    @classmethod
    def of(cls, outcome: Column, dispersion: float) -> Gamma:
        if not outcome.numeric or outcome.low < 0:
            raise InputError(f"column {outcome.name!r} is the outcome of a Gamma model. Declare it with bounds from 0 on.")
        return cls(outcome.low, outcome.high)

    @property
    def _least(self) -> float:
        """The least mean of a record."""
        return max(self.low, 1e-6 * self.high)

    def expected(self, eta: Array) -> Array:
        return np.ones(len(eta))

    def reach(self, predictor: float) -> float:
        return _BEYOND * self.high / max(math.exp(min(predictor, 700.0)), self._least)

    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        mean = np.maximum(self.mean(eta), self._least)
        return outcome / mean - 1, outcome / mean

    def mean(self, eta: Array) -> Array:
        # However large, it makes no score longer.
        return _exponential(eta)

    def beyond(self, eta: Array) -> NDArray[np.bool_]:
        return np.zeros(len(eta), dtype=np.bool_)


@dataclass(frozen=True)
class Gaussian(Scaled):
    """Numbers, with means that are linear in the terms: least squares."""

    ratio = ""
    separates = False
    dispersed = 0.0

    @classmethod
    def of(cls, outcome: Column, dispersion: float) -> Gaussian:
        if not outcome.numeric:
            raise InputError(f"column {outcome.name!r} is the outcome of a gaussian model. Declare it with bounds.")
        return cls(outcome.low, outcome.high)

    @property
    def begin(self) -> float:
        return (self.low + self.high) / 2

    def expected(self, eta: Array) -> Array:
        return np.ones(len(eta))

    def reach(self, predictor: float) -> float:
        return max(abs(self.low - predictor), abs(self.high - predictor))

    def scores(self, eta: Array, outcome: Array) -> tuple[Array, Array]:
        return outcome - eta, np.ones(len(eta))


FAMILIES: dict[str, type[Binomial] | type[Scaled]] = {
    "binomial": Binomial,
    "gamma": Gamma,
    "gaussian": Gaussian,
    "negative-binomial": NegativeBinomial,
    "poisson": Poisson,
}


def _exponential(eta: Array) -> Array:
    """The exponential, without overflow."""
    means: Array = np.exp(np.minimum(eta, 700.0))
    return means


def _counts(outcome: Column, name: str) -> tuple[float, float]:
    if outcome.boolean:
        return 0.0, 1.0
    if not outcome.numeric or outcome.low < 0:
        raise InputError(f"column {outcome.name!r} is the outcome of a {name} model. Declare it with bounds from 0 on.")
    return outcome.low, outcome.high


def plain(family: Family) -> dict[str, Any]:
    """A family in plain data, for what parties agree on."""
    return {"family": type(family).__name__, **family.__dict__}
