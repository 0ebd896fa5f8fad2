"""``quietmean accept``: accept an invitation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from quietmean.cli.common import Out
from quietmean.cli.console import out, output, print_json, printable
from quietmean.cli.identity import kept_sentence, load_identity, make_identity
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of

if TYPE_CHECKING:
    from quietmean.studies.agreement.invitation import Invitation


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """What the entry says of this party.

    Parameters
    ----------
    name
        This party's name, as the others will see it.
    address
        HOST:PORT where the others reach this party, or relay:HOST:PORT for a relay where it can be called.
    member
        Of a study with a committee: this party is one of its members, who hold shares and open the sum. Others only contribute.
    replaces
        The private key that this one replaces, if the others know this party by another.
    """

    name: str
    address: str = ""
    member: bool = False
    replaces: Path | None = None

    def require_possible(self) -> None:
        """Raises :class:`InputError` for what cannot be a name or an address."""
        from quietmean.node.net import parse_place, require_name

        require_name(self.name)
        if self.address:
            parse_place(self.address)


def accept_command(
    invitation: str,
    *,
    entry: EntryOptions,
    key: Path = Path("quietmean.key"),
    store: Path | None = None,
    save: Out = None,
    line: bool = False,
    json: bool = False,
) -> None:
    """Make this party's own keys for one study, and its entry, which goes back to the convener. Nothing else leaves.

    Accepting again with another name or address makes new keys and a new entry; only the last one can take part.

    Parameters
    ----------
    invitation
        The invitation: its file, or the line of text.
    key
        This party's private key, from quietmean keygen; where that file is missing, a new one is made.
    store
        The folder for this study's keys; by default beside the private key. They must not be copied or restored from a backup.
    save
        Where to write the entry; by default NAME.entry.
    line
        Print the entry as one line of text instead.
    json
        One JSON document on standard output.
    """
    from quietmean.node.net import Purpose
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.invitation import Invitation
    from quietmean.studies.agreement.signed import is_document
    from quietmean.studies.agreement.study_keys import StudyKeys, keys_path
    from quietmean.studies.party import file_name

    invitation_terms = Invitation.load(invitation)
    Distrusted().refuse([("the convener", invitation_terms.convener)])
    # Before any file is written.
    entry.require_possible()
    if store is not None and not store.is_dir():
        raise InputError(f"store {store} is not a folder: make it, or leave --store out")
    # A name is not a path.
    target = save or Path(f"{file_name(entry.name)}.entry")
    new_key = not key.exists()
    identity = None if new_key else load_identity(key)
    output_file = None
    if not line:
        own_key = None if identity is None else identity.public_key
        output_file = output(
            target, "the entry", own=partial(_is_own, own_key, invitation_terms), kind=is_document(Purpose.ENTRY)
        )
    identity = identity or make_identity(key)
    before = None if entry.replaces is None else load_identity(entry.replaces)
    path = keys_path(key, invitation_terms.digest, store)
    keys = StudyKeys.make(path, invitation_terms, identity, entry.name, entry.address, before, entry.member)
    if output_file is not None:
        output_file.write(keys.entry.signed.to_file())
    if json:
        text = {"line": keys.entry.signed.to_line()} if line else {"entry": str(target)}
        named = {"name": entry.name, **({"member": True} if entry.member else {})}
        print_json(
            {**text, "keys": str(path), "invitation": invitation_terms.digest, "convener": invitation_terms.convener, **named}
        )
        return
    if line:
        out.print(keys.entry.signed.to_line())
        return
    out.print(_summary(invitation_terms))
    if new_key:
        out.print(f"A new identity: {kept_sentence(key)}")
    out.print(f"{target} is your entry: send it to the convener")
    holds = "your keys for this study" if keys.entry.has_keys else "what you contribute to this study"
    out.print(f"{path} holds {holds}: keep it here")


def _is_own(identity: str | None, received: Invitation, content: bytes) -> bool:
    """Whether a file is the entry of this identity for this invitation."""
    from quietmean.studies.agreement.entry import Entry

    with suppress(InputError):
        entry = Entry.of_file(content)
        return entry.identity == identity and entry.invitation == received.digest
    return False


def _summary(received: Invitation) -> str:
    from quietmean.studies.agreement.session_study import SessionStudy

    study = received.terms
    if isinstance(study, SessionStudy):
        kind, about = "session", f"{count_of(study.rounds, 'mean')} of vectors of {count_of(study.dimension, 'coordinate')}"
    else:
        kind, about = "study", ", ".join(column.name for column in study.columns)
    return (
        f"{kind} {printable(study.name)!r}: {printable(about)}; {study.in_words} for one "
        f"{study.unit}, {study.protocol}; convened by {received.convener}"
    )
