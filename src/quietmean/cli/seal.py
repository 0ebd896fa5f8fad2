"""``quietmean seal``: the convener seals a study with the entries of its parties."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.common import Out
from quietmean.cli.console import out, output, print_json, printable, progress, warn
from quietmean.cli.identity import load_identity

if TYPE_CHECKING:
    from quietmean.studies.agreement.sealed import Sealed


def seal_command(
    invitation: Path,
    entries: list[str],
    /,
    *,
    key: Path = Path("quietmean.key"),
    save: Out = None,
    json: bool = False,
) -> None:
    """Seal a study: its invitation, all entries in the order of their keys, and 32 random bytes, signed. Shows its words.

    Sealing again makes another study, for which all parties accept anew. Refused is what its parties could not do.

    Parameters
    ----------
    invitation
        The invitation.
    entries
        The parties' entries: files, or lines of text.
    key
        The convener's private key.
    save
        Where to write the sealed study; by default INVITATION.sealed. An existing file is never overwritten.
    json
        One JSON document on standard output.
    """
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.entry import Entry
    from quietmean.studies.agreement.invitation import Invitation
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.outcome.feasible import require_sealable

    path = save or invitation.with_suffix(".sealed")
    output_file = output(path, "the sealed study")
    sealed = Sealed.make(Invitation.load(invitation), [Entry.load(entry) for entry in entries], load_identity(key))
    Distrusted().refuse(sealed.holders())
    with progress("calibrating the noise"):
        choice = require_sealable(sealed, datetime.now(UTC))
    if (above := choice.plan.above_target) is not None:
        warn(f"{above}; each party has to accept that, with --a-priori-above-target")
    output_file.write(sealed.signed.to_file())
    document = about(sealed)
    if json:
        print_json({"sealed": str(path), **document})
    else:
        out.print(f"{path} is the sealed study: send it to all parties")
        show(document)


def about(sealed: Sealed) -> dict[str, Any]:
    """Words, digest and parties of a sealed study, as JSON."""
    from quietmean.studies.agreement.voucher import vouching_of
    from quietmean.studies.party.fingerprint import fingerprint

    vouching = vouching_of(sealed.invitation)
    vouchers = {} if vouching is None else {"registrar": vouching.registrar, "vouchers": vouching.number}
    with progress("computing the words"):
        print_ = fingerprint(sealed.digest)
    return {
        "study": sealed.terms.name,
        "version": sealed.invitation.version,
        "previous": sealed.invitation.previous,
        "convener": sealed.invitation.convener,
        "digest": sealed.digest,
        "words": print_.spoken,
        "characters": print_.grouped,
        **vouchers,
        "parties": [_party(sealed, index) for index in range(len(sealed.entries))],
    }


def _party(sealed: Sealed, index: int) -> dict[str, Any]:
    from quietmean.studies.agreement.any_study import has_committee

    entry = sealed.entries[index]
    member = {"member": entry.member} if has_committee(sealed.terms) else {}
    return {"name": entry.name, "key": entry.identity, "address": entry.address, "replaces": entry.formerly, **member}


def show(document: dict[str, Any]) -> None:
    """Show the document to people."""
    out.print(f"study {printable(document['study'])!r}, version {document['version']}, by {document['convener']}")
    for party in document["parties"]:
        member = " (member)" if party.get("member") else ""
        replaced = f" (replaces {party['replaces']})" if party["replaces"] else ""
        out.print(f"  {party['name']}: {party['key']}{member}{replaced}")
    if "registrar" in document:
        out.print(f"  and up to {document['vouchers']} by vouchers of {document['registrar']}")
    out.print(f"digest {document['digest']}")
    out.print(f"words  {document['words']}")
    out.print(f"or     {document['characters']}")
    out.print(
        "Call the other parties and compare the words with each of them: the convener alone could deceive you about their keys."
    )
