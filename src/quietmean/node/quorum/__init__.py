"""Who is in: numbered attempts to start a study with those who are there. Pure: no sockets, files or clocks."""

from quietmean.node.quorum.machine import Attempt, Machine, Own, Standing, Telling
from quietmean.node.quorum.opening import Opening, commitment_hash
from quietmean.node.quorum.rules import ATTEMPTS, Proposal, Rules, Signatures, least_minimum, quorum_study

__all__ = [
    "ATTEMPTS",
    "Attempt",
    "Machine",
    "Opening",
    "Own",
    "Proposal",
    "Rules",
    "Signatures",
    "Standing",
    "Telling",
    "commitment_hash",
    "least_minimum",
    "quorum_study",
]
