"""From the options of a site to the charge: one party says yes, its vector is made and paid for, and nothing has been sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from quietmean.core.errors import InputError
from quietmean.core.output import Output, require_apart
from quietmean.core.site_options import SiteOptions
from quietmean.node import Identity, NodeSettings, Observers, PlannedValue, SiteHooks
from quietmean.node.monitor import status_at
from quietmean.node.storage import require_store
from quietmean.planning import Admitted, Plan
from quietmean.planning.automatic import Choice
from quietmean.privacy import Charge
from quietmean.statistics import Encoded
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.data import GroupedRows, Records, Source, query_statement
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.outcome import receipt_at
from quietmean.studies.party.accounts import AccountQuestion
from quietmean.studies.party.agreement import Agreement
from quietmean.studies.party.approval import Consent, ConsentInAdvance, Questions
from quietmean.studies.party.audit import Auditor, Event
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.ending import origin_of
from quietmean.studies.party.executions import begun_execution, execution_id, seat_of
from quietmean.studies.party.files import Files
from quietmean.studies.party.imports import import_ahead
from quietmean.studies.party.payment import ChargedStudy, Payer, account_of, payer_for
from quietmean.studies.party.people import People
from quietmean.studies.party.policy import Policy

Charged = TypeVar("Charged")


@dataclass(frozen=True)
class PreparedStudy:
    """What :func:`take_part` needs. ``forecast``: how wide intervals will be; ``approval``: what a receipt says of the yes.

    ``auditor`` writes the site's audit log.
    """

    files: Files
    settings: NodeSettings
    forecast: Forecast
    approval: Mapping[str, Any]
    charge: ChargedStudy | None
    auditor: Auditor
    receipt: Path


@dataclass(frozen=True)
class Person:
    """Who takes part for a party: whom ``questions`` are put to, and who is told what.

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


class OwnFiles(Protocol):
    """What a party has of its own: its key, what all agree on, and whether it said yes before."""

    @property
    def terms(self) -> AnyStudy: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def keys(self) -> StudyKeys | None: ...

    @property
    def name(self) -> str: ...

    def begun(self, path: Path | None) -> bool: ...


class PartyPreparation:
    """One party's way into what was agreed on: rules and payer are known at once; then the yes, then the charge.

    ``data_name``: what the ledger calls the data by default. Raises :class:`InputError` for a policy or a ledger that cannot be.
    """

    def __init__(self, files: OwnFiles, options: SiteOptions, data_name: str, person: Person) -> None:
        self._own, self._options, self._person = files, options, person
        self._policy = Policy.load(options.policy)
        self.payer = payer_for(self._policy, files.terms.unit, data_name, options, person.note)
        self._account = account_of(self.payer, data_name, options)

    def _consent(self, contract: Agreement) -> None:
        """The yes. Raises :class:`InputError` without one, and as :meth:`Consent.to` does."""
        own = self._own
        if own.keys is not None and own.keys.given is not None:
            raise InputError(f"{own.name} contributed to this study by file: a second time would tell more than was agreed")
        self._auditor = self._auditor_for(contract)
        consent = Consent(
            self._policy,
            ConsentInAdvance.of(self._options),
            self._person.questions,
            self._person.warn,
            account=self._account,
            keys=own.keys,
            begun=own.begun(self._options.store),
            auditor=self._auditor,
        )
        self.approval = {**consent.to(contract), **contract.query.to_json()}

    def _auditor_for(self, contract: Agreement) -> Auditor:
        return auditor_for(self._policy, self._own.identity, contract)

    def _for_person(self, settings: NodeSettings) -> NodeSettings:
        """The node shows its person what it does, and holds the weights of all against policy and study."""
        observers, study = self._person.observers, self._own.terms
        stated = study.weights if isinstance(study, StudyTerms) else None
        weights = replace(self._policy.weights, besides=stated)
        return replace(settings, observers=replace(observers, status=settings.observers.status), site=SiteHooks(weights=weights))

    def _pay(
        self, payer: Payer | None, settings: NodeSettings, charge: Charge, epsilon: float, refund: bool | None = None
    ) -> tuple[NodeSettings, ChargedStudy | None]:
        """The charge, before anything leaves, and the settings with it. Raises :class:`InputError` if the budget forbids it."""
        if payer is not None:
            payer.require_budget(self._own.terms.name, settings, charge)
        charged = self._reserve(payer, settings.plan, settings.study, lambda: execution_id(settings), charge, epsilon, refund)
        if charged is None:
            return settings, charged
        if settings.start is None and not isinstance(self._own.terms, StudyTerms):
            # Each round of a session that waits for all has a start of its own: it binds itself once all are there.
            return settings, charged
        # The ledger knows of an attempt to start before this party is bound to it.
        return replace(settings, site=replace(settings.site, before_bound=charged.bind)), charged

    def _reserve(
        self,
        payer: Payer | None,
        plan: Plan,
        agreed: str,
        execution: Callable[[], str],
        charge: Charge,
        epsilon: float,
        refund: bool | None = None,
    ) -> ChargedStudy | None:
        """The charge for one ``execution`` of a plan that was ``agreed`` on, or None where nothing is charged."""
        import_ahead()
        # Before the charge: an approval that was used up pays nothing.
        if approvals := self.approval.get("approval", {}).get("approvals", ()):
            self._auditor.use(approvals, execution())
        if payer is None:
            return None
        seat = seat_of(agreed, self._own.identity.public_key)
        charged = self._person.paid(
            payer, self.approval, lambda own: own.reserve(self._own.terms.name, plan, execution, charge, refund, seat)
        )
        self._auditor.write(Event.CHARGED, charge_of(plan, replace(payer, account=charged.account), epsilon))
        return charged


