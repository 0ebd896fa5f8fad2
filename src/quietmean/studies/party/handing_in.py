"""One party hands in its file: policy, contract, its data and the yes, then the charge, and what it contributes, durable here."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeAlias

from quietmean.core.errors import InputError, ProtocolFailure, named
from quietmean.core.output import Output, json_object
from quietmean.core.site_options import ConsentOptions
from quietmean.ledger import Account
from quietmean.node.net import Identity, Purpose, parse_place
from quietmean.node.tunnel import is_loopback
from quietmean.planning import Plan
from quietmean.protocols.committee.contribution import header_digest
from quietmean.protocols.target import budget_warnings
from quietmean.statistics.program import VectorProgram
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.contribution import DropReceipt
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, is_document, is_signed_document, signed_in
from quietmean.studies.agreement.study_keys import Distrusted, StudyKeys, keys_path
from quietmean.studies.agreement.voucher import Voucher
from quietmean.studies.data import Source, query_statement
from quietmean.studies.outcome.feasible import feasible_sealed, require_by_file
from quietmean.studies.party.accounts import records_for
from quietmean.studies.party.admission import PartyAdmission, Person
from quietmean.studies.party.audit import Event, LogHead
from quietmean.studies.party.by_file import CommitteeContributor, SharingContributor, Submission
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.files import own_keys
from quietmean.studies.party.payment import ChargedStudy

# No answer is longer.
_MOST = 1 << 16


@dataclass(frozen=True)
class ServerAnswer:
    """``date``: when the server says it is, if it does."""

    status: int
    body: bytes
    date: str | None


def post_file(place: str, content: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body of the answer, whose certificate is checked as the system does; it leads nowhere else.

    ``place``: a URL that was checked. Raises :class:`OSError` where none answers.
    """
    request = urllib.request.Request(place, data=content, method="POST")  # noqa: S310 - the caller names the schemes
    request.add_header("Content-Type", "application/octet-stream")
    answer = _answer(request, seconds)
    return answer.status, answer.body


def ask_server(place: str, seconds: float) -> ServerAnswer:
    """What a server says at a ``place``, as :func:`post_file`. Raises :class:`OSError` where none answers."""
    return _answer(urllib.request.Request(place), seconds)  # noqa: S310 - the caller names the schemes


def _answer(request: urllib.request.Request, seconds: float) -> ServerAnswer:
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as response:
            return ServerAnswer(response.status, response.read(_MOST), response.headers.get("Date"))
    except urllib.error.HTTPError as error:
        with error:
            return ServerAnswer(error.code, error.read(_MOST), error.headers.get("Date"))
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: no HTTP") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        """An answer as any other."""


# What was handed in, and a party that hands it in.
Contributed: TypeAlias = Signed | Submission
Contributor: TypeAlias = SharingContributor | CommitteeContributor


def contributor_of(sealed: Sealed, plan: Plan, identity: Identity, keys: StudyKeys) -> Contributor:
    """The contributor of a sealed study.

    Raises :class:`InputError` for a study to which nobody hands in a file, and for one that takes none any more.
    """
    terms = sealed.study.committee
    if terms is None:
        require_by_file(plan)
        return SharingContributor(sealed, plan, identity, keys)
    contributor = CommitteeContributor(sealed, plan, identity, keys)
    if not contributor.has_contributed:
        terms.require_open(datetime.now(UTC))
    return contributor


def contribution_digest(content: bytes) -> str | None:
    """The digest of a contribution, of either kind; None of another file."""
    if (digest := header_digest(content)) is not None:
        return digest.hex()
    with suppress(InputError):
        return signed_in(Purpose.CONTRIBUTION, content).digest
    return None


def is_contribution(digest: str | None, content: bytes) -> bool:
    """Whether a file holds a contribution, or the one with this digest."""
    there = contribution_digest(content)
    return there is not None and digest in (None, there)


_TIMEOUT = 120.0
# For a look at whether it is there.
_LOOK = 10.0
_LATER = (408, 429, 500, 502, 503, 504)


def require_drop(url: str) -> str:
    """The address of a drop's contributions. Raises :class:`InputError` for what is none."""
    scheme, _, rest = url.partition("://")
    # It may stand behind a server that leads several paths to several places.
    place = rest.partition("/")[0]
    if scheme not in ("http", "https") or not place or re.search(r"[?#\s@]", url):
        raise InputError(f"drop {url[:200]!r} is not the address of a drop. Write https://HOST or https://HOST:PORT.")
    host, _ = parse_place(place if re.search(r":[^\]]*$", place) else f"{place}:443")
    if scheme == "http" and not is_loopback(host):
        raise InputError(
            f"drop {url[:200]!r} has no https: others can change what it says, and browsers seal nothing there. Write "
            f"https://{place}."
        )
    return f"{url.rstrip('/')}/contributions"


