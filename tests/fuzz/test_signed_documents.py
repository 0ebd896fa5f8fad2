"""Whatever a party signs with its own key is read or refused in a sentence: each kind of document, changed within its structure.

Changed bytes of a document fail at its signature. Here the signer itself is hostile: what it signs is JSON of any shape.
"""

from __future__ import annotations

import ast
import base64
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core import codec
from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError
from quietmean.form.signed_page import SignedPage
from quietmean.node.net import Identity
from quietmean.node.net.identity import Purpose
from quietmean.studies.agreement.contribution import Contribution, DropPlace, DropReceipt
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, read_signed
from quietmean.studies.agreement.study_keys import revocation, revoked_key
from quietmean.studies.agreement.voucher import Voucher
from quietmean.studies.party import audit
from quietmean.studies.party.approval import OwnerApproval
from quietmean.studies.party.by_file import SharingContributor
from support.meeting import meet

SOURCES = Path(codec.__file__).parents[1]
_FEW, _LONG, _AT_MOST = 250, 60.0, 5.0
HOSTILE, DROP = Identity.generate(), Identity.generate()
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**70, 1e308, -0.5, 5e-324, "", "a", "x" * 5000, "\x1b[31m", "\u202e", "\ud7ff\u0000", "1.5",
    "[::1]:70000", "/../etc", "quietmean:", "AAAA", "=", "ed25519:AAAA", "ab" * 32, "9999-12-31", "0000-00-00", [], {}, [[[]]],
    [0] * 300, {"a": 1}, {"\x1b": {}}, ["\x07"], [None],
)  # fmt: skip
Read = Callable[[Signed, Path], Any]


@dataclass(frozen=True)
class Kind:
    """``purpose``: of its signature; ``module``: who reads what it says, below the package; ``signed``: one by HOSTILE."""

    purpose: Purpose
    module: str
    read: Read
    signed: Signed


def in_file(read: Callable[[Path], Any]) -> Read:
    def reading(signed: Signed, folder: Path) -> Any:
        path = folder / "given"
        path.write_bytes(signed.to_file())
        return read(path)

    return reading


def approval() -> Signed:
    terms = dict.fromkeys(("contract", "plan", "account", "policy", "version", "party"), "ab" * 16)
    body = terms | {"columns": ["age"], "until": "2999-01-01", "approver": HOSTILE.public_key}
    return Signed.sign(Purpose.APPROVAL, body, HOSTILE)


def audited(signed: Signed, folder: Path) -> Any:
    line = {"entry": signed.body.decode(), "signature": base64.b64encode(signed.signature).decode()}
    return audit._parsed(json.dumps(line).encode())


@cache
def kinds() -> dict[str, Kind]:
    folder = Path(mkdtemp())
    asked = {"name": "ages", "colluding": 1, "protocol": "local-dp", "epsilon": 8.0, "delta": 1e-6}
    tables = {"study": asked, "column": [{"name": "age", "low": 20, "high": 90}]}
    meeting = meet(folder, tables=tables, known={"north": HOSTILE})
    sealed = meeting.seal()
    plan = sealed.study.plan(3)
    encoded = sealed.study.workload.encode(np.full((20, 1), 50.0), step=plan.value_step)
    made = SharingContributor(sealed, plan, HOSTILE, meeting.keys["north"], folder / "north").contribute(encoded)
    entry = {"number": 1, "time": "2026-01-01T00:00:00Z", "before": "ab" * 32, "kind": "event", "fields": {}}
    return {
        "invitation": Kind(
            Purpose.INVITATION,
            "studies/agreement/invitation.py",
            lambda signed, folder: (made := Invitation.verified(signed)).study and made.fields(),
            meeting.invitation.signed,
        ),
        "entry": Kind(
            Purpose.ENTRY,
            "studies/agreement/invitation.py",
            lambda signed, folder: (made := Entry.verified(signed)).in_roster() and made.fields(),
            meeting.keys["north"].entry.signed,
        ),
        "sealed study": Kind(
            Purpose.SEAL,
            "studies/agreement/sealed.py",
            lambda signed, folder: (made := Sealed.verified(signed)).roster and made.choice() and made.fields(),
            sealed.signed,
        ),
        "contribution": Kind(
            Purpose.CONTRIBUTION,
            "studies/agreement/contribution.py",
            lambda signed, folder: Contribution.verified(signed, sealed, plan),
            made,
        ),
        "revocation": Kind(
            Purpose.REVOCATION,
            "studies/agreement/study_keys.py",
            in_file(revoked_key),
            read_signed(Purpose.REVOCATION, written(folder, revocation(HOSTILE))),
        ),
        "approval": Kind(
            Purpose.APPROVAL,
            "studies/party/approval.py",
            in_file(lambda path: (made := OwnerApproval.load(path)).require(made.terms)),
            approval(),
        ),
        "voucher": Kind(
            Purpose.COMMITTEE_VOUCHER,
            "studies/agreement/voucher.py",
            lambda signed, folder: Voucher.verified(signed),
            Voucher.certify(HOSTILE, "ab" * 32, DROP.public_key, 2.0).signed,
        ),
        "receipt": Kind(
            Purpose.COMMITTEE_RECEIPT,
            "studies/agreement/contribution.py",
            in_file(lambda path: DropReceipt.of_file(path.read_bytes())),
            DropReceipt.sign(HOSTILE, "ab" * 32, DROP.public_key, DropPlace("cd" * 32, 1, "ef" * 32), 1.0).signed,
        ),
        "page": Kind(
            Purpose.COMMITTEE_PAGE,
            "form/signed_page.py",
            lambda signed, folder: SignedPage.verified(signed, sealed),
            SignedPage.sign(b"<!doctype html>", sealed, HOSTILE, "0.1.0").signed,
        ),
        "entry of a log": Kind(Purpose.AUDIT, "studies/party/audit.py", audited, Signed.sign(Purpose.AUDIT, entry, HOSTILE)),
    }


