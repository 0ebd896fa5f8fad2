"""What a running node looks like from outside: events, views and the status file."""

from quietmean.node.monitor.events import (
    AgreementWaits,
    AlreadyOver,
    ClosingBegun,
    Done,
    Event,
    Failed,
    Late,
    Refusal,
    Report,
    RoundBegun,
    Waiting,
    event_fields,
    event_json,
)
from quietmean.node.monitor.status import now, process_identity, read_status, status_path, write_status
from quietmean.node.monitor.watch import NodeView, PeerView, Watch

__all__ = [
    "AgreementWaits",
    "AlreadyOver",
    "ClosingBegun",
    "Done",
    "Event",
    "Failed",
    "Late",
    "NodeView",
    "PeerView",
    "Refusal",
    "Report",
    "RoundBegun",
    "Waiting",
    "Watch",
    "event_fields",
    "event_json",
    "now",
    "process_identity",
    "read_status",
    "status_path",
    "write_status",
]
