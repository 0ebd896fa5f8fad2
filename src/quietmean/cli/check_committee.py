"""``quietmean check`` of a study to which parties hand in files: a contributor's side, or that of a member of its committee."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from quietmean.cli.check_view import (
    Finding,
    beside_this_clock,
    expected_finding,
    ledger_finding,
    plan_text,
    policy_finding,
    show_before_yes,
    store_text,
    table_finding,
)
from quietmean.cli.console import tell_notes, tell_owner, warn
from quietmean.cli.identity import load_identity
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.readable_days import by_this_clock
from quietmean.core.site_options import NodeOptions, SiteOptions
from quietmean.studies.agreement.deadlines import in_hours, in_words
from quietmean.studies.data import account_name, query_statement
from quietmean.studies.outcome.feasible import feasible_sealed
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.party import Contract, PartyContext, Policy, payer_for, require_number
from quietmean.studies.party.accounts import People, records_for
from quietmean.studies.party.by_file import CommitteeContributor, SharingContributor
from quietmean.studies.party.handing_in import contributor_keys, look_at_drop, own_place, taken_by_file
from quietmean.studies.party.member import MemberFiles
from quietmean.studies.party.member_holdings import survey
from quietmean.studies.party.payment import StudyCost

if TYPE_CHECKING:
    from quietmean.node import Identity, Roster
    from quietmean.node.preflight import PeerReadiness
    from quietmean.planning import Plan
    from quietmean.planning.automatic import Choice
    from quietmean.studies.agreement.deadlines import CommitteeTerms
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.agreement.study_keys import StudyKeys
    from quietmean.studies.party.handing_in import Contributor

# Clocks that differ by less are alike (s), whatever the study's grace.
_CLOCKS_ALIKE = 5.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommitteePlaces:
    """Where contributions to a committee go.

    Parameters
    ----------
    contributions
        For a committee member: the folder with the contributors' files, as for join.
    drop
        For a contributor to a committee: https://HOST of the drop that will receive its file, as for send.
    """

    contributions: Path | None = None
    drop: str | None = None

    def refuse(self) -> None:
        """Raises :class:`InputError` for what says nothing without a committee."""
        unused = [name for name, value in vars(self).items() if value is not None]
        if unused:
            raise InputError(f"--{unused[0]} is for a study with a committee, and this one has none. Leave it out.")


NO_PLACES = CommitteePlaces()


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """What one party of a sealed study to which files are handed in looks at."""

    study: Path
    sealed: Sealed
    identity: Identity
    key: Path
    data: str | Path | None
    places: CommitteePlaces
    node: NodeOptions
    # Is a look at the data wanted, too?
    details: bool = False

    @classmethod
    def load(
        cls,
        study: Path,
        key: Path,
        data: str | Path | None,
        places: CommitteePlaces,
        node: NodeOptions,
        details: bool = False,
    ) -> FileCheck | None:
        """None where nobody hands in a file."""
        if (sealed := taken_by_file(study)) is None:
            return None
        if sealed.study.committee is None:
            places.refuse()
        identity = load_identity(key)
        return cls(study=study, sealed=sealed, identity=identity, key=key, data=data, places=places, node=node, details=details)

    @property
    def is_member(self) -> bool:
        """Whether it holds shares; everybody else hands in a file."""
        computing = () if self.sealed.study.committee is None else self.sealed.computing
        return any(entry.identity == self.identity.public_key for entry in computing)

    def of_contributor(self) -> list[Finding]:
        """What send would find. Raises :class:`InputError` for who is none, and for what its policy forbids."""
        if self.places.contributions is not None:
            raise InputError(
                "--contributions is for members of the committee, and this party only hands in a file. Leave it out."
            )
        if self.data is None:
            raise InputError("a contributor's check needs the records that it will hand in. Give --data.")
        choice = self._choice()
        findings = [_by_whom(self.sealed, choice.plan), *self._handing_in(choice, self.data)]
        return [*findings, _drop(self.places.drop, self.sealed)] if self.places.drop is not None else findings

    def of_member(self, own: MemberFiles, usual_folder: str | None) -> list[Finding]:
        """What join would find, before the others are asked; with --data also what send would.

        Raises :class:`InputError` without a folder of contributions, and for a drop.
        """
        if self.places.drop is not None:
            raise InputError("--drop is for contributors. Give --contributions FOLDER, where a member reads what came.")
        if self.places.contributions is None:
            raise InputError(
                "a member's check needs the folder with the files that contributors handed in. Give --contributions FOLDER."
            )
        findings = [_by_whom(self.sealed, own.plan), _own_keys(own), _own_store(own, usual_folder)]
        findings += [_time(own.terms), _contributions(own, self.places.contributions)]
        if self.data is not None:
            findings += self._handing_in(self._choice(), self.data)
        return findings

    def files(self) -> MemberFiles:
        """A member's. Raises :class:`InputError` where they do not fit together."""
        files = PartyContext.load(self.study, None, self.key, lambda path: self.identity, self.node.store)
        return MemberFiles(files, self._choice().plan, SiteOptions(store=self.node.store))

    def _choice(self) -> Choice:
        return feasible_sealed(self.sealed)

    def _handing_in(self, choice: Choice, data: str | Path) -> list[Finding]:
        """Check what handing in a file would meet: nothing is made, charged or written, but for the keys that a voucher gives."""
        rules = Policy.load(self.node.policy)
        keys = contributor_keys(self.sealed, self.identity, self.key, self.node.store)
        own_place(self.sealed, self.identity, keys, self.key)
        study, contract = self.sealed.study, Contract.by_file(self.sealed, self.identity, choice, keys.voucher)
        # What is wrong with the data is found below.
        with suppress(InputError):
            contract = replace(contract, query=query_statement(data, study.workload.columns, study.unit))
        rules.refuse(contract)
        kind = SharingContributor if self.sealed.study.committee is None else CommitteeContributor
        contributor = kind(self.sealed, choice.plan, self.identity, keys)
        return [
            policy_finding(rules, contract),
            *([_own_file(contributor)] if isinstance(contributor, CommitteeContributor) else []),
            *self._data(contract, keys, contributor, data, rules),
        ]

    def _data(
        self, contract: Contract, keys: StudyKeys, contributor: Contributor, data: str | Path, rules: Policy
    ) -> list[Finding]:
        study, plan, name = self.sealed.study, contract.plan, account_name(data)
        payer = payer_for(rules, study.unit, name, self.node, warn)
        if self.details:
            show_before_yes(data, study.workload.columns)
        notes: list[str] = []
        try:
            public = study.public_records(study.contributions_expected(self.sealed.admitted))
            forecast = None if public is None else Forecast(study, plan, public)
            records = records_for(study, data, notes.append)
            require_number(len(records), study, [plan], rules)
            people = People(records, data, keys.path.parent.absolute(), warn)
            encoded = study.workload.encode(records, step=plan.value_step)
            plan.admit(encoded.vector, encoded.weight)
        except InputError as error:
            return [Finding("data", False, str(error))]
        tell_owner([encoded])
        tell_notes(notes)
        findings = [table_finding(data, study.workload.columns, len(records))]
        if forecast is not None:
            findings.append(expected_finding(forecast))
        if payer is None:
            return findings
        cost = StudyCost(study.name, plan)
        try:
            paying = payer.of(records.in_order, people, cost)
            tell_notes(paying.settled_people(cost, contributor.study).owner_notes)
        except InputError as error:
            return [*findings, Finding("ledger", False, str(error))]
        fits = "the study fits; before it"
        return [*findings, ledger_finding(paying, cost, fits, lambda: paying.check_file(cost, contributor.study))]


