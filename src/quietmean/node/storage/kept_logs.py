"""What a party keeps of what was said beside values: logs of all, remarks of the protocol, and its site's audit log."""

from __future__ import annotations

import json
from collections.abc import Sequence

from quietmean.core.party import PartyId
from quietmean.node.storage.database import StoreDatabase


class KeptLogs(StoreDatabase):
    """In tables of their own, and facts."""

    def gossip(self) -> list[bytes]:
        """The gossiped logs that each party last sent with a message, encoded."""
        return [bytes(packed) for (packed,) in self._rows("SELECT known FROM hearsay ORDER BY party")]

    def keep_remarks(self, remarks: Sequence[str]) -> None:
        """The protocol's remarks on the mixing phase, which cannot be derived from its later state."""
        if tuple(remarks) != self.remarks():
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO fact VALUES ('remarks', ?)", (json.dumps(list(remarks)).encode(),))

    def remarks(self) -> tuple[str, ...]:
        return tuple(json.loads(self._fact("remarks") or b"[]"))

    def first_audit(self, audit: bytes) -> bytes:
        """How far the site's audit log had come when this was first asked for: whatever process sends it, it is the same."""
        kept = self._fact("audit")
        if kept is None:
            with self._transaction():
                self._set_fact("audit", audit)
        return audit if kept is None else kept

    def keep_gossip(self, sender: PartyId, gossip: bytes) -> None:
        """Keep gossiped logs that came without a message that counts."""
        with self._transaction():
            self._database.execute("INSERT OR REPLACE INTO hearsay VALUES (?, ?)", (sender, gossip))

    def save_log(self, party: PartyId, log: bytes, gossip: bytes) -> None:
        """A party's final log, and the gossiped logs that came with it; both encoded. Ignored once the result is stored."""
        if self._fact("result") is None:
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO told VALUES (?, ?, ?)", (party, log, gossip))

    def received_logs(self) -> dict[PartyId, tuple[bytes, bytes]]:
        rows = self._rows("SELECT party, log, known FROM told ORDER BY party")
        return {party: (bytes(log), bytes(gossip)) for party, log, gossip in rows}
