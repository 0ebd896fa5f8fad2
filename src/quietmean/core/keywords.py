"""Calls of public functions: what is misspelt or missing is refused as on the command line, in Python's words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from quietmean.core.argument_types import WrongTypeError, needed_keywords, typed_keywords, wrong_type
from quietmean.core.errors import InputError, QuietmeanError, as_option
from quietmean.core.schema import nearest

Given = ParamSpec("Given")
Result = TypeVar("Result")
# What is said of a column where Python and R declare columns by name.
_OF_COLUMNS = {
    "bounds": "columns={NAME: (LOW, HIGH)}",
    "levels": 'columns={NAME: ["A", "B"]}',
    "boolean": "columns={NAME: bool}",
    "dates": "columns={NAME: Column(name=NAME, low=FIRST, high=LAST)}",
}
_IN_R = {"column": "columns", "bounds": "qm_bounds", "levels": "qm_levels", "boolean": "qm_boolean", "dates": "qm_dates"}
# Whether a command calls: its errors name its options.
_BY_COMMAND: ContextVar[bool] = ContextVar("by command", default=False)


@contextmanager
def called_by_command() -> Iterator[None]:
    """Errors of functions that are called here keep the command's options in their sentences."""
    before = _BY_COMMAND.set(True)
    try:
        yield
    finally:
        _BY_COMMAND.reset(before)


def python_call(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, which raises :class:`InputError` for a keyword that it does not have, with the nearest one that it has, and
    for one that it needs and was not given, or that fails for its type; and whose errors name its keywords where those of the
    command name options.

    Keywords that its signature has by a type, as ``**site: Unpack[...]``, are listed at the end of its docstring.
    """
    accepted = [name for name in keyword_names(function) if name not in ("self", "cls")]
    # A class is called by its own name.
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    signature = inspect.signature(function)
    needed = [name for name, parameter in signature.parameters.items() if _is_needed(parameter)]

    def check(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        for name in keywords:
            if name not in accepted:
                raise InputError(f"{called} has no keyword {name!r}{nearest(name, accepted)}: it has {', '.join(accepted)}")
        for name in [*needed[len(arguments) :], *needed_keywords(function)]:
            if name not in keywords:
                raise InputError(f"{called} needs {name}, which is not given: call it with {name}=...")

    @contextmanager
    def in_words_of_python(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Iterator[None]:
        check(arguments, keywords)
        try:
            yield
        except Exception as error:
            # Of another type: Python finds it out somewhere inside, or a public call that this one makes.
            if not isinstance(error, QuietmeanError) or isinstance(error, WrongTypeError):
                if (wrong := wrong_type(function, arguments, keywords)) is not None:
                    raise wrong from None
            elif not _BY_COMMAND.get():
                # One that this function calls may have named its own already.
                before = error.words.args[0] if isinstance(error.words, partial) else ()
                error.words = partial(as_keyword, (*accepted, *before))
            raise

    @wraps(function)
    def checked(*arguments: Given.args, **keywords: Given.kwargs) -> Result:
        with in_words_of_python(arguments, keywords):
            return function(*arguments, **keywords)

    @wraps(function)
    async def awaited(*arguments: Given.args, **keywords: Given.kwargs) -> Any:
        with in_words_of_python(arguments, keywords):
            return await function(*arguments, **keywords)  # type: ignore[misc]

    public: Any = awaited if inspect.iscoroutinefunction(function) else checked
    if typed := [f"``{name}``" for name in accepted if name not in signature.parameters]:
        public.__doc__ = f"{inspect.getdoc(function) or ''}\n\nKeywords besides: {', '.join(typed)}.".lstrip()
    result: Callable[Given, Result] = public
    return result


def python_class(cls: type[Result]) -> type[Result]:
    """The class, which is called like a function with :func:`python_call`."""
    cls.__init__ = python_call(cls.__init__)  # type: ignore[method-assign]
    return cls


def as_keyword(accepted: Collection[str], field: str, values: Sequence[str], file: str) -> str:
    """A field as a keyword of a function that has those ``accepted``; one that none of them is as an option of the command."""
    name = field.replace("-", "_")
    if name in accepted:
        return name if not values else f"{name}={values[0]}" if len(values) == 1 else f"{name}=({', '.join(values)})"
    if f"{name}s" in accepted:
        return f"{name}s=[{', '.join(values)}]" if values else f"{name}s"
    if field == "column" or field in _OF_COLUMNS:
        return _OF_COLUMNS[field] if values else "columns" if field == "column" else field
    return as_option(field, values, "")


def as_argument(field: str, values: Sequence[str], file: str) -> str:
    """A field as an argument of the R package."""
    name, shown = field.replace("-", "_"), [{"True": "TRUE"}.get(value, value) for value in values]
    if field in _IN_R:
        return f"{_IN_R[field]}({', '.join(shown)})" if _IN_R[field] != "columns" else "columns"
    return name if not shown else f"{name} = {shown[0]}" if len(shown) == 1 else f"{name} = c({', '.join(shown)})"


def _is_needed(parameter: inspect.Parameter) -> bool:
    """Whether a call has to say it, by place or by keyword."""
    varies = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not varies


def keyword_names(function: Callable[..., object]) -> list[str]:
    """The names of all parameters; those of a typed ``**options: Unpack[...]`` one by one."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            names += list(typed_keywords(function, name).__annotations__)
        else:
            names.append(name)
    return names
