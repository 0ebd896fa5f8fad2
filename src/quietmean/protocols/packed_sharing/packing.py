"""Dealing, adding and opening packed shares (Franklin and Yung 1992): exact, modulo a prime.

The numbers of a value are cut into blocks of l. A block's polynomial has degree < T = c_m + l, passes through its numbers at the
points 1..l, and through the shares of c_m members, which are uniform. Member j holds its value at l + 1 + j. Those c_m members
get a 32-byte seed of their shares instead of numbers: of member i's values these are members i+1..i+c_m modulo m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Units
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.protocols.packed_sharing.spec import PackedSharingParameters

# Residues 0..p-1.
Elements = NDArray[np.uint32]


@dataclass(frozen=True)
class Packing:
    """``members`` (m), ``secrets`` a polynomial (l), ``randoms``: its random points (c_m), ``prime`` (p): m + l < p."""

    members: int
    secrets: int
    randoms: int
    prime: int

    @classmethod
    def of(cls, parameters: PackedSharingParameters) -> Packing:
        """That of a protocol."""
        return cls(parameters.members, parameters.secrets, parameters.colluding_members, parameters.prime)

    @property
    def threshold(self) -> int:
        """T: so many shares determine a polynomial."""
        return self.secrets + self.randoms

    def blocks(self, size: int) -> int:
        """Polynomials for ``size`` numbers: the numbers in one share."""
        return -(-size // self.secrets)

    def seeded(self, dealer: int) -> tuple[int, ...]:
        """The members that get seeds from dealer number ``dealer``; never the dealer itself."""
        return tuple((dealer + 1 + offset) % self.members for offset in range(self.randoms))


@dataclass(frozen=True, eq=False)
class Dealt:
    """What a dealer hands out: ``shares[j]`` is member j's, (blocks,) or, for ``seeds``, 32 bytes; each member has one of both."""

    shares: Mapping[int, Elements] = field(repr=False)
    seeds: Mapping[int, bytes] = field(repr=False)


def deal(packing: Packing, numbers: Units, dealer: int, secret: Seed) -> Dealt:
    """Shares of ``numbers``, shape (size,), signed, between -p/2 and p/2, by dealer number ``dealer`` for all members.

    ``secret``: the dealer's own for this study, from which all random points follow: the same one gives the same shares. It must
    never serve for other numbers.
    """
    raise ValueError


def expand(packing: Packing, seed: bytes, blocks: int) -> Elements:
    """The share, shape (blocks,), that a 32-byte seed stands for: 64-bit words of a stream modulo p, each within 2^-62 of uniform
    times at most 1/2 in total variation."""
    raise ValueError


def add(packing: Packing, shares: Sequence[Elements]) -> Elements:
    """The sum of one or more shares of shape (blocks,) modulo p."""
    raise ValueError


def open_sums(packing: Packing, sums: Mapping[int, Elements], size: int) -> Units:
    """The sum of all dealers' numbers, shape (size,), between -p/2 and p/2, from the ``sums`` (blocks,) of T members or more.

    By number of the member; of more than T the first T count. Raises ValueError for fewer.
    """
    raise ValueError
