"""Fields of a configured value, declared once.

JSON in and out, options of the command line with their help, checks and the strategies of tests all follow from the declaration::

    @dataclass(frozen=True, kw_only=True, eq=False, repr=False)
    class Example(Configured):
        rounds: int = parameter(help="mixing rounds", at_least=1, option=True)

A field without a default is open: it has no value yet. It is filled in once the number of parties or the target is known.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from functools import cached_property
from inspect import isfunction
from numbers import Real
from types import UnionType
from typing import Any, Self, TypeVar

from quietmean.core.codec import canonical_json
from quietmean.core.errors import BY_COMMAND, InputError, as_sentence, in_sentences


class _Later(Enum):
    OPEN = "open"
    AUTO = "auto"

    def __repr__(self) -> str:
        return self.value


# What a field holds in place of a value: OPEN for none yet, AUTO for one that is to be computed. Of type Any, so that a field is
# typed as its later value.
OPEN: Any = _Later.OPEN
AUTO: Any = _Later.AUTO

# The type of a field in words.
KIND_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


# The range of numbers in plans, studies and receipts, 0 aside, so that squares of quotients are finite and above 0.
SMALLEST, LARGEST, MOST = 1e-50, 1e50, 10**15
# The most digits of a whole number that is written out.
_DIGITS = 40


def require_number(name: str, value: Any, kind: type) -> None:
    """Raises :class:`InputError` for what is not a number, a fraction in the place of a whole one, and what no float can hold."""
    if value is not None and not isinstance(value, Real):
        raise InputError(f"{name} is of type {type(value).__name__}. Give {KIND_NAMES[kind]}.")
    if kind is int:
        if isinstance(value, float):
            raise InputError(f"{name} is {value:g}. Give {KIND_NAMES[int]}.")
    elif isinstance(value, int) and abs(value) > sys.float_info.max:
        raise InputError(f"{name} is {number_shown(value)}. Choose a number of a size up to {LARGEST:g}.")


def number_shown(value: float) -> str:
    """A number for a sentence; of one with hundreds of digits only their count."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if abs(value) < 10**_DIGITS else f"a number of {int(math.log10(abs(value))) + 1} digits"


def require_usual(name: str, value: float) -> None:
    """Raises :class:`InputError` for a number that no study has: with it the arithmetic of a plan would overflow."""
    if isinstance(value, int):
        if abs(value) > MOST:
            raise InputError(f"{name} is {number_shown(value)}: no study has so much. Choose a number of at most {MOST:.0e}.")
    elif value and not SMALLEST <= abs(value) <= LARGEST:
        raise InputError(
            f"{name} is {value:g}: no study has such a number. Choose one of a size from {SMALLEST:g} to {LARGEST:g}."
        )


def require_delta(delta: float) -> None:
    """Raises :class:`InputError` for what is not a delta of a guarantee, or too small to compute with."""
    if not sys.float_info.min <= delta < 1:
        raise InputError(f"delta is {delta:g}. Choose 0 < delta < 1, for example 1e-6.")


