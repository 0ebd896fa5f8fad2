"""What a party keeps beside values: logs of all, the site's audit log, votes at the gate, and secrets of pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from quietmean.core.party import PartyId
from quietmean.node.phase import Phase
from quietmean.node.storage.database import StoreDatabase
from quietmean.randomness import Encapsulated


class KeptBesideValues(StoreDatabase):
    """In tables of their own, and facts. Secrets of pairs are deleted with the result."""

    # --- logs --------------------------------------------------------------------------------------------------------

    def gossip(self) -> list[bytes]:
        """The gossiped logs that each party last sent with a message, encoded."""
        with self._decoded():
            return [bytes(packed) for (packed,) in self._rows("SELECT known FROM reported ORDER BY party")]

    def keep_remarks(self, remarks: Sequence[str]) -> None:
        """The protocol's remarks on the mixing phase, which cannot be derived from its later state."""
        if tuple(remarks) != self.remarks():
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO fact VALUES ('remarks', ?)", (json.dumps(list(remarks)).encode(),))

    def remarks(self) -> tuple[str, ...]:
        with self._decoded():
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
            self._database.execute("INSERT OR REPLACE INTO reported VALUES (?, ?)", (sender, gossip))

    def save_log(self, party: PartyId, log: bytes, gossip: bytes) -> None:
        """A party's final log, and the gossiped logs that came with it; both encoded. Ignored once the result is stored."""
        if self._fact("result") is None:
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO final_log VALUES (?, ?, ?)", (party, log, gossip))

    def received_logs(self) -> dict[PartyId, tuple[bytes, bytes]]:
        rows = self._rows("SELECT party, log, known FROM final_log ORDER BY party")
        with self._decoded():
            return {party: (bytes(log), bytes(gossip)) for party, log, gossip in rows}

    # --- votes at the gate -------------------------------------------------------------------------------------------

    def votes(self) -> dict[PartyId, tuple[bytes, bool]]:
        """(digest, passes) of all votes at the gate that are known here, the own one included."""
        rows = self._rows("SELECT party, digest, passes FROM vote ORDER BY party")
        with self._decoded():
            return {party: (bytes(digest), bool(passes)) for party, digest, passes in rows}

    def save_vote(self, party: PartyId, digest: bytes, passes: bool) -> None:
        """A party's vote. There is only one of each party."""
        with self._transaction():
            self._database.execute("INSERT INTO vote VALUES (?, ?, ?)", (party, digest, passes))

    def cast_vote(self, party: PartyId, digest: bytes, passes: bool, history: bytes) -> None:
        """The own vote, with the ``history`` that it is about: it must be durable before anybody hears of it."""
        with self._transaction():
            self._set_fact("history", history)
            self._database.execute("INSERT INTO vote VALUES (?, ?, ?)", (party, digest, passes))

    def voted_history(self) -> bytes | None:
        """What :meth:`cast_vote` was given, if it was called."""
        return self._fact("history")

    def pass_gate(self, publish: bool) -> None:
        """Record the decision, durable before anything is published. If nothing is to be, the release is deleted for good."""
        with self._transaction():
            self._set_fact("publish", b"1" if publish else b"")
            if not publish:
                self._database.execute("DELETE FROM release WHERE phase = ?", (int(Phase.MIXING),))
        if not publish:
            self._forget_free_places(wipe=True)

    def passed_gate(self) -> bool | None:
        """What :meth:`pass_gate` was given, if it was called."""
        decided = self._fact("publish")
        return None if decided is None else bool(decided)

    # --- secrets of pairs --------------------------------------------------------------------------------------------

    def encapsulated(self) -> dict[PartyId, Encapsulated]:
        """What this party encapsulated to others, or they to it, by their place in the roster."""
        rows = self._rows("SELECT party, secret, ciphertext FROM encapsulated ORDER BY party")
        with self._decoded():
            return {party: Encapsulated(bytes(secret), bytes(ciphertext)) for party, secret, ciphertext in rows}

    def save_encapsulated(self, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        """Before any of it is sent, or before what came with it counts."""
        rows = [(party, pair.secret, pair.ciphertext) for party, pair in encapsulated.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO encapsulated VALUES (?, ?, ?)", rows)
