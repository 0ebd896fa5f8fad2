"""Commands before a study starts: accept an invitation, show or sign a yes to a contract, and refuse a key."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.common import Out
from quietmean.cli.console import err, out, output, print_json, print_lines, printable, progress
from quietmean.cli.identity import AtTerminal, kept, load_identity, make_identity, show_contract
from quietmean.cli.options import NO_AGREEMENT_OPTIONS, AgreementOptions
from quietmean.cli.screens import AGREE, THEN, rows
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import require_kind_of_store
from quietmean.core.folders import configuration_folder
from quietmean.core.readable import ShortFact, count_of, indented, marked
from quietmean.flower.agreement import FlowerContract, is_flower_agreement
from quietmean.node.net import Purpose, parse_place, require_name
from quietmean.studies.agreement.any_study import facts_of
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.session_study import MODEL
from quietmean.studies.agreement.signed import is_document
from quietmean.studies.agreement.study_keys import Distrusted, StudyKeys, keys_path, require_role
from quietmean.studies.outcome.feasible import needs_addresses
from quietmean.studies.party import (
    Agreement,
    Contract,
    OwnerApproval,
    PartyContext,
    Policy,
    agreed_terms,
    file_name,
    require_digest,
)
from quietmean.studies.party.approval import DIGITS, screen_of
from quietmean.studies.party.handing_in import contract_by_file, taken_by_file
from quietmean.studies.party.session_contract import SessionContract, contract_for


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """What the entry says of this party.

    Parameters
    ----------
    name
        This party's name, as other parties will see it.
    address
        HOST:PORT where other parties reach this one; or relay:HOST:PORT, if they reach it through a relay.
    member
        For a study with a committee: this party is a member, which holds shares and opens the sum. Other parties only
        contribute.
    replaces
        The old private key, if other parties know this party by an old one.
    """

    name: str
    address: str = ""
    member: bool = False
    replaces: Path | None = None

    def require_possible(self) -> None:
        """Raises :class:`InputError` for what cannot be a name or an address."""
        require_name(self.name)
        if self.address:
            parse_place(self.address)


def accept_command(
    invitation: str,
    *,
    entry: EntryOptions,
    key: Path = Path("quietmean.key"),
    store: Path | None = None,
    save: Out = None,
    line: bool = False,
    json: bool = False,
) -> None:
    """Make this party's own keys for one study, and its entry, which goes back to the coordinator. Nothing else leaves.

    Accepting again with another name or address makes new keys and a new entry; only the last one can take part.

    Parameters
    ----------
    invitation
        The invitation: its file, or the line of text.
    key
        This party's private key, from quietmean key new. If the file does not exist, a new key is made.
    store
        The folder for this study's keys. Default: beside the private key. Never copy them, and never restore them from a
        backup.
    save
        Where to write the entry. Default: NAME.entry.
    line
        Print the entry as one line of text instead.
    json
        One JSON document on standard output.
    """
    invitation_terms = Invitation.load(invitation)
    Distrusted().refuse([("the coordinator", invitation_terms.convener)])
    # Before any file is written.
    entry.require_possible()
    require_role(invitation_terms, entry.address, entry.member)
    before = None if entry.replaces is None else load_identity(entry.replaces)
    if store is not None and not store.is_dir():
        raise InputError(f"store {store} is not a folder. Make it, or leave --store out.")
    # A name is not a path.
    target = save or Path(f"{file_name(entry.name)}.entry")
    new_key = not key.exists()
    identity = None if new_key else load_identity(key)
    output_file = None
    if not line:
        own_key = None if identity is None else identity.public_key
        output_file = output(
            target, "the entry", own=partial(_is_own, own_key, invitation_terms), kind=is_document(Purpose.ENTRY)
        )
    identity = identity or make_identity(key)
    path = keys_path(key, invitation_terms.digest, store)
    keys = StudyKeys.make(path, invitation_terms, identity, entry.name, entry.address, before, entry.member)
    if output_file is not None:
        output_file.write(keys.entry.signed.to_file())
    if json:
        text = {"line": keys.entry.signed.to_line()} if line else {"entry": str(target)}
        named = {"name": entry.name, **({"member": True} if entry.member else {})}
        print_json(
            {**text, "keys": str(path), "invitation": invitation_terms.digest, "convener": invitation_terms.convener, **named}
        )
        return
    if line:
        out.print(keys.entry.signed.to_line())
        return
    sealed = quote(str(Path(invitation).with_suffix(".sealed").name)) if Path(invitation).is_file() else "STUDY.sealed"
    folder = "" if store is None else f" --store {quote(str(store))}"
    holds = "your keys" if keys.entry.has_keys else "what you contribute"
    print_lines(
        [
            *_accepted(invitation_terms, entry),
            *indented("Send", f"{target} to the coordinator. Wait for {sealed}."),
            *indented("Keep", f"{path} here: {holds}."),
            *(kept(key) if new_key else ()),
            f"{THEN}verify words {sealed} --key {quote(str(key))}{folder}",
        ]
    )


def _is_own(identity: str | None, received: Invitation, content: bytes) -> bool:
    """Whether a file is the entry of this identity for this invitation."""
    with suppress(InputError):
        entry = Entry.of_file(content)
        return entry.identity == identity and entry.invitation == received.digest
    return False


_NO_ADDRESS = "Nobody can connect to you, so the study may not be sealed. Accept again with --address HOST:PORT."


def _accepted(received: Invitation, entry: EntryOptions) -> list[str]:
    study = received.terms
    at = f" at {entry.address}" if entry.address else ""
    return [
        f"{entry.name}{at} takes the invitation to {study.called} {study.name!r}, as it is written here.",
        "No data and no secrets leave yet. You say yes later, to its contract.",
        *rows([*facts_of(study), ShortFact("by", received.convener), ShortFact("digest", received.digest)]),
        *(marked("ADDRESS", _NO_ADDRESS) if needs_addresses(study, member=entry.member) and not entry.address else ()),
    ]


def contract_command(
    study: Path,
    *,
    agreed: AgreementOptions = NO_AGREEMENT_OPTIONS,
    store: Path | None = None,
    policy: Path | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Show what a study or a session asks, from whom it protects and what it costs at most; and the digest for --accept.

    Nothing is sent and no data are read. Exit code 2, with all rules that are broken, if this site's policy refuses the study.

    Parameters
    ----------
    study
        The signed study or session, a study file or session file, or the agreement of Flower's clients.
    store
        The folder of this party's keys for a signed study, as for join.
    policy
        This site's rules for taking part. Default: policy.toml in the user's settings folder.
    details
        Show all terms and all assumptions.
    json
        One JSON document on standard output.
    """
    require_kind_of_store(store)
    rules = Policy.load(policy)
    with progress("calibrating the noise"):
        if is_flower_agreement(study):
            agreed.require_key_alone("an agreement of Flower's clients", store)
            contract: Contract | SessionContract = FlowerContract.by_key(study, load_identity(agreed.key))
        elif (sealed := taken_by_file(study)) is not None:
            agreed.require_key_alone("a sealed study by file", store)
            contract = contract_by_file(sealed, load_identity(agreed.key), agreed.key)
        else:
            files = PartyContext.load(study, agreed.roster, agreed.key, load_identity, store)
            contract = files.contract(agreed.plan, agreed.no_privacy)
    broken = rules.broken(contract)
    if json:
        print_json({**contract.to_json(), "policy": {"where": rules.place, "digest": rules.digest, "broken": broken}})
    else:
        if details:
            show_contract(contract, out)
        screen = screen_of(contract)
        out.print("\n".join([*([] if details else screen.lines()), *screen.marked()]))
    if broken:
        for sentence in broken:
            err.print(f"quietmean: refused by {printable(rules.place)}: {printable(sentence)}")
        raise SystemExit(InputError.exit_code)
    if not json:
        out.print(f"Allowed by {printable(rules.place)}.")
        if least := rules.rules.least_approvals:
            signed = count_of(least, "of its approvers signs", "of its approvers sign")
            out.print(f"Required: {signed}, with quietmean site approve.")
        if least or isinstance(contract, FlowerContract):
            print_lines([f"{'To sign: --accept' if least else 'To agree: accept ='} {contract.accept_digest[:DIGITS]}"])
        else:
            print_lines([_agree_with(contract, study, agreed, {"store": store, "policy": policy})])
        if not details:
            out.print(f"{'More':10}all {len(contract.facts())} terms: --details")


