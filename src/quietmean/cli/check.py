"""``quietmean check``: find trouble before a study starts, here and with the others."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quietmean.cli.check_committee import NO_PLACES, CommitteePlaces, FileCheck, clocks
from quietmean.cli.check_view import (
    CLOCKS_MATTER,
    CLOCKS_MATTER_LITTLE,
    CheckScreen,
    Finding,
    clock_warnings,
    expected_finding,
    findings_json,
    ledger_finding,
    peers_of,
    plan_text,
    policy_finding,
    show,
    show_before_yes,
    show_findings,
    store_text,
    table_finding,
    tell_failed,
    to_json,
    watching,
)
from quietmean.cli.console import print_json, progress, tell_notes, tell_owner, warn
from quietmean.cli.identity import load_identity
from quietmean.cli.join import needed_data
from quietmean.cli.options import NO_AGREEMENT_OPTIONS, AgreementOptions
from quietmean.cli.screens import show_first
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import package_version, require_kind_of_store
from quietmean.core.limits import require_wait
from quietmean.core.readable import count_of
from quietmean.core.site_options import NodeOptions, PaymentOptions, SiteOptions
from quietmean.node.folder import parse_folder
from quietmean.node.net import format_address, parse_address
from quietmean.node.preflight import Agreed, CheckSession
from quietmean.studies.data import account_name, query_statement
from quietmean.studies.party import Contract, PartyContext, Policy, is_session, payer_for, require_number
from quietmean.studies.party.accounts import People
from quietmean.studies.party.executions import begun_execution
from quietmean.studies.party.payment import StudyCost

if TYPE_CHECKING:
    from quietmean.node import NodeSettings, Roster
    from quietmean.planning.plan import Plan
    from quietmean.studies.agreement.deadlines import CommitteeTerms
    from quietmean.studies.party import Payer
    from quietmean.studies.party.session_contract import SessionContract

# Of how many records an interval is expected where no number of them is public.
_AS_HERE = ", if every site has as many records as this one"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How long the others are waited for, and what is looked at and shown.

    Parameters
    ----------
    wait
        Seconds to wait for other parties.
    records
        For a session that protects records: how many this party has, as for join.
    folder
        For a study through a folder: the folder, as for join. The check says whether this machine can use it.
    details
        Also show plan, versions and clocks. On a terminal, also show what the study finds in the data, for their owner only.
    """

    wait: float = 30.0
    records: int | None = None
    folder: str | None = None
    details: bool = False


def check_command(
    study: Path,
    *,
    agreed: AgreementOptions = NO_AGREEMENT_OPTIONS,
    data: str | Path | None = None,
    places: CommitteePlaces = NO_PLACES,
    node: Annotated[NodeOptions, Parameter(name="*")] = NodeOptions(),  # noqa: B008 - it is frozen
    how: CheckOptions = CheckOptions(),
    json: bool = False,
) -> None:
    """Check before a study starts that everything is in order here, and ask the other parties whether they are ready.

    Each party runs this with the options that it will give to join. It ends when all are ready: exit code 0. If somebody is not
    ready within --wait seconds it says who and why: exit code 3. For a mistake on this side: exit code 2. Nothing is charged,
    no noise is drawn. The others learn nothing about the data, not even whether they could be read. Who only hands in a file asks
    nobody.

    Parameters
    ----------
    study
        The signed study or session; or a study file or session file, if all parties have the same one.
    data
        This party's records: a file, or a database such as postgresql://HOST/DATABASE (docs/analyse/data.md). They never leave
        this machine. Not for a session.
    json
        One JSON document on standard output.
    """
    require_wait("wait", how.wait, 0.0)
    asking = _Asking(node, how, json, study, agreed, data, places)
    if not is_session(study):
        if (checked := FileCheck.load(study, agreed.key, data, places, node, how.details)) is not None:
            asking.refuse_folder()
            _by_file(checked, asking)
            return
        data = needed_data("check", data)
    places.refuse()
    require_kind_of_store(node.store)
    files = PartyContext.load(study, agreed.roster, agreed.key, load_identity, node.store)
    data = _data_of(files, data, how.records, node)
    if not files.terms.by_folder:
        asking.refuse_folder()
    rules = Policy.load(node.policy)
    payer = payer_for(rules, files.terms.unit, "" if data is None else account_name(data), node, warn)
    with progress("calibrating the noise"):
        contract = files.contract(agreed.plan, agreed.no_privacy)
    shared = contract.plan
    if isinstance(contract, Contract) and data is not None:
        # What is wrong with the data is found below.
        with suppress(InputError):
            contract = replace(contract, query=query_statement(data, files.workload.columns, files.study.unit))
    # Not even a look at who answers: a roster may list the hosts of a stranger's choice.
    rules.refuse(contract)
    findings = [policy_finding(rules, contract)]
    if isinstance(contract, Contract) and data is not None:
        if how.details:
            show_before_yes(data, files.workload.columns)
        findings += _look(files, contract, data, files.store(node.store), payer, rules)
        members = files.roster
    elif not isinstance(contract, Contract):
        settings = files.without_records(SiteOptions(store=node.store), how.records)
        findings += _look_at_session(contract, settings, payer)
        members = settings.roster
    _with_others(files, members, shared, findings, rules, asking)


