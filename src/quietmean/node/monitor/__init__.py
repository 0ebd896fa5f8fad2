"""What a running node looks like from outside: events, views and the status file."""

from quietmean.node.monitor.events import Report
from quietmean.node.monitor.status import now, process_identity, read_status, status_path, write_status
from quietmean.node.monitor.watch import NodeView, PeerView, Watch

__all__ = [
    "NodeView",
    "PeerView",
    "Report",
    "Watch",
    "now",
    "process_identity",
    "read_status",
    "status_path",
    "write_status",
]
