"""A folder as the wire: sealed and signed files in slots, for parties that no connection joins."""

from quietmean.node.folder.place import DiskPlace, FolderStorage, parse_folder
from quietmean.node.folder.post import FolderLink, FolderSettings, FolderTransport
from quietmean.node.folder.slot import Outbox, Parties, Slot, SlotKind, Timetable, open_file, seal_file

__all__ = [
    "DiskPlace",
    "FolderLink",
    "FolderSettings",
    "FolderStorage",
    "FolderTransport",
    "Outbox",
    "Parties",
    "Slot",
    "SlotKind",
    "Timetable",
    "open_file",
    "parse_folder",
    "seal_file",
]
