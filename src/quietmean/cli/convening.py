"""A coordinator's commands: invite parties, let in contributors, seal a study, show its words, and start it before its time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from quietmean.cli.common import Out
from quietmean.cli.console import out, output, print_json, print_lines, progress, warn
from quietmean.cli.forms import SurveyByLink
from quietmean.cli.identity import DEFAULT_KEY, kept, known_identity, load_identity, make_identity
from quietmean.cli.screens import NEXT, rows, with_remark
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import require_kind_of_store
from quietmean.core.readable import ShortFact, count_of, indented, marked, some_of
from quietmean.node.monitor import read_status, status_path
from quietmean.node.net import Purpose
from quietmean.studies.agreement.any_study import facts_of, has_committee, load_any
from quietmean.studies.agreement.contribution import with_own_program
from quietmean.studies.agreement.deadlines import require_ahead
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.signed import is_document
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.agreement.voucher import vouching_of
from quietmean.studies.outcome.feasible import needs_addresses, require_in_general, require_sealable
from quietmean.studies.party import PartyContext, start_request
from quietmean.studies.party import own_keys as find_own_keys
from quietmean.studies.party.approval import fingerprint


def invite_command(
    study: Path,
    *,
    key: Path = DEFAULT_KEY,
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
        The coordinator's private key, from quietmean key new. Without this option it is made, if there is none.
    after
        The signed study that this one replaces, for another member, a new key or other bounds. The new study names the old one,
        and all parties accept again.
    save
        Where to write the invitation. Default: STUDY.invitation beside the study.
    line
        Print the invitation as one line of text instead.
    json
        One JSON document on standard output.
    """
    if line and save is not None:
        raise InputError("--line prints the invitation, and --out writes it to a file. Leave one of them out.")
    terms, path = load_any(study), save or study.with_suffix(".invitation")
    require_ahead(terms.start_by, datetime.now(UTC))
    require_in_general(terms, no_privacy=None)
    known, version, previous = known_identity(key), 1, None
    if after is not None:
        before = Sealed.load(after)
        if known is None or before.invitation.convener != known.public_key:
            raise InputError(
                f"{after} was sealed by {before.invitation.convener}, not by your key. Ask its coordinator to follow it up."
            )
        version, previous = before.invitation.version + 1, before.digest
    output_file = None if line else output(path, "the invitation", kind=is_document(Purpose.INVITATION))
    identity, of_key = (make_identity(key), kept(key)) if known is None else (known, [])
    invitation = Invitation.make(terms, identity, version, previous)
    if output_file is not None:
        output_file.write(invitation.signed.to_file())
    if json:
        text = {"line": invitation.signed.to_line()} if line else {"invitation": str(path)}
        print_json({**text, "digest": invitation.digest, "convener": invitation.convener, "version": version})
    elif line:
        out.print(invitation.signed.to_line())
    else:
        about = [ShortFact("by", invitation.convener), ShortFact("digest", invitation.digest)]
        follows = "" if previous is None else f" It is version {version}, and follows {after}."
        lines = [f"{path} invites to {terms.name!r}. Send it to all parties.{follows}", *rows([*facts_of(terms), *about])]
        place = " --address HOST:PORT"
        usual, of_member = (place if needs_addresses(terms, member=member) else "" for member in (False, True))
        lines.append(f"{'Parties':10}quietmean accept {quote(path.name)} --key NAME.key --name NAME" + usual)
        if has_committee(terms):
            lines.append(f"{'Members':10}add --member{of_member}")
        seal = f"{NEXT}study seal {quote(str(path))} NAME.entry ... --key {quote(str(key))}"
        if (vouching := vouching_of(invitation)) is not None and vouching.registrar == identity.public_key:
            seal += " --drop https://HOST"
        elif vouching is not None:
            lines += indented("Registrar", f"quietmean study vouchers {quote(path.name)} --key REGISTRAR.key")
        print_lines([*lines, *of_key, *with_remark(seal, "when all entries have come")])


