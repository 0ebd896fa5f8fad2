"""Positions of the other parties, which of them are suspected to have failed, and how long to wait for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quietmean.core.party import PartyId
from quietmean.node.phase import Phase, Position

# Time between two heartbeats to a late party, as a part of the round's time-out.
HEARTBEAT_INTERVAL = 0.25
# Longest wait for a party that answers heartbeats, in time-outs; and how many times that in later phases, in which an honest
# party may still be waiting for another one in the phase before.
LONGEST_WAIT = 4.0
_LATER_PHASES = {Phase.GATE: 2, Phase.DISSEMINATION: 2, Phase.FINALIZATION: 3}
# Wait for a suspected party, as a part of the wait for others.
SUSPECT_WAIT = 0.2
# The wait for a silent party: this many times what rounds have taken (mean and four deviations, as in the retransmission timer of
# TCP, RFC 6298), at least the floor's part of the time-out, at most all of it.
TIMEOUT_FACTOR = 4.0
FLOOR = 0.5
_MEMORY = 0.125
# Additional part of the time-out for answers that are on their way.
GRACE = 0.1


def longest_wait(phase: int) -> float:
    """For a party that answers heartbeats, in time-outs of a round."""
    return LONGEST_WAIT * _LATER_PHASES.get(Phase(phase), 1)


class FailureDetector:
    """Positions (phase, round) as the parties reported them, and the suspected parties. All times are in seconds."""

    def __init__(self, round_timeout: float, clock: Callable[[], float], gone_timeout: float | None = None) -> None:
        self._timeout = round_timeout
        self.gone_timeout = round_timeout if gone_timeout is None else gone_timeout
        self._clock = clock
        self._mean: float | None = None
        self._deviation = 0.0
        self._positions: dict[PartyId, Position] = {}
        self._suspects: set[PartyId] = set()
        self._absent: set[PartyId] = set()
        self._expected: set[PartyId] = set()
        self._stalled: dict[PartyId, int] = {}
        self._faulty: set[PartyId] = set()
        self._last_activity: dict[PartyId, float] = {}

    def heard(self, party: PartyId, position: Position) -> None:
        """A message of a party, which ends a suspicion. Positions only grow: one is durable before its party reports it."""
        self._positions[party] = max(position, self._positions.get(party, position))
        self._suspects.discard(party)
        self._absent.discard(party)
        self._expected.discard(party)
        self._last_activity[party] = self._clock()

    def record_wait(self, seconds: float) -> None:
        """Note the duration of a wait in which nobody was missing at the end."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
        self._deviation += _MEMORY * (abs(seconds - self._mean) - self._deviation)
        self._mean += _MEMORY * (seconds - self._mean)

    @property
    def silence_timeout(self) -> float:
        """How long to wait for a silent party: by what rounds have taken, between the floor and the round's time-out."""
        if self._mean is None:
            return self._timeout
        return min(max(TIMEOUT_FACTOR * (self._mean + 4 * self._deviation), FLOOR * self._timeout), self._timeout)

    def missed(self, party: PartyId) -> None:
        """Suspect a party: a whole wait passed without any activity of it."""
        self._suspects.add(party)

    def gave_up(self, party: PartyId, phase: int, start: float) -> None:
        """A wait for a party that began at ``start``, in a phase, is over now without what was due.

        If it gave signs of life and nothing else in the longest wait, they prolong no wait of this phase again. Else anyone who
        sends nothing delays some honest parties in each round, so that others give those up.
        """
        if self._last_activity.get(party, start) <= start:
            self.missed(party)
        elif self._clock() >= start + longest_wait(phase) * self._timeout:
            self._stalled[party] = phase

    def delivered(self, party: PartyId) -> None:
        """A message of a party, as a correct one sends it, in time or late."""
        self._stalled.pop(party, None)

    def found_faulty(self, party: PartyId) -> None:
        """Nobody waits any more for a party that sent what no correct one does: it sends the same again."""
        self._faulty.add(party)

    def presume_absent(self, party: PartyId) -> None:
        """Nobody waits for a party that was not there just before, until it is heard."""
        self._suspects.add(party)
        self._absent.add(party)

    def expect(self, party: PartyId) -> None:
        """A party may take the whole time-out before it is heard first: what it has to do before does not go by the network."""
        self._expected.add(party)

    def suspected(self, party: PartyId) -> bool:
        return party in self._suspects

    def is_past(self, party: PartyId, position: Position) -> bool:
        reached = self._positions.get(party)
        return reached is not None and reached > position

    def may_have_begun(self, party: PartyId, position: Position) -> bool:
        """Whether a party was in this round already, as far as is known; who was never heard may have been anywhere."""
        return self._positions.get(party, position) >= position

    def all_past(self, parties: Iterable[PartyId], position: Position) -> bool:
        """Whether all of ``parties`` with a known position that are not suspected are past ``position``, and there is one."""
        positions = [self._positions[party] for party in parties if party in self._positions and party not in self._suspects]
        return bool(positions) and min(positions) > position

    def full_time(self, start: float, gone: bool) -> float:
        """The end of a wait that suspicion does not shorten."""
        return start + (min(self._timeout, self.gone_timeout) if gone else self._timeout)

    def longest(self, phase: int) -> float:
        """The longest that anybody is waited for in a phase, in seconds from the beginning of the wait."""
        return max(longest_wait(phase), 1.0 + GRACE) * self._timeout

    def deadline(self, party: PartyId, phase: int, start: float, answer_due: bool, gone: bool = False) -> float:
        """The end of the wait for a party that began at ``start``, in a phase; ``gone``: nobody listens at its address now."""
        if party in self._absent or party in self._faulty:
            return start
        silence, stalled = self._timeout if party in self._expected else self.silence_timeout, self._stalled.get(party) == phase
        window = silence * (SUSPECT_WAIT if party in self._suspects or stalled else 1.0)
        # Time for an answer that is on its way; after a sign of life two more heartbeats, repeatedly, up to the longest wait.
        grace, alive = GRACE * self._timeout, 2 * HEARTBEAT_INTERVAL * self._timeout
        if gone:
            window, grace, alive = (min(wait, self.gone_timeout) for wait in (window, grace, alive))
        end = start + window + (grace if answer_due else 0.0)
        sign = start if stalled else self._last_activity.get(party, start)
        return max(end, min(sign + alive, start + longest_wait(phase) * self._timeout)) if sign > start else end
