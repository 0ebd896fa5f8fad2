"""What a party shares with each other one besides X25519, as long as it takes part."""

from __future__ import annotations

from collections.abc import Mapping

from quietmean.core.party import PartyId
from quietmean.node.storage.database import StoreDatabase
from quietmean.randomness import Encapsulated


class PairSecrets(StoreDatabase):
    """In a table of their own, which is emptied with the result."""

    def encapsulated(self) -> dict[PartyId, Encapsulated]:
        """What this party encapsulated to others, or they to it, by their place in the roster."""
        rows = self._rows("SELECT party, secret, ciphertext FROM encapsulated ORDER BY party")
        return {party: Encapsulated(bytes(secret), bytes(ciphertext)) for party, secret, ciphertext in rows}

    def save_encapsulated(self, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        """Before any of it is sent, or before what came with it counts."""
        rows = [(party, pair.secret, pair.ciphertext) for party, pair in encapsulated.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO encapsulated VALUES (?, ?, ?)", rows)
