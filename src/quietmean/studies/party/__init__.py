"""What one party of a study does: its files, what it agrees to and the yes, what it pays, its part in the execution."""

from quietmean.studies.party.approval import Answer, Questions, approve, require_digest
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.ending import notes_of
from quietmean.studies.party.files import Files, Show, agreed_files, agreed_terms, file_name, own_keys
from quietmean.studies.party.owner_approval import OwnerApproval
from quietmean.studies.party.part import Finished, take_part
from quietmean.studies.party.payment import ChargedStudy, Payer, payer_for, twins_text
from quietmean.studies.party.policy import Policy
from quietmean.studies.party.preparing import Prepared, agree, auditor_for, brought, charge_of, prepare

__all__ = [
    "Answer",
    "ChargedStudy",
    "Contract",
    "Files",
    "Finished",
    "OwnerApproval",
    "Payer",
    "Policy",
    "Prepared",
    "Questions",
    "Show",
    "agree",
    "agreed_files",
    "agreed_terms",
    "approve",
    "auditor_for",
    "brought",
    "charge_of",
    "file_name",
    "notes_of",
    "own_keys",
    "payer_for",
    "prepare",
    "require_digest",
    "take_part",
    "twins_text",
]
