"""Frames of Flower's clients: a server that keeps all, and has every X25519 key one day, opens none where links are hybrid."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quietmean.core.domain import Links
from quietmean.core.party import Message
from quietmean.flower import FlowerAgreement
from quietmean.flower.sealing import ClientKeys, Seals, read_hello, signed_hello
from quietmean.node import Identity
from quietmean.randomness import Encapsulated, ExchangeKey, Seed
from support.refusals import refused

PARTIES, DIMENSION = 4, 3
IDENTITIES = sorted((Identity.generate() for _ in range(PARTIES)), key=lambda each: each.public_key)
NOW = FlowerAgreement.make([each.public_key for each in IDENTITIES], dimension=DIMENSION, epsilon=8.0, delta=1e-5, rounds=1)
AGREEMENTS = {Links.HYBRID: NOW, Links.X25519: replace(NOW, study=NOW.study.model_copy(update={"links": Links.X25519}))}
SEEDS = [Seed.public("client", party) for party in range(PARTIES)]
MESSAGE = Message(0, (1,), 1, np.array([1.0, 2.0, 3.0]), 1.0, b"content")


def seals(links: Links) -> list[Seals]:
    keys = [ClientKeys(seed, links) for seed in SEEDS]
    return [Seals(AGREEMENTS[links], party, keys[party], lambda other: keys[other].public) for party in range(PARTIES)]


def opened_without_ml_kem(links: Links, frame: bytes) -> bool:
    """With the X25519 keys of all clients, whichever way the frame's key may rest on nothing else."""
    ciphertext = frame[:1088]
    private, context = [ExchangeKey(seed) for seed in SEEDS], f"quietmean flower 1 {AGREEMENTS[links].digest}"
    known: list[Encapsulated | None] = [None, *(Encapsulated(secret, ciphertext) for secret in (b"", bytes(32), ciphertext[:32]))]
    for (first, second), encapsulated in itertools.product(itertools.permutations(range(PARTIES), 2), known):
        shared = private[first].shared_seed(private[second].public, context, encapsulated)
        cipher = AESGCM(shared.derive("frames", first, second).secret)
        for begin in (0, 1088):
            try:
                place = Seals._place(seals(links)[0], 1, 1, first, second)
                cipher.decrypt(frame[begin : begin + 12], frame[begin + 12 :], place)
            except (InvalidTag, ValueError):
                continue
            return True
    return False


@pytest.mark.parametrize("links", list(Links))
def test_who_has_all_keys_of_x25519_opens_frames_of_x25519_only(links: Links) -> None:
    parties = seals(links)
    frame = parties[0].seal(1, 1, 1, [MESSAGE])
    assert frame is not None
    (found,) = parties[1].open(1, 1, 0, frame) or []
    assert (found.content, found.vector.tolist()) == (MESSAGE.content, MESSAGE.vector.tolist())
    assert opened_without_ml_kem(links, frame) == (links == Links.X25519)
    # Nobody else opens it, nor anywhere else.
    assert parties[2].open(1, 1, 0, frame) is None
    assert parties[1].open(1, 2, 0, frame) is None


@pytest.mark.parametrize("secret", [b"", bytes(32)])
def test_that_finds_frames_whose_key_leaves_ml_kem_out(secret: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = ExchangeKey.shared_seed

    def careless(key: ExchangeKey, other: bytes, context: str, encapsulated: Encapsulated | None = None) -> Seed:
        return shared(key, other, context, None if encapsulated is None else Encapsulated(secret, encapsulated.ciphertext))

    monkeypatch.setattr(ExchangeKey, "shared_seed", careless)
    frame = seals(Links.HYBRID)[0].seal(1, 1, 1, [MESSAGE])
    monkeypatch.undo()
    assert frame is not None
    assert opened_without_ml_kem(Links.HYBRID, frame)


def test_no_two_frames_have_one_key() -> None:
    parties = seals(Links.HYBRID)
    frames = [parties[0].seal(1, 1, 1, [MESSAGE]) for _ in range(3)]
    assert len({frame[:1088] for frame in frames if frame is not None}) == 3


@pytest.mark.parametrize("place", [0, 1087, 1088, 1099, 1100, -1])
def test_a_frame_that_was_changed_does_not_open(place: int) -> None:
    parties = seals(Links.HYBRID)
    frame = bytearray(parties[0].seal(1, 1, 1, [MESSAGE]) or b"")
    frame[place] ^= 1
    assert parties[1].open(1, 1, 0, bytes(frame)) is None
    assert parties[1].open(1, 1, 0, bytes(frame[:1088])) is None
    assert parties[1].open(1, 1, 0, b"") is None


def test_hellos_and_frames_of_the_other_kind_are_refused() -> None:
    old, new = (ClientKeys(SEEDS[0], links) for links in Links)
    for links, right, wrong in ((Links.X25519, old, new), (Links.HYBRID, new, old)):
        agreement = AGREEMENTS[links]
        assert read_hello(agreement, signed_hello(agreement, IDENTITIES[0], right.public)) is not None
        assert read_hello(agreement, signed_hello(agreement, IDENTITIES[0], wrong.public)) is None
    frame = seals(Links.X25519)[0].seal(1, 1, 1, [MESSAGE])
    assert frame is not None
    assert seals(Links.HYBRID)[1].open(1, 1, 0, frame) is None


def test_a_key_that_is_none_is_sent_nothing() -> None:
    keys = [ClientKeys(seed, Links.HYBRID) for seed in SEEDS]
    party = Seals(NOW, 0, keys[0], lambda other: keys[other].public[:32] + b"\xff" * 1184)
    assert party.seal(1, 1, 1, [MESSAGE]) is None


def test_agreements_say_their_links(tmp_path: Path) -> None:
    alone = AGREEMENTS[Links.X25519]
    alone.save(tmp_path / "alone.json")
    again = FlowerAgreement.load(tmp_path / "alone.json")
    assert (again.study.links, again.digest) == (Links.X25519, alone.digest)
    NOW.save(tmp_path / "now.json")
    assert FlowerAgreement.load(tmp_path / "now.json").study.links == Links.HYBRID
    assert NOW.digest != alone.digest
    raw: dict[str, Any] = json.loads((tmp_path / "now.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(raw | {"session": raw["session"] | {"links": "none"}}))
    refused("links must be", FlowerAgreement.load, tmp_path / "other.json")
    hello = signed_hello(alone, IDENTITIES[0], ClientKeys(SEEDS[0], Links.X25519).public)
    assert set(msgspec.msgpack.decode(hello)) == {"party", "exchange", "signature"}
    assert len(msgspec.msgpack.decode(hello)["exchange"]) == 32
