"""Exact distributions of what is seen: every value that the honest parties' noise can take is one coordinate of one run.

The party machines themselves compute it, with all their rounding.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Message, PartyId, Units, Vector
from quietmean.privacy.conversion import delta_of_mu
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecureSilence
from quietmean.transcript import run_lockstep

Array = NDArray[np.float64]
EPSILONS = (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 2.5)
# r^2 instead of 8, which asks for more than 2.9 steps: then e^eta is part of the bound.
SMOOTHING = 1.0
# Beyond so many deviations noise is left out: what then counts as told apart is less than this.
REACH, LOST = 5.0, 2e-5
Address = tuple[PartyId, str, int]


class Given(InsecureSilence):
    """Noise of one party: given numbers, or none at all. Notes what was asked for, with its scale."""

    def __init__(self, party: PartyId, given: dict[Address, Units], asked: dict[Address, float]) -> None:
        self._party, self._given, self._asked = party, given, asked

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        self._asked[self._party, str(purpose), index] = scale
        return self._given.get((self._party, str(purpose), index), np.zeros(dimension, dtype=np.int64))


def views(
    execution: Execution, corrupt: Collection[PartyId], values: Vector, given: dict[Address, Units], public_from: int = 10**6
) -> tuple[list[Vector], dict[Address, float]]:
    """What corrupt parties receive, all messages from round ``public_from`` on, and all releases; and the noise asked for.

    ``values`` (n, size); one coordinate a case.
    """
    asked: dict[Address, float] = {}
    rows: list[tuple[int, int, Vector]] = []

    def on_send(message: Message, receivers: frozenset[PartyId]) -> None:
        if message.sender not in corrupt and (receivers & set(corrupt) or message.round >= public_from):
            rows.append((message.round, message.sender, message.vector))

    machines = [execution.machine(party, value, Given(party, given, asked)) for party, value in enumerate(values)]
    done = run_lockstep(machines, execution.trace, execution.arrivals(), on_send)
    rows += [(99, party, release.vector) for party, release in done.releases.items()]
    return [vector for _, _, vector in sorted(rows, key=lambda row: row[:2])], asked


def cases_of(scales: dict[Address, float]) -> tuple[dict[Address, Units], Array]:
    """All values of the noise terms, and their probabilities."""
    axes, probability = [], np.ones(1)
    for scale in scales.values():
        numbers = np.arange(-math.ceil(REACH * scale), math.ceil(REACH * scale) + 1)
        mass = np.exp(-(numbers**2) / (2 * scale**2))
        axes.append(numbers)
        probability = np.multiply.outer(probability, mass / mass.sum())
    grid = np.meshgrid(*axes, indexing="ij")
    return {address: one.ravel() for address, one in zip(scales, grid, strict=True)}, probability.ravel()


def distributions(
    execution: Execution, corrupt: Collection[PartyId], target: PartyId, known: Collection[Address] = (), **options: Any
) -> tuple[Array, Array]:
    """Probabilities of all views, for a value of 0 and one of the sensitivity. ``known``: noise that is seen, here 0.

    The execution is for as many coordinates as there are cases.
    """
    _, asked = views(execution, corrupt, np.zeros((execution.parties, 1)), {}, **options)
    hidden = {address: scale for address, scale in asked.items() if address[0] not in corrupt and address not in known}
    given, probability = cases_of(hidden)
    seen = []
    for value in (0.0, execution.sensitivity):
        values = np.zeros((execution.parties, probability.size))
        values[target] = value
        seen.append(np.array(views(execution, corrupt, values, given, **options)[0]))
    # Views that differ in the last bit are different.
    both = np.ascontiguousarray(np.concatenate(seen, axis=1).T + 0.0)
    _, place = np.unique(both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))), return_inverse=True)
    halves = np.split(place.ravel(), 2)
    size = int(place.max()) + 1
    first, second = (np.bincount(half, probability, minlength=size).astype(np.float64) for half in halves)
    return first, second


def true_deltas(first: Array, second: Array) -> list[float]:
    """The larger of both directions, for each of :data:`EPSILONS`."""
    return [
        max(float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum()) for one, other in ((first, second), (second, first)))
        for epsilon in EPSILONS
    ]


def bound(mu: float, epsilon: float, terms: int) -> float:
    """delta of mu-GDP with the factors e^eta of so many noise terms that are shifted."""
    x = 2 * sum(math.exp(-2 * math.pi**2 * SMOOTHING * i * i) for i in range(1, 4))
    lost = -2 * terms * math.log1p(-x)
    return math.exp(lost) * delta_of_mu(mu, max(epsilon - 2 * lost, 0.0))
