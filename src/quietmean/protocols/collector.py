"""Protocols in which one party, the collector, may gather what the others send, and release it."""

from __future__ import annotations

from dataclasses import replace

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.protocols.traits import Server, Traits


def with_collector(traits: Traits, collector: PartyId | None) -> Traits:
    """Traits of a protocol with this party as its collector; None if all publish."""
    asked_for = collector is not None and traits.server == Server.NONE
    return replace(traits, collector=collector, trust=traits.trust_with_collector if asked_for else traits.trust)


def check_collector(collector: PartyId | None, parties: int, key: str = "aggregator") -> None:
    """Raises :class:`InputError` if the collector is not one of the parties."""
    if collector is not None and not 0 <= collector < parties:
        raise InputError(f"{key} is {collector}: parties are numbered 0..{parties - 1}")


def to_collector(parties: int, collector: PartyId | None) -> list[list[PartyId]]:
    """Recipients of a round in which all others send to the collector."""
    return [[] if collector is None or party == collector else [collector] for party in range(parties)]


def from_collector(parties: int, collector: PartyId | None) -> list[list[PartyId]]:
    """Recipients of a round in which the collector sends to all others."""
    return [[other for other in range(parties) if other != party] if party == collector else [] for party in range(parties)]