@dataclass(frozen=True)
class _Asking:
    """How the others are asked, and with which ``study``, ``data`` and so on; ``json``: the answer is one document."""

    node: NodeOptions
    how: CheckOptions
    json: bool
    study: Path
    agreed: AgreementOptions
    data: str | Path | None
    places: CommitteePlaces

    def refuse_folder(self) -> None:
        """Raises :class:`InputError` for a folder where no messages go through one."""
        if self.how.folder is not None:
            raise InputError(f"--folder is for a study through a folder, but {self.study} uses connections. Leave it out.")

    def next_step(self, command: str) -> str:
        """The command that takes part, to be pasted: with all that this check was given."""
        options = vars(self.agreed) | {"data": self.data, "folder": self.how.folder} | vars(self.places) | vars(self.node)
        given = {f"--{name.replace('_', '-')}": value for name, value in options.items() if value not in (None, False)}
        words = [word for name, value in given.items() for word in ([name] if value is True else [name, str(value)])]
        return shlex.join(["quietmean", command, str(self.study), *words])


def _with_others(
    files: PartyContext,
    members: Roster,
    shared: Plan,
    findings: list[Finding],
    rules: Policy,
    asking: _Asking,
    committee: CommitteeTerms | None = None,
) -> None:
    """Ask the others, and show all that was found. Raises :class:`SystemExit` where somebody is not ready."""
    with watching(files.roster) as report:
        session = CheckSession(files.identity, members, Agreed.of(members, shared), report)
        with closing(session):
            by_folder = files.terms.by_folder
            findings.append(_folder(rules, asking.how.folder) if by_folder else _listen(files, session, asking.node))
            tell_failed(findings)
            if by_folder:
                # Nobody is dialled: each looks into the folder in its own time.
                session.standings.clear()
            else:
                asyncio.run(session.run(asking.how.wait))
    standings = list(session.standings.values())
    if committee is not None:
        findings += clocks(committee, files.roster, standings)
    warnings = clock_warnings(files.roster, standings, CLOCKS_MATTER_LITTLE if committee is None else CLOCKS_MATTER)
    step = "run your program, which joins the session" if files.of_session else asking.next_step("join")
    title = f"{'Session' if files.of_session else 'Study'} {files.terms.name!r} at {files.name}, {len(members)} parties"
    checked = CheckScreen(title, findings, step, peers_of(files.roster, session), warnings)
    passed, ready = checked.passed, all(peer.ready for peer in standings)
    if asking.json:
        about = {"party": files.name, "version": package_version(), "plan": shared.digest, "roster": members.digest}
        print_json({"ready": passed and ready, **about, **to_json(files.roster, findings, session, warnings)})
    else:
        show(files.roster, checked, session, asking.how.details)
    if not (passed and ready):
        raise SystemExit(3 if passed else 2)


def _by_file(checked: FileCheck, asking: _Asking) -> None:
    """Check a study to which files are handed in: a member of a committee asks the other members, and a contributor nobody."""
    if checked.is_member:
        own, rules = checked.files(), Policy.load(checked.node.policy)
        findings = checked.of_member(own, rules.folder)
        _with_others(own.files, own.files.roster, own.with_all, findings, rules, asking, own.terms)
        return
    findings = checked.of_contributor()
    tell_failed(findings)
    seen = CheckScreen(f"Study {checked.sealed.study.name!r}, by file", findings, asking.next_step("send"))
    if asking.json:
        print_json({"ready": seen.passed, "version": package_version(), "here": findings_json(findings), "parties": []})
    else:
        show_first(seen.lines(), asking.how.details, lambda: show_findings(findings))
    if not seen.passed:
        raise SystemExit(2)


def _data_of(files: PartyContext, data: str | Path | None, records: int | None, paying: PaymentOptions) -> str | Path | None:
    """What was given of a study's data; None for a session. Raises :class:`InputError` for what belongs to the other kind."""
    if not files.of_session:
        if records is not None:
            raise InputError("--records is for a session, and this is a study of statistics. Leave it out.")
    elif data is not None:
        raise InputError("the vectors of a session are made by a program, which reads its data itself. Leave --data out.")
    elif paying.account is None and paying.new_account is None and not paying.no_ledger:
        raise InputError("a session does not say which data set it is of. Give --account, or --no-ledger.")
    return data


