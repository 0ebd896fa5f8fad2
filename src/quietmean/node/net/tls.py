"""TLS 1.3, mutual, pinned to the roster's keys.

A node presents a short-lived leaf key that its identity key has signed. Anyone who checks it trusts one anchor per roster key: a
certificate that exists only in memory, names the identity key, and needs no valid signature, because OpenSSL does not check the
signature of its trust anchors. So the identity key is never handed to OpenSSL, and no authority is needed.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import ssl
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.net.identity import Identity, Roster, parse_public_key

# Trust rests on the pinned keys alone: a machine with a wrong clock must not be refused.
# Without a battery it begins in 1970.
_NOT_BEFORE = datetime.datetime(1950, 1, 1, tzinfo=datetime.UTC)
_NOT_AFTER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
_DESCRIPTORS = Path("/proc/self/fd")
_ISSUER = "quietmean "
OTHER_LEAF = "its certificate is of another study"


class Credentials:
    """The TLS contexts of one node: one to listen, one for each party to dial.

    ``study``: the session digest, at most 64 characters. It is in the leaf, and each side looks that the other's has the
    same: who steals the key of a leaf from a process has it for one study.
    """

    def __init__(self, identity: Identity, roster: Roster, study: str) -> None:
        self.identity = identity
        keys = [parse_public_key(entry.public_key) for entry in roster.entries]
        self._party_of = {_issuer_name(key): party for party, key in enumerate(keys)}
        stamp = Ed25519PrivateKey.generate()
        self._anchors = [_anchor(key, stamp) for key in keys]
        leaf_key = Ed25519PrivateKey.generate()
        leaf = _leaf(identity, leaf_key, study)
        # The own one, DER, as the peers see it.
        self.certificate = leaf.public_bytes(Encoding.DER)
        pem = leaf.public_bytes(Encoding.PEM)
        pem += leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with _file_of(pem) as file:
            self.server = self._context(ssl.PROTOCOL_TLS_SERVER, file, self._anchors)
            self._clients = [self._context(ssl.PROTOCOL_TLS_CLIENT, file, [anchor]) for anchor in self._anchors]

    def client(self, party: PartyId) -> ssl.SSLContext:
        """A context that accepts ``party`` and nobody else."""
        return self._clients[party]

    def accepted_party(self, certificate: bytes | None) -> PartyId:
        """Whose verified leaf certificate (DER) this is."""
        if certificate is None:
            raise PeerError("it presented no certificate")
        issuer = x509.load_der_x509_certificate(certificate).issuer
        name = str(issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        if name not in self._party_of:
            raise PeerError("its certificate names no party of the roster")
        return self._party_of[name]

    @staticmethod
    def _context(side: ssl._SSLMethod, chain: Path, anchors: Iterable[x509.Certificate]) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(chain)
        context.load_verify_locations(cadata="".join(anchor.public_bytes(Encoding.PEM).decode() for anchor in anchors))
        if side == ssl.PROTOCOL_TLS_SERVER:
            # Every connection proves its key anew; a resumed one would skip that.
            context.num_tickets = 0
        return context


def study_of(certificate: bytes | None) -> str:
    """The session digest in a verified leaf certificate (DER), or what else an old one has there."""
    if certificate is None:
        raise PeerError("it presented no certificate")
    return str(x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def foreign_issuer(certificate: bytes) -> str | None:
    """Who issued a certificate (DER) that is none of a party's; None for one of a party, of whichever roster."""
    try:
        issuer = x509.load_der_x509_certificate(certificate).issuer
    except ValueError:
        return "nobody known"
    names = [str(name.value) for name in (*issuer.get_attributes_for_oid(NameOID.COMMON_NAME), *issuer)]
    return None if names and names[0].startswith(_ISSUER) else (names or ["nobody known"])[0]


@contextlib.contextmanager
def _file_of(pem: bytes) -> Iterator[Path]:
    """A file with the leaf and its key for a moment, since OpenSSL reads key files only; on Linux it is in memory.

    The leaf is signed and does not expire: anybody who obtains its key can act as the party in this study.
    """
    if sys.platform == "linux" and _DESCRIPTORS.is_dir():
        with os.fdopen(os.memfd_create("quietmean-leaf"), "w+b", buffering=0) as file:
            yield from _filled(_DESCRIPTORS / str(file.fileno()), pem)
    else:
        # With mode 0700.
        with tempfile.TemporaryDirectory(prefix="quietmean-") as directory:
            yield from _filled(Path(directory) / "leaf.pem", pem)


def _filled(file: Path, content: bytes) -> Iterator[Path]:
    file.write_bytes(content)
    try:
        yield file
    finally:
        with file.open("r+b") as handle:
            handle.write(bytes(len(content)))


def _issuer_name(key: Ed25519PublicKey) -> str:
    return _ISSUER + hashlib.sha256(key.public_bytes_raw()).hexdigest()[:40]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: str, issuer: str, key: Ed25519PublicKey, authority: bool) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
    )


def _leaf(identity: Identity, leaf_key: Ed25519PrivateKey, study: str) -> x509.Certificate:
    issuer = _issuer_name(identity.private_key.public_key())
    # Not a critical extension: libraries refuse those they do not know before anybody could look.
    return _builder(study, issuer, leaf_key.public_key(), authority=False).sign(identity.private_key, None)


def _anchor(key: Ed25519PublicKey, stamp: Ed25519PrivateKey) -> x509.Certificate:
    name = _issuer_name(key)
    return _builder(name, name, key, authority=True).sign(stamp, None)
