"""The start of a study: who is in, and the public seed, in numbered attempts. Every study over any transport starts by it.

:mod:`.machine` and :mod:`.rules` are pure; :mod:`.gathering` has the clock, the store and the links.
"""

from quietmean.node.start.machine import Announcement, Attempt, Machine, Proposal, Rules, StartProgress, quorum_study
from quietmean.node.start.phase import Beginning, OnStart, StartPhase, ignore_start
from quietmean.node.start.record import load_progress
from quietmean.node.start.started import Started

__all__ = [
    "Announcement",
    "Attempt",
    "Beginning",
    "Machine",
    "OnStart",
    "Proposal",
    "Rules",
    "StartPhase",
    "StartProgress",
    "Started",
    "ignore_start",
    "load_progress",
    "quorum_study",
]
