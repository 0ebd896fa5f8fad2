"""The parameters of secure aggregation with distributed discrete Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.core.noise_law import NoiseKind
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, Vector
from quietmean.core.schema import OPEN, Configured, parameter
from quietmean.graphs.schedule import check_others
from quietmean.protocols.discrete import clip_to_ball, round_at_random, round_conditionally
from quietmean.protocols.noise_shares import NoiseInShares, l1_field, rounded_field
from quietmean.protocols.secagg.keys import Words
from quietmean.protocols.traits import check_weight
from quietmean.randomness import BitStream, Seed, laplace_shares
from quietmean.randomness.discrete_gaussian import LARGEST_SCALE, discrete_gaussian

DISCRETE_GAUSSIAN, LAPLACE, NO_NOISE = "discrete-gaussian", NoiseKind.LAPLACE.value, "none"
CONDITIONAL, INDEPENDENT = "conditional", "independent"
# Integers are held in 64 bits before they are reduced modulo 2**bits.
_LARGEST_INTEGER = 2.0**60
_POSITIVE = "choose a finite number > 0"
# Fields that execution files may leave out.
DEFAULTS: dict[str, Any] = {
    "bits": 32,
    "centre": 0.0,
    "largest_weight": 1.0,
    "noise": DISCRETE_GAUSSIAN,
    "rounding": INDEPENDENT,
    "rotation": 0,
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecAggParameters(NoiseInShares, Configured):
    """The parameters of secure aggregation.

    ``threshold`` shares recover a secret; with fewer than ``minimum`` arrived inputs nobody has a result.

    With ``noise`` laplace ``sigma`` is the scale of discrete Laplace noise of which each party adds a share: ``shares`` of them
    are that noise, which hides an L1 change of ``l1``, before rounding, which changes ``rounded`` numbers by a step more: 0
    where each unit is whole steps, so that nothing is rounded. Nothing is rotated then.

    ``bits``: inputs are added modulo 2**bits; ``granularity``: the value of one step; ``sigma``: scale of each party's noise, in
    the value's units. A party of public weight w <= ``largest_weight`` has its value shifted by -w * ``centre`` in every
    coordinate and clipped to the L2 ball of radius w * ``clip``. ``rotation``: number of the public random rotation.
    ``neighbours``: how many other parties each one shares with, None for all (SecAgg). ``aggregator``: the party that
    sums. ``dimension`` of the values: without it nothing can be certified. ``region``: for plans, the domain of the values.
    Raises :class:`InputError` for parameters that contradict each other.
    """

    threshold: int = parameter(help="shares that open a secret", option=True)
    minimum: int = parameter(help="least inputs that give a result", option=True)
    granularity: float = parameter(help="value of one step of the inputs", above=0, remedy=_POSITIVE)
    sigma: float = parameter(help="scale of each party's noise", remedy="choose a finite number")
    clip: float = parameter(help="L2 norm to which values are clipped", option=True, flag="clip-norm", above=0, remedy=_POSITIVE)
    bits: int = parameter(
        help="inputs are added modulo 2 to the power of so many bits",
        option=True,
        required=False,
        at_least=2,
        at_most=32,
        remedy="choose 2..32",
    )
    centre: float = parameter(
        help="what is taken off every coordinate before clipping", option=True, required=False, remedy="choose a finite number"
    )
    largest_weight: float = parameter(
        help="the largest public weight of a party", option=True, required=False, above=0, remedy=_POSITIVE
    )
    noise: str = parameter(help="kind of noise", option=True, required=False, choices=(DISCRETE_GAUSSIAN, LAPLACE, NO_NOISE))
    l1: float | None = l1_field()
    rounded: int | None = rounded_field()
    shares: int | None = parameter(None, help="shares that are Laplace noise together", at_least=1, remedy="choose 1 or more")
    rounding: str = parameter(help="how values are rounded", required=False, choices=(CONDITIONAL, INDEPENDENT))
    rotation: int = parameter(help="number of the public random rotation", option=True, required=False)
    aggregator: PartyId = parameter(0, help="the party that collects what the others send", option=True)
    neighbours: int | None = None
    dimension: int | None = parameter(None, help="coordinates of a value", at_least=1, remedy="choose 1 or more")
    region: str = parameter(
        "box",
        help="where values lie, in coordinates from 0 up or around the origin",
        option=True,
        key="domain",
        flag="value-domain",
        choices=("box", "ball"),
        written=lambda parameters: False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(getattr(self, name) is OPEN for name in ("sigma", "granularity", "clip", "noise", "largest_weight")):
            return
        self._check_noise()
        if self.largest_weight * self.clip / self.granularity > _LARGEST_INTEGER:
            raise InputError(
                f"largest_weight {self.largest_weight:g} times clip (clip-norm) {self.clip:g} is too much for numbers with a "
                f"granularity of {self.granularity:g}. Choose a smaller one."
            )

    def _check_noise(self) -> None:
        if (self.noise == NO_NOISE) != (self.sigma == 0.0):
            raise InputError(f"sigma is {self.sigma:g} with noise {self.noise}. Choose 0 without noise and > 0 with it.")
        most = laplace_shares.LARGEST_SCALE if self.is_laplace else LARGEST_SCALE
        if not 0 <= self.sigma / self.granularity <= most:
            raise InputError(f"sigma is {self.sigma / self.granularity:g} steps of the granularity. Choose 0..{most:g} steps.")
        if {self.l1 is None, self.shares is None} != {not self.is_laplace}:
            raise InputError(f"noise is {self.noise}, and l1 and shares go with laplace only. Give all three, or none.")
        if self.is_whole and not (self.is_laplace and self.centre == 0):
            raise InputError("rounded is 0, which needs noise laplace and centre 0. Leave rounded out.")

    @property
    def vectors(self) -> float:
        """How many parties' vectors one unit moves, of a person at several."""
        return self.rounded / self.dimension if self.rounded and self.dimension else 1.0

    @property
    def noisy(self) -> bool:
        """Does the released sum have noise at all?"""
        return self.noise != NO_NOISE

    @property
    def is_laplace(self) -> bool:
        """Is the noise of all parties together Laplace noise?"""
        return self.noise == LAPLACE

    @property
    def grid(self) -> float:
        return self.granularity

    @property
    def party_variance(self) -> float:
        """Variance per coordinate that one party's noise and rounding add to the sum; of rounding its mean over values."""
        return self.deviation**2 + (0.0 if self.is_whole else self.granularity**2 / 6) if self.noisy else 0.0

    def words(self, dimension: int) -> int:
        """The numbers in a masked input: the dimension, padded to a power of two where values are rotated."""
        return 1 << (dimension - 1).bit_length() if self.noise == DISCRETE_GAUSSIAN else dimension


