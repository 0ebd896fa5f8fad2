"""What pages about plans stand on: figures that a change of the accounting of the slowest plans changes, at the end of each page.

A test computes the quick one anew every time, ``make test-all`` the slow one too: a page of an earlier accounting is red. Plans
of other protocols are made at once, and tests make them anew.
"""

from __future__ import annotations

from quietmean.core.workers import one_thread
from quietmean.planning.accuracy import draw_execution
from quietmean.protocols import Target, configure
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed

# Parties and colluders of a history: bounded in less than a second, and in some seconds.
QUICK, SLOW = (16, 8), (24, 6)
BEGIN = "Made where one history of `inca` is bounded by: "
_STAR, _DELTA = 3.0, 8.0


def figure(parties: int, colluding: int) -> str:
    """mu at most, in one history of ``inca`` in which one party in ten leaves, against any coalition."""
    target = Target(parties, 1.0, 1e-6, colluding=colluding, dropouts=0.1)
    protocol = template_of(configure("inca"), target).with_noise(_STAR, _DELTA)
    execution = draw_execution(target, protocol, Seed.public("stamp"), target.dropouts)
    with one_thread():
        bound = protocol.worst_coalition(execution.schedule, execution.trace, execution.sensitivity, colluding)
    mu = float("inf") if bound is None else float(bound.mu.max())
    return f"{parties} parties, {colluding} colluding: mu {mu:.4g}"


def quick() -> str:
    return figure(*QUICK)


def stamp() -> str:
    """One line."""
    return f"{BEGIN}{quick()}; {figure(*SLOW)}.\n"
