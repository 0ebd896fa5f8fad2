"""One party hands in its file: policy, contract, its data and the yes, then the charge, and what it contributes, durable here."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.core.site_options import ConsentOptions
from quietmean.ledger import Account
from quietmean.node.net import Identity
from quietmean.protocols.target import budget_warnings
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.distrust import Distrusted
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path
from quietmean.studies.agreement.voucher import Voucher
from quietmean.studies.data import Source, query_statement
from quietmean.studies.outcome.feasible import feasible_sealed
from quietmean.studies.party.accounts import records_for
from quietmean.studies.party.admission import PartyAdmission, Person
from quietmean.studies.party.audit import Event, LogHead
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.contributing import Contributed, contributor_of
from quietmean.studies.party.files import own_keys
from quietmean.studies.party.payment import ChargedStudy


@dataclass(frozen=True)
class Delivered:
    """What a party handed in: its ``contribution``, which may leave now; ``ledger`` and ``account`` where something was charged;
    ``head``: how far the site's audit log has come."""

    name: str
    contract: Contract
    contribution: Contributed
    ledger: Path | None
    account: Account | None
    head: LogHead


def taken_by_file(study: Path) -> Sealed | None:
    """The sealed study in a file to which a party hands in one file: it has a committee, or not all parties gave an address.
    None for anything else.

    Raises :class:`InputError` for one that is not as its convener signed it, or names a distrusted key.
    """
    sealed = Sealed.load(study) if is_signed_document(study) else None
    if sealed is None or not (has_committee(sealed.terms) or sealed.by_file):
        return None
    Distrusted().refuse(sealed.holders())
    return sealed


def contract_by_file(sealed: Sealed, identity: Identity, key: Path, *, no_privacy: bool = False) -> Contract:
    """What the party with this ``key``, of which the ``identity`` is, agrees to where it hands in a file."""
    choice = feasible_sealed(sealed, no_privacy=no_privacy)
    return Contract.by_file(sealed, identity, choice, Voucher.of_key(key))


def own_place(sealed: Sealed, identity: Identity, keys: StudyKeys, key: Path) -> str:
    """The party's name. Raises :class:`InputError` for keys that were made for another identity."""
    if keys.entry.identity != identity.public_key:
        raise InputError(f"the keys in {keys.path} were made for {keys.entry.identity}, not for the key in {key}: accept anew")
    return sealed.require_own(keys).name


def contributor_keys(sealed: Sealed, identity: Identity, key: Path, store: Path | None) -> StudyKeys:
    """A contributor's keys for a study: those of its entry, or made now by the voucher that came with its ``key``.

    Raises :class:`InputError` for who has neither, and for a voucher that does not admit this key to this study.
    """
    voucher = None if sealed.lists(identity.public_key) else Voucher.of_key(key)
    if voucher is None:
        return own_keys(sealed, key, store)
    voucher.require_for(sealed.invitation, identity.public_key)
    path = keys_path(key, sealed.invitation.digest, store)
    return StudyKeys.make(path, sealed.invitation, identity, key.stem, "", voucher=voucher)


def hand_in(
    sealed: Sealed, identity: Identity, keys: StudyKeys, data: Source, data_name: str, options: ConsentOptions, person: Person
) -> Delivered:
    """Hand in a contribution, again the same one for the same data. It is charged in full, once.

    ``data_name``: what the ledger calls the data.

    Raises :class:`InputError` for a policy or a budget that does not allow it, without a yes, for data that do not fit, for other
    data than before, and where contributions come too late.
    """
    study = sealed.study
    site = PartyAdmission(study, identity, options, data_name, person, keys)
    choice = feasible_sealed(sealed, by_file=study.committee is None)
    contributor = contributor_of(sealed, choice.plan, identity, keys)
    query = query_statement(data, study.workload.columns, study.unit)
    contract = replace(Contract.by_file(sealed, identity, choice, keys.voucher), query=query)
    site.examine(contract)
    notes: list[str] = []
    records = records_for(study, data, notes.append)
    # The folder of the keys for this study: that of the identity key, unless a store has one of its own.
    site.count(records, data, keys.path.parent.absolute())
    site.consent()

    def execution() -> str:
        return contributor.study

    site.use_approvals(execution)
    charges: list[ChargedStudy | None] = []
    with nullcontext() if site.payer is None else site.payer.alone():
        notes += site.settled_people(execution())
        records = records if site.payer is None else site.payer.records
        encoded = study.workload.encode(records, step=choice.plan.value_step)
        person.tell_owner(encoded, notes)

        def charge(content: bytes) -> None:
            charges.append(site.charge(execution, refund=False, content=content))

        contribution = contributor.contribute(encoded, charge)
    about = {"digest": contribution.digest, "session": sealed.digest, **query.to_json()}
    head = site.auditor.write(Event.CONTRIBUTED, about)
    # Nothing reads the private values any more.
    encoded.vector.fill(0.0)
    records.wipe()
    for sentence in budget_warnings(choice.plan.target):
        person.warn(sentence)
    if not charges or (paid := charges[0]) is None:
        return Delivered(keys.entry.name, contract, contribution, None, None, head)
    return Delivered(keys.entry.name, contract, contribution, paid.ledger, paid.balance(), head)
