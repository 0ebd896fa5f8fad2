"""Identity files, rosters, and the TLS contexts made from them."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import format_address
from support.refusals import refused

ADA, BEN = Identity.generate(), Identity.generate()


def entry(name: str, port: int, identity: Identity) -> RosterEntry:
    return RosterEntry(name, ("127.0.0.1", port), identity.public_key)


def test_identity_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ada.key"
    ADA.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load(path).public_key == ADA.public_key
    assert len(base64.b64decode(ADA.public_key.removeprefix("ed25519:"))) == 32


def test_identity_never_overwrites_a_key(tmp_path: Path) -> None:
    path = tmp_path / "ada.key"
    ADA.save(path)
    refused("exists already", BEN.save, path)
    assert Identity.load(path).public_key == ADA.public_key


def test_repr_shows_no_secret() -> None:
    secret = ADA.private_key.private_bytes_raw()
    assert secret.hex() not in repr(ADA)
    assert repr(ADA) == "Identity()"


def test_identity_file_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    refused("does not exist", Identity.load, path)
    path.write_text("not a key")
    path.chmod(0o600)
    refused("holds no private key", Identity.load, path)
    path.write_bytes(X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    refused("another kind than Ed25519", Identity.load, path)
    refused("cannot be written", ADA.save, tmp_path / "nowhere" / "a.key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_identity_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ada.key"
    ADA.save(path)
    path.chmod(mode)
    refused("chmod 600", Identity.load, path)


def test_roster_survives_its_file(tmp_path: Path) -> None:
    roster = Roster((RosterEntry('A "quoted" name', ("::1", 7001), ADA.public_key), entry("ben", 7002, BEN)))
    path = tmp_path / "roster.toml"
    path.write_text(roster.to_toml())
    assert Roster.load(path) == roster
    assert Roster.load(path).digest == roster.digest
    assert roster.find(BEN) == 1
    assert format_address(roster.entries[0].address) == "[::1]:7001"


def test_roster_digest_covers_keys_and_order_but_no_addresses() -> None:
    digests = {
        Roster((entry("ada", 1, ADA), entry("ben", 2, BEN))).digest,
        Roster((entry("ben", 2, BEN), entry("ada", 1, ADA))).digest,
        Roster((entry("ada", 1, BEN), entry("ben", 2, ADA))).digest,
    }
    assert len(digests) == 3
    assert Roster((entry("ada", 9, ADA), entry("ben", 8, BEN))).digest in digests


def test_stranger_is_not_in_the_roster() -> None:
    handshake = Identity(Ed25519PrivateKey.generate())
    refused("your key is not in the roster", Roster((entry("ada", 1, ADA), entry("ben", 2, BEN))).find, handshake)


def table(name: str = "ada", address: str = "127.0.0.1:7001", key: str = ADA.public_key) -> str:
    return f'[[party]]\nname = "{name}"\naddress = "{address}"\nkey = "{key}"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[party", "not valid TOML"),
        ("party = 3", "no list of"),
        ("", "lists 0 party"),
        (table(), "lists 1 party"),
        ('[[party]]\nname = "ada"\n', "no text 'address'"),
        (table() + 'colour = "red"\n', "unknown field 'colour'"),
        (table() + table(address="127.0.0.1:7002", key=BEN.public_key), "name 'ada' is in the roster twice"),
        (table() + table("ben", "127.0.0.1:7002"), "is in the roster twice"),
        (table() + table("ben", key=BEN.public_key), "address '127.0.0.1:7001' is in the roster twice"),
        (table() + table("ben", "127.0.0.1:7002", "ed25519:AAAA"), "is not a public key"),
        (table() + table("ben", "127.0.0.1:7002", "ed25519:*"), "is not a public key"),
        (table() + table("ben", "127.0.0.1:7002", BEN.public_key[8:]), "is not a public key"),
        (table() + table("ben", "127.0.0.1:0", BEN.public_key), "is not host:port"),
        (table() + table("ben", "127.0.0.1:70000", BEN.public_key), "is not host:port"),
        (table() + table("ben", "7002", BEN.public_key), "is not host:port"),
        (table() + table("ben", "example.org:http", BEN.public_key), "is not host:port"),
    ],
)
def test_roster_file_errors(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(text)
    refused(message, Roster.load, path)


def test_unreadable_rosters(tmp_path: Path) -> None:
    refused("cannot be read", Roster.load, tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    refused("not UTF-8", Roster.load, tmp_path / "binary.toml")
