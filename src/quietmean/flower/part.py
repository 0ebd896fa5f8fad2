"""A client's part as its site sees it: rules, yes and charge before anything leaves, ledger and receipt in the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.core.site_options import SiteOptions
from quietmean.core.toml_files import fault, read_tables
from quietmean.flower.home import Home
from quietmean.node import Identity
from quietmean.sessions.paid import PaidPart, require_account, yes_of
from quietmean.sessions.receipt import receipt_at
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.party import Agreement, ChargedStudy, NobodyToAsk, Observers, PartyPreparation, Person
from quietmean.studies.party.audit import Auditor, Event, LogHead, Written
from quietmean.studies.party.executions import execution_of


class _SiteFile(BaseModel):
    """Fields of :class:`SiteOptions`; paths are from the client's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ledger: Path | None = None
    no_ledger: bool = False
    account: str | None = None
    new_account: str | None = None
    group: int | None = None
    policy: Path | None = None
    accept: str | None = None
    yes: bool = False
    approval: tuple[Path, ...] = ()
    receipt: Path | None = None


def site_options(path: Path) -> SiteOptions:
    """From the file, or by default where there is none. Raises :class:`InputError` that names what is wrong in it."""
    raw = read_tables(path, "site file") if path.exists() else {}
    try:
        stated = _SiteFile.model_validate(raw)
    except ValidationError as error:
        faults = (fault(detail, _SiteFile) for detail in error.errors())
        raise InputError(f"site file {path} is not as it should be ({'; '.join(faults)}): mend these fields") from None

    def here(value: Any) -> Any:
        if isinstance(value, tuple):
            return [here(each) for each in value]
        return path.parent.absolute() / value.expanduser() if isinstance(value, Path) else value

    return SiteOptions(**{name: here(value) for name, value in stated})


class Paid(msgspec.Struct, frozen=True):
    """What was said and paid, for the client's session. ``charge``: ledger, account and execution, where there is one."""

    approval: dict[str, Any]
    charge: tuple[str, str, str] | None


@dataclass(frozen=True)
class _Own:
    """The files of a client, for its preparation; ``yes``: it was said before."""

    home: Home
    yes: bool
    keys: StudyKeys | None = None

    @property
    def terms(self) -> SessionStudy:
        return self.home.contract.study

    @property
    def identity(self) -> Identity:
        return self.home.identity

    @property
    def name(self) -> str:
        return self.home.contract.own.name

    def begun(self, path: Path | None) -> bool:
        return self.yes


@dataclass(frozen=True)
class _OncePerEntry(Auditor):
    """Writes nothing twice: a server may ask a client that refuses as often as it likes. ``written``: digests of entries."""

    written: list[str] = field(default_factory=list)

    def write(
        self, event: Event, about: Mapping[str, Any] | None = None, allow: Callable[[Sequence[Written]], None] | None = None
    ) -> LogHead:
        entry = digest([event.value, dict(about or {})])
        if entry in self.written:
            # Approvals that this execution has used are nobody else's.
            return LogHead(0, "0" * 64, self.identity.public_key)
        head = super().write(event, about, allow)
        self.written.append(entry)
        return head


class FlowerPreparation(PartyPreparation):
    """A client's way into its agreement. ``yes``: it was said before, ``written``: what the audit log has of it already.

    Raises :class:`InputError` for a site file, policy or ledger that cannot be.
    """

    def __init__(self, home: Home, options: SiteOptions, written: list[str], *, yes: bool) -> None:
        require_account(options)
        super().__init__(_Own(home, yes), options, "", Person(NobodyToAsk(), tell, tell, _no_data, Observers(_no_event)))
        self._contract, self._written = home.contract, written
        self._receipt = receipt_at(options.receipt or home.receipt, self._contract)
        self._auditor = self._auditor_for(self._contract)

    def _auditor_for(self, contract: Agreement) -> Auditor:
        own = super()._auditor_for(contract)
        return _OncePerEntry(own.log, own.identity, own.party, own.study, own.contract, self._written)

    def allow(self) -> None:
        """Raises :class:`InputError` where the policy of the site does not allow the agreement, or does not any more."""
        with self._auditor.refusals():
            self._policy.refuse(self._contract)

    def pay(self, nonce: bytes) -> Paid:
        """The yes, and the charge for all rounds, before anything leaves.

        ``nonce``: what the noise of this client can be recognised by. Raises :class:`InputError` without a yes, and where
        the budget does not allow it.
        """
        contract = self._contract
        self._receipt.require_free()
        self._consent(contract)
        whole = contract.charge
        execution = partial(execution_of, contract.digest, nonce)
        epsilon = whole.epsilon(contract.study.delta)
        charge = self._reserve(self.payer, contract.plan, contract.digest, execution, whole, epsilon, refund=True)
        if charge is not None:
            # From here on something may leave.
            charge.bind(contract.digest)
        charged = None if charge is None else (str(charge.ledger), charge.account, charge.study)
        return Paid(yes_of(self.approval), charged)

    def part(self, paid: Paid) -> PaidPart:
        """For the end of what was paid for; each of its entries stands in the audit log."""
        contract, charge = self._contract, None
        if paid.charge is not None:
            ledger, account, execution = paid.charge
            charge = ChargedStudy(Path(ledger), account, execution)
        return PaidPart(contract, contract.study.rounds, paid.approval, charge, super()._auditor_for(contract), self._receipt)


def tell(sentence: str) -> None:
    """To who runs the client, in its own log: nobody else gets to see it."""
    print(f"quietmean: {sentence}", file=sys.stderr, flush=True)


def _no_data(encoded: object, notes: Sequence[str]) -> None:
    """An update is not a file of data."""


def _no_event(event: object) -> None:
    """No node runs."""
