"""A contributor sends its file to a drop, and gets a signed receipt for it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError, ProtocolFailure, named
from quietmean.core.output import Output, json_object
from quietmean.node.net import Purpose, parse_place
from quietmean.node.posting import ask_server, post_file
from quietmean.node.tunnel import is_loopback
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.drop_receipt import DropReceipt
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_document
from quietmean.studies.party.contributing import Contributed

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
        raise InputError(f"drop {url[:200]!r} is not the address of a drop. Write https://{place}, which others cannot read.")
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
            f"drop {url} does not answer ({getattr(error, 'reason', None) or error}): see its address"
        ) from None
    reply: dict[str, Any] = {}
    with suppress(InputError):
        reply = dict(json_object(answer.body))
    if answer.status != 200 or "session" not in reply:
        raise ProtocolFailure(f"what answers at {url} is not a drop (status {answer.status}): see its address")
    if reply["session"] != sealed.digest:
        raise ProtocolFailure(f"drop {url} takes contributions to another study: see its address, and the sealed study")
    ahead = None
    with suppress(TypeError, ValueError):
        # It is said in whole seconds.
        ahead = parsedate_to_datetime(str(answer.date)).timestamp() + 0.5 - (asked_at + time.time()) / 2
    return DropThere(int(reply.get("contributions", 0)), ahead)


def require_drop_for(sealed: Sealed, url: str) -> None:
    """Before anything is charged. Raises :class:`InputError` for a study to which nobody sends anything, or no address."""
    if not has_committee(sealed.terms):
        raise InputError(
            f"a drop takes contributions to a study with a committee, and this one has none: leave {named('drop')} out"
        )
    require_drop(url)


def hand_over(url: str, sealed: Sealed, contributor: str, contribution: Contributed, path: Path) -> tuple[DropReceipt, Path]:
    """Send the contribution that is in the file ``path`` to a drop; its receipt, which is then beside that file.

    Raises as :func:`send_to_drop`, and :class:`InputError` for another file in the receipt's place.
    """
    receipt = send_to_drop(url, contribution.to_file(), sealed.digest, contributor, contribution.digest)
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
    raise InputError(f"drop {url} does not take this contribution ({why}): it stays charged, tell the convener if that is wrong")


def _receipt(url: str, content: bytes) -> DropReceipt:
    try:
        return DropReceipt.of_file(content)
    except InputError as error:
        raise _unusable(url, str(error)) from None


def _unusable(url: str, why: str) -> ProtocolFailure:
    return ProtocolFailure(
        f"drop {url} did not acknowledge the contribution ({why}): it is kept here, and the same command sends it again"
    )