def check_numbers(parameters: SecAggParameters, parties: int) -> None:
    """Raises :class:`InputError` for what does not fit the number of parties."""
    if parties < 2:
        raise InputError(f"{parties} party has nobody to add up with. Give at least 2 parties.")
    holders = parties if parameters.neighbours is None else parameters.neighbours + 1
    if parameters.neighbours is not None:
        check_neighbours(parameters.neighbours, parties)
    if not holders < 2 * parameters.threshold <= 2 * holders:
        raise InputError(
            f"threshold is {parameters.threshold} of {holders} shares. Choose more than half, {holders // 2 + 1}..{holders}, "
            "or two disjoint groups of parties could be asked for both secrets of one."
        )
    if not 2 <= parameters.minimum <= parties:
        raise InputError(f"minimum is {parameters.minimum} arrived inputs. Choose 2..{parties}.")
    if parameters.neighbours is None and parameters.minimum < parameters.threshold:
        raise InputError(
            f"minimum is {parameters.minimum}, below the threshold {parameters.threshold}. Raise it to that at least."
        )


def check_neighbours(neighbours: int, parties: int) -> None:
    """Raises :class:`InputError` for a number of neighbours with which no such graph exists."""
    check_others("degree", neighbours, parties)
    if neighbours % 2 and neighbours != parties - 1:
        raise InputError(f"degree is {neighbours}. Take an even number, or all {parties - 1} others.")


_COLUMNS = 64


