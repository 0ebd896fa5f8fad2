"""A sealed study with a committee as its protocol sees it: members with keys, and who may contribute how much."""

from __future__ import annotations

import base64

from quietmean.core.errors import InputError
from quietmean.node.committee import PublicKeys
from quietmean.planning.plan import Plan
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.voucher import vouching_of


def sharing_of(plan: Plan) -> CommitteeSharing:
    """What the plan of a study with a committee has. Raises :class:`InputError` for another one."""
    if not isinstance(plan.protocol, CommitteeSharing):
        raise InputError(f"the plan is of {plan.protocol.name}, and the study has a committee: plan the study")
    return plan.protocol


def session_of(sealed: Sealed, plan: Plan) -> CommitteeSession:
    """All that is public about the session of a sealed study, by the plan for all who may contribute."""
    sharing = sharing_of(plan)
    return CommitteeSession(
        bytes.fromhex(sealed.digest),
        sharing.parameters(plan.target.parties),
        tuple(entry.identity for entry in sealed.computing),
        tuple(base64.b64decode(entry.mailbox) for entry in sealed.computing),
        {entry.identity: sharing.largest_weight for entry in sealed.entries},
        PublicKeys(),
        plan.input_domain.statement if sharing.verified else None,
        vouching_of(sealed.invitation),
    )
