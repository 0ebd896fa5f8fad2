"""``quietmean invite``: invite parties to a study."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from quietmean.cli.common import Out
from quietmean.cli.console import out, output, print_json
from quietmean.cli.identity import load_identity
from quietmean.core.errors import InputError


def invite_command(
    study: Path,
    *,
    key: Path = Path("quietmean.key"),
    after: Path | None = None,
    save: Out = None,
    line: bool = False,
    json: bool = False,
) -> None:
    """Sign an invitation to a study: one file, or one line of text, for everybody. It carries no secret.

    Parameters
    ----------
    study
        The study file, or the session file.
    key
        The convener's private key, from quietmean keygen.
    after
        The sealed study that this one follows: for another member, a key that was replaced, or other bounds. The new seal names
        the old one, and all parties accept anew.
    save
        Where to write the invitation; by default STUDY.invitation beside the study.
    line
        Print the invitation as one line of text instead.
    json
        One JSON document on standard output.
    """
    from quietmean.node.net import Purpose
    from quietmean.studies.agreement.any_study import load_any
    from quietmean.studies.agreement.invitation import Invitation
    from quietmean.studies.agreement.quorum import require_ahead
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.agreement.signed import is_document
    from quietmean.studies.outcome.feasible import require_in_general

    if line and save is not None:
        raise InputError("--line prints the invitation, and --out writes it to a file: leave one of them out")
    terms, path = load_any(study), save or study.with_suffix(".invitation")
    require_ahead(terms.start_by, datetime.now(UTC))
    require_in_general(terms, no_privacy=None)
    identity, version, previous = load_identity(key), 1, None
    if after is not None:
        before = Sealed.load(after)
        if before.invitation.convener != identity.public_key:
            raise InputError(
                f"{after} was sealed by {before.invitation.convener}, not by your key: only its convener can follow it up"
            )
        version, previous = before.invitation.version + 1, before.digest
    output_file = None if line else output(path, "the invitation", kind=is_document(Purpose.INVITATION))
    invitation = Invitation.make(terms, identity, version, previous)
    if output_file is not None:
        output_file.write(invitation.signed.to_file())
    if json:
        text = {"line": invitation.signed.to_line()} if line else {"invitation": str(path)}
        print_json({**text, "digest": invitation.digest, "convener": invitation.convener, "version": version})
    elif line:
        out.print(invitation.signed.to_line())
    else:
        out.print(f"{path} invites to {invitation.terms.name!r}: send it to all parties")
