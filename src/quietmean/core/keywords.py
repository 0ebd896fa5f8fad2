"""Misspelt keywords of public functions, refused like those of files and of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, get_args, get_type_hints

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest

Given = ParamSpec("Given")
Result = TypeVar("Result")


def refuses_unknown_keywords(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, which raises :class:`InputError` for a keyword that it does not have, with the nearest one that it has.

    Keywords that its signature has by a type, as ``**site: Unpack[...]``, are listed at the end of its docstring.
    """
    accepted = [name for name in keyword_names(function) if name not in ("self", "cls")]
    # A class is called by its own name.
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(function)
    def checked(*arguments: Given.args, **keywords: Given.kwargs) -> Result:
        for name in keywords:
            if name not in accepted:
                raise InputError(f"{called} has no keyword {name!r}{nearest(name, accepted)}: it has {', '.join(accepted)}")
        return function(*arguments, **keywords)

    if typed := [f"``{name}``" for name in accepted if name not in inspect.signature(function).parameters]:
        checked.__doc__ = f"{inspect.getdoc(function) or ''}\n\nKeywords besides: {', '.join(typed)}.".lstrip()
    return checked


def keyword_names(function: Callable[..., object]) -> list[str]:
    """The names of all parameters; those of a typed ``**options: Unpack[...]`` one by one."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (keywords,) = get_args(get_type_hints(function)[name])
            names += list(keywords.__annotations__)
        else:
            names.append(name)
    return names
