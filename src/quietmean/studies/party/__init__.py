"""What one party of a study does: its files, what it agrees to and the yes, what it pays, its part in the execution."""

from quietmean.node import Observers
from quietmean.studies.party.accounts import twins_text
from quietmean.studies.party.admission import (
    Grant,
    NodeAdmission,
    NodeGrant,
    PartyAdmission,
    Person,
    Preparation,
    auditor_for,
    require_number,
    require_places,
)
from quietmean.studies.party.agreement import ASSUMED, Agreement, Signatory, place_of, signatories
from quietmean.studies.party.approval import Consent, ConsentInAdvance, NobodyToAsk, OwnerApproval, require_digest
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.ending import ended, not_started, notes_of
from quietmean.studies.party.executions import execution_id
from quietmean.studies.party.files import (
    PartyContext,
    agreed_files,
    agreed_terms,
    file_name,
    is_session,
    own_keys,
    start_request,
)
from quietmean.studies.party.part import take_part
from quietmean.studies.party.payment import ChargedStudy, Payer, payer_for
from quietmean.studies.party.policy import Policy

__all__ = [
    "ASSUMED",
    "Agreement",
    "ChargedStudy",
    "Consent",
    "ConsentInAdvance",
    "Contract",
    "Grant",
    "NobodyToAsk",
    "NodeAdmission",
    "NodeGrant",
    "Observers",
    "OwnerApproval",
    "PartyAdmission",
    "PartyContext",
    "Payer",
    "Person",
    "Policy",
    "Preparation",
    "Signatory",
    "agreed_files",
    "agreed_terms",
    "auditor_for",
    "ended",
    "execution_id",
    "file_name",
    "is_session",
    "not_started",
    "notes_of",
    "own_keys",
    "payer_for",
    "place_of",
    "require_digest",
    "require_number",
    "require_places",
    "signatories",
    "start_request",
    "take_part",
    "twins_text",
]
