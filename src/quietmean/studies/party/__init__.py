"""What one party of a study does: its files, what it agrees to and the yes, what it pays, its part in the execution."""

from quietmean.node import Observers
from quietmean.studies.party.accounts import twins_text
from quietmean.studies.party.agreement import ASSUMED, Agreement, Signatory, place_of, signatories
from quietmean.studies.party.approval import Consent, ConsentInAdvance, NobodyToAsk, require_digest
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.ending import ended, not_started, notes_of
from quietmean.studies.party.executions import execution_id
from quietmean.studies.party.files import (
    Files,
    PartyFiles,
    agreed_files,
    agreed_terms,
    file_name,
    own_keys,
    start_request,
)
from quietmean.studies.party.owner_approval import OwnerApproval
from quietmean.studies.party.part import Finished, take_part
from quietmean.studies.party.payment import ChargedStudy, Payer, payer_for
from quietmean.studies.party.policy import Policy
from quietmean.studies.party.preparing import (
    PartyPreparation,
    Person,
    Preparation,
    PreparedStudy,
    auditor_for,
    planned_values,
    require_number,
    require_places,
)

__all__ = [
    "ASSUMED",
    "Agreement",
    "ChargedStudy",
    "Consent",
    "ConsentInAdvance",
    "Contract",
    "Files",
    "Finished",
    "NobodyToAsk",
    "Observers",
    "OwnerApproval",
    "PartyFiles",
    "PartyPreparation",
    "Payer",
    "Person",
    "Policy",
    "Preparation",
    "PreparedStudy",
    "Signatory",
    "agreed_files",
    "agreed_terms",
    "auditor_for",
    "ended",
    "execution_id",
    "file_name",
    "not_started",
    "notes_of",
    "own_keys",
    "payer_for",
    "place_of",
    "planned_values",
    "require_digest",
    "require_number",
    "require_places",
    "signatories",
    "start_request",
    "take_part",
    "twins_text",
]
