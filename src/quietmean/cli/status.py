"""``quietmean status``: where a running node is, or where a stopped one was."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quietmean.cli.console import out, print_json, printable
from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_file, refuse_other
from quietmean.core.readable import count_of

# A running process writes every second; without an update for longer it hangs, or its machine is overloaded.
_SILENCE = 10.0


def status_command(
    store: Path | None = None,
    *,
    study: Path | None = None,
    json: bool = False,
) -> None:
    """Show where a node is that runs on this machine, or where it was when it stopped. It is not disturbed.

    Exit code 0 if every node shown runs or has finished, 3 if one has failed or its process ended unexpectedly.

    Parameters
    ----------
    store
        The store that was given to join, or is its default: STUDY-PARTY.store.
    study
        Instead of a store: the study file, for all nodes whose stores are beside it.
    json
        One JSON document on standard output.
    """
    from quietmean.node.monitor import read_status

    nodes = [{"store": str(where), **_judged(read_status(path))} for where, path in _files(store, study)]
    if json:
        print_json({"nodes": nodes})
    else:
        for node in nodes:
            _show(node)
    if not all(node["state"] in ("running", "finished") for node in nodes):
        raise SystemExit(3)


def _files(store: Path | None, study: Path | None) -> list[tuple[Path, Path]]:
    """Stores and their status files."""
    from quietmean.node.monitor import status_path

    if (store is None) == (study is None):
        raise InputError("whose status is not clear: give either STORE or --study STUDY")
    if store is not None:
        refuse_other(kind_of_file(store), f"file {store}", FileKind.STORE)
        return [(store, status_path(store))]
    if study is None:
        return []
    ending = status_path(Path(".store")).name
    stem = study.with_suffix("").name
    status_files = [path for path in study.parent.iterdir() if path.name.startswith(f"{stem}-") and path.name.endswith(ending)]
    if not status_files:
        raise InputError(f"no node of {study} has run with a store beside it: name its store instead of --study")
    return [(path.with_name(path.name.removesuffix(".status.json")), path) for path in sorted(status_files)]


def _judged(status: dict[str, Any]) -> dict[str, Any]:
    """The status as of now: a process that has ended does not run, whatever its file states."""
    if status.get("state") == "running" and status["alive"] is False:
        return status | {"state": "gone", "reason": "its process has ended without a word; the same command continues the study"}
    return status


def _show(node: dict[str, Any]) -> None:
    from quietmean.node.monitor import NodeView, headline, seconds_between, sentence, traffic_text

    try:
        view = convert({name: node.get(name) for name in NodeView.__dataclass_fields__} | _state(node), NodeView, ValueError)
        age = seconds_between(view.updated, datetime.now(UTC).isoformat())
        traffic = traffic_text(view)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"the status of {node['store']} is not as it should be ({error}): was it edited?") from None
    out.print(f"{printable(str(node.get('study')))}, {headline(view)}")
    reason = f": {printable(view.reason)}" if view.reason else ""
    alive = {True: f"process {node['pid']}", False: "no process", None: f"process {node['pid']}, which cannot be seen from here"}
    out.print(f"  {node['state']} ({alive[node['alive']]}){reason}")
    if node["state"] == "running" and age > _SILENCE:
        out.print(f"  no sign from the process for {age:.0f} s: it hangs, or its machine has no time for it", style="yellow")
    out.print(f"  {traffic}")
    for peer in view.peers:
        if peer.late or peer.name in view.waiting_for:
            heard = "never heard of"
            if peer.last_heard is not None:
                heard = f"last heard of {seconds_between(peer.last_heard, view.updated):.0f} s before"
            out.print(f"  {printable(peer.name)}: {heard}, late {count_of(peer.late, 'time')}")
    for line in view.refused[-3:]:
        out.print(f"  refused {printable(line)}")
    if view.last_event is not None:
        out.print(f"  last: {printable(sentence(view.last_event))}")


def _state(node: dict[str, Any]) -> dict[str, Any]:
    # A process that ended unexpectedly had recorded that it was running.
    return {"state": "running"} if node["state"] == "gone" else {}
