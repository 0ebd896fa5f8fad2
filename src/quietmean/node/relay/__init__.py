"""The blind relay: joins two parties that both dial out, and passes on the bytes of their own TLS, which it cannot read."""

from quietmean.node.relay.connection import Admission, RelayLimits
from quietmean.node.relay.server import RelayServer, connections_possible, open_entrance, outer_tls, parse_entrance

__all__ = [
    "Admission",
    "RelayLimits",
    "RelayServer",
    "connections_possible",
    "open_entrance",
    "outer_tls",
    "parse_entrance",
]
