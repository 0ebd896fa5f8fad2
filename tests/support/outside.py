"""The world outside a site: an authority for certificates of hosts, and a proxy as the only way out."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "relay.example"


class Authority:
    """Whose certificates the machines of the parties trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        self.certificate = self._issue(name, self._key.public_key(), authority=True)
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def leaf(self, host: str, later: float = 0.0) -> tuple[Path, Path]:
        """Files of a certificate for this host and its key: good from yesterday until tomorrow, or so many days ``later``."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = self._folder / f"{self._name}-{host}.pem", self._folder / f"{self._name}-{host}.key"
        files[0].write_bytes(self._issue(host, key.public_key(), authority=False, later=later).public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _issue(self, name: str, key: ec.EllipticCurvePublicKey, *, authority: bool, later: float = 0.0) -> x509.Certificate:
        now, day = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=later), datetime.timedelta(days=1)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_spelt(name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _spelt(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Proxy:
    """CONNECT only. It knows where the relay is, which the parties' machines do not; with ``inside`` it opens the outer TLS."""

    def __init__(self, port: int, *, login: bytes = b"", inside: tuple[ssl.SSLContext, ssl.SSLContext] | None = None) -> None:
        self._port, self._login, self._inside = port, login, inside
        self.asked: list[bytes] = []
        self.seen = bytearray()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError, EOFError, ssl.SSLError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head.split(b"\r\n")[0])
            if self._login not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await writer.drain()
                outside = None
                if self._inside is not None:
                    await writer.start_tls(self._inside[0])
                    outside = self._inside[1]
                name = HOST if outside is not None else None
                far_reader, far = await asyncio.open_connection("127.0.0.1", self._port, ssl=outside, server_hostname=name)
                await asyncio.gather(self._pass(reader, far), self._pass(far_reader, writer))
        for each in (writer, far):
            if each is not None:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                self.seen += chunk
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
