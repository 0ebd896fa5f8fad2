"""Canonical bytes and JSON: the same data gives the same bytes on any machine."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import UnionType
from typing import Any, TypeAlias, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

Decoded = TypeVar("Decoded")
Bytes: TypeAlias = bytes | bytearray | memoryview
# The error to raise for bytes that cannot be read, from the reason.
Refuse: TypeAlias = Callable[[str], Exception]

# The deepest nesting of JSON and TOML that is read; this program writes a third of it.
_DEEPEST = 60
# Most of what a document has is of these types, and as it has to be.
_PLAIN = frozenset((int, str, bool, type(None)))
_LONGEST_REASON = 200
# msgspec raises some of these besides its own: for a text that is not UTF-8, deep nesting, numbers out of range. So does tomllib.
_UNREADABLE = (msgspec.MsgspecError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError)
# Possessive, so that no place to go back to is kept: of the other kind a text of 2 MB took 190 MB.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def to_plain(value: Any) -> Any:
    """JSON-ready copy: arrays become lists, infinite numbers the string "inf" (and "-inf")."""
    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return [to_plain(item) for item in value]
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
    """Sorted keys, no white space, shortest float form. Raises ValueError for what JSON cannot hold."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@overload
def decode(raw: Bytes, kind: type[Decoded], refuse: Refuse) -> Decoded: ...
@overload
def decode(raw: Bytes, kind: UnionType, refuse: Refuse) -> Any: ...
def decode(raw: Bytes, kind: Any, refuse: Refuse) -> Any:
    """A value of ``kind`` from MessagePack of any writer; ``refuse`` makes the error for all else."""
    return _read(lambda: _decoder(kind).decode(raw), refuse)


@functools.cache
def _decoder(kind: Hashable) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def decode_json(raw: bytes | str, kind: type[Decoded], refuse: Refuse, deepest: int = _DEEPEST) -> Decoded:
    """A value of ``kind`` from JSON of any writer; ``refuse`` makes the error for all else, nesting beyond the ``deepest``
    included."""
    decoded = _read(lambda: msgspec.json.decode(raw, type=kind), refuse)
    # Code that walks through the value later can rely on that depth.
    if _depth(raw.encode() if isinstance(raw, str) else raw) > deepest:
        raise refuse(f"lists and objects in each other, more than {deepest} deep")
    return decoded


def decode_toml(raw: bytes | str, refuse: Refuse) -> dict[str, Any]:
    """A table from TOML of any writer; ``refuse`` makes the error for all else."""
    table = _read(lambda: tomllib.loads(raw if isinstance(raw, str) else raw.decode("utf-8")), refuse)
    level: list[Any] = [table]
    for _ in range(_DEEPEST):
        level = [
            item
            for parent in level
            if isinstance(parent, dict | list)
            for item in (parent.values() if isinstance(parent, dict) else parent)
        ]
    if level:
        raise refuse(f"tables and lists in each other, more than {_DEEPEST} deep")
    return table


def convert(raw: Any, kind: type[Decoded], refuse: Refuse, *, strict: bool = True) -> Decoded:
    """A value of ``kind`` from lists, mappings, numbers and texts; ``refuse`` makes the error for all else."""
    return _read(lambda: msgspec.convert(raw, kind, strict=strict), refuse)


def _read(read: Callable[[], Decoded], refuse: Refuse) -> Decoded:
    try:
        return read()
    except _UNREADABLE as error:
        words = {RecursionError: "nested too deeply", UnicodeDecodeError: "it is not UTF-8 text"}
        reason = words.get(type(error), str(error))
    raise refuse(reason[:_LONGEST_REASON])


def _depth(raw: bytes) -> int:
    """How deep brackets are in each other, outside of strings."""
    characters = np.frombuffer(_STRING.sub(b"", raw), dtype=np.uint8)
    steps = np.zeros(256, dtype=np.int64)
    steps[[*b"[{"]], steps[[*b"]}"]] = 1, -1
    return int(np.cumsum(steps[characters]).max(initial=0))


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


class StableBytes:
    """Bytes of a state that stay the same from round to round: a store writes them once and their digest ever after."""

    __slots__ = ("_digest", "content")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._digest = b""

    @classmethod
    def of_array(cls, array: NDArray[Any]) -> StableBytes:
        """The stable bytes of an array that nobody changes any more, where they are: a long one is not copied."""
        view: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data.toreadonly()
        return cls(view)

    def found_in(self, longer: bytes) -> StableBytes:
        """Return these bytes as the end of ``longer``, which has them: so what is kept anyway has them alone."""
        view: Any = memoryview(longer).toreadonly()[len(longer) - len(self.content) :]
        same = StableBytes(view)
        same._digest = self._digest
        return same

    @property
    def digest(self) -> bytes:
        """SHA-256 of the content, computed once."""
        if not self._digest:
            self._digest = hashlib.sha256(self.content).digest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StableBytes) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        # It may be secret.
        return f"Kept({len(self.content)} bytes)"


def _content_of(kept: StableBytes) -> bytes:
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


def dump_state(state: object, keep: Callable[[StableBytes], bytes] = _content_of) -> bytes:
    """A party's state as MessagePack. ``keep`` gives what replaces each :class:`Kept`."""

    def encode(value: Any) -> Any:
        return keep(value) if isinstance(value, StableBytes) else _encode_array(value)

    return msgspec.msgpack.encode(state, enc_hook=encode)


def load_state(kind: type[Decoded], raw: bytes, kept: Callable[[bytes], bytes] = _inline) -> Decoded:
    """The inverse of :func:`dump_state`, ``kept`` that of ``keep``; for what this program wrote: errors are msgspec's."""

    def decode(type_: type, value: Any) -> Any:
        return StableBytes(kept(value)) if type_ is StableBytes else _decode_array(type_, value)

    return msgspec.msgpack.decode(raw, type=kind, dec_hook=decode)
