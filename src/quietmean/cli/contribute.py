"""``quietmean contribute``: take part in a study by writing one file."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import out, output, print_json, tell_notes, tell_owner, warn
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.core.readable import epsilon_text
from quietmean.core.site_options import ConsentOptions


def command(
    study: Path,
    *,
    data: str | Path,
    key: Path = Path("quietmean.key"),
    out_: Annotated[Path | None, Parameter(name="--out")] = None,
    store: Path | None = None,
    site: Annotated[ConsentOptions, Parameter(name="*", negative="")] = ConsentOptions(),  # noqa: B008 - it is frozen
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write this party's one contribution to a sealed study. Nobody needs to be online, and the file may travel anyhow.

    The same data give the same file again; other data are refused. It is charged in full, and never given back.

    Parameters
    ----------
    study
        The sealed study.
    data
        This party's records: a file, or a database such as postgresql://HOST/DATABASE (docs/how-to/data.md).
    key
        This party's private key, from quietmean keygen.
    out_
        Where to write the contribution; by default NAME.contribution. No other file is overwritten.
    store
        The folder of this study's keys, as for accept; by default beside the private key.
    json
        One JSON document on standard output.
    """
    from quietmean.cli.asking import AtTerminal
    from quietmean.cli.identity import load_identity
    from quietmean.core.errors import InputError
    from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
    from quietmean.protocols.target import budget_warnings
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.data import Records, account_name
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.party import (
        Consent,
        ConsentInAdvance,
        Contract,
        Policy,
        account_of,
        auditor_for,
        charge_of,
        file_name,
        own_keys,
        payer_for,
    )
    from quietmean.studies.party.audit import Event
    from quietmean.studies.party.by_file import Giver, charge_id, require_by_file

    forbid_core_dumps()
    forbid_tracing()
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    identity, keys = load_identity(key), own_keys(sealed, key, store)
    if keys.entry.identity != identity.public_key:
        raise InputError(f"the keys in {keys.path} were made for {keys.entry.identity}, not for the key in {key}: accept anew")
    name = keys.entry.name
    joined = study.parent / f"{study.with_suffix('').name}-{file_name(name)}.store"
    if joined.exists():
        raise InputError(f"{name} has joined this study, see {joined}: a contribution besides would tell more than was agreed")
    rules = Policy.load(site.policy)
    payer = payer_for(rules, sealed.study.unit, account_name(data), site, warn)
    choice = sealed.study.choice(len(sealed.entries))
    plan = choice.plan
    require_by_file(plan)
    path = out_ or Path(f"{file_name(name)}.contribution")
    output(path, "the contribution", own=partial(_is_contribution, None))
    contract = Contract.by_file(sealed, identity, choice)
    auditor = auditor_for(rules, identity, contract)
    with auditor.refusals():
        rules.refuse(contract)
    public = sealed.study.public_records(len(sealed.entries))
    if public is not None:
        Forecast(sealed.study, plan, public).require_hope()
    data_set = account_of(payer, account_name(data), site)
    consent = Consent(rules, ConsentInAdvance.of(site), AtTerminal(), warn, account=data_set, keys=keys, auditor=auditor)
    approved = consent.to(contract)
    notes: list[str] = []
    records = Records(data, sealed.study.workload.columns, notes.append, sealed.study.rows)
    with auditor.refusals():
        rules.refuse_records(len(records), sealed.study.count, sealed.study.unit)
    sealed.study.require_records(len(records))
    encoded = sealed.study.workload.encode(records, step=plan.value_step)
    tell_owner([encoded])
    tell_notes(notes)
    giver = Giver(sealed, plan, identity, keys)
    payer = None if payer is None else payer.of(records.in_order)
    balances = []
    auditor.use(approved["approval"].get("approvals", ()), charge_id(sealed, keys))

    def charge(content: bytes) -> None:
        if payer is not None:
            balances.append(payer.reserve_file(sealed.study.name, plan, charge_id(sealed, keys), content))
            auditor.write(Event.CHARGED, charge_of(plan, payer))

    contribution = giver.contribute(encoded, charge)
    own = output(path, "the contribution", own=partial(_is_contribution, contribution.digest))
    head = auditor.write(Event.CONTRIBUTED, {"digest": contribution.digest, "session": sealed.digest})
    own.write(contribution.to_file())
    # Nothing reads the private values any more.
    encoded.vector.fill(0.0)
    records.wipe()
    for sentence in budget_warnings(plan.target):
        warn(sentence)
    document = {
        "contribution": str(path),
        "digest": contribution.digest,
        "party": name,
        "session": sealed.digest,
        "epsilon_a_priori": plan.epsilon_a_priori,
        "delta": plan.target.delta,
        "audit": head.to_json(),
        **({"ledger": {"file": str(payer.ledger), **balance_json(balances[0])}} if payer is not None and balances else {}),
    }
    if json:
        print_json(document)
        return
    out.print(f"contribution {path}, digest {contribution.digest}", markup=False)
    cost = f"epsilon {epsilon_text(plan.epsilon_a_priori)} at delta {plan.target.delta:g} for one {plan.target.unit}"
    out.print(f"it costs {cost}, whoever sees it and whoever else contributes", markup=False)
    for balance in balances:
        show_balance(balance)


def _is_contribution(digest: str | None, content: bytes) -> bool:
    """Whether a file holds a contribution, or the one with this digest."""
    from quietmean.core.errors import InputError
    from quietmean.node.net import Purpose
    from quietmean.studies.agreement.signed import signed_in

    with suppress(InputError):
        return digest in (None, signed_in(Purpose.CONTRIBUTION, content).digest)
    return False
