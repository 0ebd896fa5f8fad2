"""What was typed wrong, in one sentence with the remedy: unknown commands and options, missing values, values of another kind."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from cyclopts import (
    App,
    Argument,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from quietmean.cli.help_texts import EXAMPLES
from quietmean.core.errors import InputError

_FRACTION = re.compile(r"[+-]?(\d+\.\d*|\.\d+)")
_COMMA = re.compile(r"[+-]?\d+,\d+")
# What word processors make of two hyphens and of quotation marks, which stay part of a word on a command line.
_LONG_DASH = re.compile(r"[–—]+-?([a-z])")
_QUOTED = re.compile(r"[“”„«»‘’](.+)[“”«»‘’]", re.DOTALL)
_EXAMPLES = {float: "a number, such as 0.5 or 1e-6", int: "a whole number, such as 3"}
# Former options, and what replaces them.
_FORMER = {
    "--clip": "values outside their bounds are always clamped, leave it out",
    "--missing": 'what stands for a missing value is in the study file, missing = "centre" or "indicator" of a [[column]]',
}


def sentence_of(error: CycloptsError, app: App, command: str | None, tokens: Sequence[str]) -> str:
    """What is wrong with a line for ``command`` of the app, and what to do."""
    listed = f"quietmean {command} --help lists its options" if command else "quietmean --help --all lists the commands"
    match error:
        case UnknownCommandError() if command is not None:
            near = _near(command, [name for name in app if not name.startswith("-")])
            return f"{command!r} is no command of quietmean{near}: quietmean --help --all lists the commands"
        case UnknownOptionError():
            return _unknown_option(error, command, listed)
        case MissingArgumentError():
            return _misspelt(app, command, tokens, listed) or _missing(error, command, listed)
        case CoercionError() if error.argument is not None and error.token is not None:
            return _wrong_kind(_shown(error.argument), str(error.token.value), error.argument, str(error))
        case RepeatArgumentError():
            return f"{error.token.keyword} stands twice in the line: leave one of them out; {listed}"
        case UnusedCliTokensError():
            return _unused(error, command, tokens, listed)
        case _:
            return f"{str(error).rstrip('.')}: {listed}"


def refuse_fractions(app: App, tokens: Sequence[str]) -> None:
    """Raises :class:`InputError` for a fraction where a whole number is needed, which would be rounded without a word."""
    # Only command lines with something like a fraction are parsed for it.
    if not any(_FRACTION.fullmatch(token.partition("=")[2] or token) for token in tokens):
        return
    whole_numbers = {
        name: argument
        for argument in _arguments(app, tokens)
        for name in argument.names
        if _kinds(argument.hint) & {int, float} == {int}
    }
    for name, value in _given(tokens):
        if name in whole_numbers and _FRACTION.fullmatch(value):
            raise InputError(_wrong_kind(name, value, whole_numbers[name], ""))


def refuse_pasted(app: App, tokens: Sequence[str]) -> None:
    """Raises :class:`InputError` for what a word processor changed, and for a file that has no name."""
    for token in tokens:
        if dash := _LONG_DASH.match(token):
            raise InputError(f"{token!r} begins with a long dash instead of two hyphens: write --{token[dash.start(1) :]}")
        if quoted := _QUOTED.fullmatch(token):
            raise InputError(f'{token} has quotation marks of a word processor around it: write "{quoted[1]}"')
    if any(not token or token.endswith("=") for token in tokens):
        files = {name for argument in _arguments(app, tokens) if Path in _kinds(argument.hint) for name in argument.names}
        for name, value in _given(tokens):
            if name in files and not value:
                raise InputError(f"{name} is empty: name a file, or leave {name} out")


def _given(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options and the value behind each."""
    for index, token in enumerate(tokens):
        name, equals, value = token.partition("=")
        if name.startswith("--"):
            yield name, value if equals else next(iter(tokens[index + 1 : index + 2]), "")


def _arguments(app: App, tokens: Sequence[str]) -> list[Argument]:
    command = next((token for token in tokens if not token.startswith("-")), None)
    if command is None or command not in app:
        return []
    return list(app[command].assemble_argument_collection(parse_docstring=False))