def _look_at_session(contract: SessionContract, settings: NodeSettings, payer: Payer | None) -> list[Finding]:
    """The findings about a session that need no other party."""
    plan, parties, rounds = contract.plan, len(contract.parties), contract.study.rounds
    findings = [
        Finding(
            "session",
            True,
            f"{plan_text(plan)}: {count_of(rounds, 'round')} of {plan.protocol.name} for {parties} parties",
        )
    ]
    return [*findings, *_look_at_store_and_ledger(contract, settings, payer, "all rounds fit; before them")]


def _look_at_store_and_ledger(
    contract: Contract | SessionContract, settings: NodeSettings, payer: Payer | None, fits: str
) -> list[Finding]:
    """The findings about the store and the ledger.

    ``fits``: how the sentence begins that ends with what is left of the budget.
    """
    store = Finding.of("store", lambda: store_text(settings.store, settings.store_exists()))
    store = replace(store, short="the study goes on from its store" if settings.store.exists() else "storage can be written")
    if payer is None or not store.passed:
        return [store]

    cost = StudyCost(contract.name, contract.plan, contract.charge)
    return [store, ledger_finding(payer, cost, fits, lambda: payer.check(cost, settings))]


def _look(
    files: PartyContext, contract: Contract, data: str | Path, store: Path, payer: Payer | None, rules: Policy
) -> list[Finding]:
    """The findings about a study that need no other party."""
    plan, fits = contract.plan, "the study fits; before it"
    text = f"{plan_text(plan)}: {plan.protocol.name} for {len(files.roster)} parties"
    findings = [Finding("study", True, text, None)]
    try:
        records = files.records(data)
        require_number(len(records), files.study, contract.plans, rules)
        options = SiteOptions(store=store)
        settings, encoded = files.with_records(contract.choice, records, options)
        # Who has no room is known before the store is looked at: it was made for the vector without their values.
        people = People(records, data, files.home, warn)
        ledger, payer = _settled(payer, contract, people, begun_execution(settings))
        if payer is not None and payer.owner_notes:
            files.owner_notes.extend(payer.owner_notes)
            settings, _ = files.with_records(contract.choice, payer.records, options)
    except InputError as error:
        # Whether the store fits depends on the data.
        return [*findings, Finding("data", False, str(error))]
    filled = [column.name for column in contract.imputed]
    if filled:
        findings.append(Finding("missing", True, f"a missing cell counts as the middle of the bounds: {', '.join(filled)}"))
    findings.append(table_finding(data, files.workload.columns, len(records)))
    known = files.study.public_records(len(files.roster)) is not None
    findings.append(expected_finding(files.forecast(plan, records), "" if known else _AS_HERE))
    tell_notes(files.owner_notes)
    tell_owner([encoded])
    return [*findings, *_look_at_store_and_ledger(contract, settings, payer, fits), *ledger]


def _settled(payer: Payer | None, contract: Contract, people: People, begun: str) -> tuple[list[Finding], Payer | None]:
    """The payer who knows which persons take part without a value, or why the ledger takes none of the study."""
    if payer is None:
        return [], None
    try:
        cost = StudyCost(contract.name, contract.plan, contract.charge)
        return [], payer.of(people.records.in_order, people, cost).settled_people(cost, begun)
    except InputError as error:
        return [Finding("ledger", False, str(error))], None


def _folder(rules: Policy, named: str | None) -> Finding:
    """Whether the folder can be used from here: the one that was named, else that of the site's policy."""
    folder = rules.folder if named is None else named

    def look() -> str:
        if folder is None:
            return "to be named by join --folder PATH, or once by the policy of this site, which says none"
        parse_folder(folder)
        return f"{folder} is one that can be used"

    return Finding.of("folder", look, "the folder is not named. Give --folder." if folder is None else "the folder can be used")


def _listen(files: PartyContext, session: CheckSession, options: NodeOptions) -> Finding:
    address = files.roster.entries[files.party].address if options.listen is None else parse_address(options.listen)

    def look() -> str:
        session.listen(address)
        if isinstance(address, Path):
            return f"connections can be taken through {address}"
        return f"{format_address(address)} can be listened on"

    short = (
        "connections can be taken" if isinstance(address, Path) else f"port {format_address(address).rpartition(':')[2]} is free"
    )
    return Finding.of("address", look, short)
