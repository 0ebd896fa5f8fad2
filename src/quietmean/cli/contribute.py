"""``quietmean contribute``: take part in a study by writing one file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quietmean.cli.common import Out
from quietmean.cli.console import out, output, print_facts, print_json, tell_notes, tell_owner, warn
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.cli.opened import make_folder
from quietmean.core.errors import InputError
from quietmean.core.site_options import ConsentOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quietmean.node import Identity
    from quietmean.statistics import Encoded
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.party.handing_in import Delivered


def contribute_command(
    study: Path,
    *,
    data: str | Path,
    key: Path = Path("quietmean.key"),
    out_: Out = None,
    drop: str | None = None,
    store: Path | None = None,
    site: Annotated[ConsentOptions, Parameter(name="*")] = ConsentOptions(),  # noqa: B008 - it is frozen
    json: bool = False,
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
        This party's private key, from quietmean keygen; or the voucher that a registrar made. One for this key is in NAME.voucher
        beside NAME.key.
    out_
        Where to write the contribution; by default NAME.contribution. No other file is overwritten.
    drop
        https://HOST of a drop, to which the contribution is sent; its signed receipt is written beside it.
    store
        The folder of this study's keys, as for accept; by default beside the private key.
    json
        One JSON document on standard output.
    """
    from quietmean.cli.identity import load_identity
    from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.party.dropping import hand_over, require_drop_for

    forbid_core_dumps()
    forbid_tracing()
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    if drop is not None:
        require_drop_for(sealed, drop)
    identity = load_identity(key)
    handed, path = write_contribution(study, sealed, identity, key, data, out_, store, site)
    sent = {}
    if drop is not None:
        received, receipt_path = hand_over(drop, sealed, identity.public_key, handed.contribution, path)
        sent = {"drop": drop, "receipt": str(receipt_path), "received": received.came}
    contract, account = handed.contract, handed.account
    document = {
        "contribution": str(path),
        "digest": handed.contribution.digest,
        "party": handed.name,
        "session": sealed.digest,
        "epsilon_a_priori": contract.epsilon_a_priori,
        "epsilon_if_all_others_collude": contract.everybody_else,
        "delta": contract.target.delta,
        "audit": handed.head.to_json(),
        **sent,
        **({"ledger": {"file": str(handed.ledger), **balance_json(account)}} if account is not None else {}),
    }
    if json:
        print_json(document)
        return
    out.print(f"contribution {path}, digest {handed.contribution.digest}")
    if sent:
        out.print(f"drop {drop} has it since {sent['received']}, see {sent['receipt']}")
    print_facts(contract.facts)
    if account is not None:
        show_balance(account)


def write_contribution(
    study: Path,
    sealed: Sealed,
    identity: Identity,
    key: Path,
    data: str | Path,
    chosen_path: Path | None,
    store: Path | None,
    site: ConsentOptions,
) -> tuple[Delivered, Path]:
    """Hand in, and write the file; and where it is. Raises :class:`InputError` as :func:`hand_in`, and for another file there."""
    from quietmean.cli.asking import AtTerminal
    from quietmean.studies.agreement.any_study import has_committee
    from quietmean.studies.data import account_name
    from quietmean.studies.party import Observers, Person, file_name
    from quietmean.studies.party.contributing import is_contribution
    from quietmean.studies.party.handing_in import contributor_keys, hand_in, own_place

    keys = contributor_keys(sealed, identity, key, store)
    name = own_place(sealed, identity, keys, key)
    joined = study.parent / f"{study.with_suffix('').name}-{file_name(name)}.store"
    if joined.exists() and not has_committee(sealed.terms):
        raise InputError(f"{name} has joined this study, see {joined}: a contribution besides would tell more than was agreed")
    path = chosen_path or Path(f"{file_name(name)}.contribution")
    if has_committee(sealed.terms):
        make_folder(path.parent)
    output(path, "the contribution", own=partial(is_contribution, None))

    def tell(encoded: Encoded, notes: Sequence[str]) -> None:
        tell_owner([encoded])
        tell_notes(list(notes))

    person = Person(AtTerminal(), warn, warn, tell, Observers(lambda event: None))
    handed = hand_in(sealed, identity, keys, data, account_name(data), site, person)
    own = output(path, "the contribution", own=partial(is_contribution, handed.contribution.digest))
    own.write(handed.contribution.to_file())
    return handed, path
