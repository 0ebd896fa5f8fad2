"""A party that said yes to many means and paid for them: whoever carries them, this is how its part ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.readable import count_of
from quietmean.core.site_options import PaymentOptions
from quietmean.ledger import Account
from quietmean.node import SeriesProgress, Started
from quietmean.sessions.agreed import SessionContract
from quietmean.sessions.receipt import receipt_of
from quietmean.studies.party import ChargedStudy, ended
from quietmean.studies.party.audit import Auditor


@dataclass(frozen=True)
class PaidPart:
    """``most``: so many rounds are paid for. ``approval``: what the receipt says of the yes."""

    contract: SessionContract
    most: int
    approval: Mapping[str, Any]
    charge: ChargedStudy | None
    auditor: Auditor
    receipt: Output

    def settle(self, started: Started | None, progress: SeriesProgress) -> Account | None:
        """Of a party that begins no other round: put its rounds in place of all in the ledger, and write the receipt."""
        part = self.contract.among(started)
        spent, account = part.terms.charge(progress.begun), None
        if self.charge is not None:
            colluding = self.contract.target.colluding
            note = f"{progress.begun} of {count_of(self.most, 'round')}, each as planned; against any {colluding} together"
            account = self.charge.settle(spent, note)
        end = {"result": progress.results > 0, "rounds": progress.begun}
        self.receipt.write_json(receipt_of(part, progress, spent, ended(self.auditor, self.approval, **end)))
        return account


def require_account(options: PaymentOptions) -> None:
    """Raises :class:`InputError` where nothing says which data set the vectors are of."""
    if options.account is None and options.new_account is None and not options.no_ledger:
        raise InputError(
            "vectors do not say which data set they are of: give account, what the ledger calls it, or no_ledger=True"
        )


def yes_of(approval: Mapping[str, Any]) -> dict[str, Any]:
    """What the receipt of many means says of a yes."""
    return {**approval["approval"], **{name: of for name, of in approval.items() if name != "approval"}}
