"""What pages about plans stand on: a few figures that any change of the accounting changes, at the end of each page.

A test computes the quick one anew every time, ``make test-all`` the slow one too: a page of an earlier accounting is red.
"""

from __future__ import annotations

from quietmean.planning.scenarios import draw_execution
from quietmean.privacy.information import one_thread
from quietmean.protocols import Target, configure
from quietmean.randomness import Seed

# Parties and colluders of a history: bounded in less than a second, and in some seconds.
QUICK, SLOW = (16, 8), (24, 6)
BEGIN = "Made where one history's bound is: "
_STAR, _DELTA = 3.0, 8.0


def figure(parties: int, colluding: int, name: str) -> str:
    """mu at most, in one history of the protocol in which one party in ten leaves, whoever colludes."""
    target = Target(parties, 1.0, 1e-6, colluding=colluding, dropouts=0.1)
    protocol = configure(name).template(target).with_noise(_STAR, _DELTA)
    execution = draw_execution(target, protocol, Seed.public("stamp"), target.dropouts)
    with one_thread():
        bound = protocol.worst_coalition(execution.schedule, execution.trace, execution.sensitivity, colluding)
    mu = float("inf") if bound is None else float(bound.mu.max())
    return f"`{name}`, {parties} parties, {colluding} colluding: mu {mu:.4g}"


def quick() -> list[str]:
    return [figure(*QUICK, name) for name in ("inca", "gopa")]


def slow() -> list[str]:
    return [figure(*SLOW, "inca")]


def stamp() -> str:
    """One line."""
    return f"{BEGIN}{'; '.join([*quick(), *slow()])}.\n"