def _agree_with(contract: Agreement, study: Path, agreed: AgreementOptions, site: dict[str, Path | None]) -> str:
    """The command that says yes, as it is typed; only its party knows FILE, FOLDER and NAME."""
    given = {"roster": agreed.roster, "key": agreed.key, "plan": agreed.plan, **site}
    options = [f"--{name} {quote(str(path))}" for name, path in given.items() if path not in (None, NO_AGREEMENT_OPTIONS.key)]
    own = [] if contract.sealed is None else [entry for entry in contract.sealed.entries if entry.name == contract.own.name]
    member = any(entry.member for entry in own)
    if isinstance(contract, SessionContract):
        data = "--data FILE" if contract.study.purpose.get("kind") == MODEL else "--program FILE"
        options += [data, "--account NAME"]
    else:
        options += ["--contributions FOLDER"] * member + ["--data FILE"]
    options += ["--no-privacy"] * agreed.no_privacy
    options += ["--a-priori-above-target"] * any(plan.above_target is not None for plan in contract.plans)
    verb = "send" if contract.contributes and not member else "join"
    return f"{AGREE}{verb} {quote(str(study))} {' '.join(options)} --accept {contract.accept_digest[:DIGITS]}"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ApprovalOptions:
    """Who says yes, for which data, under which policy, and for how long.

    Parameters
    ----------
    owner_key
        The private key of the data owner, from quietmean key new: not the node's.
    account
        The budget account of these data in the site's ledger.
    until
        The last day on which the study may start, such as 2030-12-31, in UTC.
    policy
        The site's rules for taking part. Default: policy.toml in the user's settings folder.
    """

    owner_key: Path = Path("owner.key")
    account: str
    until: date
    policy: Path | None = None


