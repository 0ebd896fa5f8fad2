"""The start of a study: who is in, and the public seed, in numbered attempts. Every study over any transport starts by it.

:mod:`.machine` and :mod:`.rules` are pure; :mod:`.gathering` has the clock, the store and the links.
"""

from quietmean.node.start.beginning import Beginning, OnStart, ignore_start
from quietmean.node.start.gathering import Gathering
from quietmean.node.start.machine import Announcement, Attempt, Machine, Standing
from quietmean.node.start.occasion import Came, Closed
from quietmean.node.start.record import load_standing
from quietmean.node.start.rules import Proposal, Rules, quorum_study
from quietmean.node.start.started import Started

__all__ = [
    "Announcement",
    "Attempt",
    "Beginning",
    "Came",
    "Closed",
    "Gathering",
    "Machine",
    "OnStart",
    "Proposal",
    "Rules",
    "Standing",
    "Started",
    "ignore_start",
    "load_standing",
    "quorum_study",
]
