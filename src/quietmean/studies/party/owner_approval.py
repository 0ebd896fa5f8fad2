"""A yes that somebody signs with a key of their own: a data owner need not have the node's, nor its machine.

It names all that it is about, so that it is good for nothing else: the contract, the plan, the data set and its columns, the
site's policy, the version of the software, the party, and a day after which it is void.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Self

import msgspec

from quietmean.core.errors import InputError, named
from quietmean.core.origin import package_version
from quietmean.core.readable_days import by_this_clock
from quietmean.node import Identity
from quietmean.node.net import Purpose
from quietmean.studies.agreement.signed import Signed, read_signed, signed_in
from quietmean.studies.party.agreement import Agreement
from quietmean.studies.party.policy import Policy


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is signed. ``account``: what the ledger calls the data; ``until``: the last day, ISO 8601, in UTC."""

    contract: str
    plan: str
    account: str
    columns: tuple[str, ...]
    policy: str
    version: str
    party: str
    until: str
    approver: str


_NAMES = {
    "contract": "another contract",
    "plan": "another plan",
    "account": "another data set",
    "columns": "other columns",
    "policy": "another policy of this site",
    "version": "another version of quietmean",
    "party": "another party",
}


@dataclass(frozen=True)
class OwnerApproval:
    """``place``: the file that it is from, for a sentence."""

    signed: Signed
    terms: Terms
    place: str

    @classmethod
    def sign(cls, contract: Agreement, policy: Policy, account: str, until: date, owner: Identity) -> Self:
        """Raises :class:`InputError` for a study that the policy refuses, and for a day that is over."""
        policy.refuse(contract)
        if until < _today():
            raise InputError(f"the approval would be void since {until}: choose a day that is not over")
        terms = terms_of(contract, policy, account, until.isoformat(), owner.public_key)
        return cls(Signed.sign(Purpose.APPROVAL, msgspec.to_builtins(terms), owner), terms, "the approval")

    @classmethod
    def load(cls, path: Path) -> Self:
        """From a file. Raises :class:`InputError` unless it is as its approver signed it."""
        signed = read_signed(Purpose.APPROVAL, path)
        terms = signed.decode(Terms)
        if not signed.is_by(terms.approver):
            raise InputError(f"approval {path} is not as {terms.approver} signed it: it was changed, ask for it again")
        return cls(signed, terms, f"approval {path}")

    def takes_the_place_of(self, content: bytes) -> bool:
        """Whether a file is an earlier approval by the same approver, of the same contract for the same data set."""
        try:
            replaced = signed_in(Purpose.APPROVAL, content).decode(Terms)
        except InputError:
            return False
        return all(getattr(replaced, name) == getattr(self.terms, name) for name in ("contract", "account", "approver"))

    def require(self, terms: Terms, *, begun: bool = False) -> None:
        """Raises :class:`InputError` that names what it is about instead, or that it is void, unless the study has ``begun``."""
        for name, other in _NAMES.items():
            if getattr(self.terms, name) != getattr(terms, name):
                raise InputError(f"{self.place} is for {other} than this study's: its approver has to sign anew")
        try:
            void = date.fromisoformat(self.terms.until) < _today()
        except ValueError:
            void = True
        if void and not begun:
            today = by_this_clock(datetime.now(UTC))
            raise InputError(f"{self.place} was good until {self.terms.until}: its approver has to sign anew ({today})")


def terms_of(contract: Agreement, policy: Policy, account: str, until: str = "", approver: str = "") -> Terms:
    """What an approval of this site's part has to say."""
    return Terms(
        contract=contract.digest,
        plan=contract.plan.digest,
        account=account,
        columns=tuple(sorted(column.name for column in contract.used)),
        policy=policy.digest,
        version=package_version(),
        party=contract.own.name,
        until=until,
        approver=approver,
    )


def require_approvals(
    approvals: Sequence[OwnerApproval], contract: Agreement, policy: Policy, account: str, *, begun: bool = False
) -> dict[str, list[str]]:
    """The keys of the policy's approvers who signed, and the digests of what they signed; empty without.

    Raises :class:`InputError` if they are too few, or one does not fit.

    A study that has ``begun`` was approved before: it may go on without them, and after their last day.
    """
    terms, approvers = terms_of(contract, policy, account), policy.rules.approvers
    signed: dict[str, str] = {}
    for yes in approvals:
        if yes.terms.approver not in approvers:
            raise InputError(f"{yes.place} is by {yes.terms.approver}, who is not an approver of {policy.place}: ask one who is")
        if yes.terms.approver in signed:
            raise InputError(f"{yes.place} is a second one by {yes.terms.approver}: give one of each approver")
        yes.require(terms, begun=begun)
        signed[yes.terms.approver] = yes.signed.digest
    least = policy.rules.least_approvals
    if len(signed) < least and not begun:
        raise InputError(
            f"{least} of the approvers of {policy.place} must sign this study, {len(signed)} did; nothing has left this machine: "
            f"give {named('approval', 'FILE')}, from quietmean approve"
        )
    return {"approvers": list(signed), "approvals": list(signed.values())} if signed else {}


def _today() -> date:
    return datetime.now(UTC).date()
