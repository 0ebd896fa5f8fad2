"""Communication between machines: keys and roster, TLS, frames, connections, and the listening side."""

from quietmean.node.net.duplex import Handler, OnAnswer
from quietmean.node.net.identity import KEY_PREFIX, Identity, Purpose, is_signed, public_key_bytes
from quietmean.node.net.link import Link, WithheldError
from quietmean.node.net.listener import ONLY_CHECKS, Listener, open_socket
from quietmean.node.net.names import require_distinct, require_name, show_hidden
from quietmean.node.net.reach import Reach
from quietmean.node.net.refusals import Refusals
from quietmean.node.net.relay_route import RelayError
from quietmean.node.net.roster import (
    Address,
    RelayAddress,
    Roster,
    RosterEntry,
    Seal,
    format_address,
    number_of,
    parse_address,
    parse_place,
)
from quietmean.node.net.routes import Route
from quietmean.node.net.terms import difference, differing, listed, term_digests
from quietmean.node.net.tls import Credentials
from quietmean.node.net.transport import Connection, Endpoint, Traffic, printable
from quietmean.node.net.vectors import VectorCodec, decode_vector, encode_vector
from quietmean.node.net.web_proxy import is_loopback
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
    GateLog,
    Heartbeat,
    Limits,
    Log,
    Payload,
    Readiness,
    Refused,
    ResendRequest,
    Reveal,
    Transfer,
    Vote,
    check_finite,
)

__all__ = [
    "ACCEPTED",
    "KEY_PREFIX",
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
    "GateLog",
    "Handler",
    "Heartbeat",
    "Identity",
    "Limits",
    "Link",
    "Listener",
    "Log",
    "OnAnswer",
    "Payload",
    "Purpose",
    "Reach",
    "Readiness",
    "Refusals",
    "Refused",
    "RelayAddress",
    "RelayError",
    "ResendRequest",
    "Reveal",
    "Roster",
    "RosterEntry",
    "Route",
    "Seal",
    "Traffic",
    "Transfer",
    "VectorCodec",
    "Vote",
    "WithheldError",
    "check_finite",
    "decode_vector",
    "difference",
    "differing",
    "encode_vector",
    "format_address",
    "is_loopback",
    "is_signed",
    "listed",
    "number_of",
    "open_socket",
    "parse_address",
    "parse_place",
    "printable",
    "public_key_bytes",
    "require_distinct",
    "require_name",
    "show_hidden",
    "term_digests",
]
