"""Commands that show what this site keeps: its audit log, the status of its nodes, and their stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from quietmean.cli.console import OK, err, out, print_json, print_lines, printable, step_of
from quietmean.cli.screens import BELOW, NEXT, rows, show_first
from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_file, read_json, refuse_other, require_kind_of_store
from quietmean.core.readable import SCREEN, ShortFact, count_of, epsilon_shown, indented, marked
from quietmean.node.monitor import NodeView, headline, read_status, seconds_between, sentence, status_path, traffic_text
from quietmean.node.storage import find_stores, in_use, remove_store, size_of

if TYPE_CHECKING:
    from quietmean.studies.party.audit import AuditLog, LogEntry


def audit_command(
    what: Literal["show", "verify"] = "show",
    *,
    against: Annotated[list[Path] | None, Parameter(consume_multiple=1)] = None,
    log: Path | None = None,
    policy: Path | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Show what this site was asked, who said yes, what was charged, and how studies ended; or verify that nothing was changed.

    The log has no values and no results. Verified are the signature of each entry and that each follows on the one before.
    Against receipts it is also found if its end was cut off, or if all of it was made anew. Exit code 2 if anything was changed.

    Parameters
    ----------
    what
        show the entries, or verify that nothing was changed.
    against
        Receipts of studies of this site, from any party. Each shows how long the log was when its study ended.
    log
        The log file. Default: the policy's, or audit.jsonl in the user's data folder.
    policy
        This site's rules for taking part. Default: policy.toml in the user's settings folder.
    details
        Show all entries, with all that they say.
    json
        One JSON document on standard output.
    """
    from quietmean.studies.party import Policy
    from quietmean.studies.party.audit import AuditLog

    if log is not None and policy is not None:
        raise InputError("--policy says where the log is, and --log, too. Leave one of them out.")
    audit_log = AuditLog(log) if log is not None else Policy.load(policy).audit_log
    if what == "verify":
        _verify(audit_log, against or (), json)
        return
    if against:
        raise InputError("--against is for quietmean site audit verify. Write that, or leave it out.")
    entries, rest = audit_log.read()
    if json:
        print_json(
            {"log": str(audit_log.path), "entries": [_entry_json(logged.entry, logged.signed.digest) for logged in entries]}
        )
        return
    shown = entries if details else entries[-_LATEST:]
    if len(shown) < len(entries):
        out.print(f"{len(entries):,} entries, the latest {len(shown)} below. All: --details")
    for logged in shown:
        print_lines([_line(logged.entry) if details else _in_short(logged.entry)])
    if rest.strip(b"\n"):
        err.print("the last line is torn: its writer was stopped, or its end was cut off")
    show_first([] if details else [f"{'Log':10}{audit_log.path}"], details)
    if not details:
        named = "".join(f" {option} {quote(str(path))}" for option, path in (("--log", log), ("--policy", policy)) if path)
        print_lines([f"{NEXT}site audit verify --against RECEIPT{named}"])


def _verify(log: AuditLog, receipts: list[Path] | tuple[()], json: bool) -> None:
    from quietmean.studies.party.audit import heads_in, verify

    verification = verify(
        log,
        {
            f"receipt {path}": heads_in(read_json(path, FileKind.RECEIPT, FileKind.SESSION_RECEIPT), str(path))
            for path in receipts
        },
    )
    head = None if verification.head is None else verification.head.to_json()
    if json:
        document: dict[str, Any] = {
            "log": str(log.path),
            "entries": len(verification.entries),
            "head": head,
            "receipts": len(receipts),
        }
        print_json(
            {**document, "whole": not verification.faults, "faults": list(verification.faults), "notes": list(verification.notes)}
        )
    for text in () if json else verification.notes:
        err.print(printable(text))
    for text in verification.faults:
        err.print(f"quietmean: {printable(text)}")
    if verification.faults:
        raise SystemExit(InputError.exit_code)
    if not json:
        count = count_of(len(verification.entries), "entry", "entries")
        receipts_text = (
            f"The end of the log in {'it' if len(receipts) == 1 else 'each'} is here."
            if receipts
            else "Only receipts show whether its end was cut off, or all of it made again."
        )
        lines = [f"{OK}{count}, each signed, each after the one before."]
        lines += [f"{OK}{count_of(len(receipts), 'receipt')}: {receipts_text}"] if receipts else [f"{BELOW}{receipts_text}"]
        print_lines([*lines, f"{'Log':10}{log.path}", *([] if receipts else [f"{NEXT}site audit verify --against RECEIPT"])])


