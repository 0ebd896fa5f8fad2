"""What the process of one party is told: the settings file of :mod:`quietmean.node.local.child`."""

from __future__ import annotations

import msgspec


class ChildSettings(msgspec.Struct, frozen=True):
    """The settings file. Paths are absolute. ``value``: a file of float64 numbers, little endian.

    ``freeze_round``: stop dead in this mixing round, to be killed there.
    """

    key: str
    roster: str
    plan: str
    value: str
    weight: float
    store: str
    result: str
    round_timeout: float
    start_timeout: float
    listen_fd: int
    gone_timeout: float | None = None
    freeze_round: int | None = None
