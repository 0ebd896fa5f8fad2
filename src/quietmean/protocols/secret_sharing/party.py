"""One party of secret-sharing consensus. Round 1 exchanges shares; round t + 1 is iteration t of PDMM in exact arithmetic.

Everything is an integer: x and z times 2^scale_bits. Divisions round to the nearest multiple, far below the needed accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.grid import within
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.core.schema import OPEN, parameter
from quietmean.graphs import is_connected, normalised_edges
from quietmean.protocols.fields import GraphParameters
from quietmean.randomness import BitStream, Seed

# Binary digits of c behind the point, so that integers stay integers.
STEP_BITS = 8
# Fixed-point digits behind those that count: every rounding of the iteration happens beyond them.
_GUARD_BITS = 32

Integers = list[int]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecretSharingParameters(GraphParameters):
    """The parameters of averaging by secret sharing and PDMM, the primal-dual method of multipliers.

    Values in [-``bound``, ``bound``] are multiples of 2^-``fraction_bits``; all arithmetic is exact, modulo ``modulus``.
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
            raise InputError(f"the graph of {len(self.edges)} edges does not connect all {self.parties} parties. Add edges.")

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
        raise InputError(f"a value lies outside [-{parameters.bound:g}, {parameters.bound:g}]. Choose a larger bound.")
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


_WHOLE, _BROKEN = b"\0", b"\1"


@dataclass(frozen=True, slots=True)
class SecretSharingState:
    """The state of a party of secret sharing.

    ``masked`` is s'_i, ``z`` and ``other_z`` hold z_{i|j} and z_{j|i} for every neighbour, all packed integers.

    ``broken``: some message was lost, anywhere, so there will be no result. ``total`` are the exact sums at the end.
    """

    round: int
    masked: bytes
    z: tuple[bytes, ...] = ()
    other_z: tuple[bytes, ...] = ()
    weight: float = 0.0
    z_weight: tuple[float, ...] = ()
    other_z_weight: tuple[float, ...] = ()
    broken: bool = False
    total: tuple[bytes, ...] = ()


