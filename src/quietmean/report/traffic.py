"""Which messages were sent, and which of them a coalition holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.graphs.schedule import NOBODY
from quietmean.protocols.execution import Execution

MOST_PARTIES = 60


@dataclass(frozen=True, eq=False)
class MessageTraffic:
    """All scheduled messages of parties that were online to send them; rows of ``table`` are (round, sender, receiver).

    Where everybody may send to everybody, only those that arrived: most of the others had no reason to be sent.
    """

    table: Ints
    delivered: Mask
    received: Mask
    sent: Mask

    @classmethod
    def of(cls, execution: Execution, coalition: Collection[PartyId]) -> MessageTraffic:
        neighbours, online = execution.schedule.neighbours, execution.trace.online
        arrived = execution.trace.delivered(execution.schedule)
        listed = arrived if execution.protocol.traits.sends_to_all else (neighbours != NOBODY) & online[1:, :, None]
        rounds, senders, slots = np.nonzero(listed)
        receivers = neighbours[rounds, senders, slots].astype(np.int64)
        delivered = arrived[rounds, senders, slots]
        members = np.zeros(execution.parties, dtype=np.bool_)
        members[list(coalition)] = True
        table = np.stack([rounds + 1, senders, receivers], axis=1)
        received = delivered & members[receivers] & ~members[senders]
        return cls(table, delivered, received, delivered & members[senders])

    @property
    def seen(self) -> int:
        """Messages that the coalition received from others."""
        return int(self.received.sum())

    @property
    def arrived(self) -> int:
        return int(self.delivered.sum())

    @property
    def kept(self) -> int:
        """Messages that did not arrive: the sender kept its share."""
        return int((~self.delivered).sum())

    @cached_property
    def quiet(self) -> Mask:
        quiet: Mask = self.delivered & ~self.received & ~self.sent
        return quiet

    def between(self, shown: Sequence[PartyId]) -> MessageTraffic:
        """Only messages between the parties shown."""
        inside = np.isin(self.table[:, 1], shown) & np.isin(self.table[:, 2], shown)
        return MessageTraffic(self.table[inside], self.delivered[inside], self.received[inside], self.sent[inside])


def rounds_used(execution: Execution) -> int:
    """Rounds of the schedule, 0 where nobody sends; where all may send to all, up to the last with a message that arrived."""
    if not (execution.schedule.out_degree > 0).any():
        return 0
    if not execution.protocol.traits.sends_to_all:
        return execution.schedule.rounds
    used = execution.trace.delivered(execution.schedule).any(axis=(1, 2))
    return int(np.flatnonzero(used).max(initial=-1)) + 1


def statement(execution: Execution, coalition: Collection[PartyId]) -> str:
    """What the figure shows, in one sentence."""
    traffic = MessageTraffic.of(execution, coalition)
    messages = count_of(traffic.arrived, "message")
    if not coalition:
        return f"Anyone outside sees none of the {messages}, only what is made public at the end"
    colluders = "One colluder receives" if len(coalition) == 1 else f"{len(coalition)} colluders together receive"
    return f"{colluders} {traffic.seen:,} of the {messages}"


def shown_parties(execution: Execution, coalition: Collection[PartyId]) -> list[PartyId]:
    """At most 60: half of the places are for the coalition, the rest for the first others."""
    if execution.parties <= MOST_PARTIES:
        return list(range(execution.parties))
    members = sorted(coalition)[: MOST_PARTIES // 2]
    others = [party for party in range(execution.parties) if party not in coalition]
    return sorted([*members, *others[: MOST_PARTIES - len(members)]])


def message_table(
    execution: Execution, coalition: Collection[PartyId], names: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """The figure in numbers: of each party how many messages it sent and got, and how many of those the coalition holds."""
    traffic = MessageTraffic.of(execution, coalition)
    senders, receivers = traffic.table[:, 1], traffic.table[:, 2]

    def each(places: Ints, chosen: Mask) -> list[int]:
        return [int(count) for count in np.bincount(places[chosen], minlength=execution.parties)]

    held = traffic.received | traffic.sent
    columns = [each(senders, traffic.delivered), each(senders, ~traffic.delivered), each(receivers, traffic.delivered)]
    columns.append(each(senders, held))
    heads = ["party", "sent and arrived", "not delivered", "received", "of its messages, in the coalition's hands"]
    return heads, [[name, *(f"{column[party]:,}" for column in columns)] for party, name in enumerate(names)]
