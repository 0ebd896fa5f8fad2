"""``quietmean contract``: what a party of a study agrees to, before anything leaves its machine."""

from __future__ import annotations

from pathlib import Path

from quietmean.cli.agreed import NO_AGREEMENT_OPTIONS, AgreementOptions
from quietmean.cli.console import err, out, print_json, printable, progress
from quietmean.core.errors import InputError


def contract_command(
    study: Path,
    *,
    agreed: AgreementOptions = NO_AGREEMENT_OPTIONS,
    store: Path | None = None,
    policy: Path | None = None,
    json: bool = False,
) -> None:
    """Show what a study or a session asks, from whom it protects, what it costs at most and takes for granted; and the digest for
    --accept.

    Nothing is sent and no data are read. Exit code 2, with all rules that are broken, if this site's policy refuses the study.

    Parameters
    ----------
    study
        The sealed study or session, a study file or session file, or the agreement of Flower's clients.
    store
        The folder of this party's keys for a sealed study, as for join.
    policy
        What this site takes part in; by default policy.toml in the user's folder for settings.
    json
        One JSON document on standard output.
    """
    from quietmean.cli.asking import show_contract
    from quietmean.cli.identity import load_identity
    from quietmean.flower.contract import FlowerContract, is_flower_agreement
    from quietmean.sessions.agreed import SessionContract
    from quietmean.sessions.files import contract_of, load_files
    from quietmean.studies.party import Contract, Policy
    from quietmean.studies.party.handing_in import contract_by_file, taken_by_file

    rules = Policy.load(policy)
    with progress("calibrating the noise"):
        if is_flower_agreement(study):
            agreed.require_key_alone("an agreement of Flower's clients", store)
            contract: Contract | SessionContract = FlowerContract.by_key(study, load_identity(agreed.key))
        elif (sealed := taken_by_file(study)) is not None:
            agreed.require_key_alone("a sealed study by file", store)
            contract = contract_by_file(sealed, load_identity(agreed.key), agreed.key)
        else:
            files = load_files(study, agreed.roster, agreed.key, load_identity, store)
            contract = contract_of(files, agreed.plan, agreed.no_privacy)
    broken = rules.broken(contract)
    if json:
        print_json({**contract.to_json(), "policy": {"where": rules.place, "digest": rules.digest, "broken": broken}})
    else:
        show_contract(contract, out)
    if broken:
        for sentence in broken:
            err.print(f"quietmean: refused by {printable(rules.place)}: {printable(sentence)}")
        raise SystemExit(InputError.exit_code)
    if not json:
        out.print(f"allowed by {printable(rules.place)}")
