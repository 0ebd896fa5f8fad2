"""Which parties have a role of their own."""

from __future__ import annotations

from typing import ClassVar

from quietmean.core.party import PartyId


class GivesRoles:
    """By default all parties are alike.

    ``tolerates_dropouts``: parties may drop out permanently without being exposed. If false, it is planned only if it is named.
    ``batchable``: independent executions may be run as one large one. False where party numbers carry roles.
    """

    tolerates_dropouts: ClassVar[bool] = True
    batchable: ClassVar[bool] = True

    def releasers(self, parties: int) -> frozenset[PartyId]:
        """The parties that release something at the end if they stay online."""
        return frozenset(range(parties))

    @property
    def trusted(self) -> frozenset[PartyId]:
        """Parties that the protocol's claim needs honest: a coalition with one of them learns everything."""
        return frozenset()

    @property
    def indispensable(self) -> frozenset[PartyId]:
        """Parties without which there is no result: plans and simulations assume that they stay. By default, those trusted."""
        return self.trusted