def _kinds(hint: Any) -> set[Any]:
    """The types that a value may be of; those inside a list or a tuple, too."""
    inside = get_args(hint)
    if get_origin(hint) in (Union, UnionType, list, tuple):
        return {kind for inner in inside for kind in _kinds(inner)}
    return {hint}


def _misspelt(app: App, command: str | None, tokens: Sequence[str], listed: str) -> str:
    """Of a line without an option that it needs: the first option in it that there is not, which may be the one."""
    names = [name for argument in _arguments(app, tokens) for name in argument.names]
    unknown = [name for name, _ in _given(tokens) if name not in names]
    return _no_option(unknown[0], names, command, listed) if names and unknown else ""


def _unknown_option(error: UnknownOptionError, command: str | None, listed: str) -> str:
    names = [name for argument in error.argument_collection or () for name in argument.names]
    return _no_option(str(error.token.keyword or error.token.value), names, command, listed)


def _no_option(name: str, names: Sequence[str], command: str | None, listed: str) -> str:
    instead = f"; {name}: {_FORMER[name]}" if name in _FORMER else ""
    near = "" if instead else _near(name, [each for each in names if not each.startswith("--empty-")])
    return f"{name} is no option of {command or 'quietmean'}{near}{instead}: {listed}"


def _missing(error: MissingArgumentError, command: str | None, listed: str) -> str:
    argument = error.argument
    if argument is None:
        return f"{str(error).rstrip('.')}: {listed}"
    name, count = _shown(argument), len(error.tokens_so_far or ())
    needed, _ = argument.token_count()
    if count or error.keyword is not None:
        values = "two values" if needed == 2 else "a value"
        has = f" and has {count}" if count else ""
        return f"{name} of {command} needs {values}{has}: write {name} {_form(argument, needed)}; {listed}"
    example = f"write for example {EXAMPLES[command]}" if command in EXAMPLES else listed
    return f"{command} needs {name}: {example}"


def _form(argument: Argument, needed: int) -> str:
    word = _shown(argument).lstrip("-").upper()
    pair = {"BOUNDS": "LOW HIGH", "BUDGET": "EPSILON DELTA"}
    return pair.get(word, " ".join([word] * max(needed, 1)))


def _shown(argument: Argument) -> str:
    """An option by its name, a value without one in capitals."""
    return argument.names[0] if argument.index is None else argument.names[0].lstrip("-").upper()


def _wrong_kind(name: str, value: str, argument: Argument, message: str) -> str:
    if "Choose from:" in message:
        choices = list(dict.fromkeys(re.findall(r'"([^"]+)"', message.partition("Choose from:")[2])))
        return f"{name} is {value!r}{_near(value, choices)}: choose one of {', '.join(choices)}"
    kinds = _kinds(argument.hint)
    kind = float if float in kinds else int if int in kinds else None
    if kind is None:
        return f"{name} is {value!r}, which it cannot be: quietmean COMMAND --help says what it may be"
    hint = ""
    if _COMMA.fullmatch(value):
        hint = f" ({value.replace(',', '.')} with a decimal point, or two numbers with a blank between them?)"
    elif value.endswith("%"):
        hint = " (10 % is 0.1)"
    return f"{name} is {value!r}{hint}: give {_EXAMPLES[kind]}"


def _unused(error: UnusedCliTokensError, command: str | None, tokens: Sequence[str], listed: str) -> str:
    value = str((error.unused_tokens or ("",))[0])
    index = tokens.index(value) if value in tokens else 0
    before = next((token for token in reversed(tokens[:index]) if token.startswith("--")), None)
    where = f"stands behind {before}, which takes fewer values" if before is not None else f"is a value too many for {command}"
    return f"{value!r} {where}: leave it out, or name the option that it is for; {listed}"


def _near(name: str, known: Iterable[str]) -> str:
    """A name that begins as this one does, or is nearly the same; hyphens, which all options have, make none alike."""
    names, bare = {longer.lstrip("-"): longer for longer in known}, name.lstrip("-").lower()
    begun = [longer for longer in names if longer.startswith(bare) and len(bare) > 1]
    matches = dict.fromkeys([*begun[:1], *difflib.get_close_matches(bare, names, n=1, cutoff=0.65)])
    return f" (Did you mean {' or '.join(names[match] for match in matches)}?)" if matches else ""
