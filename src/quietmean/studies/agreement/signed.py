"""Documents that travel between the parties of a study, by mail, in a folder or as one line of text, signed as they are sent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from quietmean.core.codec import canonical_json, convert, decode_json
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
from quietmean.core.output import json_object, require_version
from quietmean.node.net import Identity, Purpose, is_signed

# Whatever a stranger sends, no more than this is read.
_LARGEST = 4 * 2**20
_KINDS = {
    Purpose.INVITATION: FileKind.INVITATION,
    Purpose.ENTRY: FileKind.ENTRY,
    Purpose.SEAL: FileKind.SEALED,
    Purpose.CONTRIBUTION: FileKind.CONTRIBUTION,
    Purpose.APPROVAL: FileKind.APPROVAL,
    Purpose.REVOCATION: FileKind.REVOCATION,
    Purpose.COMMITTEE_VOUCHER: FileKind.VOUCHER,
    Purpose.COMMITTEE_RECEIPT: FileKind.DROP_RECEIPT,
    Purpose.COMMITTEE_LOG: FileKind.DROP_LOG,
    Purpose.COMMITTEE_PAGE: FileKind.SIGNED_PAGE,
}
# How a document as one line of text begins, whatever its version.
_LINE = re.compile(rf"\s*quietmean-({'|'.join(purpose.replace(' ', '-') for purpose in Purpose)})-\d+\.")
Document = TypeVar("Document", bound=msgspec.Struct)


class SignedParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document inside another."""

    body: str
    signature: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a signed document. ``body`` is a text, so that its bytes are those that were signed."""

    format: str
    body: str
    signature: str


@dataclass(frozen=True)
class Signed:
    """A document of one purpose: the bytes of its canonical JSON, and a signature over the purpose's label and these bytes."""

    purpose: Purpose
    body: bytes
    signature: bytes

    @classmethod
    def sign(cls, purpose: Purpose, document: Any, identity: Identity) -> Self:
        body = canonical_json(document)
        return cls(purpose, body, identity.sign(purpose, body))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of label and bytes, hexadecimal."""
        return hashlib.sha256(self.purpose.label + self.body).hexdigest()

    def is_by(self, public_key: str) -> bool:
        """Whether the owner of the key signed it. Raises :class:`InputError` for an impossible key."""
        return is_signed(public_key, self.purpose, self.body, self.signature)

    def decode(self, kind: type[Document]) -> Document:
        """What it says. Raises :class:`InputError` unless it is such a document, in the one form that its JSON can have."""
        raw: Any = decode_json(self.body, object, self._unreadable)
        document = convert(raw, kind, self._unreadable)
        try:
            canonical = canonical_json(raw) == self.body
        except ValueError as error:
            raise self._unreadable(str(error)) from None
        if not canonical:
            raise InputError(f"this {self.purpose} is not in the form that quietmean writes: it was changed. Ask for it again.")
        return document

    def _unreadable(self, reason: str) -> InputError:
        return InputError(f"this {self.purpose} cannot be read ({reason}). Ask for it again.")

    def parts(self) -> SignedParts:
        """Body and signature as texts, for a document inside another."""
        return SignedParts(self.body.decode(), base64.b64encode(self.signature).decode())

    def to_file(self) -> bytes:
        parts = self.parts()
        return msgspec.json.encode(_File(_format(self.purpose), parts.body, parts.signature)) + b"\n"

    def to_line(self) -> str:
        """One line of text, to be pasted into a mail."""
        parts = (base64.urlsafe_b64encode(part).decode() for part in (self.body, self.signature))
        return ".".join((_tag(self.purpose), *parts))


def read_signed(purpose: Purpose, source: str | Path, largest: int = _LARGEST) -> Signed:
    """A document from a file, which holds JSON or one line of text, or from the line itself. No signature is checked yet.

    No more than ``largest`` bytes are read.

    Raises :class:`InputError` that names the file and what it is instead.
    """
    if isinstance(source, str) and _is_line(source):
        return _from_line(purpose, source, "the line of text")
    path = Path(source)
    content = read_bounded(path, largest)
    text = content.decode("utf-8", errors="replace")
    if _is_line(text):
        return _from_line(purpose, text, f"file {path}")
    return _from_json(purpose, content, f"file {path}")


def read_bounded(path: Path, largest: int = _LARGEST) -> bytes:
    """All of a file that is at most as large as a signed document may be. Raises :class:`InputError`."""
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist. Check the path.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"file {path} cannot be read ({getattr(error, 'strerror', None) or error}). Check the path.") from None
    if len(content) > largest:
        raise InputError(f"file {path} is larger than {largest} bytes, as no file of this study is. Name another.")
    return content


def is_signed_document(path: Path) -> bool:
    """Whether a file is meant to be a signed document. A study file in TOML begins otherwise."""
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip().decode("utf-8", errors="replace")
    except OSError:
        return False
    return start.startswith("{") or _is_line(start)


def is_document(purpose: Purpose) -> Callable[[bytes], bool]:
    """Recognises files that hold a document of this purpose."""
    return lambda content: json_object(content).get("format") == _format(purpose)


def signed_in(purpose: Purpose, content: bytes) -> Signed:
    """The document that a file holds as JSON. Raises :class:`InputError`."""
    return _from_json(purpose, content, "the file")


def decode_base64(text: str, size: int, subject: str) -> bytes:
    """The bytes of a text in base64's one spelling. Raises :class:`InputError` unless they are ``size`` bytes."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size or base64.b64encode(raw).decode() != text:
        raise InputError(f"{subject} is not {size} bytes in base64: it was changed. Ask for it again.")
    return raw


