"""What one party of a study does: its files, the yes, what it pays, its part in the execution."""

from quietmean.studies.party.approval import Questions, approve
from quietmean.studies.party.ending import notes_of
from quietmean.studies.party.files import Files, Show, agreed_files, file_name, own_keys
from quietmean.studies.party.part import Finished, take_part
from quietmean.studies.party.payment import ChargedStudy, Payer, twins_text

__all__ = [
    "ChargedStudy",
    "Files",
    "Finished",
    "Payer",
    "Questions",
    "Show",
    "agreed_files",
    "approve",
    "file_name",
    "notes_of",
    "own_keys",
    "take_part",
    "twins_text",
]
