"""The certificate of an execution: the bound that the plan was made with, for the parties whose sum was really opened, or can be.

Needed after a study, not while parties run: its imports take long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from quietmean.core.arrays import Array, Ints
from quietmean.core.assumptions import Assumption, Key, drawn_nearly
from quietmean.core.bounds import APriori
from quietmean.core.domain import REPLACED
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.privacy import Adversary, Charge, LossConversion
from quietmean.privacy.loss import UPPER_BOUND, discrete_delta, laplace_numbers, model_factor
from quietmean.protocols.secagg.batch import SecAggOutcome, least_unknown, least_unknown_of_each
from quietmean.protocols.secagg.design import hidden_by, wrap_chance
from quietmean.protocols.secagg.spec import SecAggParameters
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION

# Larger epsilons are meaningless and not searched.
_LARGEST_EPSILON = 500.0


class DiscreteLossConversion(LossConversion):
    """Upper bounds for sums with discrete Gaussian noise of each party, against computationally bounded parties.

    mu is that of the Gaussian that dominates the sum (:mod:`quietmean.privacy.loss`). beta counts the event of independent
    rounding and the random graph; factors of probabilities count as they are here, and as a part of tv in a charge.
    """

    kind = UPPER_BOUND
    definition = (
        f"{REPLACED}, against parties that cannot break its encryption. "
        "It is that of a Gaussian mechanism that is worse than the sum of discrete Gaussians (Poisson summation)"
    )

    def __init__(
        self,
        parameters: SecAggParameters,
        schedule: Schedule,
        outcome: SecAggOutcome,
        dimension: int,
        delta: float,
        graph: float = 0.0,
    ) -> None:
        """``graph``: the chance that a random graph fails what plans count on, for any coalition chosen before it is drawn."""
        self._parameters = parameters
        self._schedule = schedule
        self._outcome = outcome
        self._dimension = dimension
        self._delta = delta
        self._graph = graph
        self._known: dict[tuple[int, float], Charge] = {}
        self._epsilons: dict[tuple[float, float], float] = {}
        # The sampler's distance counts all parties, as an a-priori mu holds before it is known who is counted.
        words = parameters.words(dimension)
        gaussian = parameters.noisy and not parameters.is_laplace
        self._eta = model_factor(parameters.scale**2, words, schedule.parties) if gaussian else 0.0
        self._sampler = TOTAL_VARIATION * words * schedule.parties if parameters.noisy else 0.0
        charge = self.hidden_by(1, 1.0)
        self._beta = charge.beta
        if (outcome.requested | outcome.handed).any():
            self.beta, self.tv = charge.beta, charge.tv
        self.notes = self._notes()
        self.charge_notes = (
            f"beta {self.beta:.2g} for rare rounding and for the graph, tv {self.tv:.2g} for the sampler and for how far "
            "discrete noise is from rounded Gaussian noise",
        )
        if parameters.shares is not None:
            self.stated = tuple(self.hidden_by(unknown, 0.0) for unknown in (parameters.shares, 1))
            self.definition = f"{REPLACED}, against parties that cannot break its encryption"
            self.charge_notes = (f"beta {self.beta:.2g} for the graph, tv {self.tv:.2g} for the sampler",)
            self.notes = self._notes()

    def hidden_by(self, unknown: int, sensitivity: float) -> Charge:
        """The charge of a party that the noise of ``unknown`` counted ones hides; of none: nothing of it is seen."""
        if unknown == 0:
            return Charge(0.0)
        key = unknown, sensitivity
        if key not in self._known:
            self._known[key] = hidden_by(
                self._parameters,
                sensitivity,
                unknown=unknown,
                drawn=self._schedule.parties,
                dimension=self._dimension,
                delta=self._delta,
                graph=self._graph,
            )
        return self._known[key]

    def _notes(self) -> tuple[Assumption, ...]:
        if not self._parameters.noisy:
            return (Assumption(Key.NO_NOISE, "Nothing has noise: the sum itself protects nobody."),)
        parties, deviation = int(self._outcome.requested.sum()), self._parameters.sigma
        chance = wrap_chance(self._parameters, parties, self._dimension) if parties else 0.0
        numbers = Assumption(
            Key.NUMBERS,
            f"Each of {parties} counted parties adds noise of standard deviation {deviation:.6g} (discrete Gaussian). "
            "The figures count only noise that colluding parties do not know.",
        )
        if self.stated:
            shares = f"a share of noise, {self._parameters.shares} of which are discrete Laplace noise of scale {deviation:.6g}"
            numbers = laplace_numbers(f"Each of {parties} counted parties adds {shares}", self.stated[0])
        return (
            numbers,
            Assumption(
                Key.ROUNDING,
                f"Each party rounds its values to multiples of {self._parameters.granularity:.6g} "
                f"({self._parameters.rounding} rounding), which the figures include.",
            ),
            drawn_nearly(self.tv),
            Assumption(
                Key.OVERFLOW,
                f"With a chance below {chance:.1g} the sum leaves its range, and the answer is wrong (wraps around). "
                "Privacy stays.",
            ),
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        unknown = self.unknown_noise(adversary)
        return np.array([self.hidden_by(int(unknown[party]), sensitivity).mu for party in honest])

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        unknown, _ = least_unknown_of_each(self._parameters, self._schedule, self._outcome, size)
        return np.array([self.hidden_by(int(count), sensitivity).mu for count in unknown])

    def epsilon(self, mu: float, delta: float) -> float:
        if self.stated:
            return super().epsilon(mu, delta)
        # Most parties of a certificate have the same mu.
        key = mu, delta
        if key not in self._epsilons:
            self._epsilons[key] = _least_epsilon(lambda epsilon: self.delta(mu, epsilon) <= delta)
        return self._epsilons[key]

    def delta(self, mu: float, epsilon: float) -> float:
        if mu == 0.0:
            return 0.0
        if self.stated:
            return super().delta(mu, epsilon)
        return discrete_delta(mu, self._eta, epsilon, beta=self._beta, sampled=self._sampler)

    def unknown_noise(self, adversary: Adversary) -> Ints:
        """For each party how many parties' noise hides it in what the adversary sees, shape (n,); 0: nothing of it is seen.

        A corrupt aggregator sees the masked inputs. It can unmask those of whose secrets the corrupt hold enough
        shares. The others it sees in sums over parties that unknown masks connect, once it asked for shares: what was answered
        may be enough for it even where it gave no result.
        """
        parameters, outcome, parties = self._parameters, self._outcome, self._schedule.parties
        honest = np.ones(parties, dtype=np.bool_)
        honest[list(adversary.corrupt)] = False
        if parameters.aggregator not in adversary.corrupt:
            published = outcome.counted & honest
            return np.where(published, published.sum(), 0)
        low, high = self._schedule.pairs.T
        corrupt = (~honest).astype(np.int64)
        shares = np.bincount(low, corrupt[high], parties) + np.bincount(high, corrupt[low], parties)
        covered = shares < parameters.threshold
        summed = outcome.requested & honest & covered
        hidden = summed[low] & summed[high]
        links = coo_array((np.ones(int(hidden.sum())), (low[hidden], high[hidden])), shape=(parties, parties))
        _, group = connected_components(links, directed=False)
        sizes = np.bincount(group[summed], minlength=int(group.max()) + 1)
        alone = honest & ~covered & (outcome.requested | outcome.handed)
        return np.where(summed, sizes[group], np.where(alone, 1, 0)).astype(np.int64)


def promised(
    parameters: SecAggParameters, schedule: Schedule, size: int, sensitivity: float, delta: float, graph: float
) -> APriori:
    """What an execution costs at most if ``size`` parties collude: fewer than ``minimum`` inputs give no result."""
    parties = schedule.parties
    fewest = np.arange(parties) < parameters.minimum
    conversion = DiscreteLossConversion(
        parameters, schedule, SecAggOutcome.of(fewest), stated_dimension(parameters), delta, graph
    )
    unknown, _ = least_unknown(parameters, schedule, parameters.minimum, size)
    charge = conversion.hidden_by(unknown, sensitivity)
    enforced_by = (
        f"the protocol: no result from fewer than {parameters.minimum} inputs, of which a coalition knows {size} at most"
    )
    return APriori(charge.mu, enforced_by, charge.beta, charge.tv, charge.pure, rho=charge.rho)


def _least_epsilon(enough: Callable[[float], bool]) -> float:
    """The least epsilon that is enough, rounded up; infinite if none up to 500 is."""
    if enough(0.0):
        return 0.0
    low, high = 0.0, 1e-3
    while not enough(high):
        low, high = high, high * 1.2
        if high > _LARGEST_EPSILON:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def stated_dimension(parameters: SecAggParameters) -> int:
    """The number of coordinates. Raises :class:`InputError` if the parameters do not state it."""
    if parameters.dimension is None:
        raise InputError(
            "the dimension of the values is not stated, and the bound for discrete noise depends on it. Add the field dimension."
        )
    return parameters.dimension