def from_parts(purpose: Purpose, parts: SignedParts | _File, subject: str) -> Signed:
    """A document inside another. Raises :class:`InputError`."""
    try:
        body = parts.body.encode()
    except UnicodeEncodeError:
        raise InputError(f"{subject} is not a text: it was changed. Ask for it again.") from None
    return Signed(purpose, body, decode_base64(parts.signature, 64, f"the signature of {subject}"))


def _format(purpose: Purpose) -> str:
    return f"quietmean {purpose} 1"


def _tag(purpose: Purpose) -> str:
    return _format(purpose).replace(" ", "-")


def _is_line(text: str) -> bool:
    return _LINE.match(text) is not None


def _refuse_other(purpose: Purpose, content: bytes, source: str) -> None:
    if (wanted := _KINDS.get(purpose)) is not None:
        refuse_other(kind_of_content(content), source, wanted)


def _called(purpose: Purpose) -> str:
    """Return what a document is called in sentences."""
    kind = _KINDS.get(purpose)
    return f"a document of the kind {purpose}" if kind is None else kind.words


def _from_json(purpose: Purpose, content: bytes, source: str) -> Signed:
    wrong = InputError(f"{source} is not {_called(purpose)}. Give the file as quietmean wrote it.")
    form = json_object(content).get("format")
    require_version(form, _format(purpose), source)
    if form != _format(purpose):
        _refuse_other(purpose, content, source)
        raise wrong
    file = decode_json(content, _File, lambda reason: wrong)
    return from_parts(purpose, file, f"{purpose} in {source}")


def _from_line(purpose: Purpose, text: str, source: str) -> Signed:
    # Mail programs wrap long lines.
    tag, *parts = "".join(text.split()).split(".")
    require_version(tag, _tag(purpose), source)
    if tag != _tag(purpose):
        _refuse_other(purpose, text.encode(), source)
        raise InputError(f"{source} is not {_called(purpose)}. Copy the right one.")
    try:
        body, signature = (base64.b64decode(part, altchars=b"-_", validate=True) for part in parts)
    except (binascii.Error, ValueError):
        raise InputError(f"{source} holds no whole {purpose}. Copy it again, from {tag} to its end.") from None
    if len(signature) != 64:
        raise InputError(f"{source} holds no whole {purpose}. Copy it again, from {tag} to its end.")
    return Signed(purpose, body, signature)
