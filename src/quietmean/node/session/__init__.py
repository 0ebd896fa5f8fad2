"""The session of one party in one study, independent of the transport: agreement, mixing, dissemination, closing, result."""

from quietmean.node.session.context import Carrier, PeerLink
from quietmean.node.session.gate import position_of
from quietmean.node.session.inbox import read_vector
from quietmean.node.session.logs import decode_log
from quietmean.node.session.result import NodeResult, kept_result, note_refusal, refusal
from quietmean.node.session.retrying import RetryPolicy, retry
from quietmean.node.session.session import StudySession
from quietmean.node.session.settings import (
    Brought,
    LinkKeys,
    NodeSettings,
    Observers,
    Opening,
    PairKeys,
    PlannedMachine,
    PlannedValue,
    SiteHooks,
    StartAgreement,
    StartTerms,
    Waits,
    commitment_hash,
    public_seed,
    seed_check,
)

__all__ = [
    "Brought",
    "Carrier",
    "LinkKeys",
    "NodeResult",
    "NodeSettings",
    "Observers",
    "Opening",
    "PairKeys",
    "PeerLink",
    "PlannedMachine",
    "PlannedValue",
    "RetryPolicy",
    "SiteHooks",
    "StartAgreement",
    "StartTerms",
    "StudySession",
    "Waits",
    "commitment_hash",
    "decode_log",
    "kept_result",
    "note_refusal",
    "position_of",
    "public_seed",
    "read_vector",
    "refusal",
    "retry",
    "seed_check",
]
