"""``quietmean audit``: the audit log of this site, and whether it is as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from quietmean.cli.console import err, out, print_json, printable
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind
from quietmean.core.readable import count_of

if TYPE_CHECKING:
    from quietmean.studies.party.audit import AuditLog, LogEntry


def audit_command(
    what: Literal["show", "verify"] = "show",
    *,
    against: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    log: Path | None = None,
    policy: Path | None = None,
    json: bool = False,
) -> None:
    """Show what this site was asked, who said yes, what was charged, and how studies ended; or verify that nothing was changed.

    The log has no values and no results. Verified are the signature of each entry and that each follows on the one before.
    Against receipts it is also found if its end was cut off, or if all of it was made anew. Exit code 2 if anything was changed.

    Parameters
    ----------
    what
        "show" the entries, or "verify" them.
    against
        Receipts of studies of this site, its own or those of other parties, which tell how far the log had come then.
    log
        The file; by default the policy's, or audit.jsonl in the user's folder for data.
    policy
        What this site takes part in; by default policy.toml in the user's folder for settings.
    json
        One JSON document on standard output.
    """
    from quietmean.studies.party import Policy
    from quietmean.studies.party.audit import AuditLog

    if log is not None and policy is not None:
        raise InputError("--policy says where the log is, and --log, too: leave one of them out")
    audit_log = AuditLog(log) if log is not None else Policy.load(policy).audit_log
    if what == "verify":
        _verify(audit_log, against or (), json)
        return
    if against:
        raise InputError("--against is for quietmean audit verify: write that, or leave it out")
    entries, rest = audit_log.read()
    if json:
        print_json(
            {"log": str(audit_log.path), "entries": [_entry_json(logged.entry, logged.signed.digest) for logged in entries]}
        )
        return
    for logged in entries:
        out.print(printable(_line(logged.entry)))
    if rest.strip(b"\n"):
        err.print("the last line is torn: its writer was stopped, or its end was cut off")


def _verify(log: AuditLog, receipts: list[Path] | tuple[()], json: bool) -> None:
    from quietmean.core.json_file import read_json
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
    for sentence in () if json else verification.notes:
        err.print(printable(sentence))
    for sentence in verification.faults:
        err.print(f"quietmean: {printable(sentence)}")
    if verification.faults:
        raise SystemExit(InputError.exit_code)
    if not json:
        how_far = (
            f"and the head in each of {count_of(len(receipts), 'receipt')} is in it"
            if receipts
            else "but only receipts show whether its end was cut off or all of it made anew: give --against"
        )
        out.print(
            f"{log.path}: {count_of(len(verification.entries), 'entry', 'entries')}, each signed and following on the one "
            f"before; {how_far}",
        )


def _entry_json(entry: LogEntry, digest: str) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(entry), "digest": digest}


def _line(entry: LogEntry) -> str:
    about = f": {_values_text(entry.about)}" if entry.about else ""
    return f"{entry.number} {entry.time} {entry.party} {entry.study} {entry.contract[:16]} {entry.event}{about}"


def _values_text(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in about.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(_text, value)) if isinstance(value, list) else f"{value:.6g}" if isinstance(value, float) else str(value)
