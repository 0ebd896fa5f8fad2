"""Discrete noise on a public grid, for protocols whose noise terms are added with whole coefficients.

Values are rounded to whole steps, noise is a whole number of steps, and all that follows is exact. The step is a power of two,
about 2^-20 of the smallest standard deviation of any noise; at least 2^12 steps make one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.bounds import APriori, CoalitionBound, round_up
from quietmean.core.errors import InputError
from quietmean.core.grid import LARGEST_UNITS, Numbers, check_step, whole_numbers, within
from quietmean.core.input_domain import LARGEST_COORDINATE, Ball, Box
from quietmean.core.party import Vector
from quietmean.core.schema import KIND_NAMES, Configured, is_kind, parameter, wrong_field
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Traits
from quietmean.randomness import BitStream, Seed, laplace_shares
from quietmean.randomness.layered_gaussian import LARGEST_SCALE

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

# Steps in the smallest standard deviation: as planned (to twice as many), and at the least.
FINE, COARSE = 2.0**20, 2.0**12
# The largest coordinate of a value in steps, so that sums over a thousand parties stay exact.
LARGEST_VALUE = 2.0**42
# Standard deviations that noise never reaches.
_REACH = 16.0
# A margin for float64 rounding before levels are rounded up to six digits.
_ROUNDED_UP = 1.0 + 1e-10
# Noise and steps are rounded up by less than this.
_ROUNDED_TO = 1e-5


class NoiseNumbers(StrEnum):
    """``discrete``: whole numbers on a public grid. ``insecure-float64``: what low bits reveal is not accounted for.

    ``laplace``: discrete Laplace noise on the grid, where a curator adds it.
    """

    DISCRETE = "discrete"
    INSECURE_FLOAT64 = "insecure-float64"
    LAPLACE = "laplace"


WITHOUT_LAPLACE = (NoiseNumbers.DISCRETE, NoiseNumbers.INSECURE_FLOAT64)
NOISE_HELP = "kind of noise, by default discrete; what low bits of float64 reveal is not accounted for"


def _read_step(raw: Any) -> float:
    """Read the step of a grid. Raises :class:`InputError` for anything but a power of two, or 0."""
    if not is_kind(raw, float):
        raise wrong_field("grid", raw, KIND_NAMES[float])
    return check_step(float(raw)) if raw else 0.0


def _has_step(parameters: Any) -> bool:
    return bool(parameters.step)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DiscreteNoise(Configured, ABC):
    """``step`` of the public grid, in the units of the values, and the ``dimension`` of a value, on which certificates depend.

    A step of 0 means float64 noise: so are files of versions without a grid, and plans with ``insecure-float64``.
    A protocol that brings no proof of its own is charged each party's own noise: :meth:`loss_conversion`.
    Its traits have ``inputs``, as a rule :data:`ON_GRID`, else the class is a TypeError; and ``grid=step_of`` where all that is
    sent are multiples of the step.
    """

    TRAITS: ClassVar[Traits]

    noise: NoiseNumbers | None = parameter(None, help=NOISE_HELP, option=True, choices=WITHOUT_LAPLACE)
    step: float = parameter(
        0.0, help="step of the public grid, a power of two; 0 for none", key="grid", read=_read_step, written=_has_step
    )
    dimension: int | None = parameter(
        None, help="coordinates of a value", at_least=1, remedy="choose 1 or more", written=_has_step
    )

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        traits = cls.__dict__.get("TRAITS")
        if traits is not None and traits.inputs is Traits.inputs:
            raise TypeError(f"{cls.__name__} has discrete noise but nothing checks its values. Add inputs=ON_GRID to its TRAITS")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step:
            if self.dimension is not None:
                raise InputError(f"dimension is {self.dimension}, but only a grid uses it. Leave dimension out.")
            return
        if self.noise == NoiseNumbers.INSECURE_FLOAT64:
            raise InputError(f"grid is {self.step:g} but noise is {self.noise}. Leave one of the two out.")
        check_step(self.step)
        if self.dimension is None:
            raise InputError("dimension is missing: what a grid costs depends on it. Add the number of coordinates.")

    def numbers(self) -> Numbers:
        """The numbers of the protocol: whole steps and discrete noise, or float64 without a grid."""
        return whole_numbers(self.step)

    @property
    @abstractmethod
    def own_deviation(self) -> float:
        """Standard deviation of the noise that every party adds to its value, once and before anything else."""

    def on_grid(self, target: Target, deviations: Sequence[float]) -> dict[str, Any]:
        """The fields ``step`` and ``dimension`` for noise of these ``deviations``; none of them without discrete noise."""
        used = [deviation for deviation in deviations if deviation]
        if self.noise == NoiseNumbers.INSECURE_FLOAT64 or not used:
            return {}
        return {"step": choose_step(min(used), max(used), target.parties), "dimension": target.dimension}

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        """The loss of a party's own noise on a grid, no matter who colludes; without one, that of the view in real arithmetic.

        What the view of the same protocol in real numbers shows proves nothing about whole numbers: x + 50 y shows x, however
        much noise is on y. A protocol whose kernel has a short whole basis overrides this. ``weights`` have shape (n,).
        """
        if not self.step or self.dimension is None:
            return self.grid_loss([], 0)
        from quietmean.privacy import LocalNoiseLossConversion

        return LocalNoiseLossConversion(self.own_deviation, step=self.step, dimension=self.dimension, draws=schedule.parties)

    def own_promise(self, sensitivity: float, deviation: float, draws: int, why: str) -> APriori:
        """What is promised of ``draws`` noises of this ``deviation``, one of which hides a value."""
        return self.grid_loss([deviation], draws).promise(mu_of_noise(sensitivity, deviation), why)

    def own_bound(self, parties: int, sensitivity: float, proof: str) -> CoalitionBound:
        """mu of each party, whichever others collude, where :attr:`own_deviation` is on all that is seen of its value."""
        return CoalitionBound(np.full(parties, mu_of_noise(sensitivity, self.own_deviation)), proof)

    def grid_loss(
        self, deviations: Sequence[float], draws: int, rounding: Any = None, most_rounding: float = 0.0
    ) -> LossConversion:
        """The bound for whole numbers along the best shift; without a grid that in real arithmetic.

        The arguments are those of :class:`~quietmean.privacy.GridLossConversion`.
        """
        # Running parties certify nothing: they start without this import.
        from quietmean.privacy import EXPOSED_REAL_ARITHMETIC, REAL_ARITHMETIC, GridLossConversion

        if not self.step or self.dimension is None:
            return EXPOSED_REAL_ARITHMETIC if self.TRAITS.exposed else REAL_ARITHMETIC
        return GridLossConversion(
            step=self.step,
            dimension=self.dimension,
            deviations=deviations,
            draws=draws,
            rounding=rounding,
            most_rounding=most_rounding,
        )


def step_of(protocol: DiscreteNoise) -> float:
    """The step of the grid on which all vectors lie that are sent or released: for :attr:`Traits.grid`."""
    return protocol.step


def check_on_grid(protocol: DiscreteNoise, values: Vector) -> None:
    """Raises :class:`InputError` if values, (d,) or (n, d), have more coordinates than planned or no room on the grid.

    The error does not contain them.
    """
    if not protocol.step or not isinstance(values, np.ndarray):
        return
    require_dimension(values, protocol.dimension)
    check_steps(values, protocol.step)


def grid_region(protocol: DiscreteNoise, target: Target, weight: float) -> Box | Ball | None:
    """All vectors that have room on the grid; None without one."""
    return cube(target.dimension, LARGEST_VALUE * protocol.step) if protocol.step else None


# The values of a protocol with discrete noise.
ON_GRID = AcceptedValues(region=grid_region, check=check_on_grid)


def mu_of_noise(sensitivity: float, deviation: float) -> float:
    """mu of one release with Gaussian noise of this deviation; infinite without noise."""
    return sensitivity / deviation if deviation else math.inf


def cube(dimension: int, largest: float) -> Box:
    """All vectors of this many coordinates whose absolute values are at most ``largest``."""
    largest = min(largest, LARGEST_COORDINATE)
    return Box(size=dimension, low=-largest, high=largest)


def require_dimension(values: Vector, dimension: int | None) -> None:
    """Raises :class:`InputError` for values, (d,) or (n, d), of more coordinates than planned."""
    coordinates = values.shape[-1]
    if dimension is not None and coordinates > dimension:
        raise InputError(f"a value has {coordinates} coordinates, and the plan is for {dimension}. Plan for {coordinates}.")


def check_steps(values: Vector, step: float) -> None:
    """Raises :class:`InputError` if values, (d,) or (n, d), have no room on the grid. The error does not contain them."""
    if not within(values, LARGEST_VALUE * step):
        raise InputError(
            f"a coordinate of a party's value is larger than {LARGEST_VALUE * step:g}, for which there is room on the "
            "plan's grid. Scale the values down, or hand in fewer records."
        )


def choose_step(smallest: float, largest: float, parties: int) -> float:
    """The step for noise of these standard deviations: a power of two, the finest with room for the sums of all parties.

    Raises :class:`InputError` if the step would be more than 2^-12 of the smallest deviation.
    """
    # frexp is exact: the same step on every machine.
    step = 2.0 ** (math.frexp(smallest)[1] - 1) / FINE
    while largest > LARGEST_SCALE * step or _REACH * parties**1.5 * largest > LARGEST_UNITS / 4 * step:
        step *= 2.0
    if smallest < COARSE * step:
        raise InputError(
            f"noise of {smallest:g} beside noise of {largest:g} has no room on one grid for {parties} parties. Plan for fewer "
            "parties, or for fewer colluding ones."
        )
    return step


def least_deviation(sensitivity: float, mu: float, step: float = 0.0) -> float:
    """The least standard deviation of discrete noise on one release that is ``mu``-GDP at this L2 sensitivity; rounded up."""
    from quietmean.privacy.loss import SMOOTHING

    return round_up(math.sqrt((sensitivity / mu) ** 2 + SMOOTHING * step**2) * (_ROUNDED_UP if step else 1.0))


# The largest change in whole steps that is counted.
_LARGEST_CHANGE = 2.0**52


def stated_l1(l1: float | None, sensitivity: float, dimension: int) -> float:
    """The L1 change of a value that changes by this L2 ``sensitivity``: as stated, unless that is beyond it."""
    stated = l1 or 0.0
    return stated if sensitivity <= stated * _ROUNDED_UP else sensitivity * math.sqrt(dimension)


def laplace_steps(target: Target, rounded: int, least: float = 1.0) -> float:
    """How many steps the L1 change may have, before rounding, where the sampler's largest scale hides it at the target's epsilon.

    ``rounded``: as of :func:`l1_in_steps`. Raises :class:`InputError` for fewer than ``least``.
    """
    most = laplace_shares.LARGEST_SCALE * target.epsilon * (1 - _ROUNDED_TO) - rounded
    if most < least:
        largest = f"{laplace_shares.LARGEST_SCALE:g}"
        raise InputError(f"noise laplace needs more than {largest} steps for {target.dimension} coordinates. Leave noise out.")
    return most


def l1_in_steps(l1: float, step: float, rounded: int) -> int:
    """L1 change in steps of a rounded value (d,) if the value changes by ``l1`` in L1 norm: for certain.

    A coordinate that changes by a is rounded to whole numbers that differ by a + 1 at most, with the same random bits if there
    are any. ``rounded``: how many coordinates that may be, of all parties; 0 where values are whole steps already.
    Raises :class:`InputError` for a step that is too fine.
    """
    change = l1 / step * _ROUNDED_UP
    if not change < _LARGEST_CHANGE:
        raise InputError(f"a step of {step:g} is too fine for a change of {l1:g}. Raise it.")
    return math.floor(change) + rounded


# The chance that one rounding exceeds the norm bound of conditional rounding, which is then drawn again.
CONDITIONAL_BETA = math.exp(-0.5)
_ATTEMPTS = 200
_BLOCK = 8192


def clip_to_ball(vector: Vector, radius: float) -> Vector:
    """``vector``, shape (d,), or where its L2 norm is larger the one of norm ``radius`` in its direction."""
    norm = float(np.linalg.norm(vector))
    return vector * (radius / norm) if norm > radius else vector


def round_at_random(vector: Vector, seed: Seed) -> Ints:
    """Each entry up or down to a whole number, so that the mean is right: shape (d,) as ``vector``, which is in steps."""
    return round_with(BitStream(seed), vector)


def round_with(stream: BitStream, vector: Vector) -> Ints:
    """Round with what comes next in a stream: a vector may be rounded a piece after the other."""
    rounded = np.empty(vector.size, dtype=np.int64)
    # Blocks stay in the cache.
    for begin in range(0, vector.size, _BLOCK):
        block = vector[begin : begin + _BLOCK]
        rounded[begin : begin + _BLOCK] = np.floor(block + stream.uniform(block.size))
    return rounded


def round_conditionally(vector: Vector, radius: float, seed: Seed) -> Ints:
    """Round a vector of L2 norm <= ``radius``, drawn again until its norm keeps :func:`conditional_norm`: for certain."""
    square = conditional_norm(radius, vector.size, 1.0) ** 2
    for attempt in range(_ATTEMPTS):
        rounded = round_at_random(vector, seed.derive(attempt))
        if float((rounded.astype(np.float64) ** 2).sum()) <= square:
            return rounded
    # Reached with a probability of 1e-43 at most. Towards zero the norm can only fall.
    return np.trunc(vector).astype(np.int64)


def conditional_norm(radius: float, words: int, granularity: float) -> float:
    """The norm that a rounded vector of norm <= ``radius`` keeps with probability 1 - exp(-1/2) at least, and then always."""
    return rounded_norm(radius, words, granularity, CONDITIONAL_BETA)


def rounded_norm(radius: float, words: int, granularity: float, beta: float) -> float:
    """What the L2 norm of a vector of norm <= ``radius`` exceeds with probability <= ``beta`` once rounded at random to a grid.

    Kairouz, Liu and Steinke 2021, Theorem 1 (Delta_2); the second part of the minimum is certain.
    """
    step = granularity * math.sqrt(words)
    likely = radius**2 + step**2 / 4 + math.sqrt(2 * math.log(1 / beta)) * granularity * (radius + step / 2)
    return min(math.sqrt(likely), radius + step)
