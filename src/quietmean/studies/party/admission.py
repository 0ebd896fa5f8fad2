"""One site's way into what was agreed on: its rules, the yes, the charge. Nothing has been sent when it has a grant.

Order of durability: a yes stands in the audit log and binds the keys; approvals are used up before they pay; the ledger is
charged before anything leaves, in one transaction, and knows nothing of rounds; only then does a node begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from quietmean.core.errors import InputError, named
from quietmean.core.output import Output, require_apart
from quietmean.core.readable import ShortFact, chained, counted_phrase, phrase
from quietmean.core.site_options import ConsentOptions, PaymentOptions, SiteOptions
from quietmean.node import Identity, NodeSettings, Observers, SiteHooks
from quietmean.node.monitor import status_at
from quietmean.node.storage import require_store
from quietmean.planning import Plan
from quietmean.planning.automatic import Choice
from quietmean.privacy import Charge
from quietmean.statistics import Encoded
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.data import GroupedRows, Records, Source, query_statement
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.outcome import receipt_at
from quietmean.studies.party.accounts import AccountQuestion, People, left_in, records_for
from quietmean.studies.party.agreement import Agreement
from quietmean.studies.party.approval import Consent, ConsentInAdvance, Questions
from quietmean.studies.party.audit import Auditor, Event, LogHead
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.ending import ended, origin_of
from quietmean.studies.party.executions import begun_execution, execution_id, import_ahead, seat_of
from quietmean.studies.party.files import PartyContext
from quietmean.studies.party.first_screen import OwnData
from quietmean.studies.party.payment import ChargedStudy, Payer, StudyCost, account_of, payer_for
from quietmean.studies.party.policy import Policy

Charged = TypeVar("Charged")


@dataclass(frozen=True)
class Person:
    """Who takes part for a party: whom ``questions`` are put to, and who is informed of what.

    ``warn`` gets sentences that do not depend on the data, and ``note`` those that may be left out; ``tell_owner`` what was done
    to values that did not fit; ``observers`` see what the node does.
    """

    questions: Questions
    warn: Callable[[str], None]
    note: Callable[[str], None]
    tell_owner: Callable[[Encoded, Sequence[str]], None]
    observers: Observers

    def paid(self, payer: Payer, approval: Mapping[str, Any], charge: Callable[[Payer], Charged]) -> Charged:
        """What ``charge`` returns, after a person said whose people these are where it has to be said.

        Raises :class:`InputError` as ``charge`` does where nobody can be asked, and where an approval was signed for one account.
        """
        try:
            return charge(payer)
        except AccountQuestion as question:
            if not self.questions.can_ask() or approval.get("approval", {}).get("approvals"):
                raise
            same = question.charged or question.chosen(self.questions.account(question))
            answered = replace(payer, account=same or question.new, new=same is None)
        return charge(answered)


@dataclass(frozen=True)
class Grant:
    """A party that said yes and paid. ``approval``: what a receipt says of the yes; ``most``: so many executions are paid for.

    ``auditor`` writes the site's audit log.
    """

    contract: Agreement
    approval: Mapping[str, Any]
    charge: ChargedStudy | None
    auditor: Auditor
    receipt: Path
    most: int = 1

    def started(self, **about: Any) -> LogHead:
        """Write into the audit log that an execution begins."""
        return self.auditor.write(Event.STARTED, {"plan": self.contract.plan.digest, **about, "charged": self.charge is not None})

    def ended(self, **end: Any) -> dict[str, Any]:
        """Write the end into the audit log: what a receipt says of the yes, and how far the log has come."""
        return ended(self.auditor, self.approval, **end)


@dataclass(frozen=True, kw_only=True)
class NodeGrant(Grant):
    """A grant of a party whose node runs."""

    files: PartyContext
    settings: NodeSettings


class PartyAdmission:
    """A site that decides on one contract: :meth:`examine`, :meth:`consent`, :meth:`charge`.

    ``data_name``: what the ledger calls the data by default. ``begun``: this party has said yes before, and continues. Raises
    :class:`InputError` for a policy or a ledger that cannot be.
    """

    contract: Agreement
    auditor: Auditor
    approval: Mapping[str, Any]
    _data: tuple[Records | GroupedRows, Source] | None = None

    def __init__(
        self,
        terms: AnyStudy,
        identity: Identity,
        options: ConsentOptions,
        data_name: str,
        person: Person,
        keys: StudyKeys | None = None,
        begun: bool = False,
    ) -> None:
        self.terms, self.identity, self.keys, self.person = terms, identity, keys, person
        self.policy = Policy.load(options.policy)
        self.payer = payer_for(self.policy, terms.unit, data_name, options, person.note)
        self.account = account_of(self.payer, data_name, options)
        self._options, self._begun = options, begun

    def examine(self, contract: Agreement, auditor: Auditor | None = None) -> None:
        """Examine the contract. Raises :class:`InputError` for a contract that the policy does not allow."""
        self.contract, self.auditor = contract, auditor or auditor_for(self.policy, self.identity, contract)
        with self.auditor.refusals():
            self.policy.refuse(contract)

    def cost(self, charge: Charge | None = None) -> StudyCost:
        """What the contract would be charged, by default all of it."""
        return StudyCost(self.contract.name, self.contract.plan, charge or self.contract.charge)

    def count(self, records: Records | GroupedRows, data: Source, home: Path) -> None:
        """Whose the records are, for who pays. ``home``: the folder with the key for people.

        Raises :class:`InputError` for a public number of them that does not fit.
        """
        study, plans = self.terms, self.contract.plans
        self._data = records, data
        with self.auditor.refusals():
            if isinstance(study, StudyTerms):
                require_number(len(records), study, plans, self.policy)
            if self.payer is not None:
                self.payer = self.payer.of(records.in_order, People(records, data, home, self.person.note), self.cost())

    def consent(self) -> None:
        """The yes. Raises :class:`InputError` without one, and as :meth:`Consent.to` does."""
        consent = Consent(
            self.policy,
            ConsentInAdvance.of(self._options),
            self.person.questions,
            self.person.warn,
            account=self.account,
            keys=self.keys,
            begun=self._begun,
            auditor=self.auditor,
            own=self.own,
        )
        self.approval = {**consent.to(self.contract), **self.contract.query.to_json()}

    def own(self) -> OwnData:
        """What the owner of the data sees beside the terms."""
        payer, left = self.payer, ""
        if payer is not None and not payer.beside:
            left = left_in(payer.ledger, payer.account, None if payer.opening is None else payer.opening.epsilon)
        if self._data is None or not isinstance(self.terms, StudyTerms):
            return OwnData(left=left)
        return replace(own_data(*self._data, self.terms, self.contract.plan.value_step), left=left)

    def use_approvals(self, execution: Callable[[], str]) -> None:
        """Use approvals before the charge. Raises :class:`InputError` for one that another execution used up."""
        import_ahead()
        if approvals := self.approval.get("approval", {}).get("approvals", ()):
            self.auditor.use(approvals, execution())

    def settled_people(self, begun: str) -> list[str]:
        """Who of the people takes part without a value, in a sentence for the owner; ``begun``: what is charged, if known."""
        if self.payer is None:
            return []

        def settled(payer: Payer) -> Payer:
            return payer.settled_people(self.cost(), begun)

        self.payer = self.person.paid(self.payer, self.approval, settled)
        return self.payer.owner_notes

    def charge(
        self,
        execution: Callable[[], str],
        charge: Charge | None = None,
        agreed: str = "",
        *,
        refund: bool | None = None,
        content: bytes | None = None,
    ) -> ChargedStudy | None:
        """The charge for one ``execution`` of what was ``agreed`` on, or None where nothing is charged.

        ``refund``, ``content``: see :meth:`Payer.reserve`. Raises :class:`InputError` for a budget that does not allow it.
        """
        if (payer := self.payer) is None:
            return None
        contract, cost = self.contract, self.cost(charge)
        epsilon = contract.epsilon_a_priori if charge is None else charge.epsilon(contract.target.delta)
        seat = seat_of(agreed, self.identity.public_key) if agreed else ""

        def reserve(own: Payer) -> ChargedStudy:
            return own.reserve(cost, execution, refund, seat, content)

        charged = self.person.paid(payer, self.approval, reserve)
        self.auditor.write(Event.CHARGED, charge_of(cost, replace(payer, account=charged.account), epsilon))
        return charged


class NodeAdmission(PartyAdmission):
    """A site whose node runs."""

    def __init__(self, files: PartyContext, options: SiteOptions, data_name: str, person: Person) -> None:
        super().__init__(files.terms, files.identity, options, data_name, person, files.keys, files.begun(options.store))
        self.files, self.options = files, options

    def consent(self) -> None:
        if self.keys is not None and self.keys.given is not None:
            raise InputError(
                f"{self.files.name} contributed to this study by file. Wait for the result, a second time would tell "
                "more than was agreed."
            )
        super().consent()

    def for_person(self, settings: NodeSettings) -> NodeSettings:
        """The node shows its person what it does, and holds the weights of all against policy and study."""
        shown = self.person.observers
        stated = self.terms.weights if isinstance(self.terms, StudyTerms) else None
        weights = replace(self.policy.weights, besides=stated)
        observers = replace(settings.observers, report=shown.report, observe=shown.observe)
        return replace(settings, observers=observers, site=SiteHooks(weights=weights))

    def pay(
        self, settings: NodeSettings, charge: Charge | None = None, refund: bool | None = None
    ) -> tuple[NodeSettings, ChargedStudy | None]:
        """The charge, before anything leaves, and the settings with it. Raises :class:`InputError` if the budget forbids it."""
        if self.payer is not None:
            self.payer.require_budget(self.cost(charge), settings)

        def execution() -> str:
            return execution_id(settings)

        self.use_approvals(execution)
        charged = self.charge(execution, charge, settings.study, refund=refund)
        # Each round of a session that waits for all has a start of its own: it binds itself once all are there.
        if charged is None or (settings.start is None and self.files.of_session):
            return settings, charged
        # The ledger knows of an attempt to start before this party is bound to it.
        return replace(settings, site=replace(settings.site, before_bound=charged.bind)), charged


class Preparation(NodeAdmission):
    """One party's way into a study: :meth:`agree`, then :meth:`prepare`. What its data can refuse is said before the yes.

    ``forecast``: how wide the intervals will be.
    """

    forecast: Forecast

    def agree(self, choice: Choice, data: Source) -> Contract:
        """The yes to a study in which parties connect, by this plan, after the data were read.

        Raises :class:`InputError` without one, and as :meth:`Consent.to` does; for a source that is none, a query that is not on
        the list, a public number of records that does not fit, and a hopeless study.
        """
        files = self.files
        contract = Contract.for_party(files.name, files.agreed, choice)
        self.examine(contract)
        # What is missing for it is said before anything is read.
        files.require_transport(self.options, self.policy.folder)
        self.contract = contract = replace(contract, query=query_statement(data, files.workload.columns, files.study.unit))
        self._choice, self._records = choice, files.records(data)
        self.count(self._records, data, files.home)
        self.forecast = files.forecast(contract.plan, self._records)
        self.consent()
        return contract

    def prepare(self, pages: Callable[[Mapping[str, Any]], Iterable[Output]] = lambda origin: ()) -> NodeGrant:
        """Make this party's vector, and charge the study before anything leaves.

        Nothing of the data is kept but this vector. ``pages``: what is written beside the receipt, by what the receipt says of
        the execution. Raises :class:`InputError` for a budget that does not allow it, or an approval that another execution used
        up; or for a file that cannot be written.
        """
        with nullcontext() if self.payer is None else self.payer.alone():
            return self._prepared(pages)

    def _prepared(self, pages: Callable[[Mapping[str, Any]], Iterable[Output]]) -> NodeGrant:
        files, contract = self.files, self.contract
        settings, encoded = self._settings(self._records)
        if (notes := self.settled_people(begun_execution(settings))) and self.payer is not None:
            for brought in settings.brought_for_each:
                brought.forget()
            settings, encoded = self._settings(self.payer.records)
            files.owner_notes.extend(notes)
        self.person.tell_owner(encoded, files.owner_notes)
        receipt, origin = files.receipt(self.options.receipt), origin_of(files, settings, self.approval)
        require_places([receipt_at(receipt, origin), *pages(origin), status_at(settings.store)], settings.store)
        settings, charge = self.pay(settings)
        return NodeGrant(contract, self.approval, charge, self.auditor, receipt, files=files, settings=settings)

    def _settings(self, records: Records | GroupedRows) -> tuple[NodeSettings, Encoded]:
        """The settings of this party's node, and the vector of these records as it was encoded."""
        settings, encoded = self.files.with_records(self._choice, records, self.options, self.policy.folder)
        return self.for_person(settings), encoded


