"""A sealed study with a committee of four members and three contributors, as documents and keys in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from quietmean.node.net import Identity
from quietmean.planning import Plan
from quietmean.studies.agreement.contribution import with_own_program
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path

COLUMN = [{"name": "pay", "low": 0.0, "high": 1000.0}]


def soon(seconds: float = 3600.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@dataclass
class CommitteeStudy:
    """``fields``: of the study; ``committee``: of its committee. Everybody's files are in ``folder``, named after them."""

    folder: Path
    fields: dict[str, Any] = field(default_factory=dict)
    committee: dict[str, Any] = field(default_factory=dict)
    members: tuple[str, ...] = ("m1", "m2", "m3", "m4")
    contributors: tuple[str, ...] = ("c1", "c2", "c3")
    addresses: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        committee = {"members": len(self.members), "contribute_by": soon(), "grace": 0.0, **self.committee}
        general = {"name": "wages", "unit": "party", "epsilon": 8.0, "accept_wide": True, **self.fields}
        asked = {} if "ask" in general else {"column": COLUMN}
        study = StudyTerms.parse({**asked, "committee": committee, **general})
        self.identities = {name: Identity.generate() for name in (*self.members, *self.contributors)}
        convener = self.identities[self.members[0]]
        self.invitation = Invitation.make(study, convener)
        self.keys: dict[str, StudyKeys] = {}
        for name, identity in self.identities.items():
            identity.save(self.key(name))
            member = name in self.members
            address = self.addresses.get(name, f"{name}.example:7000" if member else "")
            path = keys_path(self.key(name), self.invitation.digest)
            self.keys[name] = StudyKeys.make(path, self.invitation, identity, name, address, member=member)
        sealed = Sealed.make(self.invitation, [keys.entry for keys in self.keys.values()], convener)
        self.sealed = with_own_program(sealed, sealed.choice().plan, convener)
        self.path = self.folder / "study.sealed"
        self.path.write_bytes(self.sealed.signed.to_file())

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    @property
    def plan(self) -> Plan:
        return self.sealed.choice().plan
