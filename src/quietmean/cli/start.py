"""``quietmean start``: the convener starts a study before its time, with those who are there."""

from __future__ import annotations

from pathlib import Path

from quietmean.cli.console import out, print_json, printable
from quietmean.cli.identity import load_identity
from quietmean.core.errors import InputError


def start_command(
    study: Path,
    *,
    roster: Path | None = None,
    key: Path = Path("quietmean.key"),
    store: Path | None = None,
    json: bool = False,
) -> None:
    """Start a study with start_by before its time, as soon as its minimum of parties is there. For its first convener only.

    The convener's join runs on this machine, and proposes those who are there within seconds; through a folder, when it looks
    there next. Who comes later is not in.

    Parameters
    ----------
    study
        The sealed study, or a study file.
    roster
        Names, addresses and public keys of all parties; for a study that is not sealed.
    key
        The convener's private key.
    store
        The store that was given to join; by default STUDY-PARTY.store beside the study.
    json
        One JSON document on standard output.
    """
    from quietmean.node.monitor import read_status, status_path
    from quietmean.studies.party import PartyFiles, start_request

    files = PartyFiles.load(study, roster, key, load_identity, store)
    if not files.terms.starts_with_quorum:
        raise InputError("this study has no start_by: it starts as soon as all parties are there, and not before")
    first = files.roster.conveners[0]
    if files.party != first:
        raise InputError(f"{files.name} is not the first convener of this study: ask {files.roster.name(first)} to start it")
    store_path = files.store(store)
    status = status_path(store_path)
    # Through a folder its next visit does it.
    visits = files.terms.by_folder and files.begun(store)
    if not visits and (not status.exists() or read_status(status)["alive"] is not True):
        raise InputError(f"no join with the store {store_path} runs on this machine: start it first, it goes on by itself then")
    request = start_request(store_path)
    request.touch(mode=0o600)
    if json:
        print_json({"asked": str(request)})
    else:
        out.print(f"{printable(files.name)} starts {printable(files.terms.name)} as soon as enough parties are there")
