"""Calls of public functions: what is misspelt or missing is refused as on the command line, in Python's words."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from itertools import islice
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, ParamSpec, Required, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from quietmean.core.errors import BY_COMMAND, OF_COLUMNS, InputError, QuietmeanError
from quietmean.core.schema import KIND_NAMES, nearest

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
            return WrongTypeError(f"{name} is {_shown(value, hints[name])}. Give {_words(hints[name])}.")
    return None


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """The types of parameters, and of the keywords of a typed ``**options: Unpack[...]``; of none where a type cannot be had."""
    try:
        hints = get_type_hints(function)
        typed = hints.pop(_keywords_of(function), None)
        return hints | ({} if typed is None else get_type_hints(get_args(typed)[0]))
    except NameError:
        return {}


def needed_keywords(function: Callable[..., object]) -> list[str]:
    """The keywords of a typed ``**options: Unpack[...]`` without which nothing can be called."""
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
    return _BY_NAME.get(name, f"a value of type {name}")


Given = ParamSpec("Given")
Result = TypeVar("Result")
# What is said of a column where Python and R declare columns by name.
_OF_COLUMNS = {
    "bounds": "columns={NAME: (LOW, HIGH)}",
    "levels": 'columns={NAME: ["A", "B"]}',
    "boolean": "columns={NAME: bool}",
    "dates": "columns={NAME: Column(name=NAME, low=FIRST, high=LAST)}",
    "alone": "a question of its own",
}

# The file and the line from where a public call was made that is not at its end, and the names of that module.
_Caller = tuple[str, int, dict[str, Any]]
_CALLER: ContextVar[_Caller | None] = ContextVar("caller", default=None)
_OWN, _LIBRARY = __file__[: -len("core/keywords.py")], inspect.__file__[: -len("inspect.py")]


def warn_caller(sentence: str) -> None:
    """Warn at the line of the program that made the public call, in whatever thread this runs."""
    file, line, names = _CALLER.get() or _line_of_caller()
    warnings.warn_explicit(sentence, UserWarning, file, line, names.get("__name__"), names.setdefault("__warningregistry__", {}))


def _line_of_caller() -> _Caller:
    """The nearest line that is of no library, or else of another one than this."""
    frame, found = inspect.currentframe(), None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN):
            here = file, frame.f_lineno, frame.f_globals
            if not (file.startswith((_LIBRARY, "<frozen")) or "site-packages" in file):
                return here
            found = found or here
        frame = frame.f_back
    return found or (__file__, 1, {})


@contextmanager
def called_by_command() -> Iterator[None]:
    """Errors of functions that are called here keep the command's options in their sentences."""
    before = BY_COMMAND.set(True)
    try:
        yield
    finally:
        BY_COMMAND.reset(before)


def _name_keywords(error: QuietmeanError, accepted: Collection[str]) -> None:
    """Let an error name its fields as keywords, unless a command calls."""
    if not BY_COMMAND.get():
        # A function that was called before may have named its own already.
        before = error.words.args[0] if isinstance(error.words, partial) else ()
        error.words = partial(as_keyword, (*accepted, *before))


@contextmanager
def declared_in_python() -> Iterator[None]:
    """Errors about a column that is declared here say how Python declares one, unless a command calls."""
    try:
        yield
    except QuietmeanError as error:
        _name_keywords(error, ())
        raise


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
                way = f"Choose one of {', '.join(accepted)}" if accepted else "Leave it out"
                raise InputError(f"{called} has no keyword {name!r}{nearest(name, accepted)}. {way}.")
        for name in [*needed[len(arguments) :], *needed_keywords(function)]:
            if name not in keywords:
                raise InputError(f"{called} needs {name}, which is not given. Call it with {name}=...")

    @contextmanager
    def in_words_of_python(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Iterator[None]:
        check(arguments, keywords)
        outermost = None if _CALLER.get() else _CALLER.set(_line_of_caller())
        try:
            yield
        except Exception as error:
            # Of another type: Python finds it out somewhere inside, or a public call that this one makes.
            if not isinstance(error, QuietmeanError) or isinstance(error, WrongTypeError):
                if (wrong := wrong_type(function, arguments, keywords)) is not None:
                    raise wrong from None
            else:
                # What is asked with keywords of the object, such as a study's, is changed there.
                made_with = getattr(type(arguments[0]).__init__, "accepted", ()) if arguments else ()
                _name_keywords(error, (*accepted, *made_with))
            raise
        finally:
            if outermost is not None:
                _CALLER.reset(outermost)

    @wraps(function)
    def checked(*arguments: Given.args, **keywords: Given.kwargs) -> Result:
        with in_words_of_python(arguments, keywords):
            return function(*arguments, **keywords)

    @wraps(function)
    async def awaited(*arguments: Given.args, **keywords: Given.kwargs) -> Any:
        with in_words_of_python(arguments, keywords):
            return await function(*arguments, **keywords)  # type: ignore[misc]

    public: Any = awaited if inspect.iscoroutinefunction(function) else checked
    public.accepted = tuple(accepted)
    public.__signature__ = _with_public_names(signature)
    if typed := [f"``{name}``" for name in accepted if name not in signature.parameters]:
        public.__doc__ = f"{inspect.getdoc(function) or ''}\n\nKeywords besides: {', '.join(typed)}.".lstrip()
    result: Callable[Given, Result] = public
    return result


def _with_public_names(signature: inspect.Signature) -> inspect.Signature:
    """The signature as help shows it: types by their own names, without the modules that they are found through."""

    def own(annotation: Any) -> Any:
        return re.sub(r"\brooms\.\w+\.", "", annotation) if isinstance(annotation, str) else annotation

    shown = [each.replace(annotation=own(each.annotation)) for each in signature.parameters.values()]
    return signature.replace(parameters=shown, return_annotation=own(signature.return_annotation))


def python_class(cls: type[Result]) -> type[Result]:
    """The class, which is called like a function with :func:`python_call`."""
    cls.__init__ = python_call(cls.__init__)  # type: ignore[method-assign]
    return cls


def as_keyword(accepted: Collection[str], field: str, values: Sequence[str], file: str) -> str:
    """A field as a keyword, in the plural where a function has that among those ``accepted``."""
    name = field.replace("-", "_")
    if name not in accepted and f"{name}s" in accepted:
        return f"{name}s=[{', '.join(values)}]" if values else f"{name}s"
    if name not in accepted and field in _OF_COLUMNS:
        return _OF_COLUMNS[field]
    return name if not values else f"{name}={values[0]}" if len(values) == 1 else f"{name}=({', '.join(values)})"


def as_argument(field: str, values: Sequence[str], file: str) -> str:
    """A field as an argument of the R package."""
    name, shown = field.replace("-", "_"), [{"True": "TRUE"}.get(value, value) for value in values]
    if field in OF_COLUMNS:
        return OF_COLUMNS[field] if field != "alone" else _OF_COLUMNS[field]
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
