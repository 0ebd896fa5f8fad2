"""Many runs of consensus at once, one a column, where everybody stays, nothing gets lost and every edge has messages of its own.

The numbers are those of :func:`quietmean.protocols.consensus.population.run_consensus` to the last bit. Here an iteration is
computed for some links after the others, so that what belongs to them stays in the processor's cache: several times faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import Flow
from quietmean.protocols.consensus.population import noisy_values, perturbation
from quietmean.protocols.consensus.quantiser import FARTHEST
from quietmean.protocols.consensus.spec import ConsensusParameters, Quantisation
from quietmean.randomness import BitStream, Seed
from quietmean.transcript.numbers import NumericReading, NumericTerms

Array = NDArray[np.float64]
# Numbers that are worked on at a time: a handful of arrays of this size fit into the cache of one core.
_TOGETHER = 16_384


def run_batch(
    parameters: ConsensusParameters, values: Vector, noise: PopulationNoise, watch: Callable[[int, Vector], None]
) -> int:
    """Run on ``values`` (n, runs), each of weight one; returns how many numbers overloaded a quantiser.

    ``watch`` gets every iteration t = 1 .. T + 1 and the estimates x^(t), (n, runs). ``parameters`` are unicast and on no grid.
    """
    reading, terms = NumericReading(values), NumericTerms(noise, *values.shape)
    level = reading.vectors(noisy_values(parameters, reading.values, terms))
    links = parameters.links
    sums = Flow((len(level), len(links)), links.sender, np.arange(len(links)), links.sign).matrix
    share = (1.0 / (1.0 + parameters.c * links.degree.astype(np.float64)))[:, None]
    state, overloads = _Links(parameters, reading.vectors(perturbation(parameters, terms))), 0
    for iteration in range(1, parameters.iterations + 1):
        x = (level - np.asarray(sums @ state.own)) * share
        watch(iteration, x)
        overloads += state.advance(iteration, x)
    watch(parameters.iterations + 1, (level - np.asarray(sums @ state.own)) * share)
    return overloads


class _Links:
    """z of every link, shape (2m, runs): ``own`` now and ``before`` one iteration earlier."""

    def __init__(self, parameters: ConsensusParameters, z: Vector) -> None:
        self._parameters, self._links = parameters, parameters.links
        self.own, self._before, self._next = z, z.copy(), np.empty_like(z)
        rows = max(1, _TOGETHER // z.shape[1])
        self._blocks = [slice(first, min(first + rows, len(z))) for first in range(0, len(z), rows)]
        self._scratch = np.empty((4, rows, z.shape[1]))

    def advance(self, iteration: int, x: Vector) -> int:
        """One iteration with the estimates ``x`` (n, runs); returns how many numbers overloaded."""
        settings, links = self._parameters.quantisation, self._links
        two_step = settings is not None and settings.two_step
        stream, overloads = None if settings is None else _dither_stream(settings, iteration), 0
        for block in self._blocks:
            back, size = links.reverse[block], block.stop - block.start
            other, step, spare, lag = self._scratch[:, :size]
            # What the links' receivers hold; z_{j|i} is moved by the message over (i, j).
            np.take(self.own, back, axis=0, out=other)
            np.subtract(self.own[block], other, out=step)
            np.take(x, links.sender[block], axis=0, out=spare)
            spare *= (2.0 * self._parameters.c * links.sign[block])[:, None]
            step += spare
            step *= 1.0 - self._parameters.theta
            if two_step:
                np.take(self._before, back, axis=0, out=lag)
                np.subtract(other, lag, out=lag)
                step += lag
            if settings is not None and stream is not None:
                overloads += _quantise(settings, iteration, step, spare, stream)
            if two_step:
                step -= lag
            step += other
            self._next[back] = step
        self.own, self._before, self._next = self._next, self.own, self._before
        return overloads


def _dither_stream(settings: Quantisation, iteration: int) -> BitStream:
    """As :func:`quietmean.protocols.consensus.quantiser.dither` reads it, from the first link on."""
    return BitStream(Seed.public("consensus dither", settings.dither_seed, iteration))


def _quantise(settings: Quantisation, iteration: int, target: Array, spare: Array, stream: BitStream) -> int:
    """Replace ``target`` (links, runs) by what is decoded, with the next of the dither; returns how many numbers overloaded."""
    links, runs = target.shape
    # A link's numbers begin with a block of the stream, of two numbers.
    words = -(-runs // 2) * 2
    shift = stream.uniform(links * words).reshape(links, words)[:, :runs]
    shift -= 0.5
    width, farthest = settings.width(iteration), FARTHEST if settings.send_overloads else float(1 << (settings.bits - 1))
    target /= width
    np.abs(target, out=spare)
    overloads = int(np.count_nonzero(spare > farthest - 0.5)) if spare.max() > farthest - 0.5 else 0
    target += shift
    np.floor(target, out=target)
    np.clip(target, -farthest, farthest - 1, out=target)
    target += 0.5
    target -= shift
    target *= width
    return overloads
