"""Monitoring of a running node from outside: events, views and the status file."""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.node.monitor.events import AgreementWaits as AgreementWaits
    from quietmean.node.monitor.events import AlreadyOver as AlreadyOver
    from quietmean.node.monitor.events import Done as Done
    from quietmean.node.monitor.events import Event as Event
    from quietmean.node.monitor.events import Failed as Failed
    from quietmean.node.monitor.events import FinalizationBegun as FinalizationBegun
    from quietmean.node.monitor.events import Late as Late
    from quietmean.node.monitor.events import PeerEnded as PeerEnded
    from quietmean.node.monitor.events import Refusal as Refusal
    from quietmean.node.monitor.events import Report as Report
    from quietmean.node.monitor.events import RoundBegun as RoundBegun
    from quietmean.node.monitor.events import Stalled as Stalled
    from quietmean.node.monitor.events import Waiting as Waiting
    from quietmean.node.monitor.events import event_fields as event_fields
    from quietmean.node.monitor.events import event_json as event_json
    from quietmean.node.monitor.events import iso_time as iso_time
    from quietmean.node.monitor.events import now as now
    from quietmean.node.monitor.events import place_of as place_of
    from quietmean.node.monitor.events import sentence as sentence
    from quietmean.node.monitor.events import wait_of as wait_of
    from quietmean.node.monitor.monitor import Monitor as Monitor
    from quietmean.node.monitor.monitor import NodeView as NodeView
    from quietmean.node.monitor.monitor import PeerView as PeerView
    from quietmean.node.monitor.monitor import headline as headline
    from quietmean.node.monitor.monitor import process_identity as process_identity
    from quietmean.node.monitor.monitor import read_status as read_status
    from quietmean.node.monitor.monitor import seconds_between as seconds_between
    from quietmean.node.monitor.monitor import status_at as status_at
    from quietmean.node.monitor.monitor import status_path as status_path
    from quietmean.node.monitor.monitor import traffic_text as traffic_text
    from quietmean.node.monitor.monitor import write_status as write_status
else:
    _NAMES = {
        "events": (
            "AgreementWaits AlreadyOver Done Event Failed FinalizationBegun Late PeerEnded Refusal Report RoundBegun "
            "Stalled Waiting event_fields event_json iso_time now place_of sentence wait_of"
        ),
        "monitor": (
            "Monitor NodeView PeerView headline process_identity read_status seconds_between status_at status_path "
            "traffic_text write_status"
        ),
    }
    _PLACES = {name: f"node.monitor.{module}" for module, names in _NAMES.items() for name in names.split()}
    __getattr__, __all__ = importer(__name__, _PLACES), list(_PLACES)
