"""How a party hands in its one file: to anyone who adds files up, or to the members of a committee."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeAlias

from quietmean.core.errors import InputError
from quietmean.node.net import Identity, Purpose
from quietmean.planning import Plan
from quietmean.protocols.committee.contribution import header_digest
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, signed_in
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.outcome.feasible import require_by_file
from quietmean.studies.party.by_file import CommitteeContributor, SharingContributor, Submission

# What was handed in, and a party that hands it in.
Contributed: TypeAlias = Signed | Submission
Contributor: TypeAlias = SharingContributor | CommitteeContributor


def contributor_of(sealed: Sealed, plan: Plan, identity: Identity, keys: StudyKeys) -> Contributor:
    """Raises :class:`InputError` for a study to which nobody hands in a file, and for one that takes none any more."""
    terms = sealed.study.committee
    if terms is None:
        require_by_file(plan)
        return SharingContributor(sealed, plan, identity, keys)
    contributor = CommitteeContributor(sealed, plan, identity, keys)
    if not contributor.has_contributed:
        terms.require_open(datetime.now(UTC))
    return contributor


def contribution_digest(content: bytes) -> str | None:
    """The digest of a contribution, of either kind; None of another file."""
    if (digest := header_digest(content)) is not None:
        return digest.hex()
    with suppress(InputError):
        return signed_in(Purpose.CONTRIBUTION, content).digest
    return None


def is_contribution(digest: str | None, content: bytes) -> bool:
    """Whether a file holds a contribution, or the one with this digest."""
    there = contribution_digest(content)
    return there is not None and digest in (None, there)