def require_number(records: int, study: StudyTerms, plans: Iterable[Plan], policy: Policy) -> None:
    """Raises :class:`InputError` where a public number of records does not fit: the others would see it anyway.

    Of a number that is private nothing depends on it.
    """
    policy.refuse_records(records, study.count, study.unit)
    study.require_records(records)
    for plan in plans:
        plan.require_room(study.workload.weight_of(records))


def own_data_at(source: Source, study: StudyTerms, step: float) -> OwnData:
    """What the owner of the data of a source sees of them. Raises :class:`InputError` for data that cannot be read."""
    return own_data(records_for(study, source, lambda note: None), source, study, step)


def own_data(records: Records | GroupedRows, source: Source, study: StudyTerms, step: float) -> OwnData:
    """What the owner of these records sees of them before the yes: how many, and what is clipped or left out."""
    workload = study.workload
    encoded = workload.encode(records, step=step)
    encoded.vector.fill(0.0)
    rows = sum(map(len, records.in_order)) or len(records)
    place = Path(source).name if isinstance(source, str | Path) and Path(source).is_file() else phrase("your data")
    read = counted_phrase(rows, "1 row in {place}", "{count} rows in {place}", place=place)
    if workload.of_persons and not workload.adds_rows:
        people = counted_phrase(len(records), "1 person", "{count} people")
        read = counted_phrase(
            rows, "1 row of {people} in {place}", "{count} rows of {people} in {place}", people=people, place=place
        )
    left_out = max(rows - len(records), 0) if workload.of_persons and not workload.averages_rows else 0
    clipped = [
        counted_phrase(encoded.clamped, "1 value counts as the nearest bound.", "{count} values count as the nearest bound."),
        counted_phrase(encoded.missing, "1 cell counts as missing.", "{count} cells count as missing."),
        counted_phrase(
            encoded.beyond, "1 record above most_records may be cut.", "{count} records above most_records may be cut."
        ),
    ]
    counts = (encoded.clamped, encoded.missing, encoded.beyond)
    marks = {"CLIPPED": chained((text for count, text in zip(counts, clipped, strict=True) if count), " ")}
    marks["ROWS"] = counted_phrase(left_out, "Here 1 row is left out.", "Here {count} rows are left out.") if left_out else ""
    facts = tuple(ShortFact(key, text) for key, text in marks.items() if text)
    return OwnData(read, len(records), marks=facts)


def require_places(places: Sequence[Output], store: Path) -> None:
    """Require places before the charge: what it is paid for has to be kept."""
    require_apart(places, store)
    require_store(store)
    for output in places:
        output.require_free()


def auditor_for(policy: Policy, identity: Identity, contract: Agreement) -> Auditor:
    """Writes what this party does about a contract to the audit log of its site."""
    return Auditor(policy.audit_log, identity, contract.own.name, contract.name, contract.digest)


def charge_of(cost: StudyCost, payer: Payer, epsilon: float) -> dict[str, Any]:
    """What is charged, for the audit log; ``epsilon``: at most."""
    return {
        "account": payer.account,
        "ledger": str(payer.ledger),
        "epsilon": epsilon if math.isfinite(epsilon) else "not known beforehand",
        "delta": cost.plan.target.delta,
        "group": payer.members(cost),
    }


def require_account(options: PaymentOptions) -> None:
    """Raises :class:`InputError` where nothing says which data set the vectors are of."""
    if options.account is None and options.new_account is None and not options.no_ledger:
        raise InputError(
            f"vectors do not say which data set they are of. Give {named('account', 'NAME')}, what the ledger calls it, or "
            f"{named('no-ledger', 'True')}."
        )
