"""What a study is charged to: before anything leaves, and after its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from quietmean.core.arrays import Array
from quietmean.core.codec import digest
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, named, reason_of
from quietmean.core.folders import require_folder
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import locked, open_private
from quietmean.core.readable import count_of, epsilon_text
from quietmean.core.site_options import PaymentOptions
from quietmean.ledger import NO_INPUTS, Account, Budget, Inputs, Ledger, LedgerEntry
from quietmean.ledger.filter import SpendingRequest, asked, has_room
from quietmean.ledger.people import Identities
from quietmean.node import NodeSettings
from quietmean.planning.gate import GateRecord
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge, require_members
from quietmean.studies.data import GroupedRows, Records
from quietmean.studies.outcome.outcome import StudyOutcome
from quietmean.studies.party.accounts import Accounts, People, opening_account
from quietmean.studies.party.executions import execution_id, has_begun, seat_of
from quietmean.studies.party.policy import Policy, PolicyBudget


@dataclass(frozen=True)
class StudyCost:
    """What a study would be charged. ``largest``: of several plans or rounds, by default the plan's own charge."""

    name: str
    plan: Plan
    largest: Charge | None = None

    @property
    def charge(self) -> Charge:
        return self.largest or self.plan.charge

    def require_epsilon(self) -> None:
        """Raises :class:`InputError` for a study in nats: nothing adds up with an average over values."""
        if (nats := self.plan.target.nats) is not None:
            raise InputError(
                f"study {self.name!r} asks for {nats:g} nats, which are not differential privacy, and no budget counts it. Give "
                f"{named('no-ledger')} if you answer for that, or agree on a study in epsilon."
            )


