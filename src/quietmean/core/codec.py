"""Canonical bytes and JSON: the same data gives the same bytes on any machine."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

Decoded = TypeVar("Decoded")


def to_plain(value: Any) -> Any:
    """JSON-ready copy: arrays become lists, infinite numbers the string "inf" (and "-inf")."""
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return [to_plain(item) for item in sorted(value)]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [to_plain(item) for item in value]
    return value


def canonical_json(value: Any) -> bytes:
    """Sorted keys, no white space, shortest float form."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


class Kept:
    """Bytes of a state that stay the same from round to round: a store writes them once and their digest ever after."""

    __slots__ = ("_digest", "content")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._digest = b""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the content, computed once."""
        if not self._digest:
            self._digest = hashlib.sha256(self.content).digest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        # It may be secret.
        return f"Kept({len(self.content)} bytes)"


def _content_of(kept: Kept) -> bytes:
    return kept.content


def _inline(content: bytes) -> bytes:
    return content


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.shape, np.ascontiguousarray(value, dtype="<f8").reshape(-1).view(np.uint8).data)
    raise TypeError(f"cannot serialise {type(value).__name__}")


def _decode_array(kind: type, value: Any) -> Any:
    # Aliases of parametrised arrays reach this hook as their origin.
    if getattr(kind, "__origin__", kind) is np.ndarray:
        shape, raw = value
        return np.frombuffer(raw, dtype="<f8").reshape(shape).astype(np.float64)
    raise TypeError(f"cannot deserialise {kind!r}")


def dump_state(state: object, keep: Callable[[Kept], bytes] = _content_of) -> bytes:
    """A party's state as MessagePack. ``keep`` gives what stands for each :class:`Kept`."""

    def encode(value: Any) -> Any:
        return keep(value) if isinstance(value, Kept) else _encode_array(value)

    return msgspec.msgpack.encode(state, enc_hook=encode)


def load_state(kind: type[Decoded], raw: bytes, kept: Callable[[bytes], bytes] = _inline) -> Decoded:
    """The inverse of :func:`dump_state`, ``kept`` that of ``keep``. Raises ``msgspec.ValidationError`` on anything else."""

    def decode(wanted: type, value: Any) -> Any:
        return Kept(kept(value)) if wanted is Kept else _decode_array(wanted, value)

    return msgspec.msgpack.decode(raw, type=kind, dec_hook=decode)