class SecretSharingParty:
    """A party of secret-sharing consensus for a value (d,)."""

    state_type = SecretSharingState

    def __init__(
        self, parameters: SecretSharingParameters, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        self._parameters = parameters
        self._party = party
        self._neighbours = parameters.neighbours[party]
        self._signs = [1 if party < other else -1 for other in self._neighbours]
        self._encoded = encode_values(parameters, value)
        self._weight = weight
        self._noise = noise
        self._count = value.size

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[SecretSharingState]:
        sent = tuple(
            Message(self._party, (other,), 1, np.zeros(0), 0.0, _WHOLE + self._pack(self._share(slot)))
            for slot, other in enumerate(self._neighbours)
        )
        return Step(SecretSharingState(1, b""), sent)

    def end_round(
        self, state: SecretSharingState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[SecretSharingState]:
        arrived = {message.sender: self._read(message) for message in received}
        complete = all(arrived.get(other) is not None and other in delivered for other in self._neighbours)
        broken = state.broken or not complete or any(message.content[:1] != _WHOLE for message in received)
        if broken:
            # A share did not arrive, or a party dropped out with its shares: the rest does not sum to the values.
            return self._proceed(replace(state, round=state.round + 1, broken=True))
        numbers = {other: each for other, each in arrived.items() if each is not None}
        if state.round == 1:
            return self._proceed(self._masked(numbers))
        weights = {message.sender: message.weight for message in received}
        return self._proceed(self._moved(state, numbers, weights))

    def miss_round(self, state: SecretSharingState) -> Step[SecretSharingState]:
        later = replace(state, round=state.round + 1, broken=True)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: SecretSharingState) -> frozenset[PartyId]:
        return frozenset(self._neighbours)

    def _share(self, slot: int) -> Integers:
        """Uniform modulo p: p is a power of two, so as many fair bits."""
        modulus = self._parameters.modulus
        words = -(-modulus.bit_length() // 64)
        drawn = BitStream(Seed(self._noise.secret("share", slot))).words(words * self._count).tobytes()
        size = 8 * words
        return [int.from_bytes(drawn[at : at + size], "little") % modulus for at in range(0, len(drawn), size)]

    def _masked(self, shares: dict[PartyId, Integers]) -> SecretSharingState:
        masked = list(self._encoded)
        for slot, other in enumerate(self._neighbours):
            sent_shares = self._share(slot)
            masked = [
                value - out + received_share
                for value, out, received_share in zip(masked, sent_shares, shares[other], strict=True)
            ]
        masked = [value % self._parameters.modulus for value in masked]
        nothing = self._pack([0] * self._count)
        everywhere, weights = (nothing,) * len(self._neighbours), (0.0,) * len(self._neighbours)
        return SecretSharingState(2, self._pack(masked), everywhere, everywhere, self._weight, weights, weights)

    def _moved(
        self, state: SecretSharingState, numbers: dict[PartyId, Integers], weights: dict[PartyId, float]
    ) -> SecretSharingState:
        x, own_weight = self._estimate(state)
        z, other_z, z_weight, other_weight = [], [], [], []
        pull = 2.0 * self._parameters.step / 2**STEP_BITS
        for slot, other in enumerate(self._neighbours):
            sign, before, theirs = self._signs[slot], self._unpack(state.z[slot]), self._unpack(state.other_z[slot])
            # PDMM: z_{i|j} becomes z_{j|i} + 2c B_{j|i} x_j, and the other way round.
            z.append(self._pack([old - sign * self._pulled(each) for old, each in zip(theirs, numbers[other], strict=True)]))
            other_z.append(self._pack([old + sign * self._pulled(each) for old, each in zip(before, x, strict=True)]))
            z_weight.append(state.other_z_weight[slot] - sign * pull * weights[other])
            other_weight.append(state.z_weight[slot] + sign * pull * own_weight)
        return replace(
            state,
            round=state.round + 1,
            z=tuple(z),
            other_z=tuple(other_z),
            z_weight=tuple(z_weight),
            other_z_weight=tuple(other_weight),
        )

    def _pulled(self, number: int) -> int:
        return (2 * self._parameters.step * number) >> STEP_BITS

    def _estimate(self, state: SecretSharingState) -> tuple[Integers, float]:
        """x_i = (s'_i - sum_j B z_{i|j}) / (1 + c d_i), rounded to the nearest multiple of 2^-scale_bits."""
        totals = [value << self._parameters.scale_bits for value in self._unpack(state.masked)]
        weight = state.weight
        for sign, packed, z_weight in zip(self._signs, state.z, state.z_weight, strict=True):
            totals = [total - sign * each for total, each in zip(totals, self._unpack(packed), strict=True)]
            weight -= sign * z_weight
        divisor = (1 << STEP_BITS) + self._parameters.step * len(self._neighbours)
        return [((total << (STEP_BITS + 1)) + divisor) // (2 * divisor) for total in totals], weight * 2**STEP_BITS / divisor

    def _proceed(self, state: SecretSharingState) -> Step[SecretSharingState]:
        if state.round > self.rounds:
            return self._concluded(state)
        recipients = tuple(self._neighbours)
        if state.broken:
            # Informs the others, who would not notice by themselves.
            size = self._parameters.number_bytes * self._count
            return Step(state, (Message(self._party, recipients, state.round, np.zeros(0), 0.0, _BROKEN + bytes(size)),))
        x, weight = self._estimate(state)
        return Step(state, (Message(self._party, recipients, state.round, np.zeros(0), weight, _WHOLE + self._pack(x)),))

    def _concluded(self, state: SecretSharingState) -> Step[SecretSharingState]:
        if state.broken:
            return Step(state)
        x, weight = self._estimate(state)
        sums = read_sum(x, self._parameters)
        if sums is None:
            return Step(replace(state, broken=True))
        total = as_floats(sums, self._parameters.fraction_bits)
        final = replace(state, total=tuple(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in sums))
        return Step(final, release=Release(total, weight * self._parameters.parties))

    def _pack(self, numbers: Integers) -> bytes:
        return pack_integers(numbers, self._parameters.number_bytes)

    def _unpack(self, packed: bytes) -> Integers:
        numbers = unpack_integers(packed, self._parameters.number_bytes, self._count)
        assert numbers is not None  # noqa: S101 - this party's own state
        return numbers

    def _read(self, message: Message) -> Integers | None:
        return unpack_integers(message.content[1:], self._parameters.number_bytes, self._count)