def encode(parameters: SecAggParameters, value: Vector, weight: float, noise: NoiseSource) -> Words:
    """The party's input x_u before masking, shape (words,). Raises :class:`InputError` for a weight beyond the plan's."""
    check_weight(weight, parameters.largest_weight)
    if parameters.dimension not in (None, value.size):
        raise InputError(f"the value has {value.size} coordinates but the plan is for {parameters.dimension}. Make another plan.")
    clipped = clip_to_ball(value - weight * parameters.centre, weight * parameters.clip)
    if parameters.noise == NO_NOISE:
        return _to_ring(np.rint(clipped / parameters.granularity).astype(np.int64), parameters.bits)
    rotated = (clipped if parameters.is_laplace else rotate(clipped, parameters)) / parameters.granularity
    seed = Seed(noise.secret("rounding", 0))
    if parameters.is_whole:
        rounded = np.rint(rotated).astype(np.int64)
    elif parameters.rounding == CONDITIONAL:
        rounded = round_conditionally(rotated, weight * parameters.clip / parameters.granularity, seed)
    else:
        rounded = round_at_random(rotated, seed)
    if parameters.shares is not None:
        rounded += noise.discrete(NoiseGroup.INDEPENDENT, 0, parameters.scale, rounded.size, parameters.shares)
    else:
        rounded += discrete_gaussian(Seed(noise.secret(NoiseGroup.INDEPENDENT, 0)), parameters.scale, rounded.size)
    return _to_ring(rounded, parameters.bits)


def decode_sum(parameters: SecAggParameters, total: Words, weight: float, dimension: int) -> Vector:
    """The sum of the vectors, shape (d,), from the sum modulo 2**bits and the total weight of those in it."""
    half, modulus = 1 << (parameters.bits - 1), 1 << parameters.bits
    steps = (total.astype(np.int64) + half) % modulus - half
    centred: Vector = steps.astype(np.float64) * parameters.granularity
    if parameters.noise == DISCRETE_GAUSSIAN:
        centred = rotate_back(centred, parameters)[:dimension]
    vector: Vector = centred + weight * parameters.centre
    return vector


def empty_sum(parameters: SecAggParameters, dimension: int) -> Words:
    """Zeros of shape (words,), in the type of masked inputs."""
    size = parameters.words(dimension)
    return np.zeros(size, dtype=np.uint16) if parameters.bits <= 16 else np.zeros(size, dtype=np.uint32)


def wrap(words: Words, bits: int) -> Words:
    """Modulo 2**bits, in place. Unsigned words are right modulo 2**16 or 2**32 by themselves."""
    words &= words.dtype.type((1 << bits) - 1)
    return words


def _to_ring(integers: Ints, bits: int) -> Words:
    wrapped = integers & ((1 << bits) - 1)
    return wrapped.astype(np.uint16) if bits <= 16 else wrapped.astype(np.uint32)


def rotate(vector: Vector, parameters: SecAggParameters) -> Vector:
    """H S x / sqrt(D), shape (D,), for x (d,) padded with zeros to D entries, a power of two."""
    padded = np.zeros(parameters.words(vector.size))
    padded[: vector.size] = vector
    padded *= _signs(parameters.rotation, padded.size)
    return _hadamard(padded)


def rotate_back(vector: Vector, parameters: SecAggParameters) -> Vector:
    """The inverse of :func:`rotate`, shape (D,), padding included."""
    return _hadamard(vector) * _signs(parameters.rotation, vector.size)


def _signs(rotation: int, size: int) -> Vector:
    words = BitStream(Seed.public("secagg rotation", rotation)).words(-(-size // 64))
    bits = np.unpackbits(words.view(np.uint8), count=size)
    return 1.0 - 2.0 * bits.astype(np.float64)


def _hadamard(vector: Vector) -> Vector:
    """The orthonormal Walsh-Hadamard transform, its own inverse."""
    stages = vector.size.bit_length() - 1
    rows = 1 << (stages // 2)
    # Half of the stages run along rows and the others along columns, so that inner loops stay long.
    other = _transposed_butterflies(_transposed_butterflies(vector.reshape(rows, -1)))
    return other.reshape(-1) / math.sqrt(vector.size)


def _transposed_butterflies(block: Vector) -> Vector:
    """All stages along the first axis, and then transposed: a few columns at a time, which stay in the cache."""
    turned = np.empty(block.shape[::-1])
    for first in range(0, block.shape[1], _COLUMNS):
        columns = np.ascontiguousarray(block[:, first : first + _COLUMNS])
        turned[first : first + _COLUMNS] = _butterflies(columns).T
    return turned


def _butterflies(block: Vector) -> Vector:
    """All stages along the first axis."""
    spare = [np.empty_like(block), np.empty_like(block)]
    distance = 1
    while distance < len(block):
        following = spare[0]
        pairs, out = (array.reshape(-1, 2, distance, block.shape[1]) for array in (block, following))
        np.add(pairs[:, 0], pairs[:, 1], out=out[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=out[:, 1])
        block, spare = following, spare[::-1]
        distance *= 2
    return block
