"""The special party that a protocol needs."""

from __future__ import annotations

from enum import StrEnum


class Server(StrEnum):
    """The special party that a protocol needs, if any: what a user must accept, in rising order of trust.

    An aggregator ("collector" in files and commands) must stay, but need not be trusted with values. A curator sees them.
    """

    NONE = "none"
    AGGREGATOR = "collector"
    CURATOR = "curator"

    def allows(self, other: Server) -> bool:
        """Does a user who accepts this server also accept ``other``, which needs no more trust?"""
        order = list(Server)
        return order.index(other) <= order.index(self)
