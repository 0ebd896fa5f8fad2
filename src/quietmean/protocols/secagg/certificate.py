"""The certificate of an execution: the bound that the plan was made with, for the parties that were really counted.

Needed after a study, not while parties run: its imports take long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.privacy import GAUSSIAN, Adversary, LossConversion, mu_of_budget
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.secagg.accounting import (
    dominating_gaussian,
    least_epsilon,
    rounded_sensitivity,
    sampler_delta,
    spent_epsilon,
    wrap_chance,
)
from quietmean.protocols.secagg.spec import SecAggParameters
from quietmean.protocols.secagg.worst_case import least_unknown
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# The part of delta for the rare event of independent rounding, where a study is charged to a ledger, which adds such parts up
# over studies. It costs mu little, as only its logarithm matters.
_CHARGED_PART = 1e-5
# mu is found from epsilon to a relative 1e-12; moved by this much towards less privacy.
_MARGIN = 1e-9


class DiscreteLossConversion(LossConversion):
    """Upper bounds for sums of distributed discrete Gaussian noise against computationally bounded parties.

    mu is the larger of two: that of the Gaussian mechanism with the same epsilon at the ``delta`` given, by the bound of
    :func:`~quietmean.protocols.secagg.accounting.spent_epsilon`, and the one of
    :func:`~quietmean.protocols.secagg.accounting.dominating_gaussian`, which holds when studies are added up.
    """

    kind = UPPER_BOUND
    definition = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, against computationally bounded parties; "
        "zero-concentrated bound for sums of discrete Gaussians (Kairouz, Liu and Steinke 2021), converted (Canonne, Kamath and "
        "Steinke 2020)"
    )

    def __init__(
        self, parameters: SecAggParameters, schedule: Schedule, counted: Mask, dimension: int, delta: float, graph: float = 0.0
    ) -> None:
        """``graph``: the chance that a random graph fails what plans count on, for any coalition chosen before it is drawn."""
        self._parameters = parameters
        self._schedule = schedule
        self._counted = counted
        self._dimension = dimension
        self._words = parameters.words(dimension)
        self._delta = delta
        _, self._rounding_delta = rounded_sensitivity(parameters, 1.0, self._words, delta)
        parties = (1, max(1, int(counted.sum())))
        self._eta = (
            max(dominating_gaussian(1.0, parameters.scale, m, self._words)[1] for m in parties) if parameters.noisy else 0.0
        )
        self._known: dict[tuple[int, float], float] = {}
        self.beta, self.tv = additive_columns(parameters, int(counted.sum()), self._words, delta, graph)
        self.notes = self._notes()
        self.charge_notes = (
            f"beta {self.beta:.2g} for rare rounding and for the graph, tv {self.tv:.2g} for the sampler and for how far "
            "discrete noise is from rounded Gaussian noise",
        )

    def _notes(self) -> tuple[Assumption, ...]:
        if not self._parameters.noisy:
            return (Assumption(Key.NO_NOISE, "There is no noise at all: the sum itself protects nobody."),)
        parties, steps = int(self._counted.sum()), self._parameters.scale
        chance = wrap_chance(self._parameters, parties, self._dimension) if parties else 0.0
        return (
            Assumption(
                Key.NUMBERS,
                f"Whole numbers with discrete Gaussian noise of scale {steps:.6g} steps from each of {parties} counted "
                f"parties, of which only what the adversary does not know is credited.",
            ),
            Assumption(
                Key.ROUNDING,
                f"Clipped values are rounded ({self._parameters.rounding} rounding) to steps of "
                f"{self._parameters.granularity:.6g}, which adds to the sensitivity.",
            ),
            Assumption(
                Key.SAMPLER,
                f"All draws together are within {self.tv:.1g} of the model in total variation, which every delta counts.",
            ),
            Assumption(
                Key.OVERFLOW,
                f"The sum wraps around with probability below {chance:.1g} for the worst values, which costs accuracy, not "
                f"privacy.",
            ),
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        unknown = self.unknown_noise(adversary)
        return np.array([self._bound(int(unknown[party]), sensitivity) for party in honest])

    def charged_mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        unknown = self.unknown_noise(adversary)
        return np.array(
            [added_mu(self._parameters, sensitivity, int(unknown[party]), self._words, self._delta) for party in honest]
        )

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        counted = int(self._counted.sum())
        unknown, _ = least_unknown(self._parameters, self._schedule, counted, size)
        return np.where(self._counted, self._bound(unknown, sensitivity), 0.0)

    def charged_mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        unknown, _ = least_unknown(self._parameters, self._schedule, int(self._counted.sum()), size)
        return np.where(self._counted, added_mu(self._parameters, sensitivity, unknown, self._words, self._delta), 0.0)

    def epsilon(self, mu: float, delta: float) -> float:
        if delta >= self._delta:
            return GAUSSIAN.epsilon(mu, self._delta)
        return least_epsilon(lambda epsilon: self.delta(mu, epsilon) <= delta)

    def delta(self, mu: float, epsilon: float) -> float:
        # By the dominating Gaussian: its own delta, the factors, and what rounding and the sampler may add.
        if math.isinf(mu) or math.isinf(self._eta):
            return 1.0
        if mu == 0.0:
            return 0.0
        sampler = sampler_delta(self._words, int(self._counted.sum()), epsilon)
        gaussian = math.exp(self._eta) * GAUSSIAN.delta(mu, max(epsilon - 2 * self._eta, 0.0))
        return min(1.0, gaussian + self._rounding_delta + sampler)

    def group_epsilon(self, mu: float, times: float, delta: float) -> float:
        # By the dominating Gaussian, too: the bound at one delta is about one change.
        return least_epsilon(lambda epsilon: self.delta(times * mu, epsilon) <= delta)

    def unknown_noise(self, adversary: Adversary) -> NDArray[np.int64]:
        """For each party how many parties' noise hides it in what the adversary sees, shape (n,); 0: nothing of it is seen.

        An aggregator among the corrupt sees the masked inputs. It can unmask those whose mask key the corrupt hold enough shares
        of. The others it sees in sums over parties that unknown masks connect.
        """
        parameters, counted = self._parameters, self._counted
        honest = counted.copy()
        honest[list(adversary.corrupt)] = False
        if parameters.aggregator not in adversary.corrupt:
            return np.where(honest, honest.sum(), 0)
        one, other = self._schedule.pairs.T
        corrupt = np.zeros(len(counted), dtype=np.int64)
        corrupt[list(adversary.corrupt)] = 1
        shares = np.bincount(one, corrupt[other], len(counted)) + np.bincount(other, corrupt[one], len(counted))
        covered = honest & (shares < parameters.threshold)
        hidden = covered[one] & covered[other]
        links = coo_array((np.ones(int(hidden.sum())), (one[hidden], other[hidden])), shape=(len(counted), len(counted)))
        _, group = connected_components(links, directed=False)
        sizes = np.bincount(group[covered], minlength=int(group.max()) + 1)
        return np.where(covered, sizes[group], np.where(honest, 1, 0)).astype(np.int64)

    def _bound(self, honest: int, sensitivity: float) -> float:
        if honest == 0:
            return 0.0
        key = (honest, sensitivity)
        if key not in self._known:
            self._known[key] = self._computed(honest, sensitivity)
        return self._known[key]

    def _computed(self, honest: int, sensitivity: float) -> float:
        parameters = self._parameters
        epsilon = spent_epsilon(parameters, sensitivity, honest, self._dimension, self._delta)
        if math.isinf(epsilon):
            return math.inf
        change, _ = rounded_sensitivity(parameters, sensitivity, self._words, self._delta)
        adding, _ = dominating_gaussian(change / parameters.granularity, parameters.scale, honest, self._words)
        return max(mu_of_budget(epsilon, self._delta), adding) * (1 + _MARGIN)


def promised(
    parameters: SecAggParameters, schedule: Schedule, size: int, sensitivity: float, delta: float, graph: float
) -> APriori:
    """What an execution costs at most if ``size`` parties collude: fewer than ``minimum`` inputs give no result."""
    parties, dimension = schedule.parties, stated_dimension(parameters)
    fewest = np.arange(parties) < parameters.minimum
    conversion = DiscreteLossConversion(parameters, schedule, fewest, dimension, delta, graph)
    nothing = np.zeros(parties)
    # What is drawn and rounded adds up over all that may be counted.
    beta, tv = additive_columns(parameters, parties, parameters.words(dimension), delta, graph)
    return APriori(
        float(conversion.mu_against_any(size, nothing, sensitivity).max()),
        f"protocol: no result from fewer than {parameters.minimum} inputs, of which a coalition knows {size} at most",
        beta,
        tv,
        adding=float(conversion.charged_mu_against_any(size, nothing, sensitivity).max()),
    )


def added_mu(parameters: SecAggParameters, sensitivity: float, honest: int, words: int, delta: float) -> float:
    """mu of the Gaussian mechanism that dominates the release where the noise of ``honest`` parties stays unknown."""
    if honest == 0:
        return 0.0
    if not parameters.noisy:
        return math.inf
    change, _ = rounded_sensitivity(parameters, sensitivity, words, delta, _CHARGED_PART)
    return dominating_gaussian(change / parameters.granularity, parameters.scale, honest, words)[0] * (1 + _MARGIN)


def additive_columns(parameters: SecAggParameters, parties: int, words: int, delta: float, graph: float) -> tuple[float, float]:
    """(beta, tv) of an execution with at most so many ``parties`` counted: see :mod:`quietmean.privacy.charge`.

    beta: independent rounding that exceeds its bound, and the random graph. tv: the sampler's, and that of probabilities that are
    right up to factors e^eta, which is at most tanh(eta / 2).
    """
    if not parameters.noisy or parties == 0:
        return 0.0, 0.0
    _, rounding = rounded_sensitivity(parameters, 1.0, words, delta, _CHARGED_PART)
    eta = max(dominating_gaussian(1.0, parameters.scale, count, words)[1] for count in (1, parties))
    model = math.tanh(eta / 2) * (1 + _MARGIN)
    return min(1.0, rounding + graph), min(1.0, model + TOTAL_VARIATION * words * parties)


def stated_dimension(parameters: SecAggParameters) -> int:
    """The number of coordinates. Raises :class:`InputError` if the parameters do not state it."""
    if parameters.dimension is None:
        raise InputError(
            "the dimension of the values is not stated, and the bound for discrete noise depends on it: add the field dimension"
        )
    return parameters.dimension
