"""What one party of a study does: its files, what it agrees to and the yes, what it pays, its part in the execution."""

from quietmean.studies.party.approval import Answer, Questions, approve, require_digest, require_unattended
from quietmean.studies.party.contract import Asked, Contract, Signatory, relays_of
from quietmean.studies.party.ending import notes_of
from quietmean.studies.party.files import Files, Show, agreed_files, agreed_terms, file_name, own_keys, start_request
from quietmean.studies.party.owner_approval import OwnerApproval, require_approvals
from quietmean.studies.party.part import Finished, take_part
from quietmean.studies.party.payment import ChargedStudy, Payer, account_of, execution_id, payer_for, twins_text
from quietmean.studies.party.policy import Policy
from quietmean.studies.party.preparing import Person, Preparation, Prepared, auditor_for, brought, charge_of

__all__ = [
    "Answer",
    "Asked",
    "ChargedStudy",
    "Contract",
    "Files",
    "Finished",
    "OwnerApproval",
    "Payer",
    "Person",
    "Policy",
    "Preparation",
    "Prepared",
    "Questions",
    "Show",
    "Signatory",
    "account_of",
    "agreed_files",
    "agreed_terms",
    "approve",
    "auditor_for",
    "brought",
    "charge_of",
    "execution_id",
    "file_name",
    "notes_of",
    "own_keys",
    "payer_for",
    "relays_of",
    "require_approvals",
    "require_digest",
    "require_unattended",
    "start_request",
    "take_part",
    "twins_text",
]