def _entry_json(entry: LogEntry, digest: str) -> dict[str, Any]:
    return {**msgspec.to_builtins(entry), "digest": digest}


def _line(entry: LogEntry) -> str:
    about = f": {_values_text(entry.about)}" if entry.about else ""
    return f"{entry.number} {entry.time} {entry.party} {entry.study} {entry.contract[:16]} {entry.event}{about}"


# So many entries on the first screen, and what it says of each.
_LATEST = 8
_BRIEF: dict[str, Callable[[Any], str]] = {
    "by": lambda value: f"by {value}",
    "epsilon": lambda value: f"epsilon {epsilon_shown(value) if isinstance(value, float) else value}",
    "account": lambda value: f"account {value}",
    "charged": lambda value: "charged" if value else "not charged",
    "result": lambda value: "with a result" if value else "without a result",
    "reason": str,
    "title": str,
}


def _in_short(entry: LogEntry) -> str:
    """One line of the screen."""
    about = ", ".join(say(entry.about[name]) for name, say in _BRIEF.items() if name in entry.about)
    text = f"{entry.time[:16].replace('T', ' ')} {entry.party} {entry.study} {entry.event}"
    return shorten(f"{entry.number} {text}: {about}" if about else f"{entry.number} {text}", SCREEN, placeholder=" ...")


def _values_text(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in about.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(_text, value)) if isinstance(value, list) else f"{value:.6g}" if isinstance(value, float) else str(value)


# A running process writes every second; without an update for longer it hangs, or its machine is overloaded.
_SILENCE = 10.0


