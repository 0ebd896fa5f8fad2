"""Messages in execution files, for protocols in which nearly all rounds are of all parties to all others.

There n (n - 1) messages a round would be listed: in the schedule, and again where nothing is sent any more. Files name what
they have in common instead. A round of the schedule is "all" where everybody may send to everybody. A list of messages has
entries [round, sender, receiver] in which null means each: [7, null, null] for all messages of round 7, [7, null, 3] for
those to party 3. Lists without such entries are read the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Mask
from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.graphs import ExecutionTrace, Schedule, everybody

# (round, sender, receiver); None means all senders or all receivers.
Entry = tuple[int, int | None, int | None]

EVERYBODY = "all"


def schedule_lists(schedule: Schedule) -> list[Any]:
    """Write the schedule: for each round "all", or one list of out-neighbours for each party."""
    full, lists = everybody(schedule.parties), []
    for round_ in range(1, schedule.rounds + 1):
        is_full = np.array_equal(schedule.neighbours[round_ - 1], full)
        rows = (list(schedule.recipients(round_, party)) for party in range(schedule.parties))
        lists.append(EVERYBODY if is_full else list(rows))
    return lists


def full_rounds(rounds: Sequence[Any], parties: int) -> list[Any]:
    """The inverse of :func:`schedule_lists`, up to lists: of all others, where a round is "all"."""
    if EVERYBODY not in rounds:
        return list(rounds)
    full = everybody(parties).tolist()
    return [full if round_ == EVERYBODY else round_ for round_ in rounds]


def lost_entries(schedule: Schedule, trace: ExecutionTrace) -> list[Entry]:
    """The lost messages of a trace, but for those that would not have arrived anyway."""
    possible = _may_be_lost(schedule, trace)
    return [] if trace.lost is None else _entries(trace.lost & possible, possible, schedule)


def seen_entries(schedule: Schedule, trace: ExecutionTrace) -> list[Entry]:
    """The messages of a trace that were seen and not used."""
    possible = trace.undelivered(schedule)
    return [] if trace.seen is None else _entries(trace.seen & possible, possible, schedule)


def with_lost(schedule: Schedule, trace: ExecutionTrace, raw: Any) -> ExecutionTrace:
    """The trace with lost messages from JSON data. Raises :class:`InputError` for what is not in the schedule."""
    listed = _read(raw, "lost")
    return replace(trace, lost=_messages(listed, "lost", _may_be_lost(schedule, trace), schedule)) if listed else trace


def with_seen(schedule: Schedule, trace: ExecutionTrace, raw: Any) -> ExecutionTrace:
    """The trace with messages that were seen and not used, from JSON data. Raises :class:`InputError` as :func:`with_lost`."""
    listed = _read(raw, "seen")
    return replace(trace, seen=_messages(listed, "seen", trace.undelivered(schedule), schedule)) if listed else trace


def _may_be_lost(schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The messages that arrive unless they are lost, shape (T, n, k_max)."""
    return replace(trace, lost=None).delivered(schedule)


def _entries(chosen: Mask, possible: Mask, schedule: Schedule) -> list[Entry]:
    """Few entries for the messages ``chosen`` of those that are ``possible``, both (T, n, k_max)."""
    entries: list[Entry] = []
    for round_index in np.nonzero(chosen.any(axis=(1, 2)))[0].tolist():
        left, others, receivers = (
            chosen[round_index].copy(),
            possible[round_index] & ~chosen[round_index],
            schedule.neighbours[round_index],
        )
        if not others.any():
            entries.append((round_index + 1, None, None))
            continue
        senders = np.broadcast_to(np.arange(schedule.parties)[:, None], receivers.shape)
        for to_receiver, ends in ((True, receivers), (False, senders)):
            for party in _wholly(left, others, ends, schedule.parties):
                entries.append((round_index + 1, None, party) if to_receiver else (round_index + 1, party, None))
                left &= ends != party
        entries += [(round_index + 1, sender, int(receivers[sender, slot])) for sender, slot in np.argwhere(left).tolist()]
    return entries


def _wholly(chosen: Mask, others: Mask, ends: NDArray[Any], parties: int) -> list[int]:
    """The parties at that end of two or more messages ``chosen`` and of no other."""
    counts = [np.bincount(ends[mask], minlength=parties) for mask in (chosen, others)]
    covered: list[int] = np.nonzero((counts[0] > 1) & (counts[1] == 0))[0].tolist()
    return covered


def _read(raw: Any, name: str) -> list[Entry]:
    """Entries from JSON data. Raises :class:`InputError` for anything else."""
    return convert(raw, list[Entry], partial(unfit_field, name))


def _messages(listed: Iterable[Entry], name: str, possible: Mask, schedule: Schedule) -> Mask:
    """The messages that are listed by ``name``, shape (T, n, k_max). With null, only those that are ``possible``.

    Raises :class:`InputError` for a message that is not in the schedule.
    """
    mask = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    for round_, sender, receiver in listed:
        exists = 1 <= round_ <= schedule.rounds and all(end is None or 0 <= end < schedule.parties for end in (sender, receiver))
        rows = slice(sender, None if sender is None else sender + 1)
        slots = schedule.neighbours[round_ - 1, rows] if exists else np.empty((0, 0))
        chosen = slots >= 0 if receiver is None else slots == receiver
        if not chosen.any():
            shown = ", ".join("null" if end is None else str(end) for end in (round_, sender, receiver))
            raise InputError(f"{name} message [{shown}] is not in the schedule: name [round, sender, receiver]")
        is_open = sender is None or receiver is None
        mask[round_ - 1, rows] |= chosen & possible[round_ - 1, rows] if is_open else chosen
    return mask
