"""Who can be called at a relay, who calls whom, and which two are joined.

Connections, calls and pairs are in memory only, and are forgotten as soon as they end.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from quietmean.core.errors import PeerError
from quietmean.node.net import Group
from quietmean.node.relay.connection import Admission, Buckets, Counts, RelayConnection, RelayLimits, Stage
from quietmean.node.tunnel import CALL_SECONDS, SILENCE_SECONDS, TICKET_BYTES, Attending, Call, Joined, Proof, is_proved
from quietmean.randomness import fresh_bytes

# Size of the buffer that all connections are read through, in bytes.
_READ: Final = 64 * 1024
# A connection that is being closed is aborted if what is queued for it was not read within this time (s).
_CLOSING_SECONDS: Final = 15.0

Label: TypeAlias = tuple[bytes, bytes]


@dataclass(eq=False)
class _Waiting:
    """A call that the called party has not answered yet. ``until``: after this time the caller is turned away."""

    ticket: bytes
    caller: RelayConnection
    proof: Proof
    until: float


class RelayExchange:
    """The state of one relay.

    ``names``: hosts under which parties dial this relay; without any, the one that each asks for is believed.
    """

    def __init__(
        self,
        admission: Admission,
        limits: RelayLimits,
        names: Iterable[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self.limits = limits
        self.buffer = memoryview(bytearray(_READ))
        self.connections: set[RelayConnection] = set()
        self.counts = Counts()
        self._admission = admission
        self._names = frozenset(name.lower() for name in names)
        self._attending: dict[Label, RelayConnection] = {}
        self._waiting: dict[bytes, _Waiting] = {}
        self._calls_by: dict[bytes, int] = defaultdict(int)
        # Callers' ends of joined pairs, by caller, group and called party, oldest first.
        self._pairs: dict[tuple[bytes, bytes, bytes], deque[RelayConnection]] = {}
        self._joined = 0
        self._begun = Buckets(limits.burst, limits.rate)
        self._failing = Buckets(limits.failures, limits.failure_rate)

    def now(self) -> float:
        return self._now()

    def health(self) -> dict[str, Any]:
        """Numbers of connections, calls and pairs, now and since the start; nothing that names a party."""
        now = {"connections": len(self.connections), "attending": len(self._attending), "pairs": self._joined}
        return {"status": "ok", **now, "waiting": len(self._waiting), "since_start": asdict(self.counts)}

    # --- identities ----------------------------------------------------------------------------------------------------

    def proved(self, connection: RelayConnection, proof: Proof) -> None:
        """Do what a party asks for. Raises :class:`PeerError` if it is not who it says, or may not do that now."""
        self._require_identity(connection, proof)
        connection.proof = proof
        connection.settled.set()
        match proof.role:
            case "attend" | "visit":
                self._attend(connection, proof)
            case "call":
                self._call(connection, proof)
            case "answer":
                self._answer(connection, proof)

    def _require_identity(self, connection: RelayConnection, proof: Proof) -> None:
        # The signature last: verifying it costs far more than the other checks.
        if _host(proof.relay) not in (self._names or {_host(connection.host)}):
            raise PeerError("this relay has another name than the one it was called by. Tell its operator to set it by --name")
        if proof.role != "call" and proof.label != Group(proof.group).label(proof.key):
            raise PeerError("this name at the relay belongs to another key. Use the key that you joined the study with")
        if not self._admission.admits(proof.group, proof.key):
            raise PeerError("this relay does not serve your key in this study. Ask its operator to admit the sealed study")
        if not is_proved(proof, connection.nonce):
            raise PeerError("the relay could not verify the signature by your key. Use the key that you joined the study with")

    # --- being called --------------------------------------------------------------------------------------------------

    def _attend(self, connection: RelayConnection, proof: Proof) -> None:
        self._slow_down(proof.key)
        label = proof.group, proof.label
        before = self._attending.get(label)
        if before is not None and proof.role == "visit":
            raise PeerError("another process of this party is at the relay. Stop one of both")
        self._attending.pop(label, None)
        if before is not None:
            before.turn_away("another process of this party is at the relay now")
        if sum(group == proof.group for group, _ in self._attending) >= self.limits.parties_of_session:
            raise PeerError("this session has too many parties here. Use another relay")
        mine = [each for each in self._attending.values() if each.proof is not None and each.proof.key == proof.key]
        if len(mine) >= self.limits.sessions_of_identity:
            raise PeerError("this party is in too many sessions here at a time. End another one first")
        self._attending[label] = connection
        connection.stage = Stage.ATTENDING
        self.counts.attended += 1
        connection.say(Attending())
        for call in list(self._waiting.values()):
            if (call.proof.group, call.proof.label) == label:
                connection.say(Call(call.ticket, call.proof.key))

    def _slow_down(self, key: bytes) -> None:
        if not self._begun.take(key, self.now()):
            raise PeerError("too many connections came in a short time. Wait a minute, and try again")

    def _call(self, connection: RelayConnection, proof: Proof) -> None:
        self._slow_down(proof.key)
        if not self._failing.has((proof.key, proof.group, proof.label), self.now()):
            raise PeerError("the last calls of this party led to no handshake. Wait a minute, and try again")
        if len(self._waiting) >= self.limits.calls or self._calls_by[proof.key] >= self.limits.calls_of_identity:
            raise PeerError("too many calls wait here. Wait a minute, and try again")
        if self._joined >= self.limits.pairs:
            raise PeerError("it already connects as many pairs of parties as it may. Ask who runs it to raise --pairs")
        call = _Waiting(fresh_bytes(TICKET_BYTES), connection, proof, self.now() + CALL_SECONDS)
        self._waiting[call.ticket] = call
        self._calls_by[proof.key] += 1
        connection.stage = Stage.CALLING
        self.counts.called += 1
        called = self._attending.get((proof.group, proof.label))
        if called is not None:
            called.say(Call(call.ticket, proof.key))

    def _answer(self, connection: RelayConnection, proof: Proof) -> None:
        call = self._waiting.get(proof.ticket)
        if (
            call is None
            or call.caller.stage is not Stage.CALLING
            or (call.proof.group, call.proof.label) != (proof.group, proof.label)
        ):
            self._slow_down(proof.key)
            raise PeerError("nobody waits for this answer")
        self._forget(call)
        caller = call.caller
        key = call.proof.key, proof.group, proof.label
        pairs = self._pairs.setdefault(key, deque())
        pairs.append(caller)
        self._joined += 1
        self.counts.joined += 1
        # Before the two are joined, so that each reads this answer ahead of the other's first bytes.
        for each in (caller, connection):
            each.say(Joined())
        caller.join(connection, caller=True)
        connection.join(caller, caller=False)
        if len(pairs) > self.limits.pairs_of_two:
            # The oldest pair goes: the newest is that of the processes that run now.
            pairs[0].abort()

    def _forget(self, call: _Waiting) -> None:
        if self._waiting.pop(call.ticket, None) is not None:
            self._calls_by[call.proof.key] -= 1
            if not self._calls_by[call.proof.key]:
                del self._calls_by[call.proof.key]

    # --- the end -------------------------------------------------------------------------------------------------------

    def lost(self, connection: RelayConnection) -> None:
        """Forget a connection that has ended, and close the other end of its pair."""
        self.connections.discard(connection)
        partner, connection.partner = connection.partner, None
        proof = connection.proof
        if proof is not None and self._attending.get((proof.group, proof.label)) is connection:
            del self._attending[proof.group, proof.label]
        if partner is not None:
            if partner.partner is connection:
                self._parted(connection, partner)
                partner.partner = None
            partner.finish()
        elif proof is not None and proof.role == "call":
            for call in [call for call in self._waiting.values() if call.caller is connection]:
                self._forget(call)

    def _parted(self, one: RelayConnection, other: RelayConnection) -> None:
        caller = one if one.caller else other
        called = other if one.caller else one
        self._joined -= 1
        if caller.proof is None:
            return
        key = caller.proof.key, caller.proof.group, caller.proof.label
        pairs = self._pairs[key]
        pairs.remove(caller)
        if not pairs:
            del self._pairs[key]
        if min(caller.passed, called.passed) < self.limits.first_bytes:
            # Too few bytes for a handshake. Only calls of this caller to this party are slowed, those of other parties are not.
            self._failing.fine(key, self.now(), 1.0)

    def sweep(self) -> None:
        """End calls that wait too long and connections past their limits; to be called about once a second."""
        now = self.now()
        for call in [call for call in self._waiting.values() if now >= call.until]:
            self._forget(call)
            self.counts.absent += 1
            call.caller.turn_away("the called party is not there", absent=True)
        for each in list(self.connections):
            if each.closing is not None:
                if now - each.closing > _CLOSING_SECONDS:
                    each.abort()
            elif self._overdue(each, now):
                self.counts.cut += 1
                each.abort()
        for buckets in (self._begun, self._failing):
            buckets.forget_full(now)

    def _overdue(self, each: RelayConnection, now: float) -> bool:
        limits = self.limits
        if each.stage in (Stage.HEAD, Stage.PROVING):
            return now - each.begun > limits.unproven_seconds
        if each.stalled is not None and now - each.stalled > limits.stalled_seconds:
            return True
        if each.stage is Stage.JOINED and now - each.begun > limits.first_seconds and each.passed < limits.first_bytes:
            return True
        # While its partner's buffer is full nothing is read from a connection, so its silence says nothing.
        paused = each.partner is not None and each.partner.stalled is not None
        return not paused and now - each.heard > SILENCE_SECONDS

    def close(self) -> None:
        """Close all connections with code 1012, service restart: parties connect again later."""
        for each in list(self.connections):
            each.finish(1012)


def _host(name: str) -> str:
    """The host of HOST:PORT: a router in front of the relay may use another port."""
    host, colon, port = name.lower().rpartition(":")
    return (host if colon and port.isdigit() else name.lower()).removeprefix("[").removesuffix("]")
