"""The words of a sealed study: another study has other words, and looking for two with the same ones takes too long."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core.codec import digest
from quietmean.node import Identity
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.party.approval import Fingerprint, Stretch, fingerprint, stretched
from support.meeting import AGES, Meeting, meet

SEARCHED_WORDS, SEARCHED_BITS = 4, 44


def unstretched(raw: bytes) -> bytes:
    """A build without scrypt."""
    return hashlib.sha256(raw).digest()[:13]


@pytest.fixture(scope="module")
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    return meet(tmp_path_factory.mktemp("meeting"))


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all values in nested plain data that hold no others."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for name, item in items:
        found = True
        yield from paths(item, (*path, name))
    if not found:
        yield path


def test_words_and_characters_spell_the_same_bits() -> None:
    found = fingerprint("00" * 32, lambda raw: bytes(range(1, 14)))
    bits = int.from_bytes(bytes(range(1, 14)), "big")
    assert len(found.words) == 8
    assert len(found.characters) == 20
    assert base64.b32encode(bytes(range(1, 14))).decode().startswith(found.characters)
    from mnemonic import Mnemonic

    listed = Mnemonic("english").wordlist
    assert sum(listed.index(word) << (11 * (7 - place)) for place, word in enumerate(found.words)) == bits >> (104 - 88)
    assert found.grouped.replace("-", "") == found.characters


def test_the_stretching_is_scrypt_with_the_stated_cost() -> None:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    raw = bytes(range(32))
    assert stretched(raw) == Scrypt(salt=b"quietmean words 1\0", length=13, n=2**17, r=8, p=1).derive(raw)
    # Two versions of the program must show the same words.
    assert fingerprint(raw.hex()).spoken == "nuclear parent injury pony page slight argue hover"


def resealed(meeting: Meeting, sealed: Sealed, change: Any) -> Sealed:
    """The same seal, to the last byte but for what ``change`` does to the body of the convener's document."""
    document = json.loads(sealed.signed.body)
    change(document)
    return Sealed.verified(Signed.sign(sealed.signed.purpose, document, meeting.identities["north"]))


def test_every_changed_field_changes_the_digest(meeting: Meeting) -> None:
    """Every leaf of all that the digest covers, changed by itself: all digests and words differ."""
    sealed = meeting.seal()
    fields = sealed.fields()
    covered = {"invitation": sealed.invitation.digest, **{name: fields[name] for name in ("parties", "conveners", "instance")}}
    assert digest({"format": "quietmean sealed 1", **covered}) == sealed.digest
    seen = {fingerprint(sealed.digest, unstretched).words}
    leaves = list(paths(covered))
    assert len(leaves) > 20
    for path in leaves:
        other = copy.deepcopy(covered)
        holder: Any = other
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = f"{holder[path[-1]]}x"
        seen.add(fingerprint(digest({"format": "quietmean sealed 1", **other}), unstretched).words)
    assert len(seen) == len(leaves) + 1


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        ("study", "name", "other"),
        ("study", "epsilon", 0.25),
        ("study", "delta", 1e-7),
        ("study", "colluding", 2),
        ("study", "dropouts", 0.25),
        ("study", "unit", "party"),
        ("study", "protocol", "local-dp"),
        ("study", "round_timeout", 11.0),
        ("study", "start_timeout", 11.0),
        ("column", "low", 1.0),
        ("column", "high", 101.0),
        ("column", "name", "years"),
        ("column", "missing", "indicator"),
    ],
)
def test_every_term_of_the_study_changes_the_digest_of_its_invitation(place: str, field: str, value: Any) -> None:
    identity, tables = Identity.generate(), copy.deepcopy(AGES)
    first = Invitation.make(StudyTerms.from_tables(tables, "the study"), identity)
    holder = tables["column"][0] if place == "column" else tables["study"]
    holder[field] = value
    document = json.loads(first.signed.body)
    document["study"] = StudyTerms.from_tables(tables, "the study").tables()
    other = Invitation.verified(Signed.sign(first.signed.purpose, document, identity))
    assert other.digest != first.digest


def test_addresses_are_not_in_the_words(meeting: Meeting, tmp_path: Path) -> None:
    """A party that moves is the same; all else that its entry says is covered."""
    sealed = meeting.seal()

    def move(document: dict[str, Any]) -> None:
        for entry in document["entries"]:
            body = json.loads(entry["body"])
            if body["name"] == "south":
                body["address"] = "192.0.2.77:1"
                signed = Signed.sign(meeting.keys["south"].entry.signed.purpose, body, meeting.identities["south"])
                entry.update(msgspec.structs.asdict(signed.parts()))

    moved = resealed(meeting, sealed, move)
    assert moved.signed.body != sealed.signed.body
    assert moved.digest == sealed.digest

    def draw_again(document: dict[str, Any]) -> None:
        document["instance"] = base64.b64encode(bytes(32)).decode()

    assert resealed(meeting, sealed, draw_again).digest != sealed.digest


def collision(stretch: Stretch, seconds: float) -> tuple[Fingerprint, Fingerprint] | None:
    """What a convener would do: seal with other random bytes until two seals have the same first words."""
    deadline, batch, seen = time.monotonic() + seconds, 2**16, np.zeros(0, dtype=np.uint64)
    while time.monotonic() < deadline:
        found = []
        for number in range(len(seen), len(seen) + batch):
            found.append(int.from_bytes(stretch(number.to_bytes(32, "big"))[:6], "big") >> (48 - SEARCHED_BITS))
            if len(found) % 16 == 0 and time.monotonic() > deadline:
                break
        seen = np.concatenate([seen, np.array(found, dtype=np.uint64)])
        if len(found) < batch or len(seen) % 2**19 == 0:
            order = np.argsort(seen, kind="stable")
            equal = np.flatnonzero(seen[order][1:] == seen[order][:-1])
            if len(equal):
                one, other = (int(order[equal[0] + step]).to_bytes(32, "big").hex() for step in (0, 1))
                return fingerprint(one, stretch), fingerprint(other, stretch)
    return None


@pytest.mark.slow
def test_the_search_for_two_seals_with_equal_words() -> None:
    """Without scrypt 4 words are found in a minute (a birthday search of 2^22 hashes, so of 2^44 for 8 words); with it, none.

    With scrypt 60 s give about 120 trials: the chance of a false alarm is 120^2 / 2^45 < 1e-9. Without it, missing after
    60 s at 1e5 hashes a second has probability exp(-(6e6)^2 / 2^45) < 0.4; at the 3e5 of an idle machine < 1e-4.
    """
    found = collision(unstretched, 60.0)
    assert found is not None
    one, other = found
    assert one.words[:SEARCHED_WORDS] == other.words[:SEARCHED_WORDS]
    assert one.words != other.words
    assert collision(stretched, 20.0) is None
