"""Sealed studies and sessions for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietmean.node import Identity
from quietmean.studies.agreement.any_study import any_of_tables, has_committee
from quietmean.studies.agreement.contribution import with_own_program
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path

AGES: dict[str, Any] = {"study": {"name": "ages", "colluding": 1}, "column": [{"name": "age", "low": 0, "high": 100}]}


@dataclass(frozen=True)
class Meeting:
    """An invitation, and who accepted it: the first one convened."""

    invitation: Invitation
    identities: dict[str, Identity]
    keys: dict[str, StudyKeys]

    def seal(self) -> Sealed:
        convener = next(iter(self.identities.values()))
        sealed = Sealed.make(self.invitation, [one.entry for one in self.keys.values()], convener)
        return with_own_program(sealed, sealed.choice().plan, convener) if has_committee(sealed.terms) else sealed


def meet(
    folder: Path,
    names: Sequence[str] = ("north", "south", "east"),
    tables: Mapping[str, Any] = AGES,
    known: dict[str, Identity] | None = None,
    addresses: dict[str, str] | None = None,
    members: Sequence[str] = (),
) -> Meeting:
    """All have accepted an invitation to what is in ``tables``; with the identities that are ``known``, at ``addresses``.

    ``members``: of a committee.
    """
    folder.mkdir(exist_ok=True)
    identities = {name: (known or {}).get(name) or Identity.generate() for name in names}
    invitation = Invitation.make(any_of_tables(tables, "the study"), next(iter(identities.values())))
    keys = {
        name: StudyKeys.make(
            keys_path(folder / f"{name}.key", invitation.digest),
            invitation,
            identity,
            name,
            (addresses or {}).get(name, f"192.0.2.{place}:7001"),
            member=name in members and "committee" in tables.get("study", {}),
        )
        for place, (name, identity) in enumerate(identities.items(), 1)
    }
    return Meeting(invitation, identities, keys)