def _by_whom(sealed: Sealed, plan: Plan) -> Finding:
    """The plan, who may contribute, and against whom it holds."""
    committee = plan.target.committee
    if sealed.study.committee is None:
        names = ", ".join(entry.name for entry in sealed.entries)
        return Finding("study", True, f"{plan_text(plan)}: by file, between {names}")
    against = (
        ""
        if committee is None
        else f"{committee.against(tuple(entry.name for entry in sealed.computing))} and all other contributors together"
    )
    return Finding("study", True, f"{plan_text(plan)}: up to {sealed.admitted} contributors; it holds against {against}")


def _left(terms: CommitteeTerms) -> str:
    until, seconds = in_words(terms.contribute_by), terms.contribute_by.timestamp() - time.time()
    if seconds > 0:
        return f"contributions come until {until}, in {in_hours(float(round(seconds)))}; {by_this_clock(datetime.now(UTC))}"
    return f"contributions came until {until}; {by_this_clock(datetime.now(UTC))}"


def _time(terms: CommitteeTerms) -> Finding:
    return Finding("time", True, f"{_left(terms)}; members open them from {in_hours(terms.grace)} after that on")


def _own_file(contributor: CommitteeContributor) -> Finding:
    """Whether it may still hand in."""
    terms = contributor.sealed.study.committee
    if terms is None:
        raise InputError("this study has no committee. Leave the options of a committee out.")
    if contributor.has_contributed:
        return Finding("time", True, f"it was made, {contributor.stored_at}: the same data give it again; {_left(terms)}")

    def look() -> str:
        terms.require_open(datetime.now(UTC))
        return _left(terms)

    return Finding.of("time", look)


