"""A client's site: the folder that outlives its process, and its part in the rounds: rules, yes and charge, ledger and receipt.

Flower starts a client's app anew for each message. Nothing of this folder goes through Flower.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.core.portability import locked, open_private, replace_durably
from quietmean.core.site_options import SiteOptions
from quietmean.core.toml_files import fault, read_tables
from quietmean.flower.agreement import FlowerAgreement, FlowerContract
from quietmean.node.net import Identity
from quietmean.sessions.receipt import receipt_at
from quietmean.studies.party import ChargedStudy, Grant, NobodyToAsk, Observers, PartyAdmission, Person, auditor_for
from quietmean.studies.party.admission import require_account
from quietmean.studies.party.audit import Auditor, Event, LogHead, Written
from quietmean.studies.party.executions import execution_of

AGREEMENT, IDENTITY, SITE = "agreement.json", "identity.pem", "site.toml"
ACCOUNT, SESSION, _LOCK = "account.json", "session.state", "lock"


def make_home(folder: str | Path) -> str:
    """A new folder with a new key; its public key, to be put into the agreement. Raises :class:`InputError` if there is a key."""
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = Identity.generate()
    identity.save(path / IDENTITY)
    return identity.public_key


class Home:
    """A client's folder with key and agreement. Raises :class:`InputError` if one is missing or does not fit the other."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.agreement = FlowerAgreement.load(self.folder / AGREEMENT)
        self.identity = Identity.load(self.folder / IDENTITY)
        self.party = self.agreement.party_of(self.identity.public_key)

    @cached_property
    def contract(self) -> FlowerContract:
        """What this client says yes to."""
        return FlowerContract.of(self.agreement, self.party)

    @property
    def site(self) -> Path:
        """What its site chooses for itself."""
        return self.folder / SITE

    @property
    def receipt(self) -> Path:
        """Where its receipt goes, unless its site says another place."""
        return self.folder / "receipt.json"

    @property
    def account(self) -> Path:
        return self.folder / ACCOUNT

    def locked(self) -> contextlib.AbstractContextManager[int]:
        """One message at a time: two at once could be answered from one state in two ways."""
        return locked(open_private(self.folder / _LOCK, os.O_RDWR | os.O_CREAT))

    def read(self) -> bytes | None:
        """The session as it was written last, or None before the first time."""
        try:
            return (self.folder / SESSION).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"file {self.folder / SESSION} cannot be read ({error.strerror}). See to its rights.") from None

    def write(self, content: bytes) -> None:
        """Replace the session durably: after a crash the file holds the old content or the new."""
        replace_durably(self.folder / SESSION, content)


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
    """Read a site's options from the file, or take the defaults where there is none.

    Raises :class:`InputError` that names what is wrong in it.
    """
    raw = read_tables(path, "site file") if path.exists() else {}
    try:
        stated = _SiteFile.model_validate(raw)
    except ValidationError as error:
        faults = (fault(detail, _SiteFile) for detail in error.errors())
        raise InputError(f"site file {path} is not as it should be ({'; '.join(faults)}). Correct these fields.") from None

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


class FlowerAdmission(PartyAdmission):
    """A client's way into its agreement. ``yes``: it was said before, ``written``: what the audit log has of it already.

    Raises :class:`InputError` for a site file, policy or ledger that cannot be.
    """

    def __init__(self, home: Home, options: SiteOptions, written: list[str], *, yes: bool) -> None:
        require_account(options)
        person = Person(NobodyToAsk(), tell, tell, _no_data, Observers(_no_event))
        super().__init__(home.agreement.study, home.identity, options, "", person, begun=yes)
        self._contract, self._written, self._receipt = home.contract, written, options.receipt or home.receipt

    def allow(self) -> None:
        """Ask the policy of the site.

        Raises :class:`InputError` where the policy of the site does not allow the agreement, or does not any more.
        """
        own = auditor_for(self.policy, self.identity, self._contract)
        self.examine(self._contract, _OncePerEntry(own.log, own.identity, own.party, own.study, own.contract, self._written))

    def pay(self, nonce: bytes) -> Paid:
        """The yes, and the charge for all rounds, before anything leaves.

        ``nonce``: what the noise of this client can be recognised by. Raises :class:`InputError` without a yes, and where
        the budget does not allow it.
        """
        contract = self._contract
        receipt_at(self._receipt, contract).require_free()
        self.consent()
        execution = partial(execution_of, contract.digest, nonce)
        self.use_approvals(execution)
        charge = self.charge(execution, contract.charge, contract.digest, refund=True)
        if charge is None:
            return Paid(dict(self.approval), None)
        # From here on something may leave.
        charge.bind(contract.digest)
        return Paid(dict(self.approval), (str(charge.ledger), charge.account, charge.study))

    def grant(self, paid: Paid) -> Grant:
        """Make the grant for the end of what was paid for; each of its entries stands in the audit log."""
        contract, charge = self._contract, None
        if paid.charge is not None:
            ledger, account, execution = paid.charge
            charge = ChargedStudy(Path(ledger), account, execution)
        auditor = auditor_for(self.policy, self.identity, contract)
        return Grant(contract, paid.approval, charge, auditor, self._receipt, contract.rounds)


def tell(sentence: str) -> None:
    """Log something for the person who runs the client, in its own log: nobody else gets to see it."""
    print(f"quietmean: {sentence}", file=sys.stderr, flush=True)


def _no_data(encoded: object, notes: Sequence[str]) -> None:
    """Do nothing with the notes on a data file: a Flower client has an update, and no such file."""


def _no_event(event: object) -> None:
    """Take an event of a node and do nothing: no node runs."""
