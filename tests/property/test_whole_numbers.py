"""Discrete noise on a grid against the exact distribution of what is seen, by enumeration, for a few parties and steps.

What each message holds of each value and of each noise term is read off the party machines themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.party import Message, PartyId, Units
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary, LocalNoiseLossConversion, loss
from quietmean.privacy.conversion import delta_of_mu
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecureSilence
from quietmean.testing import example_execution
from quietmean.transcript import run_lockstep

Array = NDArray[np.float64]
EPSILONS = (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 2.5)
# Instead of 8, which asks for more than 2.9 steps: then e^eta is part of the bound.
SMOOTHING = 1.0
Address = tuple[frozenset[PartyId], str, int]


class _Units(InsecureSilence):
    """Noise of one unit at one address; notes all addresses and scales that are asked for."""

    def __init__(self, party: PartyId, one: Address | None, asked: dict[Address, float]) -> None:
        self._party, self._one, self._asked = party, one, asked

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return self._drawn((frozenset({self._party}), purpose, index), scale, dimension)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        return self._drawn((frozenset({self._party, other}), purpose, index), scale, dimension)

    def _drawn(self, address: Address, scale: float, dimension: int) -> Units:
        self._asked[address] = scale
        return np.full(dimension, int(address == self._one), dtype=np.int64)


@dataclass(frozen=True)
class Seen:
    """The view: value map (rows,), noise map (rows, K), and the scales (K,) of what the adversary does not know."""

    values: NDArray[np.int64]
    noise: NDArray[np.int64]
    scales: Array


def seen_by(execution: Execution, corrupt: frozenset[PartyId], target: PartyId, public: bool) -> Seen:
    """Of a step of 1. ``public``: every message is seen."""
    asked: dict[Address, float] = {}

    def view(value: float, one: Address | None) -> list[float]:
        rows: list[tuple[int, int, float]] = []

        def on_send(message: Message, receivers: frozenset[PartyId]) -> None:
            if message.vector.size and (public or receivers & corrupt) and message.sender not in corrupt:
                rows.append((message.round, message.sender, float(message.vector[0])))

        machines = [
            execution.machine(party, np.array([value * (party == target)]), _Units(party, one, asked))
            for party in range(execution.parties)
        ]
        done = run_lockstep(machines, execution.trace, execution.arrivals(), on_send)
        released = [(99, party, float(release.vector[0])) for party, release in sorted(done.releases.items())]
        return [number for _, _, number in sorted(rows) + [row for row in released if row[1] not in corrupt or not public]]

    nothing = np.array(view(0.0, None))
    unknown = [address for address in list(asked) if not address[0] & corrupt]
    noise = np.array([view(0.0, one) for one in unknown]).T - nothing[:, None]
    return Seen(
        (np.array(view(1.0, None)) - nothing).astype(np.int64),
        noise.astype(np.int64),
        np.array([asked[one] for one in unknown]),
    )


def independent(seen: Seen) -> Seen:
    """Without rows that follow from others."""
    kept: list[int] = []
    both = np.column_stack([seen.values, seen.noise])
    for row in range(len(both)):
        if np.linalg.matrix_rank(both[[*kept, row]]) > len(kept):
            kept.append(row)
    return Seen(seen.values[kept], seen.noise[kept], seen.scales)


def pmf(scale: float) -> tuple[int, Array]:
    reach = math.ceil(7.0 * scale)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * scale**2))
    return reach, weights / weights.sum()


def distribution(seen: Seen, change: int) -> tuple[Array, Array]:
    """Probabilities of all views, for a value of 0 and for one of ``change``: arrays of as many axes as there are rows."""
    # As many as the noise reaches: nothing is cut but the far tails of each term.
    reach = np.zeros(len(seen.values), dtype=np.int64)
    for column, scale in zip(seen.noise.T, seen.scales, strict=True):
        reach += np.abs(column) * math.ceil(4.5 * scale)
    reach = np.minimum(reach, 40) + np.abs(seen.values) * abs(change)
    first = np.zeros(2 * reach + 1)
    first[tuple(reach)] = 1.0
    for column, scale in zip(seen.noise.T, seen.scales, strict=True):
        if column.any():
            size, weights = pmf(float(scale))
            first = sum(
                weight * moved(first, column * number) for number, weight in zip(range(-size, size + 1), weights, strict=True)
            )
    return first, moved(first, seen.values * change)


def moved(array: Array, by: NDArray[np.int64]) -> Array:
    """Shifted along every axis; what leaves the array is lost."""
    result = np.zeros_like(array)
    if any(abs(number) >= size for number, size in zip(by.tolist(), array.shape, strict=True)):
        return result
    to = tuple(slice(max(number, 0), size + min(number, 0)) for number, size in zip(by.tolist(), array.shape, strict=True))
    source = tuple(slice(max(-number, 0), size - max(number, 0)) for number, size in zip(by.tolist(), array.shape, strict=True))
    result[to] = array[source]
    return result


def true_delta(seen: Seen, change: int, epsilon: float) -> float:
    first, second = distribution(seen, change)
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def eta(noise_terms: int) -> float:
    """2 sum of -ln(1 - x_r), at most, for so many discrete noise terms that are shifted."""
    x = 2 * sum(math.exp(-2 * math.pi**2 * SMOOTHING * i * i) for i in range(1, 4))
    return -2 * noise_terms * math.log1p(-x)


def bound(mu: float, epsilon: float, terms: int) -> float:
    lost = eta(terms)
    return math.exp(lost) * delta_of_mu(mu, max(epsilon - 2 * lost, 0.0))


GRID: dict[str, Any] = {"grid": 1.0, "dimension": 1}
LEFT = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0]], dtype=np.bool_)


def gopa(*, absent: bool, corrupt: bool) -> tuple[Execution, frozenset[PartyId]]:
    parameters: dict[str, Any] = {"sigma_star": 1.6, "sigma_delta": 2.0, "partners": 3, "aggregator": 0}
    execution = example_execution("gopa", 4, sensitivity=2.0, **parameters, **GRID)
    if absent:
        execution = execution.with_trace(ExecutionTrace(LEFT))
    return execution, frozenset({0} if corrupt else {1})


CASES: dict[str, Callable[[], tuple[Execution, frozenset[PartyId]]]] = {
    "local-dp": lambda: (example_execution("local-dp", 3, sensitivity=2.0, sigma=1.5, **GRID), frozenset()),
    "central-dp": lambda: (example_execution("central-dp", 3, sensitivity=2.0, sigma=2.0, **GRID), frozenset({2})),
    "cordp-dme, 3 honest": lambda: (
        example_execution("cordp-dme", 3, sensitivity=2.0, sigma_own=1.5, sigma_pair=2.0, **GRID),
        frozenset(),
    ),
    "cordp-dme, 2 honest": lambda: (
        example_execution("cordp-dme", 3, sensitivity=3.0, sigma_own=2.0, sigma_pair=3.0, **GRID),
        frozenset({0}),
    ),
    "cordp-dme, one absent": lambda: (
        example_execution("cordp-dme", 4, sensitivity=2.0, sigma_own=1.5, sigma_pair=1.6, **GRID).with_trace(
            ExecutionTrace(np.array([[1, 1, 1, 1], [1, 1, 1, 0]], dtype=np.bool_))
        ),
        frozenset({0}),
    ),
    "cordp-dme, honest aggregator": lambda: (
        example_execution("cordp-dme", 3, sensitivity=2.0, sigma_own=1.5, sigma_pair=2.0, aggregator=0, **GRID),
        frozenset({2}),
    ),
    "gopa, corrupt aggregator": lambda: gopa(absent=False, corrupt=True),
    "gopa, corrupt aggregator, one absent": lambda: gopa(absent=True, corrupt=True),
    "gopa, honest aggregator, one absent": lambda: gopa(absent=True, corrupt=False),
    "muffliato": lambda: (
        example_execution("muffliato", 2, sensitivity=2.0, sigma=1.5, rounds=1, schedule="complete", **GRID),
        frozenset({0}),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_the_true_delta_is_below_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "SMOOTHING", SMOOTHING)
    execution, corrupt = CASES[name]()
    target = min(party for party in range(execution.parties) if party not in corrupt and execution.trace.online[1, party])
    certificate = execution.privacy(1e-6).against(corrupt)
    mu = float(certificate.mu_upper[certificate.honest.index(target)])
    seen = independent(seen_by(execution, corrupt, target, public=False))
    assert math.isfinite(mu)
    assert len(seen.values) >= 1
    change = round(execution.sensitivity)
    found = [true_delta(seen, change, epsilon) for epsilon in EPSILONS]
    allowed = [bound(mu, epsilon, seen.scales.size) for epsilon in EPSILONS]
    assert all(one <= other for one, other in zip(found, allowed, strict=True)), (found, allowed)
    # The bound is not idle: at epsilon 0 it is below 2.2 times the truth.
    assert found[0] > 0.45 * allowed[0]


def weighted_sum(scale: float) -> Seen:
    """One message x + noise + 50 (y + noise)."""
    return Seen(np.array([1]), np.array([[1, 50]]), np.array([scale, scale]))


def test_fifty_weights_show_the_value_and_are_charged_its_own_noise() -> None:
    """The view in real numbers has 1/2501 of the information; in whole numbers nearly all of it is there."""
    scale, change = 8.0, 4
    first, weights = pmf(scale), pmf(scale)[1]
    reach = first[0]
    # Exactly: the message modulo 50 and its quotient, as one array.
    size = 51 * reach + change + 1
    message = np.zeros(2 * size + 1)
    for number in range(-reach, reach + 1):
        message[size + 50 * number - reach : size + 50 * number + reach + 1] += weights[number + reach] * weights
    other = np.roll(message, change)
    true = float(np.maximum(message - other, 0.0).sum())
    in_real_numbers = delta_of_mu(change / (scale * math.sqrt(2501.0)), 0.0)
    charged = LocalNoiseLossConversion(scale, step=1.0, dimension=1, draws=2)
    mu = float(charged.mu(Adversary.collusion(()), [0], np.array([change / (scale * math.sqrt(2501.0))]), float(change))[0])
    assert true == pytest.approx(0.1939, abs=1e-4)
    assert in_real_numbers == pytest.approx(0.0040, abs=1e-4)
    assert true > 48 * in_real_numbers
    assert true <= charged.delta(mu, 0.0)
