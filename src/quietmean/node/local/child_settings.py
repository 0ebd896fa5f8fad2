"""The settings file of a party's process (:mod:`quietmean.node.local.child`)."""

from __future__ import annotations

import msgspec


class ChildSettings(msgspec.Struct, frozen=True):
    """Paths are absolute. ``value``: a file of d float64 numbers, little endian. Time-outs are in seconds.

    ``freeze_round``: the process stops itself (SIGSTOP) at the beginning of this mixing round, so that it can be killed there.
    ``passing``: see :class:`~quietmean.node.session.settings.NodeSettings`.
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
    gone_timeout: float | None = None
    freeze_round: int | None = None
    links: str = "x25519"
    passing: bool = True
