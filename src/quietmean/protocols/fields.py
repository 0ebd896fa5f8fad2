"""Reading single fields of a JSON object, with the error that a person needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest

Field = TypeVar("Field", int, float, str)

Choice = TypeVar("Choice", bound=StrEnum)

_NAMES = {int: "a whole number", float: "a number", str: "a text"}


def required_field(raw: Mapping[str, Any], name: str, kind: type[Field]) -> Field:
    """The field as a value of type ``kind``. Raises :class:`InputError` if it is missing or of another type."""
    if name not in raw:
        raise InputError(f"field {name!r} is missing: add it, it is {_NAMES[kind]}")
    value = raw[name]
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) or (isinstance(value, float) and math.isnan(value)):
        raise InputError(f"field {name!r} is {value!r}: it must be {_NAMES[kind]}")
    return kind(value)


def optional_field(raw: Mapping[str, Any], name: str, kind: type[Field], default: Field) -> Field:
    """The field as a value of type ``kind``, or the default. Raises :class:`InputError` if it is of another type."""
    return required_field(raw, name, kind) if name in raw else default


def optional_choice(raw: Mapping[str, Any], name: str, kind: type[Choice], default: Choice) -> Choice:
    """The field as a member of ``kind``, or the default. Raises :class:`InputError` if it is none of the members."""
    value, known = optional_field(raw, name, str, str(default)), [str(one) for one in kind]
    if value not in known:
        raise InputError(f"field {name!r} is {value!r}{nearest(value, known)}: it must be {' or '.join(known)}")
    return kind(value)
