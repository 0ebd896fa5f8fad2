"""The releases that came to this party, which of them are in its result, and who sent others something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quietmean.core.party import PartyId
from quietmean.node.session.logs import PartyLog


@dataclass(frozen=True)
class Received:
    """``heard``: whose releases are in the total; ``impossible``: whose came and cannot be; ``digests``: of all of these."""

    heard: tuple[PartyId, ...] = ()
    impossible: tuple[PartyId, ...] = ()
    digests: tuple[tuple[PartyId, bytes], ...] = ()

    @classmethod
    def of(cls, state: Any) -> Received:
        """From the last state of the machine that spread them; push-sum does not record whose are in its sums."""
        return cls(*(getattr(state, name, ()) for name in ("heard", "impossible", "digests")))

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """Whose releases were seen."""
        return tuple(sorted({*self.heard, *self.impossible}))

    @property
    def left_out(self) -> tuple[tuple[PartyId, str], ...]:
        """Who released what cannot be, and its digest."""
        digests = dict(self.digests)
        return tuple((party, digests[party].hex()) for party in self.impossible)

    def equivocating(self, logs: Mapping[PartyId, PartyLog]) -> tuple[tuple[PartyId, str, PartyId, str], ...]:
        """(party, digest, other, digest): what a party released to this one, and what, as an other one says, to that one.

        Either the party sent them different things, or the other one lies about it.
        """
        own = dict(self.digests)
        return tuple(
            (party, own[party].hex(), other, digest.hex())
            for other, log in sorted(logs.items())
            for party, digest in log.releases
            if party in own and own[party] != digest
        )
