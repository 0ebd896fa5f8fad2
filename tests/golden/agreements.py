"""What parties have signed or said yes to: documents of before keep their bytes and their digests."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path
from typing import Any

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.sessions.agreed import SessionContract
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.party import Contract, OwnerApproval, Policy

NAMES = ("north", "south", "east")
AGE = {"name": "age", "low": 0, "high": 110}
STUDIES: dict[str, dict[str, Any]] = {
    "a mean": {"study": {"name": "ages", "delta": 1e-6}, "column": [AGE]},
    "of parties": {"study": {"unit": "party", "delta": 1e-6, "protocol": "cordp-dme"}, "column": [AGE]},
    "with a quorum": {
        "study": {"delta": 1e-6, "protocol": "packed-sharing", "minimum": 3, "start_by": "2030-01-01T12:00:00Z"},
        "column": [AGE],
    },
    "through a folder": {
        "study": {
            "delta": 1e-6,
            "transport": "folder",
            "deadlines": {"first": "2030-01-01T12:00:00Z", "interval": 7200.0, "poll": 60.0},
        },
        "column": [{"name": "sick", "boolean": True}],
    },
}
SESSIONS: dict[str, dict[str, Any]] = {
    "of parties": {"name": "averaging", "dimension": 20, "rounds": 4, "epsilon": 8.0, "delta": 1e-5},
    "of records": {"dimension": 3, "rounds": 9, "unit": "record", "clip": 2.0, "protocol": "cordp-dme", "round_timeout": 3.0},
}


def made(folder: Path) -> dict[str, Any]:
    """Fresh documents: keys, an approval, and of each study a seal."""
    identities = [Identity.generate() for _ in NAMES]
    entries = [RosterEntry(name, (name, 7000), identity.public_key) for name, identity in zip(NAMES, identities, strict=True)]
    roster = Roster(tuple(entries))
    seals = {}
    for place, (kind, tables) in enumerate(STUDIES.items()):
        invitation = Invitation.make(StudyTerms.from_tables(tables, "the study"), identities[0])
        keys = [
            StudyKeys.make(folder / f"{place}-{name}", invitation, identity, name, f"{name}:7000")
            for name, identity in zip(NAMES, identities, strict=True)
        ]
        seals[kind] = Sealed.make(invitation, [one.entry for one in keys], identities[0]).signed.to_file().decode()
    contract = SessionContract.for_party("north", (SessionStudy.parse(SESSIONS["of parties"]), roster))
    approval = OwnerApproval.sign(contract, Policy(), "wards", date(2999, 1, 1), identities[1])
    return {"roster": roster.to_toml(), "seals": seals, "approval": approval.signed.to_file().decode()}


def stated(documents: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Digests and bytes of what the ``documents`` say."""
    path = folder / "roster.toml"
    path.write_text(documents["roster"])
    roster = Roster.load(path)
    found: dict[str, Any] = {"studies": {}, "seals": {}, "sessions": {}}
    for kind, tables in STUDIES.items():
        study = StudyTerms.from_tables(tables, "the study")
        contract = Contract.for_party("south", (study, roster), study.choice(len(NAMES)))
        found["studies"][kind] = {"contract": contract.digest, "plan": contract.plan.digest}
    for kind, text in documents["seals"].items():
        path = folder / "study.sealed"
        path.write_text(text)
        sealed = Sealed.load(path)
        found["seals"][kind] = {
            "file": _again(sealed.signed),
            "entries": [_again(entry.signed) for entry in sealed.entries],
            "invitation": sealed.invitation.digest,
            "contract": Contract.for_party("south", sealed, sealed.study.choice(len(NAMES))).digest,
            "conveners": list(sealed.roster.conveners),
        }
    for kind, fields in SESSIONS.items():
        agreed = SessionContract.for_party("south", (SessionStudy.parse(fields), roster))
        found["sessions"][kind] = {"contract": agreed.digest, "plan": agreed.plan.digest, "terms": agreed.terms.digest}
    path = folder / "wards.approval"
    path.write_text(documents["approval"])
    approval = OwnerApproval.load(path)
    found["approval"] = {"file": _again(approval.signed), "contract": approval.terms.contract}
    return found


def _again(signed: Signed) -> str:
    """Of the file that would be written anew, SHA-256."""
    return hashlib.sha256(signed.to_file()).hexdigest()
