"""The start of a study: who is in, and the public seed, in numbered attempts. Every study over any transport starts by it.

:mod:`.machine` and :mod:`.rules` are pure; :mod:`.gathering` has the clock, the store and the links.
"""

from quietmean.node.start.machine import Announcement, Attempt, Machine, Proposal, Rules, StartProgress, quorum_study
from quietmean.node.start.phase import StartPhase
from quietmean.node.start.started import Started, load_progress

__all__ = [
    "Announcement",
    "Attempt",
    "Machine",
    "Proposal",
    "Rules",
    "StartPhase",
    "StartProgress",
    "Started",
    "load_progress",
    "quorum_study",
]
