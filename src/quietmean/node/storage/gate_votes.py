"""What a party knows of the votes at the gate before the release, and what was decided there."""

from __future__ import annotations

from quietmean.core.party import PartyId
from quietmean.node.phase import Phase
from quietmean.node.storage.database import StoreDatabase


class GateVotes(StoreDatabase):
    """In a table of their own; the own vote, its history and the decision are facts."""

    def votes(self) -> dict[PartyId, tuple[bytes, bool]]:
        """(digest, passes) of all votes at the gate that are known here, the own one included."""
        return {
            row[0]: (bytes(row[1]), bool(row[2])) for row in self._rows("SELECT party, digest, passes FROM vote ORDER BY party")
        }

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