@dataclass(frozen=True)
class DropThere:
    """A drop that takes contributions to a study: how many it has. ``clock_ahead``: of this machine's (s), if it says a time."""

    contributions: int
    clock_ahead: float | None


def look_at_drop(url: str, sealed: Sealed) -> DropThere:
    """Ask a drop whether it is there, and for this study; nothing is sent.

    Raises :class:`InputError` for no address of one, and :class:`ProtocolFailure` where none of this study answers.
    """
    place = require_drop(url).removesuffix("contributions") + "health"
    asked_at = time.time()
    try:
        answer = ask_server(place, _LOOK)
    except OSError as error:
        raise ProtocolFailure(
            f"drop {url} does not answer ({getattr(error, 'reason', None) or error}). See its address."
        ) from None
    reply: dict[str, Any] = {}
    with suppress(InputError):
        reply = dict(json_object(answer.body))
    if answer.status != 200 or "session" not in reply:
        raise ProtocolFailure(f"what answers at {url} is not a drop (status {answer.status}). See its address.")
    if reply["session"] != sealed.digest:
        raise ProtocolFailure(f"drop {url} takes contributions to another study. See its address, and the sealed study.")
    ahead = None
    with suppress(TypeError, ValueError):
        # It is said in whole seconds.
        ahead = parsedate_to_datetime(str(answer.date)).timestamp() + 0.5 - (asked_at + time.time()) / 2
    return DropThere(int(reply.get("contributions", 0)), ahead)


def require_drop_for(sealed: Sealed, url: str) -> None:
    """Require a drop before anything is charged. Raises :class:`InputError` for a study to which nobody sends, or no address."""
    if not has_committee(sealed.terms):
        raise InputError(
            f"a drop takes contributions to a study with a committee, and this one has none. Leave {named('drop')} out."
        )
    require_drop(url)


def hand_over(url: str, sealed: Sealed, contributor: str, contribution: Contributed, path: Path) -> tuple[DropReceipt, Path]:
    """Send the contribution that is in the file ``path`` to a drop; its receipt, which is then beside that file.

    Raises as :func:`send_to_drop`, and :class:`InputError` for another file in the receipt's place.
    """
    receipt = send_to_drop(url, contribution.to_file(), sealed.digest, contributor, contribution.digest)
    terms = sealed.study.committee
    if terms is not None and receipt.time.timestamp() > terms.lists_at:
        # Members would never list what came then: nobody could hold the drop to such a receipt.
        raise _unusable(url, f"its receipt is of {receipt.came}, after the time for contributions")
    receipt_path = path.with_name(f"{path.name}.receipt")
    Output(receipt_path, "the drop's receipt", own=is_document(Purpose.COMMITTEE_RECEIPT)).write(receipt.signed.to_file())
    return receipt, receipt_path


def send_to_drop(url: str, content: bytes, session: str, contributor: str, digest: str) -> DropReceipt:
    """The receipt of a contribution that is on the drop's disk. The same contribution may be sent as often as need be.

    Raises :class:`InputError` where the drop refuses it, and :class:`ProtocolFailure` where it cannot be reached or answers with
    something else: the same command sends it again.
    """
    try:
        status, answer = post_file(require_drop(url), content, _TIMEOUT)
    except OSError as error:
        raise _unusable(url, str(getattr(error, "reason", None) or error)) from None
    if status == 200:
        receipt = _receipt(url, answer)
        if (receipt.session, receipt.contributor, receipt.digest) != (session, contributor, digest):
            raise _unusable(url, "its receipt is of something else")
        return receipt
    reply: dict[str, Any] = {}
    with suppress(InputError):
        reply = dict(json_object(answer))
    why = str(reply.get("error", f"it answers with status {status}"))[:500]
    if status in _LATER:
        raise _unusable(url, why)
    if status == 409:
        first = _receipt(url, str(reply.get("receipt", "")).encode())
        why = f"another contribution with this key is there, {first.digest[:16]}, since {first.came}, and one counts"
    raise InputError(
        f"drop {url} does not take this contribution ({why}), which stays charged. Tell the coordinator if that is wrong."
    )


def _receipt(url: str, content: bytes) -> DropReceipt:
    try:
        return DropReceipt.of_file(content)
    except InputError as error:
        raise _unusable(url, str(error)) from None


def _unusable(url: str, why: str) -> ProtocolFailure:
    return ProtocolFailure(
        f"drop {url} did not acknowledge the contribution ({why}), which is kept here. Give the same command again, "
        "which sends it again."
    )


