"""Who may send to whom in which round, and the order of leaders, both from the public seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quietmean.core.party import PartyId
from quietmean.graphs import Schedule, everybody
from quietmean.protocols.packed_sharing.member import FIRST_PROPOSAL
from quietmean.randomness import BitStream, Seed


def draw_schedule(parties: int, rounds: int, seed: Seed) -> Schedule:
    """Everybody may send to all others in every round but the third, in which the first leader proposes.

    It lists the others in the order in which they lead.
    """
    return _led_by(BitStream(seed.derive("packed sharing leaders", parties)).permutation(parties).tolist(), rounds)


def _led_by(order: Sequence[PartyId], rounds: int) -> Schedule:
    parties = len(order)
    table = np.empty((rounds, parties, parties - 1), dtype=np.int32)
    table[:] = everybody(parties)
    table[FIRST_PROPOSAL - 1] = -1
    table[FIRST_PROPOSAL - 1, order[0]] = order[1:]
    return Schedule(table)


def is_drawn(schedule: Schedule) -> bool:
    """Whether :func:`draw_schedule` makes such a one."""
    led = np.count_nonzero(schedule.out_degree[FIRST_PROPOSAL - 1])
    return led == 1 and np.array_equal(_led_by(leaders_of(schedule), schedule.rounds).neighbours, schedule.neighbours)


def leaders_of(schedule: Schedule) -> tuple[PartyId, ...]:
    """All parties, in the order in which they lead a ballot."""
    first = int(np.nonzero(schedule.out_degree[FIRST_PROPOSAL - 1])[0][0])
    return (first, *schedule.recipients(FIRST_PROPOSAL, first))
