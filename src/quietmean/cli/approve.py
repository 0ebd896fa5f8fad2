"""``quietmean approve``: the data owner says yes to a study, with a key of their own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import err, out, output, print_json, progress
from quietmean.core.errors import InputError
from quietmean.core.folders import configuration_folder


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ApprovalOptions:
    """Who says yes, for which data, under which policy, and for how long.

    Parameters
    ----------
    owner_key
        The private key of the data owner, from quietmean keygen: not the node's.
    account
        What the site's ledger calls the data set.
    until
        The last day on which the study may begin, such as 2030-12-31, in UTC.
    policy
        What the site takes part in; by default policy.toml in the user's folder for settings.
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
    """Sign a yes to a study, for join --approval and contribute --approval at a site whose policy names approvers.

    It is good for this contract, plan, data set and policy and this version of quietmean alone, until the day that is stated.
    Nothing is sent, and no data are read.

    Parameters
    ----------
    study
        The sealed study or session, a study file or session file, or the agreement of Flower's clients.
    roster
        Names, addresses and public keys of all parties; for a study that is not sealed.
    party
        The name of the site that takes part; of a client of Flower its number, such as "client 3".
    accept
        The digest of the contract, or the first 32 digits of it or more, where nobody can be asked.
    out_
        Where to write the approval.
    json
        One JSON document on standard output.
    """
    from quietmean.cli.asking import AtTerminal, show_contract
    from quietmean.cli.identity import load_identity
    from quietmean.flower.contract import FlowerContract, is_flower_agreement
    from quietmean.node.net import Purpose
    from quietmean.sessions.agreed import SessionContract, contract_for
    from quietmean.studies.agreement.signed import is_document
    from quietmean.studies.party import Contract, OwnerApproval, Policy, agreed_terms, require_digest

    # Checked before anything is asked: the file is an approval, or free.
    output(out_, "the approval", own=is_document(Purpose.APPROVAL))
    rules, owner = Policy.load(approval.policy), load_identity(approval.owner_key)
    with progress("calibrating the noise"):
        if is_flower_agreement(study):
            if roster is not None:
                raise InputError("--roster says nothing of an agreement of Flower's clients: leave it out")
            contract: Contract | SessionContract = FlowerContract.by_name(study, party)
        else:
            contract = contract_for(party, agreed_terms(study, roster))
    rules.refuse(contract)
    if owner.public_key not in rules.rules.approvers:
        where = "there" if rules.path else f"in {configuration_folder() / 'policy.toml'}"
        raise InputError(
            f"{owner.public_key} is not an approver of {rules.place}: name it {where} under [policy] as "
            f'approvers = ["{owner.public_key}"], or give the right --owner-key'
        )
    if accept is not None:
        require_digest(accept, contract)
    else:
        asking = AtTerminal()
        if not asking.can_ask():
            raise InputError("nobody can be asked without a terminal: give --accept DIGEST, from quietmean contract")
        show_contract(contract, err)
        if not asking.yes():
            raise InputError("you did not say yes: nothing was signed")
    signed = OwnerApproval.sign(contract, rules, approval.account, approval.until, owner)
    approval_file = output(out_, "the approval", own=signed.takes_the_place_of, kind=is_document(Purpose.APPROVAL))
    approval_file.write(signed.signed.to_file())
    if json:
        until = str(approval.until)
        print_json({"approval": str(out_), "contract": contract.digest, "approver": owner.public_key, "until": until})
    else:
        data_set = f"{contract.own.name} and the data set {approval.account}"
        out.print(f"{out_} is good until {approval.until}, for {data_set}")