def written(folder: Path, content: bytes) -> Path:
    path = folder / "written"
    path.write_bytes(content)
    return path


NAMES = (
    "invitation", "entry", "sealed study", "contribution", "revocation", "approval", "voucher", "receipt", "page",
    "entry of a log",
)  # fmt: skip


def changed(document: Any, drawn: random.Random) -> Any:
    """One place in it, at any depth: something odd, nothing, twice, or another place's."""
    if isinstance(document, dict) and document and drawn.random() < 0.9:
        name = drawn.choice(sorted(document))
        if _is_signed_part(document[name]) and drawn.random() < 0.7:
            return document | {name: _anew(document[name], drawn)}
        if drawn.random() < 0.1:
            return {key: value for key, value in document.items() if key != name}
        if drawn.random() < 0.1:
            return document | {drawn.choice(("odd", "\x1b", "", name + "_")): drawn.choice(ODD)}
        return document | {name: changed(document[name], drawn)}
    if isinstance(document, list) and document and drawn.random() < 0.9:
        place = drawn.randrange(len(document))
        value = document[place]
        other = _anew(value, drawn) if _is_signed_part(value) and drawn.random() < 0.7 else changed(value, drawn)
        return [*document[:place], *([other, other] if drawn.random() < 0.1 else [other]), *document[place + 1 :]]
    return drawn.choice(ODD)


def _is_signed_part(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"body", "signature"} and str(value["body"]).startswith("{")


def _anew(part: dict[str, str], drawn: random.Random) -> dict[str, str]:
    """A document inside of another one, changed and signed anew: an invitation or an entry."""
    purpose = drawn.choice((Purpose.ENTRY, Purpose.INVITATION))
    signed = Signed.sign(purpose, changed(json.loads(part["body"]), drawn), HOSTILE)
    return msgspec.structs.asdict(signed.parts())


def mutant(kind: Kind, drawn: random.Random) -> Signed:
    document = json.loads(kind.signed.body)
    for _ in range(drawn.randint(1, 3)):
        document = changed(document, drawn)
    raw = canonical_json(document)
    return Signed(kind.purpose, raw, HOSTILE.sign(kind.purpose, raw))


def require_read_or_refused(kind: Kind, signed: Signed, folder: Path, what: str) -> bool:
    begun, refused = time.monotonic(), None
    try:
        kind.read(signed, folder)
    except InputError as error:
        refused = str(error)
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__} {str(error)[:200]} for {signed.body[:1000]!r}")
    assert refused is None or refused.isprintable(), f"{what}: {refused!r}"
    assert time.monotonic() - begun < _AT_MOST, f"{what}: {signed.body[:1000]!r}"
    return refused is None


@pytest.mark.parametrize("name", NAMES)
def test_what_a_hostile_party_signs_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    kind, drawn = kinds()[name], random.Random(1)
    assert require_read_or_refused(kind, kind.signed, tmp_path, "as it is")
    for number in range(_FEW):
        require_read_or_refused(kind, mutant(kind, drawn), tmp_path, f"mutant {number} of seed 1")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_minute_of_each_document(name: str, tmp_path: Path) -> None:
    kind, drawn, until, number = kinds()[name], random.Random(2), time.monotonic() + _LONG, 0
    while time.monotonic() < until:
        require_read_or_refused(kind, mutant(kind, drawn), tmp_path, f"mutant {number} of seed 2")
        number += 1


def test_every_document_that_is_signed_is_here() -> None:
    """A new kind of document needs a hostile signer, too."""
    readers = set()
    for path in SOURCES.rglob("*.py"):
        if "decode(" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            # Of a signed document one asks what it says as a type; all other decoders take bytes, numbers or nothing.
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode"):
                continue
            if len(node.args) == 1 and isinstance(node.args[0], ast.Name) and node.args[0].id.lstrip("_")[:1].isupper():
                readers.add(path.relative_to(SOURCES).as_posix())
    assert readers == {kind.module for kind in kinds().values()}
    assert set(NAMES) == kinds().keys()


def test_a_reader_that_lets_an_error_through_is_found(tmp_path: Path) -> None:
    kind = kinds()["voucher"]
    careless = Kind(kind.purpose, kind.module, lambda signed, folder: json.loads(signed.body)["key"], kind.signed)
    without = json.loads(kind.signed.body)
    del without["key"]
    signed = Signed(kind.purpose, canonical_json(without), b"")
    with pytest.raises(pytest.fail.Exception, match="KeyError"):
        require_read_or_refused(careless, signed, tmp_path, "without a key")