def _own_keys(own: MemberFiles) -> Finding:
    keys = own.files.keys
    if own.sums.exists():
        return Finding("key", True, f"the sum was opened here, {own.sums}. Join shows it again.")
    if keys is None or keys.mailbox is None:
        text = f"{own.files.name} has no mailbox key for this study any more: it has ended for this member"
        return Finding("key", False, text)
    return Finding("key", True, f"{keys.path} opens what is encrypted to {own.files.name}")


def _own_store(own: MemberFiles, usual_folder: str | None) -> Finding:
    return Finding.of("store", lambda: store_text(own.store, own.require_same_store(usual_folder)))


def _contributions(own: MemberFiles, folder: Path) -> Finding:
    """Whether the folder can be read, and whose contributions are there: only what is public of them is looked at."""

    def look() -> str:
        there = survey(own.session, own.files.party, folder, own.terms.lists_at)
        arrived = own.terms.arrived(there.contributors, own.session.parameters.minimum, datetime.now(UTC))
        text = f"{folder}: {arrived}; {own.sealed.admitted:,} may contribute"
        if not there.left_out:
            return text
        name, why = there.left_out[0]
        more = f", as {len(there.left_out) - 1} others" if len(there.left_out) > 1 else ""
        return f"{text}; {name} cannot count{more}: {why}"

    return Finding.of("contributions", look)


def _drop(url: str, sealed: Sealed) -> Finding:
    try:
        there = look_at_drop(url, sealed)
    except (InputError, ProtocolFailure) as error:
        return Finding("drop", False, str(error))
    ahead = there.clock_ahead
    if ahead is not None and abs(ahead) > _CLOCKS_ALIKE:
        text = f"its clock is {beside_this_clock(ahead)}: what it calls late is late"
        return Finding("drop", False, f"{url}: {text}, set the one that is wrong")
    return Finding("drop", True, f"{url} takes contributions to this study, {there.contributions:,} so far")


def clocks(terms: CommitteeTerms, roster: Roster, standings: list[PeerReadiness]) -> list[Finding]:
    """Whether members, each of whom lists by its own clock, do so within the grace of the study."""
    allowed = max(terms.grace, _CLOCKS_ALIKE)
    known = [(progress.party, progress.reply) for progress in standings if progress.reply is not None]
    wrong = [
        f"the clock of {roster.name(party)} is {beside_this_clock(reply.clock_offset)}"
        for party, reply in known
        if abs(reply.clock_offset) - reply.clock_uncertainty > allowed
    ]
    if wrong:
        text = "; ".join(wrong)
        return [Finding("clock", False, f"{text}: one would list while others still wait, set the clock that is wrong")]
    return [Finding("clock", True, f"{len(known)} other members' clocks are near enough to this one")] if known else []
