"""Monitoring of a running node from outside: events, views and the status file."""

from quietmean.node.monitor.events import (
    AgreementWaits,
    AlreadyOver,
    Done,
    Event,
    Failed,
    FinalizationBegun,
    Late,
    Refusal,
    Report,
    RoundBegun,
    Stalled,
    Waiting,
    event_fields,
    event_json,
)
from quietmean.node.monitor.monitor import Monitor, NodeView, PeerView
from quietmean.node.monitor.status import iso_time, now, process_identity, read_status, status_at, status_path, write_status
from quietmean.node.monitor.wording import headline, seconds_between, sentence, traffic_text, until

__all__ = [
    "AgreementWaits",
    "AlreadyOver",
    "Done",
    "Event",
    "Failed",
    "FinalizationBegun",
    "Late",
    "Monitor",
    "NodeView",
    "PeerView",
    "Refusal",
    "Report",
    "RoundBegun",
    "Stalled",
    "Waiting",
    "event_fields",
    "event_json",
    "headline",
    "iso_time",
    "now",
    "process_identity",
    "read_status",
    "seconds_between",
    "sentence",
    "status_at",
    "status_path",
    "traffic_text",
    "until",
    "write_status",
]
