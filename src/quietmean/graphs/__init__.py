"""Which party sends to which in each round: schedules, static topologies, churn, flows. All from public seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs.schedule import (
    NOBODY,
    SCHEDULES,
    Flow,
    Schedule,
    arrivals,
    complete_pairs,
    everybody,
    make_schedule,
    share_flow,
)
from quietmean.randomness import BitStream, Seed

NEVER = 0


@dataclass(frozen=True, eq=False)
class ExecutionTrace:
    """How a schedule was carried out: ``online`` of shape (T + 1, n) for rounds 0..T; ``lost`` of shape (T, n, k_max).

    A message arrives if sender and receiver are online in its round and it is not marked lost. Every sender learns which of its
    messages arrived (IncA, section 2.4), some of them later than in their round. ``settled``, shape (M, 4), lists those as
    (round, sender, receiver, later round): the sender first had to assume that the message was lost and kept its share, and
    removed it at the end of the later round. A later round of 0 means that it never learnt, so that the share counts twice.
    Every party is online in round 0: a participant that never started is not a party.

    To be used and to be seen are different things. ``seen``, of shape (T, n, k_max), marks messages that were handed to their
    receiver though it did not use them: refused, withdrawn by their sender, or handed to a party that was silent. They change
    nothing that is computed, but their receiver knows them.

    ``unheard``: parties that were online in the last round and whose releases are in no sum: what they held then is lost.

    Raises :class:`InputError` if a party is offline in round 0, or for a later round in which the sender is offline.
    """

    online: Mask
    lost: Mask | None = None
    settled: Ints = field(default_factory=lambda: np.empty((0, 4), dtype=np.int64))
    seen: Mask | None = None
    unheard: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for round_, sender, receiver, later in self.settled.tolist():
            if not (0 < round_ < len(self.online) and 0 <= min(sender, receiver) <= max(sender, receiver) < self.online.shape[1]):
                raise InputError(f"settled message [{round_}, {sender}, {receiver}] is not in the schedule: name one that is")
            if later != NEVER and not (round_ < later < len(self.online) and self.online[later, sender]):
                raise InputError(
                    f"message [{round_}, {sender}, {receiver}] cannot be settled in round {later}: name a later round in which "
                    "its sender is online"
                )
        if not self.online[0].all():
            absent = np.nonzero(~self.online[0])[0].tolist()
            raise InputError(f"parties {absent} are offline in round 0: who never started is not a party, leave them out")

    @classmethod
    def everyone(cls, rounds: int, parties: int) -> ExecutionTrace:
        """All parties online in all rounds, and no message lost."""
        return cls(np.ones((rounds + 1, parties), dtype=bool))

    @property
    def finished(self) -> Mask:
        """Who was online in the last round, and heard, shape (n,). The others have dropped out permanently."""
        last: Mask = self.online[-1]
        if self.unheard:
            last = last.copy()
            last[list(self.unheard)] = False
        return last

    def delivered(self, schedule: Schedule) -> Mask:
        """Did the message of this round, sender and neighbour slot arrive? Shape (T, n, k_max).

        Raises :class:`InputError` if the shapes do not fit the schedule.
        """
        self._check(schedule)
        arrived: Mask = np.not_equal(schedule.neighbours, NOBODY, order="C")
        if not self.online.all():
            _leave_out_absent(arrived.reshape(-1), schedule, self.online[1:].ravel())
        return arrived if self.lost is None else arrived & ~self.lost

    def arrivals(self, schedule: Schedule) -> Callable[[int, PartyId, PartyId], bool]:
        """Did the message of (round, sender, receiver) arrive?"""
        rounds, senders, slots = self.delivered(schedule).nonzero()
        receivers = schedule.neighbours[rounds, senders, slots]
        arrived = set(zip((rounds + 1).tolist(), senders.tolist(), receivers.tolist(), strict=True))
        return lambda round_, sender, receiver: (round_, sender, receiver) in arrived

    def deliveries(self, schedule: Schedule) -> tuple[Mask, Mask]:
        """:meth:`delivered`, and the messages whose arrival their sender knew of when the round ended; both read only."""
        delivered, slots = self.delivered(schedule), self.settled_slots(schedule)
        acknowledged = delivered.copy() if slots else delivered
        for round_, sender, slot, _ in slots:
            acknowledged[round_ - 1, sender, slot] = False
        return delivered, acknowledged

    def handed(self, schedule: Schedule) -> Mask:
        """The messages that their receiver knows, whether or not it used them, shape (T, n, k_max)."""
        delivered = self.delivered(schedule)
        if self.seen is None:
            return delivered
        sent: Mask = (schedule.neighbours != NOBODY) & self.online[1:, :, None]
        return delivered | (self.seen & sent)

    def unused(self, schedule: Schedule) -> list[tuple[int, int, int]]:
        """The messages that were seen and not used, as (round, sender, receiver)."""
        rounds, senders, slots = np.nonzero(self.handed(schedule) & ~self.delivered(schedule))
        receivers = schedule.neighbours[rounds, senders, slots]
        return list(zip((rounds + 1).tolist(), senders.tolist(), receivers.tolist(), strict=True))

    def settled_slots(self, schedule: Schedule) -> list[tuple[int, int, int, int]]:
        """The place of each message in ``settled``, as (round, sender, neighbour slot, later round).

        Raises :class:`InputError` if one of them did not arrive.
        """
        if not len(self.settled):
            return []
        delivered, settled = self.delivered(schedule), []
        for round_, sender, receiver, later in self.settled.tolist():
            slots = np.nonzero(delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver))[0]
            if slots.size == 0:
                raise InputError(f"settled message [{round_}, {sender}, {receiver}] did not arrive: list only those that did")
            settled.append((round_, sender, int(slots[0]), later))
        return settled

    def all_handed(self, schedule: Schedule) -> ExecutionTrace:
        """Return this trace with every sent message marked as seen: also lost ones reached their receivers."""
        return replace(self, seen=self.undelivered(schedule))

    def undelivered(self, schedule: Schedule) -> Mask:
        """The messages that did not arrive though their sender was online and may have sent them, shape (T, n, k_max)."""
        missing: Mask = (schedule.neighbours != NOBODY) & ~self.delivered(schedule) & self.online[1:, :, None]
        return missing

    def _check(self, schedule: Schedule) -> None:
        expected = (schedule.rounds + 1, schedule.parties)
        if self.online.shape != expected:
            raise InputError(
                f"online has {self.online.shape} rounds x parties, the schedule needs {expected}: one row per round 0..T"
            )
        for name, mask in (("lost", self.lost), ("seen", self.seen)):
            if mask is not None and mask.shape != schedule.neighbours.shape:
                raise InputError(f"{name} has shape {mask.shape}, the schedule {schedule.neighbours.shape}: they must agree")


def _leave_out_absent(arrived: Mask, schedule: Schedule, present: Mask) -> None:
    """Clear in ``arrived``, (T n k_max,), what is sent by or to a party that is not ``present``, (T n,).

    With flat indices numpy is several times faster than with one for each axis.
    """
    # Message by message: where one party sends to all, nearly all slots of the others are empty.
    message = arrived.nonzero()[0]
    sender = message // max(schedule.neighbours.shape[2], 1)
    receiver = sender - sender % schedule.parties + schedule.neighbours.ravel()[message]
    arrived[message] = present[sender] & present[receiver]


def churn(
    seed: Seed, rounds: int, parties: int, permanent: float = 0.0, temporary: float = 0.0, within: int | None = None
) -> ExecutionTrace:
    """A random trace of dropouts.

    ``permanent`` is the fraction of parties (rounded down) that drop out permanently, each at a uniformly random round 1..T
    (IncA, section 5.2), or 1..``within`` where a run usually takes no more. ``temporary`` is the probability that a party is
    offline in a round 1..T-1, independently for each.
    Raises :class:`InputError` for a number outside [0, 1).
    """
    for name, fraction in (("permanent", permanent), ("temporary", temporary)):
        if not 0 <= fraction < 1:
            raise InputError(f"{name} dropouts of {fraction:g} are not a fraction: choose 0 <= fraction < 1")
    stream = BitStream(seed.derive("churn", rounds, parties))
    online = np.ones((rounds + 1, parties), dtype=bool)
    if temporary and rounds > 1:
        online[1:-1] = stream.uniform((rounds - 1) * parties).reshape(rounds - 1, parties) >= temporary
    leaving = stream.permutation(parties)[: int(permanent * parties + 1e-9)]
    for party, last in zip(leaving, stream.integers(within or rounds, len(leaving)), strict=True):
        online[last + 1 :, party] = False
    return ExecutionTrace(online)


__all__ = [
    "SCHEDULES",
    "ExecutionTrace",
    "Flow",
    "Schedule",
    "arrivals",
    "churn",
    "complete_pairs",
    "everybody",
    "make_schedule",
    "share_flow",
]
