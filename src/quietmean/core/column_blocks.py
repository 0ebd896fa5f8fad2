"""Column blocks: a value that may be missing with its powers, of one group or of several, as a part of an input domain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.mixtures import INSIDE, LENGTH, ROUNDING, Mixture, into_simplex
from quietmean.core.party import Vector
from quietmean.core.schema import parameter
from quietmean.core.statement import BIAS, BlockInSteps, WholeRecord

_BISECTIONS, _NEGLIGIBLE = 60, 1e-9
# What rounding leaves of numbers that add up to 1, where they are told apart from those of other groups.
_NOTHING = 1e-14

# A column block is (w p, p x, c2 p (x^2 - a), c3 p (x^3 - x), c4 p (x^4 - x^2)): p is 1 or 0, x from -1 to 1.
SQUARE, SQUARE_CENTRE, CUBE, FOURTH = 1.4, 0.75, 1.5, 1.5
BLOCK_SIZE = 5
# The largest of x^3 - x for x in -1..1.
_CUBIC = 2 / (3 * math.sqrt(3))
# |block|^2 - w^2 is a polynomial in x, at most 1.1386 where its derivative is 0.
BLOCK_NORM = 1.139
# What it is at both bounds.
BLOCK_CORNER = 1 + SQUARE**2 * (1 - SQUARE_CENTRE) ** 2
# Two blocks of one group are this far apart at most. Proof in docs/proofs/statistics.md, "Column blocks".
BLOCK_WIDTH = 2.0
# Joint groups: an indicator counts twice in its own group and once in each. So all of them together are well known; more groups
# have no room for it. Of two groups a value counts nine times in its own, and once with the other sign in the other. So their
# difference has less noise, and their sum has more. Proof in docs/proofs/statistics.md, "Joint groups".
OWN, MOST_JOINT, OPPOSED = 2, 5, 9
# The block of a present value that is spread evenly over its bounds, without w p: a mixture well inside.
SPREAD = np.array([0.0, SQUARE * (1 / 3 - SQUARE_CENTRE), 0.0, FOURTH * (1 / 5 - 1 / 3)])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Blocks(Mixture):
    """``groups`` column blocks of 5 coordinates, of which a record fills one: mixtures of (p, x, x^2, x^3, x^4), p from 0 to 1.

    The test is exact: numbers are moments of a distribution on [-1, 1] if and only if two matrices of them are positive
    semidefinite (Hausdorff's moment problem; Karlin and Studden, Tchebycheff Systems, 1966, chapter IV).
    """

    kind = "blocks"
    groups: int = parameter(help="groups", at_least=1, at_most=1 << 16, remedy="choose at least 1 group")
    weight: float = parameter(help="the indicator of a value that is present", above=0, at_most=1e3, remedy="choose a number > 0")
    scale: float = parameter(help="what half the width of the bounds counts", **LENGTH)
    joint: bool = parameter(False, help="groups have a part of their numbers in common", written=lambda value: bool(value.joint))
    products: bool = parameter(
        False, help="powers are the products of a value that is in it alone", written=lambda value: bool(value.products)
    )

    @property
    def size(self) -> int:
        return BLOCK_SIZE * self.groups

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.joint and (self.products or not 2 <= self.groups <= MOST_JOINT):
            raise InputError(f"joint is for 2 to {MOST_JOINT} groups without products. Leave joint out.")

    @property
    def _joined(self) -> JointGroups:
        return JointGroups.of(self.groups if self.joint else 1)

    @property
    def halves(self) -> tuple[float, float]:
        """What half the bounds of its column count, twice."""
        return self.scale, self.scale

    @property
    def bias(self) -> float:
        """The bias by rounding: how many steps, over those of half the bounds, it moves a number on average at most."""
        return BIAS

    def in_steps(self, step: float) -> WholeRecord:
        """The numbers of a single record on a grid of ``step``. Raises :class:`InputError` for one without room for products."""
        return block_in_steps(self.scale / step, self.weight).record(self.groups, (self.weight * self.scale, self.scale))

    @property
    def diameter(self) -> float:
        return self.scale * block_diameter(self.groups, self.weight, joint=self.joint)

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return self.scale * max(self.weight * float(self._joined.largest[0]), SQUARE * SQUARE_CENTRE)

    @property
    def text(self) -> str:
        where = "" if self.groups == 1 else f" in one of {self.groups} groups"
        return f"powers 1 to 4 of a value, and whether it is missing{where} (half the width of its bounds is {self.scale:g})"

    @property
    def coordinate_bounds(self) -> tuple[Vector, Vector]:
        """The least and the largest value of each coordinate, (size,)."""
        # x in -1..1, and what x^2, x^3 - x and x^4 - x^2 are there; all is 0 where nothing is present.
        least = np.array([0.0, -1.0, -SQUARE * SQUARE_CENTRE, -CUBE * _CUBIC, -FOURTH / 4])
        most = np.array([self.weight, 1.0, SQUARE * (1 - SQUARE_CENTRE), CUBE * _CUBIC, 0.0])
        factors = self.scale * self._joined.largest
        return np.tile(factors * least, self.groups), np.tile(factors * most, self.groups)

    def holds(self, vector: Vector, scale: float) -> bool:
        blocks = self._joined.apart(vector.reshape(self.groups, BLOCK_SIZE) / (scale * self.scale))
        if self.joint:
            blocks[np.abs(blocks) < _NOTHING] = 0.0
        present = blocks[:, 0] / self.weight
        within = bool(present.min() >= 0 and present.sum() <= 1 + ROUNDING)
        slack = _NOTHING if self.joint else 0.0
        return within and all(_are_moments(block[1:], part, slack) for block, part in zip(blocks, present.tolist(), strict=True))

    def move(self, vector: Vector, scale: float) -> None:
        factor = scale * self.scale
        blocks = self._joined.apart(np.clip(vector.reshape(self.groups, BLOCK_SIZE) / factor, -1e3, 1e3))
        present = blocks[:, 0] / self.weight
        into_simplex(present, 1.0)
        # Less of a group than rounding of the others could be.
        present[present < _NEGLIGIBLE] = 0.0
        blocks[:, 0] = present * self.weight
        for row, part in zip(blocks, present.tolist(), strict=True):
            row[1:] = _nearest_moments(row[1:], part)
        vector[:] = (self._joined.together(blocks) * factor).ravel()


@dataclass(frozen=True, eq=False)
class JointGroups:
    """Blocks of groups as sums of whole multiples of a ``part`` of each number, (5,).

    ``own`` and ``every``, (5,): how many parts a number counts in its own group beside those that it counts in each.
    """

    own: Array
    every: Array
    part: Array
    groups: int

    @classmethod
    @cache
    def of(cls, groups: int) -> JointGroups:
        """Those of so many groups; with one, every number is by itself."""
        own, every, part = np.ones((3, BLOCK_SIZE))
        every[:] = 0.0
        if groups > 1:
            own[0], every[0], part[0] = OWN, 1.0, 1 / OWN
        if groups == 2:
            own[1], every[1], part[1] = OPPOSED + 1.0, -1.0, 1 / math.hypot(OPPOSED, 1.0)
        return cls(own, every, part, groups)

    @property
    def largest(self) -> Array:
        """How many times as large as alone each number is in its own group, (5,)."""
        largest: Array = (self.own + self.every) * self.part
        return largest

    def of_parts(self, parts: Array) -> Array:
        """Sums of whole multiples of parts, (..., groups, 5): exact."""
        return parts * self.own + parts.sum(axis=-2, keepdims=True) * self.every if self.groups > 1 else parts

    def together(self, blocks: Array) -> Array:
        """What blocks of groups, (..., groups, 5), count together."""
        return self.of_parts(blocks * self.part) if self.groups > 1 else blocks

    def apart(self, numbers: Array) -> Array:
        """The inverse of :meth:`together`."""
        if self.groups == 1:
            return numbers
        sums = numbers.sum(axis=-2, keepdims=True) / (self.own + self.groups * self.every)
        blocks: Array = (numbers - self.every * sums) / (self.own * self.part)
        return blocks

    @property
    def matrix(self) -> Array:
        """What :meth:`of_parts` does to all numbers of all groups, (5 groups, 5 groups)."""
        every = np.kron(np.ones((self.groups, self.groups)), np.diag(self.every))
        return np.asarray(np.kron(np.eye(self.groups), np.diag(self.own)) + every, dtype=np.float64)


def _are_moments(block: Array, present: float, more: float = 0.0) -> bool:
    """Is (present, block without its indicator) a mixture of blocks of present values?"""
    first, square = block[0], block[1] / SQUARE + SQUARE_CENTRE * present
    third = block[2] / CUBE + first
    fourth = block[3] / FOURTH + square
    hankel = np.array([[present, first, square], [first, square, third], [square, third, fourth]])
    bounded = np.array([[present - square, first - third], [first - third, square - fourth]])
    slack = -ROUNDING * max(present, 0.0) - more
    return bool(np.linalg.eigvalsh(hankel)[0] >= slack and np.linalg.eigvalsh(bounded)[0] >= slack)


def _nearest_moments(block: Array, present: float) -> Array:
    """The first point inside on the way from the block to that of an even spread, and a little further."""
    if not present or _are_moments(block, present):
        return block if present else np.zeros_like(block)
    inside, outside = 1.0, 0.0
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        if _are_moments((1 - middle) * block + middle * present * SPREAD, present):
            inside = middle
        else:
            outside = middle
    inside = 1 - (1 - inside) * INSIDE
    nearest: Array = (1 - inside) * block + inside * present * SPREAD
    return nearest


def block_in_steps(steps: float, weight: float) -> BlockInSteps:
    """Column blocks of single records, half the width of whose bounds is so many ``steps``. Raises :class:`InputError`."""
    return BlockInSteps.of(steps, weight, (SQUARE, SQUARE_CENTRE, CUBE, FOURTH))


def block_diameter(groups: int, weight: float, *, joint: bool = False) -> float:
    """The L2 diameter of column blocks of which a record fills one of ``groups``, or none: 2 at the least.

    In one group two present values are 2 apart at most; a present and a missing one are as far apart as a block is long, and two
    in different groups sqrt(2) times that. Joint groups have another length, and another distance of two of them.
    """
    length = across = weight**2 + BLOCK_NORM
    if joint:
        length += weight**2 * (2 / OWN + groups / OWN**2)
    if joint and groups == 2:
        # At equal bounds; weight^2 + BLOCK_NORM where values are not opposed.
        across = weight**2 + BLOCK_CORNER + 2 * OPPOSED / (OPPOSED**2 + 1)
    return math.sqrt(max(BLOCK_WIDTH**2, length, 2 * across if groups > 1 else 0.0))
