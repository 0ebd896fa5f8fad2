"""What a study is charged to: before anything leaves, and after its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quietmean.core.codec import digest
from quietmean.ledger import Account, Ledger
from quietmean.node import NodeSettings
from quietmean.planning.gate import GateRecord
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.studies.outcome import StudyOutcome


@dataclass(frozen=True)
class Payer:
    """The account that a study is charged to, and how: ``group`` units change together; None: one.

    ``inputs``: the columns that the study uses, each of shape (records,).
    """

    ledger: Path
    account: str
    group: int | None = None
    inputs: Sequence[NDArray[np.float64]] = field(default=(), repr=False)
    # For sentences that do not depend on the data.
    tell: Callable[[str], None] = field(default=lambda sentence: None, repr=False)

    def reserve(self, name: str, settings: NodeSettings) -> ChargedStudy:
        """Charge the plan, on disk, before anything is sent. Raises :class:`InputError` if the budget forbids it."""
        with Ledger.open(self.ledger) as book:
            # An unknown account is reported before the party's store is made.
            book.account(self.account)
            charged = ChargedStudy(self.ledger, self.account, _execution_id(settings))
            self._charge(book, name, settings.plan, charged.study, settings.plan.protocol.refunds)
        return charged

    def reserve_file(self, name: str, plan: Plan, study: str, content: bytes) -> Account:
        """Charge the plan for a contribution by file, once and for good. ``content``: the digest of what is in the file.

        Raises :class:`InputError` if the budget forbids it, or if this party has contributed something else to this study.
        """
        with Ledger.open(self.ledger) as book:
            self._charge(book, name, plan, study, refund=False)
            book.bind(study, content)
            return book.account(self.account)

    def _charge(self, book: Ledger, name: str, plan: Plan, study: str, refund: bool) -> None:
        target = plan.target
        book.reserve(
            self.account,
            study,
            plan.charge,
            name=name,
            when=datetime.now(UTC),
            unit=target.unit,
            relation=target.neighbouring,
            members=self.group,
            refund=refund,
            reason=_reason(plan),
            inputs=self.inputs,
        )
        self._warn(book)

    def check(self, name: str, settings: NodeSettings) -> Account:
        """The account, if :meth:`reserve` would charge it now. Raises :class:`InputError` if not. Nothing is charged or made."""
        with Ledger.open(self.ledger) as book:
            known = _execution_id(settings) if settings.store.exists() and settings.store.stat().st_size else ""
            target = settings.plan.target
            book.check(
                self.account,
                known,
                settings.plan.charge,
                name=name,
                unit=target.unit,
                relation=target.neighbouring,
                members=self.group,
                reason=_reason(settings.plan),
            )
            self._warn(book)
            return book.account(self.account)

    def _warn(self, book: Ledger) -> None:
        if twins := book.same_inputs(self.account, self.inputs):
            self.tell(f"account {self.account!r}: {twins_text(twins)}")


@dataclass(frozen=True)
class ChargedStudy:
    """A study on an account of a ledger."""

    ledger: Path
    account: str
    study: str

    def settle(self, outcome: StudyOutcome, party: int) -> Account:
        """Put what the execution cost this party in place of the plan."""
        certificate, privacy = outcome.certificate, outcome.privacy
        parts = (
            f"against {certificate.describe()}",
            f"mu {privacy.single_honest()[party]:.4g} should everybody else collude",
            *privacy.terms.conversion.charge_notes,
        )
        with Ledger.open(self.ledger) as book:
            book.settle(self.study, outcome.charge(party), when=datetime.now(UTC), note="; ".join(parts))
            return book.account(self.account)

    def settle_refusal(self, record: GateRecord, planned: Charge) -> Account:
        """Put what a study without a result cost at most in place of the plan; the sampler's part stays."""
        note = f"no result, the gate was closed: {record.reason}"
        with Ledger.open(self.ledger) as book:
            book.settle(self.study, replace(planned, mu=record.before_release), when=datetime.now(UTC), note=note)
            return book.account(self.account)

    def give_back(self, planned: Charge) -> None:
        """Nothing was published, for certain: no noise was used up. What the sampler is off by stays, it hid what was dealt."""
        left = replace(planned, mu=0.0, beta=0.0)
        with Ledger.open(self.ledger) as book:
            book.settle(self.study, left, when=datetime.now(UTC), note="ended without a result: nobody published anything")


def _reason(plan: Plan) -> str:
    """Why no bound is known, for a protocol that has none."""
    return f"{plan.protocol.name}: {plan.a_priori.enforced_by}"


def _execution_id(settings: NodeSettings) -> str:
    """What is charged once: not the study as agreed but its noise, which lives in the party's store.

    A restart from the same store sends nothing new. From another store the same study draws fresh noise and costs as much again.
    """
    store = settings.open_store()
    try:
        return digest({"format": "quietmean-charge-1", "study": settings.study, "nonce": store.nonce.hex()})
    finally:
        store.close()


def twins_text(twins: Sequence[str]) -> str:
    names = ", ".join(repr(name) for name in twins)
    return (
        f"the same input columns were charged to {names}, too: two accounts for the same data are two budgets, which together "
        "allow more than either says; charge all studies of a data set to one account"
    )