@dataclass(frozen=True)
class Delivered:
    """What a party handed in: its ``contribution``, which may leave now; ``ledger`` and ``account`` where something was charged;
    ``head``: how far the site's audit log has come."""

    name: str
    contract: Contract
    contribution: Contributed
    ledger: Path | None
    account: Account | None
    head: LogHead


def taken_by_file(study: Path) -> Sealed | None:
    """The sealed study in a file to which a party hands in one file: it has a committee, or not all parties gave an address.
    None for anything else.

    Raises :class:`InputError` for one that is not as its convener signed it, or names a distrusted key.
    """
    sealed = Sealed.load(study) if is_signed_document(study) else None
    if sealed is None or not (has_committee(sealed.terms) or sealed.by_file):
        return None
    Distrusted().refuse(sealed.holders())
    return sealed


def contract_by_file(sealed: Sealed, identity: Identity, key: Path, *, no_privacy: bool = False) -> Contract:
    """What the party with this ``key``, of which the ``identity`` is, agrees to where it hands in a file."""
    choice = feasible_sealed(sealed, no_privacy=no_privacy)
    return Contract.by_file(sealed, identity, choice, Voucher.of_key(key))


def own_place(sealed: Sealed, identity: Identity, keys: StudyKeys, key: Path) -> str:
    """The party's name. Raises :class:`InputError` for keys that were made for another identity."""
    if keys.entry.identity != identity.public_key:
        raise InputError(f"the keys in {keys.path} were made for {keys.entry.identity}, not for the key in {key}. Accept again.")
    return sealed.require_own(keys).name


def contributor_keys(sealed: Sealed, identity: Identity, key: Path, store: Path | None) -> StudyKeys:
    """A contributor's keys for a study: those of its entry, or made now by the voucher that came with its ``key``.

    Raises :class:`InputError` for who has neither, and for a voucher that does not admit this key to this study.
    """
    voucher = None if sealed.lists(identity.public_key) else Voucher.of_key(key)
    if voucher is None:
        return own_keys(sealed, key, store)
    voucher.require_for(sealed.invitation, identity.public_key)
    path = keys_path(key, sealed.invitation.digest, store)
    return StudyKeys.make(path, sealed.invitation, identity, key.stem, "", voucher=voucher)


def hand_in(
    sealed: Sealed, identity: Identity, keys: StudyKeys, data: Source, data_name: str, options: ConsentOptions, person: Person
) -> Delivered:
    """Hand in a contribution, again the same one for the same data. It is charged in full, once.

    ``data_name``: what the ledger calls the data.

    Raises :class:`InputError` for a policy or a budget that does not allow it, without a yes, for data that do not fit, for other
    data than before, and where contributions come too late.
    """
    study = sealed.study
    site = PartyAdmission(study, identity, options, data_name, person, keys)
    choice = feasible_sealed(sealed, by_file=study.committee is None)
    contributor = contributor_of(sealed, choice.plan, identity, keys)
    query = query_statement(data, study.workload.columns, study.unit)
    contract = replace(Contract.by_file(sealed, identity, choice, keys.voucher), query=query)
    site.examine(contract)
    notes: list[str] = []
    records = records_for(study, data, notes.append)
    # The folder of the keys for this study: that of the identity key, unless a store has one of its own.
    site.count(records, data, keys.path.parent.absolute())
    site.consent()

    def execution() -> str:
        return contributor.study

    site.use_approvals(execution)
    charges: list[ChargedStudy | None] = []
    with nullcontext() if site.payer is None else site.payer.alone():
        notes += site.settled_people(execution())
        records = records if site.payer is None else site.payer.records
        program = VectorProgram.of(study.workload).vectors if sealed.program else None
        encoded = study.workload.encode(records, step=choice.plan.value_step, vectors=program)
        person.tell_owner(encoded, notes)

        def charge(content: bytes) -> None:
            charges.append(site.charge(execution, refund=False, content=content))

        contribution = contributor.contribute(encoded, charge)
    about = {"digest": contribution.digest, "session": sealed.digest, **query.to_json()}
    head = site.auditor.write(Event.CONTRIBUTED, about)
    # Nothing reads the private values any more.
    encoded.vector.fill(0.0)
    records.wipe()
    for sentence in budget_warnings(choice.plan.target):
        person.warn(sentence)
    if not charges or (paid := charges[0]) is None:
        return Delivered(keys.entry.name, contract, contribution, None, None, head)
    return Delivered(keys.entry.name, contract, contribution, paid.ledger, paid.balance(), head)