def status_command(
    store: Path | None = None,
    *,
    study: Path | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Show where a node is that runs on this machine, or where it was when it stopped. It is not disturbed.

    Exit code 0 if every node shown runs or has finished, 3 if one has failed or its process ended unexpectedly.

    Parameters
    ----------
    store
        The store that was given to join. Its default is STUDY-PARTY.store. Without it: all stores in this folder.
    study
        Instead of a store: the study file. Shows all nodes whose stores are beside it.
    details
        Also show where a node that has finished was last, and what it refused.
    json
        One JSON document on standard output.
    """
    nodes = [{"store": str(where), **_judged(read_status(path))} for where, path in _files(store, study)]
    if json:
        print_json({"nodes": nodes})
    else:
        show_first([line for node in nodes for line in _node_lines(node, details)], details)
    if not all(node["state"] in ("running", "finished") for node in nodes):
        raise SystemExit(3)


def _files(store: Path | None, study: Path | None) -> list[tuple[Path, Path]]:
    """Stores and their status files."""
    if store is not None:
        if study is not None:
            raise InputError("whose status is not clear. Give either STORE or --study STUDY.")
        require_kind_of_store(store)
        return [(store, status_path(store))]
    ending = status_path(Path(".store")).name
    folder, begin = (Path(), "") if study is None else (study.parent, f"{study.with_suffix('').name}-")
    status_files = [path for path in folder.iterdir() if path.name.startswith(begin) and path.name.endswith(ending)]
    if not status_files and study is None:
        raise InputError("no node has run with a store in this folder. Give STORE, or --study STUDY.")
    if not status_files:
        raise InputError(f"no node of {study} has run with a store beside it. Name its store instead of --study.")
    return [(path.with_name(path.name.removesuffix(".status.json")), path) for path in sorted(status_files)]


def _judged(status: dict[str, Any]) -> dict[str, Any]:
    """The status as of now: a process that has ended does not run, whatever its file states."""
    if status.get("state") == "running" and status["alive"] is False:
        return status | {"state": "gone", "reason": "its process has ended without a word; the same command continues the study"}
    return status


# What the states of a node mean.
_STATES = {"running": "runs", "finished": "has finished", "failed": "has failed", "stopped": "was stopped", "gone": "has ended"}


def _node_lines(node: dict[str, Any], details: bool) -> list[str]:
    """What is known of a node: its state, what it does, whom it waits for, and what to do."""
    try:
        view = convert({name: node.get(name) for name in NodeView.__dataclass_fields__} | _state(node), NodeView, ValueError)
        age = seconds_between(view.updated, datetime.now(UTC).isoformat())
        traffic = traffic_text(view)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"the status of {node['store']} is not as it should be ({error}). Restore it if it was edited."
        ) from None
    alive = {True: f"process {node['pid']}", False: "no process", None: f"process {node['pid']}, which cannot be seen from here"}
    state, over = node["state"], node["state"] == _OVER
    facts = [] if over and not details else [ShortFact("at", f"{step_of(view.phase)}{headline(view)}")]
    facts += [ShortFact("why", view.reason)] if view.reason else []
    facts.append(ShortFact("traffic", traffic))
    for peer in view.peers:
        if peer.late or peer.name in view.waiting_for:
            heard = "not heard yet"
            if peer.last_heard is not None:
                heard = f"last heard of {seconds_between(peer.last_heard, view.updated):.0f} s before"
            facts.append(ShortFact(peer.name, f"{heard}, late {count_of(peer.late, 'time')}"))
    facts += [ShortFact("refused", line) for line in view.refused[-3:]]
    if view.last_event is not None and (details or not over):
        facts.append(ShortFact("last", sentence(view.last_event)))
    lines = [
        f"{_subject(node)}: {view.party} {_STATES.get(state, state)} ({alive[node['alive']]}){_round_of(node)}.",
        *rows(facts),
    ]
    if state == "running" and age > _SILENCE:
        lines += marked("SILENT", f"No sign from the process for {age:.0f} s. It hangs, or its machine has no time for it.")
    receipt = Path(node["store"]).with_suffix(".receipt.json")
    return [*lines, f"{NEXT}result {quote(str(receipt))}"] if over and receipt.exists() else lines


def _subject(node: Mapping[str, Any]) -> str:
    """What a node takes part in, such as "Session 'averaging'"."""
    return f"{str(node.get('kind', 'study')).capitalize()} {str(node.get('study'))!r}"


def _round_of(node: Mapping[str, Any]) -> str:
    """Which round of a session its node is in, after the first has begun."""
    return f", round {node['number']} of {node['rounds']}" if node.get("number") else ""


def _state(node: dict[str, Any]) -> dict[str, Any]:
    # A process that ended unexpectedly had recorded that it was running.
    return {"state": "running"} if node["state"] == "gone" else {}


# The state of a node that has its result and needs its store no more; in any other the study may go on.
_OVER = "finished"


def clean_command(
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
        The folder that holds the stores. Default: the current folder.
    remove
        A store to remove, with the files that belong to it. Repeat for several.
    abandon
        Also remove stores of studies that have not ended. Such a study cannot be continued, and its charge stays.
    json
        One JSON document on standard output.
    """
    if abandon and not remove:
        raise InputError("--abandon has no effect without --remove. Name the stores to be removed.")
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
        print_lines(indented("Removed", ", ".join(map(str, removed))))


def _described(store: Path) -> dict[str, Any]:
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
        raise InputError(f"store {about['store']} is in use. Stop the process that has it open, then remove it.")
    if about["state"] != _OVER and not abandon:
        raise InputError(
            f"the study of store {about['store']} has not ended (state: {about['state']}) and cannot be continued without it. "
            "Join it again, or give --abandon as well."
        )


def _list(stores: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"stores": stores})
        return
    if not stores:
        print_lines(["This folder has no store. Stores are beside the study file, named STUDY-PARTY.store."])
        return
    over = [store for store in stores if store["state"] == _OVER and not store["in_use"]]
    size = sum(store["bytes"] for store in stores)
    ended = f"You can remove {len(over)}: {'its study has' if len(over) == 1 else 'their studies have'} ended."
    can_go = ended if over else "You can remove none, as no study has ended."
    out.print(f"{count_of(len(stores), 'store')}, {size / 1000:.0f} kB. {can_go}")
    columns = [
        (
            store["store"],
            f"{store['study'] or 'a study'}, {store['party'] or 'a party'}",
            f"{store['state']}{', in use' * store['in_use']}",
            f"{store['bytes'] / 1000:.0f} kB",
            f"{store['changed'][:16].replace('T', ' ')} UTC",
        )
        for store in stores
    ]
    widths = [max(len(printable(each[place])) for each in columns) for place in range(4)]
    for each in columns:
        cells = [f"{printable(cell):<{width}}" for cell, width in zip(each, (*widths, 0), strict=True)]
        out.print(f"  {'  '.join(cells)}")
    if over:
        print_lines([f"{NEXT}site clean --remove {quote(over[0]['store'])}"])
