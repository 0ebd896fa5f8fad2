"""JSON Schema (draft 2020-12) of declared fields, so that other programs can check what quietmean writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from quietmean.core.schema import Configured, Parameter, parameters_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
# JSON has no infinity: the text "inf" means it, such as for the error of what the noise hides.
SIZE_OR_INF: Schema = {"anyOf": [{"type": "number", "minimum": 0}, {"const": "inf"}]}

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def array(items: Schema, *, least: int | None = None, most: int | None = None) -> Schema:
    limits = {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items, **{name: limit for name, limit in limits.items() if limit is not None}}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(schema: Schema) -> Schema:
    """An object with any names, and values of one form."""
    return {"type": "object", "additionalProperties": schema}


def record(fields: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """An object with these fields and no others; all are required but the ``optional`` ones."""
    left_out = set(optional)
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in left_out],
        "additionalProperties": False,
    }


def described(schema: Schema, text: str) -> Schema:
    return {"description": text, **schema}


def declared_fields(kind: type[Configured]) -> dict[str, Schema]:
    """The schemas of all declared fields of a type, by their names in JSON."""
    return {parameter.key: described(_of(parameter), parameter.help) for parameter in parameters_of(kind).values()}


def _of(parameter: Parameter) -> Schema:
    if parameter.read is not None or parameter.write is not None:
        # Its own form in JSON, which only its reader knows.
        return {}
    limits = {
        "minimum": parameter.at_least,
        "exclusiveMinimum": parameter.above,
        "maximum": parameter.at_most,
        "exclusiveMaximum": parameter.below,
    }
    numeric = {name: limit for name, limit in limits.items() if limit is not None}
    forms: list[Schema] = []
    for kind in parameter.kinds:
        if parameter.choices:
            forms.append({"enum": list(parameter.choices)})
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            forms.append({"enum": [str(choice) for choice in kind]})
        elif kind in _TYPES:
            forms.append({"type": _TYPES[kind], **(numeric if kind in (int, float) else {})})
        else:
            return {}
    forms += [{"const": "auto"}] * parameter.auto + [{"type": "null"}] * parameter.optional
    return forms[0] if len(forms) == 1 else {"anyOf": forms}
