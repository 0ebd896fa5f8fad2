"""Arguments of public calls that are of another type than their signature says: a sentence in the place of Python's own error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from quietmean.core.errors import InputError
from quietmean.core.schema import KIND_NAMES

# Elements of a list.
_LOOKED_AT = 1000
_NUMBERS: dict[type, type] = {int: Integral, float: Real}
_NAMES: dict[Any, str] = {**KIND_NAMES, str: "text", bool: "True or False", NoneType: "None"}
_BY_NAME = {
    "ndarray": "an array of numbers", "Callable": "a function", "Mapping": "a dict", "Path": "a path",
    "_WithDigest": "a contract",
}  # fmt: skip


class WrongTypeError(InputError):
    """An argument of a public call is of another type than is declared."""


def wrong_type(function: Callable[..., object], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> WrongTypeError | None:
    """An error about the first argument of a call that is of another type than is declared; None where all are as declared.

    It names types, never values: an argument may be private.
    """
    hints = _hints(function)
    given = inspect.signature(function).bind_partial(*arguments, **keywords).arguments
    for name, value in {**given, **given.pop(_keywords_of(function), {})}.items():
        if name in hints and not _fits(value, hints[name]):
            return WrongTypeError(f"{name} is {_shown(value, hints[name])}: it must be {_words(hints[name])}")
    return None


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """By parameter, and by keyword of a typed ``**options: Unpack[...]``; of none where a type cannot be had."""
    try:
        hints = get_type_hints(function)
        typed = hints.pop(_keywords_of(function), None)
        return hints | ({} if typed is None else get_type_hints(get_args(typed)[0]))
    except NameError:
        return {}


def needed_keywords(function: Callable[..., object]) -> list[str]:
    """Those of a typed ``**options: Unpack[...]`` without which nothing can be called."""
    if not (name := _keywords_of(function)):
        return []
    typed = typed_keywords(function, name)
    return [key for key, hint in get_type_hints(typed, include_extras=True).items() if get_origin(hint) is Required]


def typed_keywords(function: Callable[..., object], name: str) -> Any:
    """The class of the parameter ``name``, as ``**name: Unpack[class]``; others may cost an import to read."""
    annotated = inspect.unwrap(function)
    alone = SimpleNamespace(__annotations__={name: annotated.__annotations__[name]})
    return get_args(get_type_hints(alone, annotated.__globals__)[name])[0]


def _keywords_of(function: Callable[..., object]) -> str:
    kind = inspect.Parameter.VAR_KEYWORD
    return next((name for name, one in inspect.signature(function).parameters.items() if one.kind is kind), "")


def _fits(value: Any, hint: Any) -> bool:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return isinstance(value, str) and value in inside
    if isinstance(hint, type) and hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    kind: Any = Mapping if is_typeddict(hint) else origin or hint
    unchecked = getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)
    if kind is Any or not isinstance(kind, type) or unchecked:
        return True
    of_kind = isinstance(value, kind)
    if not of_kind or (isinstance(value, str | bytes) and inside):
        return False
    if isinstance(value, Mapping) and len(inside) == 2:
        return all(_fits(key, inside[0]) and _fits(one, inside[1]) for key, one in value.items())
    if kind is tuple and Ellipsis not in inside:
        return len(value) == len(inside) and all(map(_fits, value, inside))
    return len(inside) != 1 or not isinstance(value, Iterable) or all(_fits(one, inside[0]) for one in islice(value, _LOOKED_AT))


def _shown(value: Any, hint: Any) -> str:
    kind = f"of type {type(value).__name__}"
    return f"{kind} with something else in it" if type(value) in (list, tuple, dict) and _fits(type(value)(), hint) else kind


def _words(hint: Any) -> str:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in inside))
    if origin is Literal:
        return " or ".join(map(repr, inside))
    if isinstance(hint, type) and hint in _NAMES:
        return _NAMES[hint]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dict"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable) and len(inside) == 1:
        return f"a list, each {_words(inside[0])}"
    name = getattr(origin or hint, "__name__", str(hint))
    return _BY_NAME.get(name, f"of type {name}")
