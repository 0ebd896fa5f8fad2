"""What stands below the options in ``quietmean COMMAND --help``: an example, the options of all commands, and exit codes."""

from __future__ import annotations

# An example of each command as it may be typed, apart from names of files.
EXAMPLES = {
    "demo": "quietmean demo --out first-study",
    "run": "quietmean run --data patients.csv --column age --bounds 0 110 --parties 20 --epsilon 1",
    "keygen": "quietmean keygen --key north.key --name north --address north.example.org:7000",
    "new": "quietmean new --out study.toml --name stay --column days --bounds 0 60 --epsilon 1",
    "invite": "quietmean invite study.toml --key convener.key --out study.invitation",
    "accept": "quietmean accept study.invitation --key north.key --name north --out north.entry",
    "seal": "quietmean seal study.invitation north.entry south.entry --key convener.key --out study.sealed",
    "vouchers": "quietmean vouchers study.invitation --key registrar.key --out vouchers",
    "words": "quietmean words study.sealed",
    "distrust": "quietmean distrust north.key.revocation",
    "data": "quietmean data visits.csv study.sealed",
    "check": "quietmean check study.sealed --key north.key --data visits.csv",
    "join": "quietmean join study.sealed --key north.key --data visits.csv",
    "contribute": "quietmean contribute study.sealed --key north.key --data visits.csv --out north.contribution",
    "combine": "quietmean combine study.sealed north.contribution south.contribution",
    "result": "quietmean result study.sealed study-north.sums",
    "relay": "quietmean relay --listen :443 --certificate relay.pem --private-key relay.key --admit study.sealed",
    "drop": "quietmean drop --study study.sealed --listen :443 --folder box --certificate drop.pem --private-key drop.key",
    "desk": "quietmean desk studies --party north",
    "approve": "quietmean approve study.sealed --party north --owner-key owner.key --account wards --until 2030-12-31",
    "contract": "quietmean contract study.sealed --key north.key",
    "start": "quietmean start study.sealed --key ada.key",
    "status": "quietmean status --study study.toml",
    "stores": "quietmean stores studies --remove studies/stay-north.store",
    "certify": "quietmean certify study-north.receipt.json --colluding 2",
    "attack": "quietmean attack receipt.json --target 0 --corrupt 3,4",
    "plan": "quietmean plan --parties 20 --epsilon 1 --delta 1e-6",
    "simulate": "quietmean simulate plan.json --runs 1000",
    "ledger": "quietmean ledger --ledger my.ledger --account wards --budget 1.0 1e-6",
    "audit": "quietmean audit verify --against study-north.receipt.json",
    "schema": "quietmean schema result --out result.schema.json",
    "completion": "quietmean completion --install",
}
_COMMON = (
    "With every command: --quiet shows results and errors only; --force writes over a file of the same kind, never over a key, "
    "data, a receipt, a contribution or a sealed study; --log-file FILE also writes what happens there, without anything "
    "about the data; with --json an error is a JSON document, too."
)
_CODES = (
    "Exit codes: 0 done; 1 a defect of quietmean; 2 a mistake in what was asked, and one sentence says how to mend it; 3 a "
    "protocol could not finish; 75 a disk is full or fails, or memory is used up, and the same command goes on later; 130 "
    "interrupted."
)


def epilogue(command: str) -> str:
    """The text below the options."""
    example = f"Example: {EXAMPLES[command]}\n\n" if command in EXAMPLES else ""
    return f"{example}{_COMMON}\n\n{_CODES}"
