"""What a coalition makes of its messages: the sum, from what members publish; one dealer's value, from T shares of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.party import PartyId, Vector
from quietmean.protocols.packed_sharing.member import DEALING, FIRST_VOTES
from quietmean.protocols.packed_sharing.messages import Codec
from quietmean.protocols.packed_sharing.packing import Elements, Packing, expand, open_sums
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters
from quietmean.protocols.traits import Sent

_SLACK = 1e-12


def known_share(parameters: PackedSharingParameters, counted: Mask, corrupt: frozenset[PartyId], target: PartyId) -> float:
    """The part of the target's value in the number that the coalition reads: all, or none if it is not in the sum."""
    return 1.0 if counted[target] or len(corrupt) >= parameters.threshold else 0.0


def unknown_noise(parameters: PackedSharingParameters, counted: Mask, corrupt: frozenset[PartyId]) -> float:
    """The standard deviation of the noise in it that the coalition does not know, in the units of the values."""
    if len(corrupt) >= parameters.threshold:
        return parameters.sigma
    return math.sqrt(int(counted.sum()) - int(counted[list(corrupt)].sum())) * parameters.sigma


def reach(parameters: PackedSharingParameters, together: int, weight: float, sensitivity: float) -> float:
    """How far from the centre the target's values are in both worlds: whole steps, so that no random bits round them."""
    half = min(sensitivity / math.sqrt(together) / 2, weight * parameters.clip) / parameters.step
    # A quotient that float64 rounded to just below a whole number counts as that number.
    return parameters.step * math.floor(half * (1 + _SLACK))


@dataclass(frozen=True)
class ShareReader:
    """What ``corrupt`` parties read of ``target``'s value, or of the sum with it."""

    parameters: PackedSharingParameters
    corrupt: frozenset[PartyId]
    target: PartyId

    @property
    def opens_shares(self) -> bool:
        """Are they enough to open every dealer's shares?"""
        return len(self.corrupt) >= self.parameters.threshold

    def read(self, sent: Sequence[Sent], size: int) -> Vector | None:
        """What the coalition reads, in the units of the values, shape (size,), without the centre; None if it cannot."""
        stretched = replace(self.parameters, dimension=size)
        codec = Codec.of(stretched, stretched.rules(stretched.members))
        shares = self._shares(sent, codec) if self.opens_shares else self._sums(sent, codec)
        if len(shares) < stretched.threshold:
            return None
        return np.asarray(open_sums(Packing.of(stretched), shares, size) * stretched.step, dtype=np.float64)

    def _shares(self, sent: Sequence[Sent], codec: Codec) -> dict[PartyId, Elements]:
        """The target's shares."""
        packing, shares = Packing.of(self.parameters), {}
        for message, reached in sent:
            if message.round == DEALING and message.sender == self.target:
                for member in reached & self.corrupt:
                    seeded = member in packing.seeded(self.target)
                    raw = message.content
                    shares[member] = expand(packing, raw, codec.blocks) if seeded else codec.read_share(raw)
        return shares

    def _sums(self, sent: Sequence[Sent], codec: Codec) -> dict[PartyId, Elements]:
        """The members' sums, those of the coalition included. The result is public: an outsider is taken to see them all."""
        sums = {}
        for message, reached in sent:
            is_read = message.sender in self.corrupt or bool(reached & self.corrupt) or not self.corrupt
            if message.round > FIRST_VOTES and is_read:
                statement = codec.read(message.round, message.content)
                if statement.share is not None:
                    sums[message.sender] = codec.read_share(statement.share)
        return sums