@dataclass(frozen=True)
class Payer:
    """The account that a study is charged to, and how: ``group`` units change together; None: one.

    ``inputs``: the columns that the study uses.
    """

    ledger: Path
    account: str
    group: int | None = None
    inputs: Inputs = field(default=NO_INPUTS, repr=False)
    # Whose data they are; None where nothing was read.
    people: People | None = field(default=None, repr=False)
    # The first account of a ledger is made at its first study, with this budget; None: it must be there.
    opening: PolicyBudget | None = None
    # A person says that these people are in no account of the ledger; or that they are new ones beside those of the account.
    new: bool = False
    beside: bool = False
    # The policy wants nobody in two accounts.
    refuse_two: bool = False
    # Who takes part without a value: digests.
    silent: Identities | None = field(default=None, repr=False)
    # For sentences that do not depend on the data.
    tell: Callable[[str], None] = field(default=lambda sentence: None, repr=False)

    def of(self, records: Iterable[Array], people: People, cost: StudyCost) -> Payer:
        """The payer for a study of these records, pieces of shape (records, columns), and of these people.

        Raises :class:`InputError` for a study of records where a person may have any number of them.
        """
        payer = replace(self, inputs=Inputs(records), people=people)
        payer.members(cost)
        return payer

    def reserve(
        self,
        cost: StudyCost,
        execution: Callable[[], str],
        refund: bool | None = None,
        seat: str = "",
        content: bytes | None = None,
    ) -> ChargedStudy:
        """Charge it, on disk, before anything is sent. Raises :class:`InputError` if the budget forbids it.

        ``execution``: what is charged once, see :func:`execution_id`. ``refund``: whether less may be given back, by default as
        the protocol says.
        ``seat``: see :func:`seat_of`. ``content``: of a contribution by file, the digest of what is in it: a party that has
        contributed something else to this study is refused.
        """
        cost.require_epsilon()
        with self._book() as book:
            if self.opening is None:
                # An unknown account is reported before the party's store is made.
                book.account(self.account)
            study = _attempt(book, execution())
            account = self._charge(book, cost, study, cost.plan.refunds if refund is None else refund, seat)
            if content is not None:
                book.bind(study, content)
        return ChargedStudy(self.ledger, account, study)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The context in which no other process charges named people to this ledger, from who has room on to the charge.

        Raises :class:`InputError` where its lock cannot be opened.
        """
        if self.people is None or not self.people.named:
            yield
            return
        path = self.ledger.with_name(f"{self.ledger.name}.lock")
        require_folder(path.parent, f"choose another {named('ledger')}")
        try:
            handle = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            refuse_outage(error, path)
            raise InputError(f"file {path} cannot be opened ({reason_of(error)}). Choose another {named('ledger')}.") from None
        with locked(handle):
            yield

    def settled_people(self, cost: StudyCost, study: str) -> Payer:
        """The payer, who knows which of the people take part without a value, since an account of theirs has no room.

        ``study``: what is charged, empty where it has not begun. Nothing is charged or made. Raises :class:`InputError` as
        :meth:`reserve` does.
        """
        request = self._request(cost, study)
        if self.people is None or not self.people.named:
            return self
        if not Ledger.is_there(self.ledger):
            # Nobody is known, and a first account is not made for a study that it cannot pay.
            self.new_account(cost)
            return self
        with Ledger.open(self.ledger) as book:
            return replace(self, silent=self._silent(book, cost, request))

    @property
    def records(self) -> Records | GroupedRows:
        """The records as they take part. Raises :class:`RuntimeError` where nothing was read."""
        if self.people is None:
            raise RuntimeError("records of nobody")
        return self.people.records if self.silent is None else self.people.without_value(self.silent)

    @property
    def owner_notes(self) -> list[str]:
        """A sentence for the owner alone: how many persons take part without a value."""
        count = 0 if self.silent is None else len(self.silent)
        take = count_of(count, "person takes", "persons take")
        return [f"{take} part without a value, for an account that has them has no room"] if count else []

    def members(self, cost: StudyCost) -> int:
        """How many of the study's units change together, at most, where what the account counts changes."""
        return self._request(cost).members or 1

    def _silent(self, book: Ledger, cost: StudyCost, request: SpendingRequest) -> Identities:
        """Who takes part without a value. Raises :class:`InputError` as :meth:`Ledger.check`."""
        accounts, opening, study = self._accounts(book), None, request.study
        if self.beside:
            opening = accounts.beside(study)
        elif not accounts.there and self.opening is not None:
            if not self.new:
                accounts.require_first(study)
            opening = self._opening_account(self.opening, cost.plan)
        account = self.account if opening is None else opening.name
        if self.refuse_two:
            accounts.require_one(account)
        sketch = None if self.people is None or not self.people.named else self.people.sketch
        return book.check(account, replace(request, study=_attempt(book, study)), people=sketch, opening=opening)

    def _opening_account(self, budget: PolicyBudget, plan: Plan) -> Account:
        """The opening account that counts replacement: what is hidden under add-remove is charged to it as two each.

        Nothing is made.
        """
        return opening_account(self.account, self._counts(plan), Budget.of(budget.epsilon, budget.delta, ""))

    def _counts(self, plan: Plan) -> PrivacyUnit:
        """Whose change the account has to be about: a person's, where the data say whose each row is."""
        named = self.people is not None and self.people.named and plan.target.unit.within_party
        return PrivacyUnit.PERSON if named else plan.target.unit

    def _request(self, cost: StudyCost, study: str = "", *, refund: bool = True, seat: str = "") -> SpendingRequest:
        """What the ledger is asked for. Raises :class:`InputError` where a person may have any rows."""
        members, people, plan = self.group, self.people, cost.plan
        named = people is not None and people.named
        if people is not None and named and plan.target.unit == PrivacyUnit.RECORD:
            if people.limit is None:
                raise _any_rows(cost, people)
            members = people.limit * (members or 1)
        return SpendingRequest(
            study,
            cost.name,
            cost.charge,
            unit=plan.target.unit,
            relation=plan.target.neighbouring,
            members=members,
            counts=PrivacyUnit.PERSON if named and plan.target.unit.within_party else None,
            refund=refund,
            reason=_reason(plan),
            seat=seat,
        )

    def _charge(self, book: Ledger, cost: StudyCost, study: str, refund: bool, seat: str) -> str:
        """The account that is charged."""
        request, accounts = self._request(cost, study, refund=refund, seat=seat), self._accounts(book)
        account, made = self.account, ""
        if self.beside:
            opening = accounts.beside(study)
            account = opening.name
            if account not in accounts.names:
                made = accounts.make_beside(opening)
        elif not accounts.there and self.opening is not None:
            if not self.new:
                accounts.require_first(study)
            accounts.make(self._opening_account(self.opening, cost.plan))
            made = _new(self.account, self.opening, self._counts(cost.plan))
        book.reserve(
            account,
            request,
            when=datetime.now(UTC),
            inputs=self.inputs,
            people=accounts.sketch_for(account),
            silent=self.silent,
        )
        if made:
            self.tell(f"{made} is made in {self.ledger}")
        accounts.warn(account, self.tell)
        return account

    def _accounts(self, book: Ledger) -> Accounts:
        return Accounts(book, self.ledger, self.account, self.inputs, self.people)

    def _book(self) -> Ledger:
        if self.opening is None:
            return Ledger.open(self.ledger)
        require_folder(self.ledger.parent, f"choose another {named('ledger')}")
        return Ledger.open(self.ledger, create=True)

    def new_account(self, cost: StudyCost) -> tuple[str, Account] | None:
        """What would be made for a study, in words, too; None where the account is there. Nothing is made.

        Raises :class:`InputError` if its budget does not allow the study, or if another account has been charged for these data.
        """
        cost.require_epsilon()
        if self.opening is None:
            return None
        if Ledger.is_there(self.ledger):
            with Ledger.open(self.ledger) as book:
                accounts = self._accounts(book)
                if accounts.there:
                    return None
                if not self.new:
                    accounts.require_first()
        plan = cost.plan
        new = _new(self.account, self.opening, self._counts(plan))
        request = self._request(cost)
        opening = self._opening_account(self.opening, plan)
        wanted = asked(opening, None, request, "") if request.charge.bounded else None
        if wanted is None or not has_room(opening, wanted, ()):
            epsilon = plan.epsilon_a_priori if wanted is None else wanted.charged.epsilon(plan.target.delta)
            raise InputError(
                f"epsilon {epsilon_text(epsilon)} at delta {plan.target.delta:g} is more than {new} allows. Set another with "
                "quietmean site budget --budget."
            )
        return f"{new} will be made in {self.ledger}", opening

    def asked(self, cost: StudyCost, account: Account) -> LedgerEntry:
        """What the study would be charged on the account."""
        return asked(account, None, self._request(cost), "")

    def require_budget(self, cost: StudyCost, settings: NodeSettings) -> None:
        """Raises :class:`InputError` for what the account does not allow, before :meth:`reserve` makes the party's store.

        A study that has begun is in the ledger, and an account that is yet to be made has its whole budget.
        """
        if has_begun(settings.store) or self.beside or not Ledger.is_there(self.ledger):
            return
        with Ledger.open(self.ledger) as book:
            known = self.opening is None or self._accounts(book).there
        if known:
            self._check(cost, "", lambda sentence: None)

    def check(self, cost: StudyCost, settings: NodeSettings) -> Account:
        """The account, if :meth:`reserve` would charge it now. Raises :class:`InputError` if not. Nothing is charged or made."""
        study = execution_id(settings) if has_begun(settings.store) else ""
        return self._check(cost, study, self.tell, seat_of(settings.study, settings.identity.public_key))

    def check_file(self, cost: StudyCost, study: str) -> Account:
        """The account, if a contribution by file would be charged now, as :meth:`check`."""
        return self._check(cost, study, self.tell)

    def _check(self, cost: StudyCost, study: str, tell: Callable[[str], None], seat: str = "") -> Account:
        cost.require_epsilon()
        request = self._request(cost, study, seat=seat)
        with Ledger.open(self.ledger) as book:
            self._silent(book, cost, request)
            accounts = self._accounts(book)
            accounts.warn(self.account, tell)
            return accounts.beside(study) if self.beside else book.account(self.account)


