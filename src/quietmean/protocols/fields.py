"""Reading single fields of a JSON object, with the error that a person needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import msgspec

from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.schema import KIND_NAMES, is_kind, missing_field, refuse_unknown, require_known, require_usual, wrong_field

# The entries of a receipt besides those of its execution.
RECEIPT_ENTRIES = ("certify", "result", "origin", "gate", "no_result")

Field = TypeVar("Field", int, float, str, bool)

Choice = TypeVar("Choice", bound=StrEnum)


def check_entries(raw: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises :class:`InputError` for an entry of an execution file that is none of ``known`` nor a receipt's, and for a number of
    a size that no study has: files may be of strangers, and what is computed from one must not overflow.
    """
    refuse_unknown("an execution", raw, [*known, *RECEIPT_ENTRIES])
    for name in raw.keys() - set(RECEIPT_ENTRIES):
        _require_usual(name, raw[name])


def _require_usual(name: str, entry: Any) -> None:
    """Check all numbers in an entry, and in what it holds."""
    if isinstance(entry, dict):
        entry = list(entry.values())
    if isinstance(entry, list | tuple):
        # Most of a large file are lists of parties, and who was there.
        are_whole = entry and set(map(type, entry)) <= {int, bool}
        for inner in (min(entry), max(entry)) if are_whole else entry:
            _require_usual(name, inner)
    elif isinstance(entry, int | float):
        require_usual(name, entry)


def required_field(raw: Mapping[str, Any], name: str, kind: type[Field]) -> Field:
    """The field as a value of type ``kind``. Raises :class:`InputError` if it is missing or of another type."""
    if name not in raw:
        raise missing_field(name, KIND_NAMES[kind])
    if not is_kind(raw[name], kind):
        raise wrong_field(name, raw[name], KIND_NAMES[kind])
    return kind(raw[name])


def optional_field(raw: Mapping[str, Any], name: str, kind: type[Field], default: Field) -> Field:
    """The field as a value of type ``kind``, or the default. Raises :class:`InputError` if it is of another type."""
    return required_field(raw, name, kind) if name in raw else default


def optional_choice(raw: Mapping[str, Any], name: str, kind: type[Choice], default: Choice) -> Choice:
    """The field as a member of ``kind``, or the default. Raises :class:`InputError` if it is none of the members."""
    return kind(require_known(name, raw.get(name, default), kind))


class Hints(msgspec.Struct, frozen=True):
    """The entry ``certify`` of a receipt: how it is to be certified, as far as it says so."""

    epsilon: float | None = None
    delta: float | None = None
    colluding: int | None = None
    nats: float | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Hints:
        """From a receipt, which may be a stranger's. Raises :class:`InputError` for an entry of another form."""
        hints = convert(raw.get("certify") or {}, cls, partial(unfit_field, "certify"))
        if hints.delta is not None and not 0 < hints.delta < 1:
            raise InputError(f"field 'certify' has delta {hints.delta:g}: a delta is between 0 and 1")
        return hints
