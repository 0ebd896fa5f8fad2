"""All that is public about one session of a committee, before anything is contributed."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.statement import StatedValue
from quietmean.protocols.committee.keys import KEY_BYTES, Verifier, Vouching, key_line, raw_key
from quietmean.protocols.committee.layout import Layout, layout_of, layout_of_noise, stated_by
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import BitStream, Seed

_SESSION_BYTES = 32
_PRODUCTS = "committee products"
# Contributions mostly have one of a few weights.
_LAYOUTS = 32


@dataclass(frozen=True, eq=False)
class CommitteeSession:
    """``session``: the 32-byte digest of the sealed study, which every signature and ciphertext is bound to.

    ``members``: their identity keys, by number; ``mailboxes``: their public mailbox keys, made for this session only.
    ``contributors``: who is listed, by identity key, with the largest weight that is allowed; ``vouching``: by whom others are
    admitted, if they are. ``keys`` checks signatures.
    ``statement``: of the value of one unit, where contributions are verified; by default that it lies in the plan's region.
    Raises :class:`InputError` if these do not go together.
    """

    session: bytes
    parameters: CommitteeParameters
    members: tuple[str, ...]
    mailboxes: tuple[bytes, ...] = field(repr=False)
    contributors: Mapping[str, float] = field(repr=False)
    keys: Verifier = field(repr=False)
    statement: StatedValue | None = field(default=None, repr=False)
    vouching: Vouching | None = None
    _layouts: dict[float, Layout] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        parameters = self.parameters
        if len(self.session) != _SESSION_BYTES:
            raise InputError(f"a session is {_SESSION_BYTES} bytes, not {len(self.session)}. Make a new plan.")
        if not len(set(self.members)) == len(self.mailboxes) == parameters.members:
            raise InputError(f"{len(set(self.members))} members of a committee of {parameters.members}. List each of them once.")
        if len(set(self.mailboxes)) != parameters.members:
            raise InputError("two members have the same mailbox key. Make one for each, for this study alone.")
        admitted = len(self.contributors) + self.vouchers
        if admitted != parameters.contributors:
            raise InputError(
                f"{admitted} contributors are admitted, and the plan is for {parameters.contributors}. Make a new plan."
            )
        # More would let the sum wrap around.
        if any(not 0 < weight <= parameters.largest_weight for weight in self.contributors.values()):
            raise InputError(f"a contributor may have a weight above {parameters.largest_weight:g}. Plan with the largest one.")
        if parameters.verified:
            # Whether there is room for all that is stated.
            layout = self.layout(parameters.largest_weight)
            if parameters.bits_of_record != (0 if layout.records is None else layout.bits):
                raise InputError("the plan's products are others than those of its domain. Make a new plan.")

    def member(self, public_key: str) -> int:
        """The number of a member. Raises :class:`InputError` for somebody else's key."""
        if public_key not in self.members:
            raise InputError("this key is not that of a member of this committee. Take the key of the entry.")
        return self.members.index(public_key)

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """The order in which members lead ballots, over and over."""
        seed = Seed.public("committee leaders", self.session, self.parameters.members)
        return tuple(BitStream(seed).permutation(self.parameters.members).tolist())

    def leader(self, ballot: int) -> int:
        """Who leads a ballot, 1..B."""
        return self.leaders[(ballot - 1) % len(self.leaders)]

    def layout(self, weight: float) -> Layout:
        """How a verified contribution of a public weight is dealt."""
        if weight not in self._layouts:
            if len(self._layouts) >= _LAYOUTS:
                self._layouts.clear()
            self._layouts[weight] = layout_of(self.parameters, self.statement or stated_by(self.parameters), weight)
        return self._layouts[weight]

    @cached_property
    def noise_layout(self) -> Layout:
        """How a verified dealing of noise is dealt."""
        return layout_of_noise(self.parameters)

    def layout_of(self, noise: bool, weight: float, dealer: bytes) -> Layout | None:
        """How a dealing of ``noise``, or of a value of a public weight, is dealt; None where none is verified.

        ``dealer``: the raw key of whose it is, which public numbers of its own round products by.
        """
        if not self.parameters.verified:
            return None
        if noise:
            return self.noise_layout
        layout = self.layout(weight)
        return layout if layout.records is None else layout.of_contributor(Seed.public(_PRODUCTS, self.session, dealer.hex()))

    def takes_weight(self, weight: float, largest: float) -> bool:
        """Whether a contribution may have a public weight, for a contributor that may have ``largest``."""
        one_record = weight == 1 or not self.parameters.bits_of_record
        return math.isfinite(weight) and 0 <= weight <= largest and one_record

    def dealt_numbers(self, noise: bool, weight: float) -> int:
        """Return of how many numbers a dealing of ``noise``, or of a value of a public weight, has shares."""
        if not self.parameters.verified:
            return self.parameters.blocks
        return (self.noise_layout if noise else self.layout(weight)).bits

    @cached_property
    def largest_dealing(self) -> int:
        """The most numbers that a share of a contribution has."""
        if not self.parameters.verified:
            return self.parameters.blocks
        # Of a smaller weight a range may be a step wider.
        largest = self.layout(self.parameters.largest_weight)
        return largest.bits + len(largest.lows)

    def is_listed(self, dealer: bytes) -> bool:
        """Whether the owner of this raw key contributes without a voucher."""
        return key_line(dealer) in self.contributors

    @property
    def vouchers(self) -> int:
        """How many contributors are admitted by vouchers at most."""
        return 0 if self.vouching is None else self.vouching.number

    def require_admitted(self, dealers: NDArray[np.bytes_], weights: Array) -> None:
        """Raises :class:`ContentError` unless each dealer occurs once, in rising order, and may contribute with its weight.

        Who is not listed came by a voucher: not more than there are, and with the study's largest weight at most. Who is in the
        lists of more than c_m members has shown it to an honest one of them.
        """
        keys, most = self._listed
        listed, largest = np.zeros(len(dealers), dtype=np.bool_), np.full(len(dealers), self.parameters.largest_weight)
        if len(keys):
            places = np.minimum(np.searchsorted(keys, dealers), len(keys) - 1)
            listed = keys[places] == dealers
            largest[listed] = most[places[listed]]
        once = bool((dealers[1:] > dealers[:-1]).all())
        weighed = bool(((weights >= 0) & (weights <= largest)).all())
        weighed = weighed and not (self.parameters.bits_of_record and bool((weights != 1).any()))
        if not (once and weighed and int((~listed).sum()) <= self.vouchers):
            raise ContentError("it lists a contributor that is not admitted, or with another weight")

    @cached_property
    def _listed(self) -> tuple[NDArray[np.bytes_], Array]:
        """Raw keys in rising order, shape (n,), and the largest weight of each."""
        pairs = sorted((raw_key(key), weight) for key, weight in self.contributors.items())
        keys = np.frombuffer(b"".join(key for key, _ in pairs), dtype=f"S{KEY_BYTES}")
        return keys, np.array([weight for _, weight in pairs])

    @cached_property
    def raw_members(self) -> tuple[bytes, ...]:
        return tuple(raw_key(key) for key in self.members)

    def first_seeded(self, dealer: bytes) -> int:
        """The first of the c_m members that get seeds from a dealer with this raw key."""
        return _first_seeded(dealer, self.parameters.members)


@functools.lru_cache(maxsize=1024)
def _first_seeded(dealer: bytes, members: int) -> int:
    return int.from_bytes(hashlib.sha256(dealer).digest(), "big") % members


# --- the end --------------------------------------------------------------------------------------------------------------------
