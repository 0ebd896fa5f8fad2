"""Parameters of secret-sharing consensus, and the integers that its messages carry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.grid import within
from quietmean.core.party import Vector
from quietmean.core.schema import OPEN, parameter
from quietmean.graphs.undirected import is_connected, normalised_edges
from quietmean.protocols.graph_fields import GraphParameters

# Binary digits of c behind the point, so that integers stay integers.
STEP_BITS = 8
# Fixed-point digits behind those that count: every rounding of the iteration happens beyond them.
_GUARD_BITS = 32

Integers = list[int]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecretSharingParameters(GraphParameters):
    """Values in [-``bound``, ``bound``] are multiples of 2^-``fraction_bits``; all arithmetic is exact, modulo ``modulus``.

    ``c`` is the step of PDMM, a multiple of 2^-8. After the exchange of shares, ``iterations`` broadcasts of PDMM average them
    without encryption.
    """

    bound: float = parameter(
        help="the largest size of a value", option=True, above=0, remedy="name the largest size of a value, a finite number > 0"
    )
    fraction_bits: int = parameter(
        32, help="binary digits behind the point", option=True, at_least=0, at_most=1000, remedy="choose 0..1000"
    )
    c: float = parameter(
        0.25,
        help="step of the iteration",
        option=True,
        at_least=2.0**-STEP_BITS,
        at_most=1000,
        remedy=f"choose {2.0**-STEP_BITS:g} <= c <= 1000",
    )
    iterations: int = parameter(
        help="how many times shares are averaged",
        option=True,
        required=False,
        at_least=1,
        at_most=100_000,
        remedy="choose 1..100000 exchanges",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parties is OPEN or self.edges is OPEN:
            return
        if not is_connected(normalised_edges(self.edges.tolist(), self.parties), self.parties):
            raise InputError(f"the graph of {len(self.edges)} edges does not connect all {self.parties} parties: add edges")

    @property
    def step(self) -> int:
        """c in units of 2^-8."""
        return round(self.c * float(1 << STEP_BITS))

    @property
    def rounds(self) -> int:
        return self.iterations + 1

    @cached_property
    def modulus(self) -> int:
        """p, a power of two above twice the largest sum."""
        largest = self.parties * encode_number(self.bound, self.fraction_bits)
        return 1 << (2 * largest).bit_length()

    @cached_property
    def scale_bits(self) -> int:
        """Binary digits behind the point while shares are averaged; a mean is needed to within 1 / (2n)."""
        return _GUARD_BITS + 4 * self.parties.bit_length()

    @cached_property
    def number_bytes(self) -> int:
        """Bytes of one signed number on the wire: shares, or estimates that overshoot at most a thousandfold."""
        return (self.modulus.bit_length() + self.scale_bits + 12) // 8 + 1

    @cached_property
    def neighbours(self) -> list[list[int]]:
        neighbours: list[list[int]] = [[] for _ in range(self.parties)]
        for low, high in self.edges.tolist():
            neighbours[low].append(high)
            neighbours[high].append(low)
        return [sorted(row) for row in neighbours]


def encode_number(number: float, fraction_bits: int) -> int:
    """The nearest multiple of 2^-fraction_bits, as that multiple: exact, whatever the size."""
    numerator, denominator = float(number).as_integer_ratio()
    shifted = numerator << fraction_bits
    return (2 * shifted + denominator) // (2 * denominator)


def encode_values(parameters: SecretSharingParameters, values: Vector) -> Integers:
    """Values of shape (d,) as integers. Raises :class:`InputError` for values outside the bound, without the value."""
    if not within(values, parameters.bound):
        raise InputError(f"a value lies outside [-{parameters.bound:g}, {parameters.bound:g}]: choose a larger bound")
    return [encode_number(number, parameters.fraction_bits) for number in values.tolist()]


def signed(number: int, modulus: int) -> int:
    """The representative of a residue that is nearest to 0."""
    residue = number % modulus
    return residue - modulus if 2 * residue >= modulus else residue


def pack_integers(numbers: Integers, size: int) -> bytes:
    """Signed integers, ``size`` bytes each. Raises OverflowError for what does not fit."""
    return b"".join(number.to_bytes(size, "big", signed=True) for number in numbers)


def unpack_integers(content: bytes, size: int, count: int) -> Integers | None:
    """The inverse; None if the size is wrong."""
    if len(content) != size * count:
        return None
    return [int.from_bytes(content[at : at + size], "big", signed=True) for at in range(0, len(content), size)]


def read_sum(numbers: Integers, parameters: SecretSharingParameters) -> Integers | None:
    """The signed sums of all values from estimates of the mean share; None unless all are within 1/8 of a whole sum."""
    scale, sums = parameters.scale_bits, []
    for number in numbers:
        total = number * parameters.parties
        nearest = (total + (1 << (scale - 1))) >> scale
        if 8 * abs(total - (nearest << scale)) > 1 << scale:
            return None
        sums.append(signed(nearest, parameters.modulus))
    return sums


def as_floats(sums: Integers, fraction_bits: int) -> NDArray[np.float64]:
    """The sums in units of the values, correctly rounded."""
    return np.array([number / (1 << fraction_bits) for number in sums], dtype=np.float64)