@dataclass(frozen=True)
class Parameter:
    """The declaration of one field.

    ``help`` is a clause for users. Numbers lie in the stated range; ``remedy`` states what to choose instead. An ``option`` may
    be chosen when planning; all other fields are found by calibration. ``flag`` is the name on the command line, None if it has
    none. ``key`` is the name in JSON. ``read`` and ``write`` convert to and from JSON data. ``written`` decides whether
    the field is in a file; by default all but None are. With ``auto`` the text "auto" means what is computed.
    """

    name: str
    help: str
    kind: Any
    default: Any
    required: bool
    option: bool
    flag: str | None
    key: str
    remedy: str
    at_least: float | None
    above: float | None
    at_most: float | None
    below: float | None
    choices: tuple[str, ...]
    read: Callable[[Any], Any] | None
    write: Callable[[Any], Any] | None
    written: Callable[[Any], bool]
    auto: bool

    @property
    def optional(self) -> bool:
        """May it be None?"""
        return type(None) in _members(self.kind)

    @cached_property
    def kinds(self) -> list[type]:
        """The types that it may have besides None, in the order of their declaration."""
        return [member for member in _members(self.kind) if member is not type(None)]

    @property
    def named(self) -> str:
        """The name of the parameter in sentences: the key, for a command with the flag where that is another word."""
        other = BY_COMMAND.get() and self.flag is not None and self.flag.replace("-", "_") != self.key
        return f"{self.key} ({self.flag})" if other else self.key

    def check(self, value: Any) -> None:
        """Raises :class:`InputError` for a number outside the range, or a text that is none of the choices."""
        if isinstance(value, _Later) or (value is None and self.optional):
            return
        is_number, numbers = isinstance(value, int | float) and not isinstance(value, bool), {int, float} & set(self.kinds)
        only_numbers = numbers == set(self.kinds)
        if value is None or (isinstance(value, bool) and only_numbers) or (is_number and not numbers):
            raise wrong_field(self.key, value, self.wanted)
        if self.choices:
            require_known(self.key, value, self.choices)
        # What is read from JSON is made of its numbers later.
        if is_number or only_numbers:
            require_number(self.named, value, float if float in self.kinds else int)
            if not self._holds(value):
                raise InputError(f"{self.named} is {number_shown(value)}. {as_sentence(self.remedy)}")
            # Numbers that a person chooses for a plan; bounds of columns and shares may be smaller.
            if self.option:
                require_usual(self.named, value)

    def _holds(self, value: float) -> bool:
        return (
            # Whole numbers of any length are compared as they are.
            (isinstance(value, int) or math.isfinite(value))
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def parse(self, raw: Any) -> Any:
        """The field's value from JSON data. Raises :class:`InputError`."""
        if self.auto and raw == "auto":
            return AUTO
        if self.read is not None:
            return self.read(raw)
        if raw is None and self.optional:
            return None
        for kind in self.kinds:
            if isinstance(kind, type) and issubclass(kind, StrEnum):
                return kind(require_known(self.key, raw, self.choices or kind))
            if is_kind(raw, kind):
                return float(raw) if kind is float else raw
        raise wrong_field(self.named if isinstance(raw, float) else self.key, raw, self.wanted)

    def data(self, text: str) -> Any:
        """The JSON data that a text means: of the first kind that the field takes and the text can be, else the text."""
        for kind in self.kinds:
            if kind is bool and text in ("true", "false"):
                return text == "true"
            if kind in (int, float):
                with contextlib.suppress(ValueError):
                    return kind(text)
        return text

    @property
    def wanted(self) -> str:
        """What JSON data the field takes, in words."""
        kinds = [KIND_NAMES[kind] for kind in self.kinds if kind in KIND_NAMES] or ["a text"]
        return " or ".join([*kinds, '"auto"'] if self.auto else kinds)

    def to_json(self, value: Any) -> Any:
        if value is AUTO:
            return "auto"
        if self.write is not None:
            return self.write(value)
        if isinstance(value, StrEnum):
            return str(value)
        # A number is one in JSON, also where Python was given a whole one: the same value, the same digest.
        is_float = is_kind(value, int) and float in self.kinds and int not in self.kinds
        return float(value) if is_float else value


def is_kind(raw: Any, kind: type) -> bool:
    """Is JSON data a whole number, a number, a text or a truth value, according to ``kind``? Whole numbers are numbers."""
    accepted = (int, float) if kind is float else kind
    is_bool = isinstance(raw, bool)
    return isinstance(raw, accepted) and is_bool == (kind is bool) and not (isinstance(raw, float) and math.isnan(raw))


def _members(kind: Any) -> list[Any]:
    """The types of a union, or the one type."""
    return list(typing.get_args(kind)) if isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union else [kind]


def parameter(
    default: Any = OPEN,
    *,
    help: str,  # noqa: A002 - the word that command lines have for it
    required: bool = True,
    option: bool = False,
    flag: str | None = "",
    key: str = "",
    remedy: str = "choose a finite number",
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
    read: Callable[[Any], Any] | None = None,
    write: Callable[[Any], Any] | None = None,
    written: Callable[[Any], bool] | None = None,
    auto: bool = False,
) -> Any:
    """A dataclass field with the declaration of a :class:`Parameter`.

    ``required``: an open field must be in an execution file. By default an option's flag and its key in JSON are its name.
    """
    declaration = {name: value for name, value in locals().items() if name != "default"}
    return field(default=default, metadata={"parameter": declaration})


def parameters_of(kind: type[Any]) -> dict[str, Parameter]:
    """The declared fields of a configured type, by name, in their order."""
    if kind not in _KNOWN:
        _KNOWN[kind] = _declared(kind)
    return _KNOWN[kind]


def options_of(kind: type[Any]) -> dict[str, Parameter]:
    """The parameters that a user may choose when planning, by their names in files."""
    return {option.key: option for option in parameters_of(kind).values() if option.option}


_KNOWN: dict[type[Any], dict[str, Parameter]] = {}


def _declared(kind: type[Any]) -> dict[str, Parameter]:
    hints = typing.get_type_hints(kind)
    parameters: dict[str, Parameter] = {}
    for declared in fields(kind):
        if "parameter" in declared.metadata:
            _require_free(kind, declared.name)
            declaration = dict(declared.metadata["parameter"])
            declaration |= {"key": declaration["key"] or declared.name, "choices": tuple(declaration["choices"])}
            declaration["flag"] = (
                (declaration["flag"] if declaration["flag"] != "" else declared.name.replace("_", "-"))
                if declaration["option"]
                else None
            )
            declaration["written"] = declaration["written"] or (
                lambda value, name=declared.name: getattr(value, name) is not None
            )
            parameters[declared.name] = Parameter(
                name=declared.name, kind=hints[declared.name], default=declared.default, **declaration
            )
    return parameters


def _require_free(kind: type[Any], name: str) -> None:
    """Raises :class:`InputError` for a field that would hide a method, which others call."""
    hidden = next((base for base in kind.__mro__[1:] if isfunction(base.__dict__.get(name))), None)
    if hidden is not None:
        raise InputError(
            f"field {name!r} of {kind.__name__} hides the method of that name of {hidden.__name__}. Rename the field."
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Configured:
    """A frozen value whose fields are declared with :func:`parameter`. Two of one type are equal if all of these are."""

    def __new__(cls, *arguments: Any, **fields_: Any) -> Self:
        """Raises :class:`InputError` for a keyword that is not a field, with the nearest one that is."""
        field_names = [own_field.name for own_field in fields(cls) if own_field.init]
        for name in fields_:
            if name not in field_names:
                raise InputError(
                    f"{cls.__name__} has no field {name!r}{nearest(name, field_names)}. Choose one of {', '.join(field_names)}."
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, declaration in parameters_of(type(self)).items():
            declaration.check(getattr(self, name))

    def __repr__(self) -> str:
        changed = (
            f"{own_field.name}={_brief(getattr(self, own_field.name))}"
            for own_field in fields(self)
            if getattr(self, own_field.name) is not OPEN and not _same(getattr(self, own_field.name), own_field.default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._compared()))

    def _compared(self) -> bytes:
        """All fields, also those that files leave out: they determine how open ones are made."""
        values = ((declaration, getattr(self, name)) for name, declaration in parameters_of(type(self)).items())
        return canonical_json(
            {declaration.name: declaration.to_json(value) for declaration, value in values if value is not OPEN}
        )

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Read the parameters from a JSON object; other entries are ignored, missing ones keep their default.

        Raises :class:`InputError`.
        """
        fields = {name: field.parse(raw[field.key]) for name, field in parameters_of(cls).items() if field.key in raw}
        return cls(**fields)

    def describe(self) -> dict[str, Any]:
        """Plain JSON data, without what is open."""
        return {
            declaration.key: declaration.to_json(getattr(self, name))
            for name, declaration in parameters_of(type(self)).items()
            if getattr(self, name) is not OPEN and declaration.written(self)
        }


Value = TypeVar("Value", bound=Configured)


def filled(value: Value, **defaults: Any) -> Value:
    """Return the value with these in the fields that are open."""
    return replace(value, **{name: default for name, default in defaults.items() if getattr(value, name) is OPEN})


def require_complete(value: Configured) -> None:
    """Raises :class:`InputError` with the name of a required field that is open."""
    for name, declaration in parameters_of(type(value)).items():
        if declaration.required and getattr(value, name) is OPEN:
            raise missing_field(declaration.key, declaration.wanted)


@contextlib.contextmanager
def saying_what_was_chosen(value: Configured) -> Iterator[None]:
    """An :class:`InputError` that names none of the options that were chosen says what was: it may be about them."""
    try:
        yield
    except InputError as error:
        chosen = {
            declaration.named: choice
            for name, declaration in parameters_of(type(value)).items()
            if declaration.option and (choice := getattr(value, name)) is not OPEN and not _same(choice, declaration.default)
        }
        if not chosen or any(_named_in(str(error), name) for name in chosen):
            raise
        choices = ", ".join(f"{name} = {_brief(choice)}" for name, choice in chosen.items())
        raise InputError(in_sentences(error.text, f"Chosen: {choices}")) from None


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str | int | float) and type(value) is type(default) and value == default)


def _named_in(text: str, name: str) -> bool:
    """Is an option named in a sentence, as a word of its own?"""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _brief(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 and "\n" not in text else "..."


def _shown(raw: Any) -> str:
    """Data of a file as they are; of what only a program can give the type alone."""
    return repr(raw) if isinstance(raw, bool | int | float | list | dict | None) else f"of type {type(raw).__name__}"


def require_known(subject: str, raw: Any, known: Iterable[str]) -> str:
    """``raw`` as a text, if it is one of ``known``. Raises :class:`InputError` with all of them and the nearest."""
    choices = [str(choice) for choice in known]
    if not isinstance(raw, str) or raw not in choices:
        shown, near = (repr(str(raw)), nearest(raw, choices)) if isinstance(raw, str) else (_shown(raw), "")
        raise InputError(f"{subject} {shown} is unknown{near}. Choose one of {', '.join(choices)}.")
    return str(raw)


def refuse_unknown(subject: str, field_names: Iterable[str], known: Iterable[str]) -> None:
    """Raises :class:`InputError` for a name that is not known, with the nearest one that is."""
    names = list(known)
    for name in field_names:
        if name not in names:
            listed = ", ".join(names) or "none"
            raise InputError(f"{subject} has no field {str(name)!r}{nearest(str(name), names)}. Choose one of {listed}.")


def wrong_field(name: str, raw: Any, expected: str) -> InputError:
    """The error for a field of another type than ``wanted``, in words."""
    return InputError(f"field {name!r} is {raw!r}. Give {expected}.")


def missing_field(name: str, expected: str) -> InputError:
    """The error for a field that a file lacks."""
    return InputError(f"field {name!r} is missing. Add it, it is {expected}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" for a misspelt name, or nothing if no known one is near."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def given_value(value: Any, default: Any) -> Any:
    """``value``, or ``default`` if it is open."""
    return default if value is OPEN else value
