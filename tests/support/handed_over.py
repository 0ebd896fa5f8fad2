"""What was really handed over in an execution, and what it costs against every coalition: by brute force, without the accountant.

The real party machines run on basis vectors: each value and each noise term is a coordinate of its own, so that every message
*is* its row of coefficients. Nothing of the package's transcripts, solvers or bounds is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from quietmean.core.party import Message, PartyId, Units, Vector
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecureSilentPopulation
from quietmean.transcript import run_lockstep

Array = NDArray[np.float64]
# Coordinates for noise terms; a run that draws more fails.
_TERMS = 400
# Below it a change counts as hidden: messages of small executions have coefficients of about 1.
_HIDDEN = 1e-8


class _BasisNoise:
    """Each noise term is a coordinate after those of the values; ``owners``: who knows it, in the order of coordinates."""

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.owners: list[frozenset[PartyId]] = []
        self._known: dict[tuple[frozenset[PartyId], str, int], int] = {}

    def term(self, owners: frozenset[PartyId], purpose: str, index: int, dimension: int) -> Vector:
        key = owners, purpose, index
        if key not in self._known:
            self._known[key] = len(self.owners)
            self.owners.append(owners)
        unit = np.zeros(dimension)
        unit[self.parties + self._known[key]] = 1.0
        return unit

    def party(self, party: PartyId) -> _BasisSource:
        return _BasisSource(self, party)


@dataclass(frozen=True)
class _BasisSource:
    noise: _BasisNoise
    own: PartyId

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return self.noise.term(frozenset({self.own}), purpose, index, dimension)

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        return self.noise.term(frozenset({self.own, other}), purpose, index, dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        raise AssertionError("whole numbers have no basis vectors: run a plan with noise in float64")

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        raise AssertionError("whole numbers have no basis vectors: run a plan with noise in float64")

    def secret(self, purpose: str, index: int) -> bytes:
        return bytes(32)


class LinearTruth:
    """Everything that is sent in an execution of a linear protocol with noise in float64, as coefficients.

    Whatever is sent counts as seen by whom it is sent to, whether or not it arrives.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution, parties = execution, execution.parties
        noise, width = _BasisNoise(parties), parties + _TERMS
        sent: list[Message] = []
        machines = [execution.machine(party, np.eye(parties, width)[party], noise.party(party)) for party in range(parties)]
        result = run_lockstep(
            machines,
            replace(execution.trace, seen=None),
            execution.arrivals(),
            lambda message, reached: sent.append(message),
            refusing=execution.protocol.traits.refuses_messages,
        )
        rows, known = [], []
        for message in sent:
            if message.vector.size == width:
                overheard = execution.protocol.traits.overheard and message.round > 1
                rows.append(message.vector)
                known.append(self._mask(range(parties) if overheard else (message.sender, *message.recipients)))
        for party, release in result.releases.items():
            rows.append(release.vector)
            known.append(self._mask(range(parties) if execution.protocol.traits.releases_are_public else (party,)))
        self._rows = np.array(rows).reshape(-1, width)[:, : parties + len(noise.owners)]
        self._known = np.array(known, dtype=np.bool_).reshape(-1, parties)
        self._owned = np.array([self._mask(owners) for owners in noise.owners], dtype=np.bool_).reshape(-1, parties)

    def _mask(self, members: Iterable[PartyId]) -> NDArray[np.bool_]:
        mask = np.zeros(self._execution.parties, dtype=np.bool_)
        mask[list(members)] = True
        return mask

    def against(self, coalition: tuple[PartyId, ...]) -> Array:
        """mu of each party, (n,): 0 for members."""
        parties = self._execution.parties
        honest = [party for party in range(parties) if party not in coalition]
        # Somebody outside knows what all know.
        view = self._known[:, coalition].any(axis=1) | self._known.all(axis=1)
        unknown = ~self._owned[:, coalition].any(axis=1)
        noise = self._rows[view, parties:][:, unknown]
        change = self._rows[view][:, honest]
        shift = np.linalg.lstsq(noise, -change, rcond=1e-11)[0]
        hidden = np.abs(noise @ shift + change).max(axis=0, initial=0.0) < _HIDDEN
        mu = np.zeros(parties)
        mu[honest] = np.where(hidden, np.linalg.norm(shift, axis=0), np.inf)
        return self._execution.sensitivity * mu

    def worst(self, size: int) -> Array:
        """mu of each party against the worst coalition of ``size``, (n,)."""
        trusted = self._execution.protocol.traits.trusted
        able = [party for party in range(self._execution.parties) if party not in trusted]
        mu: Array = np.max([self.against(coalition) for coalition in itertools.combinations(able, size)], axis=0)
        return mu


class SumTruth:
    """Of a protocol that shows one sum: whose values the real machines put into it, each with noise of deviation ``sigma``.

    What a coalition sees besides the sum is left out, so this is what an execution costs at least.
    """

    def __init__(self, execution: Execution, sigma: float, size_of_value: float) -> None:
        self._execution, self._sigma, parties = execution, sigma, execution.parties
        values = size_of_value * np.eye(parties)
        releases = list(execution.run(values, InsecureSilentPopulation(parties)).releases.values())
        self.included = np.zeros(parties, dtype=np.bool_)
        if releases:
            self.included = releases[0].vector > size_of_value / 2

    def worst(self, size: int) -> Array:
        """mu of each party against the worst coalition of ``size``, (n,)."""
        left = max(int(self.included.sum()) - size, 1)
        mu: Array = np.where(self.included, self._execution.sensitivity / (self._sigma * math.sqrt(left)), 0.0)
        return mu


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon of the Gaussian mechanism of this mu, by bisection."""
    if mu == 0.0 or math.isinf(mu):
        return mu
    low, high = 0.0, mu * mu / 2 + 40 * mu
    for _ in range(200):
        middle = (low + high) / 2
        shown = math.exp(log_ndtr(mu / 2 - middle / mu)) - math.exp(middle + log_ndtr(-mu / 2 - middle / mu))
        low, high = (middle, high) if shown > delta else (low, middle)
    return low
