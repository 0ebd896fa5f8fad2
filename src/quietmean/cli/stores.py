"""``quietmean stores``: what studies have left on this machine, and removing it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quietmean.cli.console import out, print_json, printable
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_file, refuse_other

# The state of a node that has its result and needs its store no more; in any other the study may go on.
_OVER = "finished"


def stores_command(
    folder: Path = Path(),
    *,
    remove: list[Path] | None = None,
    abandon: bool = False,
    json: bool = False,
) -> None:
    """List the stores of a folder, with their studies and whether they are still needed; or remove some.

    A store that a process has open is never removed. After the end of a study its store holds the result only; before, it
    is what continues the study after a crash, and no backup can replace it.

    Parameters
    ----------
    folder
        Where the stores are; default the current folder.
    remove
        A store to be removed, with the files that belong to it; repeat for several.
    abandon
        Remove stores of studies that have not ended, too. Such a study cannot be continued; what it was charged stays charged.
    json
        One JSON document on standard output.
    """
    from quietmean.node.storage import find_stores, remove_store

    if abandon and not remove:
        raise InputError("--abandon says nothing without --remove: name the stores to be removed")
    if not remove:
        _list([_described(store) for store in find_stores(folder)], json)
        return
    # All stores are checked before the first one is deleted.
    for store in remove:
        refuse_other(kind_of_file(store), f"file {store}", FileKind.STORE)
        _require_removable(_described(store), abandon)
    removed = [path for store in remove for path in remove_store(store)]
    if json:
        print_json({"removed": [str(path) for path in removed]})
    else:
        for path in removed:
            out.print(f"removed {path}")


def _described(store: Path) -> dict[str, Any]:
    from quietmean.node.monitor import read_status, status_path
    from quietmean.node.storage import in_use, size_of

    used = in_use(store)
    try:
        status = read_status(status_path(store))
    except InputError:
        status = {}
    state = status.get("state", "unknown")
    if state == "running" and not used:
        state = "stopped"
    changed = datetime.fromtimestamp(store.stat().st_mtime, UTC).isoformat(timespec="seconds")
    about = {"study": status.get("study"), "party": status.get("party")}
    return {"store": str(store), **about, "state": state, "in_use": used, "bytes": size_of(store), "changed": changed}


def _require_removable(about: dict[str, Any], abandon: bool) -> None:
    if about["in_use"]:
        raise InputError(f"store {about['store']} is in use: stop the process that has it open, then remove it")
    if about["state"] != _OVER and not abandon:
        raise InputError(
            f"the study of store {about['store']} has not ended (state: {about['state']}) and cannot be continued without it: "
            "join it again, or give --abandon as well"
        )


def _list(stores: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"stores": stores})
        return
    for store in stores:
        use = ", in use" if store["in_use"] else ""
        about = f"{store['study'] or 'a study'}, {store['party'] or 'a party'}"
        text = f"{store['store']}: {about}: {store['state']}{use}; {store['bytes'] / 1000:.0f} kB, changed {store['changed']}"
        out.print(printable(text))
    if not stores:
        out.print("no stores here: they are beside the study file, named STUDY-PARTY.store")