@dataclass(frozen=True)
class ChargedStudy:
    """A study on an account of a ledger."""

    ledger: Path
    account: str
    study: str

    def balance(self) -> Account:
        """Return the account as it is now."""
        with Ledger.open(self.ledger) as book:
            return book.account(self.account)

    def settle(self, spent: Charge, note: str) -> Account:
        """Charge what the study cost this party in place of what was reserved for it; the rest is given back."""
        with Ledger.open(self.ledger) as book:
            book.settle(self.study, spent, when=datetime.now(UTC), note=note)
            return book.account(self.account)

    def settle_outcome(self, outcome: StudyOutcome, party: int) -> Account:
        """By what the execution cost this party."""
        certificate, privacy = outcome.certificate, outcome.privacy
        parts = (
            f"against {certificate.describe()}",
            f"mu {privacy.single_honest()[party]:.4g} if all others collude",
            *privacy.terms.conversion.charge_notes,
        )
        return self.settle(outcome.charge(party), "; ".join(parts))

    def settle_refusal(self, record: GateRecord, planned: Charge) -> Account:
        """By what a study without a result cost at most; the sampler's part stays."""
        return self.settle(replace(planned, mu=record.before_release), f"no result, the gate was closed: {record.reason}")

    def settle_unpublished(self, planned: Charge) -> Account:
        """Settle that nothing was published, for certain: no noise was used up, but what hid the dealt shares stays charged."""
        return self.settle(replace(planned, mu=0.0, beta=0.0), "ended without a result: nobody published anything")

    def bind(self, attempt: str) -> None:
        """Remember the one attempt to start to which this party is bound. Raises :class:`InputError` for another one."""
        with Ledger.open(self.ledger) as book:
            book.bind(self.study, bytes.fromhex(attempt))

    def never_started(self) -> bool:
        """Give all back: this party is in no attempt to start under this charge. False if the ledger knows one."""
        with Ledger.open(self.ledger) as book:
            return book.give_back(self.study, when=datetime.now(UTC), note="not started with this party: nothing left it")


