"""Communication between machines: keys and roster, TLS, frames, connections, and the listening side."""

from quietmean.node.net.identity import Identity
from quietmean.node.net.listener import ONLY_CHECKS, Listener, open_socket
from quietmean.node.net.refusals import Refusals
from quietmean.node.net.roster import Address, Roster, RosterEntry, format_address
from quietmean.node.net.tls import Credentials
from quietmean.node.net.transport import Connection, Endpoint, Link, OnAnswer, Traffic, printable
from quietmean.node.net.vectors import VectorCodec, decode_vector, encode_vector
from quietmean.node.net.wire import (
    ACCEPTED,
    REFUSED,
    VERSION,
    Answer,
    AnyRequest,
    CancelTransfer,
    Check,
    Commit,
    ConfirmTransfer,
    Count,
    Heartbeat,
    Limits,
    Log,
    Payload,
    Readiness,
    Refused,
    ResendRequest,
    Reveal,
    Transfer,
    check_finite,
)

__all__ = [
    "ACCEPTED",
    "ONLY_CHECKS",
    "REFUSED",
    "VERSION",
    "Address",
    "Answer",
    "AnyRequest",
    "CancelTransfer",
    "Check",
    "Commit",
    "ConfirmTransfer",
    "Connection",
    "Count",
    "Credentials",
    "Endpoint",
    "Heartbeat",
    "Identity",
    "Limits",
    "Link",
    "Listener",
    "Log",
    "OnAnswer",
    "Payload",
    "Readiness",
    "Refusals",
    "Refused",
    "ResendRequest",
    "Reveal",
    "Roster",
    "RosterEntry",
    "Traffic",
    "Transfer",
    "VectorCodec",
    "check_finite",
    "decode_vector",
    "encode_vector",
    "format_address",
    "open_socket",
    "printable",
]