def seal_command(
    invitation: Path,
    entries: list[str],
    /,
    *,
    key: Path = DEFAULT_KEY,
    drop: str | None = None,
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
        The entries of all parties: files, or lines of text.
    key
        The coordinator's private key.
    drop
        Of a survey by vouchers: the address of its drop, https://HOST, to which browsers will send. Then the page is made too, as
        by quietmean study form; and, if the coordinator is the registrar, vouchers with links, as by quietmean study vouchers.
    save
        Where to write the signed study. Default: INVITATION.sealed. An existing file is never overwritten.
    json
        One JSON document on standard output.
    """
    path = save or invitation.with_suffix(".sealed")
    output_file = output(path, "the sealed study")
    identity = load_identity(key)
    sealed = Sealed.make(Invitation.load(invitation), [Entry.load(entry) for entry in entries], identity)
    Distrusted().refuse(sealed.holders())
    with progress("calibrating the noise"):
        choice = require_sealable(sealed, datetime.now(UTC))
    sealed = with_own_program(sealed, choice.plan, identity)
    survey = None if drop is None else SurveyByLink.of(sealed, choice, identity, drop, (invitation, path))
    if (above := choice.plan.above_target) is not None:
        warn(f"{above}; each party has to accept that, with --a-priori-above-target")
    output_file.write(sealed.signed.to_file())
    if survey is not None:
        survey.write()
    document = about(sealed)
    if json:
        print_json({"sealed": str(path), **document, **({} if survey is None else survey.to_json())})
    else:
        session = isinstance(sealed.terms, SessionStudy)
        noun = "session" if session else "study"
        out.print(f"{path} is the signed {noun}. Send it to its {count_of(len(sealed.entries), 'party', 'parties')}.")
        show(document, sealing=True)
        command = "send" if sealed.by_file or has_committee(sealed.terms) else "check"
        data = "" if session else " --data FILE"
        vouched = vouching_of(sealed.invitation) is not None
        if not vouched or any(not entry.member for entry in sealed.entries):
            out.print(f"{'Parties':10}quietmean {command} {quote(path.name)} --key NAME.key" + data)
        if vouched and survey is None:
            out.print(f"{'People':10}quietmean send {quote(path.name)} --key NAME.voucher --data FILE")
        if has_committee(sealed.terms):
            out.print(f"{'Members':10}quietmean join {quote(path.name)} --key NAME.key --contributions FOLDER")
        if survey is not None:
            print_lines(survey.lines(path))
        elif sealed.program and vouched:
            out.print(f"{'Browsers':10}quietmean study form {quote(str(path))} https://HOST form.html --key {quote(str(key))}")


def about(sealed: Sealed) -> dict[str, Any]:
    """Words, digest and parties of a sealed study, as JSON."""
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
    entry = sealed.entries[index]
    member = {"member": entry.member} if has_committee(sealed.terms) else {}
    return {"name": entry.name, "key": entry.identity, "address": entry.address, "replaces": entry.formerly, **member}


# What a party reads with the code, and what the coordinator reads.
_COMPARE = "Compare the code by phone. Else the coordinator could fake keys."
_LET_COMPARE = "The parties compare the code with each other by phone, so that they need not trust you for the keys."
# So many parties with their keys on the first screen.
_MOST_KEYS = 4


def show(document: dict[str, Any], details: bool = False, *, sealing: bool = False) -> None:
    """Show the document to people: what is to be compared first; of many parties the keys with ``details`` only.

    ``sealing``: it is the coordinator who reads it.
    """
    parties = document["parties"]
    facts = [
        ShortFact("code", document["words"]),
        ShortFact("or", document["characters"]),
        ShortFact("by", document["convener"]),
    ]
    if len(parties) <= _MOST_KEYS or details:
        facts += [ShortFact(party["name"], f"{party['key']}{_role(party)}") for party in parties]
    else:
        names = some_of([party["name"] for party in parties], 4)
        facts.append(ShortFact("parties", f"{names}. Their keys: quietmean verify words STUDY --details"))
    if "registrar" in document:
        facts.append(ShortFact("besides", f"up to {document['vouchers']} by vouchers of {document['registrar']}"))
    lines = [f"Study {document['study']!r}, version {document['version']}", *rows(facts)]
    print_lines([*lines, *marked("KEYS", _LET_COMPARE if sealing else _COMPARE), f"digest    {document['digest']}"])


def _role(party: dict[str, Any]) -> str:
    member = " (member)" if party.get("member") else ""
    return member + (f" (replaces {party['replaces']})" if party["replaces"] else "")


def words_command(
    study: str,
    *,
    key: Path | None = None,
    store: Path | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Show the words of a sealed study, to be compared with other parties before anybody joins.

    Parameters
    ----------
    study
        The signed study.
    key
        This party's private key. With it, the command checks that the study holds this party's entry as it signed it.
    store
        The folder of this study's keys, as for accept. Default: beside the private key.
    details
        Also show all keys, if there are many parties.
    json
        One JSON document on standard output.
    """
    require_kind_of_store(store)
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    own = None if key is None else find_own_keys(sealed, key, store).entry.name
    document = {**about(sealed), "own_entry": own}
    if json:
        print_json(document)
        return
    show(document, details)
    if own is None:
        out.print("Your own entry was not looked for. Give --key and --store as for accept.")
    else:
        out.print(f"Your own entry, {own!r}, is in it as you signed it.")


def start_command(
    study: Path,
    *,
    roster: Path | None = None,
    key: Path = Path("quietmean.key"),
    store: Path | None = None,
    json: bool = False,
) -> None:
    """Start a study with start_by before its time, as soon as its minimum of parties is there. For its first coordinator only.

    The coordinator's join runs on this machine, and proposes those who are there within seconds; through a folder, when it looks
    there next. Who comes later is not in.

    Parameters
    ----------
    study
        The signed study, or a study file.
    roster
        Names, addresses and public keys of all parties. For a study that is not signed.
    key
        The coordinator's private key.
    store
        The store that was given to join. Default: STUDY-PARTY.store beside the study.
    json
        One JSON document on standard output.
    """
    require_kind_of_store(store)
    files = PartyContext.load(study, roster, key, load_identity, store)
    if not files.terms.starts_with_quorum:
        raise InputError("this study has no start_by. It starts when all parties are connected. Wait for them.")
    first = files.roster.conveners[0]
    if files.party != first:
        raise InputError(f"{files.name} is not the first coordinator of this study. Ask {files.roster.name(first)} to start it.")
    store_path = files.store(store)
    status = status_path(store_path)
    # Through a folder its next visit does it.
    visits = files.terms.by_folder and files.begun(store)
    if not visits and (not status.exists() or read_status(status)["alive"] is not True):
        raise InputError(f"no join with the store {store_path} runs on this machine. Start it first, it goes on by itself then.")
    request = start_request(store_path)
    request.touch(mode=0o600)
    if json:
        print_json({"asked": str(request)})
    else:
        said = f"{files.name} starts study {files.terms.name!r} as soon as enough parties are connected."
        print_lines([said, *rows([ShortFact("through", f"{request}, which its running join reads")])])