def _any_rows(cost: StudyCost, people: People) -> InputError:
    """The error where rows of a person are not limited, for the owner alone: it has the largest number of rows of a person."""
    rows, delta, charge = max(people.most_rows(), 1), cost.plan.target.delta, cost.charge
    of_record = epsilon_text(charge.epsilon(delta))
    of_person = "inf" if charge.beta or not charge.bounded else epsilon_text(charge.of_group(rows).epsilon(delta))
    return InputError(
        f"study {cost.name!r} protects one record, and these data say whose each row is. It costs epsilon {of_record} for one "
        f"record, {of_person} for the person with most rows, {rows}. Agree on unit person, or write rows_per_person = {rows} in "
        "table [mapping] of the data"
    )


def _new(account: str, budget: PolicyBudget, unit: PrivacyUnit) -> str:
    return f"account {account!r} with a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} for one {unit}"


def _reason(plan: Plan) -> str:
    """Why no bound is known, for a protocol that has none."""
    return f"{plan.protocol.name}: {plan.a_priori.enforced_by}"


def _attempt(book: Ledger, study: str) -> str:
    """The ``study``, or where that was given back, as it did not start, the next attempt at it: that is charged anew."""
    while book.was_given_back(study):
        study = digest({"format": "quietmean-charge-again-1", "study": study})
    return study


def payer_for(
    policy: Policy,
    unit: PrivacyUnit,
    data_name: str,
    options: PaymentOptions,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Payer | None:
    """Who pays for a study of ``data_name``: an account of the ledger in ``options``, of the policy's, or of this user's.

    None where nothing is to be charged.

    In a ledger that was named accounts are made by a person, unless the policy says a budget; in this user's the first one is
    made at the first study. A second one is made only where ``new_account`` names it. Raises :class:`InputError` where the
    policy wants every study charged, and for options that contradict each other.
    """
    budget, ledger, account, group = policy.budget, options.ledger, options.account, options.group
    if group is not None:
        require_members(group)
    if options.no_ledger:
        if budget is not None:
            raise InputError(f"{policy.place} says a budget, so every study is charged. Leave {named('no-ledger')} out.")
        chosen = {"ledger": ledger, "account": account, "new-account": options.new_account, "group": group}
        if (other := next((name for name, value in chosen.items() if value is not None), None)) is not None:
            raise InputError(f"{named(other)} cannot go with {named('no-ledger')}, which charges nothing. Leave one of them out.")
        return None
    if account is not None and options.new_account is not None:
        both = f"{named('account')} cannot go with {named('new-account')}"
        raise InputError(f"{both}. Give the one for people who are in an account, else the other.")
    if options.new_people and account is None:
        alone = f"{named('new-people')} stands without {named('account')}"
        raise InputError(f"{alone}. Name the account beside whose people these are new.")
    path = policy.ledger(ledger)
    names: set[str] = set()
    if Ledger.is_there(path):
        # Before anything is said yes to: it is a ledger.
        with Ledger.open(path) as book:
            names = {each.name for each in book.accounts()}
    new, usual = options.new_account, data_name if unit.within_party else f"{data_name}-{unit}"
    # What hides a whole party hides each of its records: an account of these people takes it.
    usual = data_name if usual not in names and data_name in names else usual
    opening = PolicyBudget() if budget is None and (ledger is None or new is not None) else budget
    return Payer(
        path,
        new or account or (usual if ledger is None or budget is not None else data_name),
        group,
        opening=opening,
        new=new is not None,
        beside=options.new_people,
        refuse_two=policy.rules.people_in_two_accounts == "refuse",
        tell=tell,
    )


def account_of(payer: Payer | None, data_name: str, options: PaymentOptions) -> str:
    """What the ledger calls the data; also where nothing is charged, for the audit log and for approvals."""
    return options.account or options.new_account or data_name if payer is None else payer.account