class Preparation(PartyPreparation):
    """One party's way into a study: :meth:`agree`, then :meth:`prepare`. What its data can refuse is said before the yes."""

    def __init__(self, files: Files, options: SiteOptions, data_name: str, person: Person) -> None:
        super().__init__(files, options, data_name, person)
        self._files = files

    def agree(self, choice: Choice, data: Source) -> Contract:
        """The yes to a study in which parties connect, by this plan, after the data were read.

        Raises :class:`InputError` without one, and as :meth:`Consent.to` does; for a source that is none, a query that is not on
        the list, a public number of records that does not fit, and a hopeless study.
        """
        files = self._files
        contract = Contract.of(files, choice)
        self._auditor = self._auditor_for(contract)
        with self._auditor.refusals():
            self._policy.refuse(contract)
        # What is missing for it is said before anything is read.
        files.require_folder(self._options, self._policy.folder)
        query = query_statement(data, files.workload.columns, files.study.unit)
        self._contract = contract = replace(contract, query=query)
        self._records = files.records(data)
        with self._auditor.refusals():
            require_number(len(self._records), files.study, choice.plans, self._policy)
            self.payer = self.payer and self.payer.of(self._records.in_order, self._people(), contract.plan)
        self._forecast = files.forecast(contract.plan, self._records)
        self._consent(contract)
        return contract

    def prepare(self, pages: Callable[[Mapping[str, Any]], Iterable[Output]] = lambda origin: ()) -> PreparedStudy:
        """Make this party's vector, and charge the study before anything leaves.

        Nothing of the data is kept but this vector. ``pages``: what is written beside the receipt, by what the receipt says of
        the execution. Raises :class:`InputError` for a budget that does not allow it, or an approval that another execution used
        up; or for a file that cannot be written.
        """
        with nullcontext() if self.payer is None else self.payer.alone():
            return self._prepared(pages)

    def _prepared(self, pages: Callable[[Mapping[str, Any]], Iterable[Output]]) -> PreparedStudy:
        files, contract, options, records = self._files, self._contract, self._options, self._records
        settings, encoded = self._settings(records)
        payer = self.payer
        if payer is not None:
            name, begun = files.terms.name, begun_execution(settings)
            payer = self._person.paid(
                payer, self.approval, lambda own: own.settled_people(name, contract.plan, begun, contract.charge)
            )
            if payer.told:
                for brought in settings.brought_for_each:
                    brought.forget()
                settings, encoded = self._settings(payer.records)
                files.owner_notes.extend(payer.told)
        self._person.tell_owner(encoded, files.owner_notes)
        receipt = files.receipt(options.receipt)
        origin = origin_of(files, settings, self.approval)
        require_places([receipt_at(receipt, origin), *pages(origin), status_at(settings.store)], settings.store)
        settings, charge = self._pay(payer, settings, contract.charge, contract.epsilon_a_priori)
        return PreparedStudy(files, settings, self._forecast, self.approval, charge, self._auditor, receipt)

    def _people(self) -> People:
        return People(self._records, self._records.source, self._files.home, self._person.note)

    def _settings(self, records: Records | GroupedRows) -> tuple[NodeSettings, Encoded]:
        """Of this party's node, and the vector of these records as it was encoded."""
        files, contract, options = self._files, self._contract, self._options
        encoded = files.encode(records, contract.plan)
        smaller = planned_values(files, contract.choice, records)
        settings = files.settings(contract.plan, encoded, options, smaller, self._policy.folder)
        return self._for_person(settings), encoded


def require_number(records: int, study: StudyTerms, plans: Iterable[Plan], policy: Policy) -> None:
    """Raises :class:`InputError` where a public number of records does not fit: the others would see it anyway.

    Of a number that is private nothing depends on it.
    """
    policy.refuse_records(records, study.count, study.unit)
    study.require_records(records)
    for plan in plans:
        plan.require_room(study.workload.weight_of(records))


def require_places(places: Sequence[Output], store: Path) -> None:
    """Before the charge: what it is paid for has to be kept."""
    require_apart(places, store)
    require_store(store)
    for output in places:
        output.require_free()


def planned_values(files: Files, choice: Choice, records: Records | GroupedRows) -> dict[int, PlannedValue]:
    """Plans and this party's vectors for fewer parties than all, on the grids of these plans."""

    def admitted(plan: Plan) -> Admitted:
        encoded = files.encode(records, plan)
        return plan.admit(encoded.vector, encoded.weight, wipe=True)

    return {size: PlannedValue(plan, admitted(plan), wiped=True) for size, plan in choice.smaller.items()}


def auditor_for(policy: Policy, identity: Identity, contract: Agreement) -> Auditor:
    """Writes what this party does about a contract to the audit log of its site."""
    return Auditor(policy.audit_log, identity, contract.own.name, contract.name, contract.digest)


def charge_of(plan: Plan, payer: Payer, epsilon: float | None = None) -> dict[str, Any]:
    """What is charged, for the audit log. ``epsilon``: at most, by default of this plan."""
    epsilon = plan.epsilon_a_priori if epsilon is None else epsilon
    bounded = math.isfinite(epsilon)
    return {
        "account": payer.account,
        "ledger": str(payer.ledger),
        "epsilon": epsilon if bounded else "not known beforehand",
        "delta": plan.target.delta,
        "group": payer.members(plan),
    }