def approve_command(
    study: Path,
    *,
    roster: Path | None = None,
    party: str | None = None,
    approval: ApprovalOptions,
    accept: str | None = None,
    out_: Annotated[Path, Parameter(name="--out")] = Path("study.approval"),
    json: bool = False,
) -> None:
    """Sign a yes to a study, for join --approval and send --approval at a site whose policy names approvers.

    It is good for this contract, plan, data set and policy and this version of quietmean alone, until the day that is stated.
    Nothing is sent, and no data are read.

    Parameters
    ----------
    study
        The signed study or session, a study file or session file, or the agreement of Flower's clients.
    roster
        Names, addresses and public keys of all parties. For a study that is not signed.
    party
        The name of the site that takes part. For a client of Flower: its number, such as "client 3".
    accept
        The digest that site contract prints, or at least its first 32 digits. For use without a terminal.
    out_
        Where to write the approval.
    json
        One JSON document on standard output.
    """
    # Checked before anything is asked: the file is an approval, or free.
    output(out_, "the approval", own=is_document(Purpose.APPROVAL))
    rules, owner = Policy.load(approval.policy), load_identity(approval.owner_key)
    with progress("calibrating the noise"):
        if is_flower_agreement(study):
            if roster is not None:
                raise InputError("--roster has no effect in an agreement of Flower's clients. Leave it out.")
            contract: Contract | SessionContract = FlowerContract.by_name(study, party)
        else:
            contract = contract_for(party, agreed_terms(study, roster))
    rules.refuse(contract)
    if owner.public_key not in rules.rules.approvers:
        where = "there" if rules.path else f"in {configuration_folder() / 'policy.toml'}"
        raise InputError(
            f"{owner.public_key} is not an approver of {rules.place}. Name it {where} under [policy] as "
            f'approvers = ["{owner.public_key}"], or give the right --owner-key.'
        )
    if accept is not None:
        require_digest(accept, contract)
    else:
        asking = AtTerminal(act="sign")
        if not asking.can_ask():
            raise InputError("nobody can be asked without a terminal. Give --accept DIGEST, from quietmean site contract.")
        screen = screen_of(contract)
        asking.show(screen)
        if not asking.yes(contract, screen):
            raise InputError("you did not say yes. Nothing was signed. Give the command again to sign.")
    signed = OwnerApproval.sign(contract, rules, approval.account, approval.until, owner)
    approval_file = output(out_, "the approval", own=signed.takes_the_place_of, kind=is_document(Purpose.APPROVAL))
    approval_file.write(signed.signed.to_file())
    if json:
        until = str(approval.until)
        print_json({"approval": str(out_), "contract": contract.digest, "approver": owner.public_key, "until": until})
    else:
        about = [ShortFact("for", contract.own.name), ShortFact("data", approval.account)]
        about += [ShortFact("contract", contract.digest), ShortFact("by", owner.public_key)]
        lines = [f"{out_} is good until {approval.until}.", *rows(about)]
        print_lines([*lines, *indented("Give", f"it to who runs quietmean join, for --approval {out_}.")])


def revoke_command(key: str | None = None, *, json: bool = False) -> None:
    """Refuse every invitation, entry, sealed study and roster with this key, from now on, at this site.

    Without a key it lists those that are refused.

    Parameters
    ----------
    key
        The public key (ed25519:...), or its revocation: the file KEY.revocation from quietmean key new.
    json
        One JSON document on standard output.
    """
    here = Distrusted()
    added = None if key is None else here.add(key)
    if json:
        print_json({"distrusted": list(here.keys()), "file": str(here.path)})
    elif added is not None:
        out.print(f"{added} is refused here from now on ({here.path})")
    else:
        for line in here.keys() or ("no key is distrusted here",):
            out.print(line)
