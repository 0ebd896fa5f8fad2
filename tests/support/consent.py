"""The yes of a test's party, as ``quietmean site contract`` prints it."""

from __future__ import annotations

from pathlib import Path

from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import agreed_terms
from quietmean.studies.party.session_contract import contract_for


def accept(name: str, study: Path | str | Sealed, roster: Path | None = None) -> str:
    """The digest with which the party of this name says yes."""
    agreed = study if isinstance(study, Sealed) else agreed_terms(Path(study), roster)
    return contract_for(name, agreed).accept_digest
