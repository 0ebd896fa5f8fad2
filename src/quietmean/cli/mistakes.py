"""What was typed wrong, in one sentence with the remedy: unknown commands and options, missing values, values of another kind."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import takewhile
from pathlib import Path
from types import NoneType, UnionType
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

from quietmean.cli.common import EXAMPLES, GROUPS, StrayValue, command_of
from quietmean.cli.options import with_option
from quietmean.core.errors import InputError
from quietmean.core.schema import parameters_of

_FRACTION = re.compile(r"[+-]?(\d+\.\d*|\.\d+)")
# A question, such as "mean(age in 0..110)".
_QUESTION = re.compile(r"[a-z][a-z0-9-]*\(.*\)")
_COMMA = re.compile(r"[+-]?\d+,\d+")
# What word processors make of two hyphens and of quotation marks, which stay part of a word on a command line.
_LONG_DASH = re.compile(r"[–—]+-?([a-z])")
_QUOTED = re.compile(r"[“”„«»‘’](.+)[“”«»‘’]", re.DOTALL)
# Quotation marks that a shell has left around the name of a file or an address.
_STRAIGHT = re.compile(r"""(["'])(.+)\1""", re.DOTALL)
# An option as people write one, and those of every command.
_OPTION = re.compile(r"--?(?!inf\b|nan\b)[A-Za-z][\w-]*", re.IGNORECASE)
_MAY_BE_EMPTY = ("--corrupt",)
_OF_ALL = ("--help", "-h", "--version")
_EXAMPLES = {float: "a number, such as 0.5 or 1e-6", int: "a whole number, such as 3", date: "a day, such as 2030-12-31"}
# Options that there were, or that people know from other programs, and what they find instead.
_FORMER = {
    "-v": "quietmean --version shows the version, and --log-file FILE keeps what happens",
    "--verbose": "--log-file FILE keeps what happens",
    "--clip": "Values outside their bounds are always clamped, leave it out",
    **dict.fromkeys(
        ("--column", "--bounds", "--levels", "--boolean", "--dates", "--statistic"),
        'Write a question, such as "mean(age in 0..110)" or "proportion(sex in {f, m})"',
    ),
    "--missing": 'What a missing value counts as is in the question, such as "mean(age in 0..110 [missing=centre])"',
}


# Of commands that ask questions: what a study has, and they have not.
_ASKING = ("run", "study new")
_OF_A_STUDY = {
    "--study": 'Write its questions themselves, such as "mean(age in 0..110)"',
    "--first-look": "Give it to quietmean study new, and run what that writes with --study",
    "--records": "Give it to quietmean plan, or write records = 5000 in the study file",
}
# Commands that people look for, and those that do it.
_MEANT = {
    **dict.fromkeys(("analyse", "analyze", "analysis", "compute", "query", "stats", "mean", "execute"), "run"),
    **dict.fromkeys(("compare", "estimate", "power"), "plan"),
    **dict.fromkeys(("example", "tutorial", "try"), "demo"),
    **dict.fromkeys(("participate", "connect", "enter"), "join"),
    **dict.fromkeys(("contribute", "submit", "upload"), "send"),
    **dict.fromkeys(("test", "doctor", "ping"), "check"),
    **dict.fromkeys(("init", "create", "define"), "study new"),
    **dict.fromkeys(("preview", "inspect"), "site data"),
    **dict.fromkeys(("sign", "consent"), "site approve"),
    **dict.fromkeys(("ledger", "account", "accounts", "spend"), "site budget"),
    **dict.fromkeys(("log", "logs", "history"), "site audit"),
    **dict.fromkeys(("stores", "delete", "remove"), "site clean"),
    **dict.fromkeys(("gui", "ui", "web", "dashboard"), "site desk"),
    **dict.fromkeys(("certify", "validate", "prove"), "verify receipt"),
    **dict.fromkeys(("keygen", "keys", "genkey"), "key new"),
    **dict.fromkeys(("distrust",), "key revoke"),
}


def in_own_words(tokens: Sequence[str]) -> list[str]:
    """Return the command line with --help and --version for ``help``, ``version``, -v and -V, as other programs call them."""
    first, *others = tokens or [""]
    if first == "help":
        return [*others, "--help"] if not (others and others[0].startswith("-")) else ["--help", *others]
    return ["--version"] if list(tokens) in (["version"], ["-v"], ["-V"]) else list(tokens)


def sentence_of(error: CycloptsError, app: App, command: str | None, tokens: Sequence[str]) -> str:
    """What is wrong with a line for ``command`` of the app, and what to do."""
    listed = "See quietmean --help --all."
    if command is not None:
        group = command.partition(" ")[0]
        listed = f"See quietmean {command} --help."
        if group in GROUPS and command not in EXAMPLES:
            listed = f"See quietmean {group} --help."
    if misspelt := _misspelt(app, command, tokens, listed):
        return misspelt
    match error:
        case UnknownCommandError() if (before := _before_a_command(command, tokens)) is not None:
            instead = _FORMER.get(before, "Leave it out, or name the command first")
            return f"{before} stands before a command. {instead}. {listed}"
        case UnknownCommandError() if command is not None:
            return _unknown_command(command, app, error)
        case UnknownOptionError():
            return _unknown_option(error, command, listed)
        case MissingArgumentError():
            return _missing(error, command, listed)
        case CoercionError() if error.argument is not None and error.token is not None:
            return _wrong_kind(_shown(error.argument), str(error.token.value), error.argument, str(error))
        case RepeatArgumentError():
            return f"{error.token.keyword} stands twice in the line. Leave one of them out. {listed}"
        case UnusedCliTokensError():
            return _unused(str((error.unused_tokens or ("",))[0]), app, command, tokens, listed)
        case _:
            return f"{str(error).rstrip('.')}. {listed}"


def _unknown_command(command: str, app: App, error: UnknownCommandError) -> str:
    """What there is instead of a command that is not there: of a word, or of a group and a word."""
    group, _, word = command.rpartition(" ")
    if command in app:
        # A group with something else behind it than a command.
        wrong = str((error.unused_tokens or ("",))[0])
        return f"{wrong} is not a command of {command}. See quietmean {command} --help."
    where = group or "quietmean"
    named = [line for line in EXAMPLES if line.split()[-1] == word]
    if named and not group:
        groups = " or ".join(line.split()[0] for line in named)
        return f"{word!r} belongs to {groups}. Write for example {' or '.join(EXAMPLES[line] for line in named)}"
    # Two words with a hyphen between them, as other programs name a command.
    from quietmean.statistics.registry import is_kind

    spaced = word.replace("-", " ").lower()
    meant = named[:1] or ([spaced] if "-" in word and spaced in EXAMPLES else [_MEANT[word]] if word in _MEANT else [])
    meant = meant or ["run"] * is_kind(word)
    if meant:
        return f"{word!r} is not a command{f' of {group}' if group else ''}. Write for example {EXAMPLES[meant[0]]}"
    known = {line.split()[-1]: line for line in reversed(EXAMPLES)} | {name: name for name in app if not name.startswith("-")}
    own = {line.split()[-1]: line for line in EXAMPLES if group and line.startswith(f"{group} ")}
    near = _near(word, own) or _near(word, known) or _near(word, _MEANT, 0.8)
    lists = f"quietmean {group} --help" if group else "quietmean --help --all"
    return f"{word!r} is not a command of {where}{near}. See {lists}."


def _before_a_command(command: str | None, tokens: Sequence[str]) -> str | None:
    """The option that stands where a command has to."""
    place = 1 if command is not None and command.split()[0] in GROUPS else 0
    return next((token for token in tokens[place : place + 1] if token.startswith("-")), None)


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
            raise InputError(f"{token!r} begins with a long dash instead of two hyphens. Write --{token[dash.start(1) :]}.")
        if quoted := _QUOTED.fullmatch(token):
            raise InputError(f'{token} has quotation marks of a word processor around it. Write "{quoted[1]}".')
    odd = [token for token in tokens if not token or token.endswith("=") or _STRAIGHT.fullmatch(token.partition("=")[2] or token)]
    if odd:
        files = {name for argument in _arguments(app, tokens) if Path in _kinds(argument.hint) for name in argument.names}
        texts = {name for argument in _arguments(app, tokens) if _plain(argument.hint) is str for name in argument.names}
        places = _placed(app, tokens)
        for name, value in [*_given(tokens), *places]:
            if name in files and (quoted := _STRAIGHT.fullmatch(value)):
                raise InputError(f"{value} has quotation marks as part of it. Write {shlex.quote(quoted[2])}.")
        for name, value in _given(tokens):
            if name in files and not value:
                raise InputError(f"{name} is empty. Name a file, or leave {name} out.")
            if name in texts and name not in _MAY_BE_EMPTY and not value:
                raise InputError(f"{name} is empty. Give it a value, or leave {name} out.")


def _placed(app: App, tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Values without an option, in front of all options, and what they are."""
    arguments = {argument.index: argument for argument in _arguments(app, tokens) if argument.index is not None}
    values = takewhile(lambda token: not token.startswith("-"), tokens[len((command_of(tokens) or "").split()) :])
    for place, value in enumerate(values):
        if arguments:
            yield arguments[min(place, max(arguments))].names[0], value


def _given(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options and the value behind each."""
    for index, token in enumerate(tokens):
        name, equals, value = token.partition("=")
        if name.startswith("--"):
            yield name, value if equals else next(iter(tokens[index + 1 : index + 2]), "")


def _arguments(app: App, tokens: Sequence[str]) -> list[Argument]:
    own = app
    for word in (command_of(tokens) or "").split():
        if word not in own:
            return []
        own = own[word]
    if own is app or not own.default_command:
        return []
    # What nobody can type on a command line is not parsed.
    return [argument for argument in own.assemble_argument_collection(parse_docstring=False) if argument.parse]


def _kinds(hint: Any) -> set[Any]:
    """The types that a value may be of; those inside a list or a tuple, too."""
    inside = get_args(hint)
    if get_origin(hint) in (Union, UnionType, list, tuple):
        return {kind for inner in inside for kind in _kinds(inner)}
    return {hint}


def _misspelt(app: App, command: str | None, tokens: Sequence[str], listed: str) -> str:
    """The first option in the line that the command does not have: whatever else is wrong may follow from it."""
    names = [name for argument in _arguments(app, tokens) for name in argument.names]
    options = [token.partition("=")[0] for token in tokens if _OPTION.fullmatch(token.partition("=")[0])]
    unknown = [name for name in options if name not in names and name not in _OF_ALL]
    return _no_option(unknown[0], names, command, listed) if names and unknown else ""


def _unknown_option(error: UnknownOptionError, command: str | None, listed: str) -> str:
    names = [name for argument in error.argument_collection or () for name in argument.names]
    return _no_option(str(error.token.keyword or error.token.value), names, command, listed)


def _no_option(name: str, names: Sequence[str], command: str | None, listed: str) -> str:
    meant = _FORMER.get(name, "")
    if "--with" in names and (of_protocol := with_option(name.lstrip("-"))):
        said = f"{name} is an option of a protocol. Write --with {of_protocol}=VALUE. See quietmean help protocol NAME."
        return f"{said} {meant}." if meant else said
    if command in _ASKING and not meant:
        meant = _OF_A_STUDY.get(name) or _in_a_question(name.removeprefix("--").replace("-", "_"))
    if meant:
        return f"{name} is not an option of {command or 'quietmean'}. {meant}. {listed}"
    return f"{name} is not an option of {command or 'quietmean'}{_near(name, names)}. {listed}"


def _in_a_question(name: str) -> str:
    """Where a field of statistics is written; "" for what no statistic has."""
    from quietmean.statistics.registry import registry

    kind = next((kind.name for kind in registry().values() if name in parameters_of(kind)), "")
    return f'Write it within a question, as in "{kind}(COLUMN, {name}=VALUE)"' if kind else ""


def _missing(error: MissingArgumentError, command: str | None, listed: str) -> str:
    argument = error.argument
    if argument is None:
        return f"{str(error).rstrip('.')}. {listed}"
    name, count = _shown(argument), len(error.tokens_so_far or ())
    needed, _ = argument.token_count()
    if count or error.keyword is not None:
        values = "two values" if needed == 2 else "a value"
        has = f" and has {count}" if count else ""
        typed = argument.names[0]
        return f"{typed} of {command} needs {values}{has}. Write {typed} {_form(argument, needed)}. {listed}"
    example = f"Write for example {EXAMPLES[command]}" if command in EXAMPLES else listed
    return f"{command} needs {name}. {example}"


def _form(argument: Argument, needed: int) -> str:
    word = _shown(argument).lstrip("-").upper()
    pair = {"BUDGET": "EPSILON DELTA"}
    return pair.get(word, " ".join([word] * max(needed, 1)))


def _shown(argument: Argument) -> str:
    """An option by its name, a value without one in capitals."""
    return argument.names[0] if argument.index is None else argument.names[0].lstrip("-").upper()


def _wrong_kind(name: str, value: str, argument: Argument, message: str) -> str:
    if "Choose from:" in message:
        choices = list(dict.fromkeys(re.findall(r'"([^"]+)"', message.partition("Choose from:")[2])))
        return f"{name} is {value!r}{_near(value, choices)}. Choose one of {', '.join(choices)}."
    kinds = _kinds(argument.hint)
    kind = next((kind for kind in _EXAMPLES if kind in kinds), None)
    if kind is None:
        return f"{name} is {value!r}, which it cannot be. See quietmean COMMAND --help."
    hint = ""
    if kind is int:
        hint = " (two numbers with a blank between them?)" if _COMMA.fullmatch(value) else ""
    elif _COMMA.fullmatch(value):
        hint = f" ({value.replace(',', '.')} with a decimal point, or two numbers with a blank between them?)"
    elif value.endswith("%"):
        hint = " (10 % is 0.1)"
    return f"{name} is {value!r}{hint}. Give {_EXAMPLES[kind]}."


def sentence_of_stray(error: StrayValue, app: App, command: str | None, tokens: Sequence[str]) -> str:
    """What is wrong with a value in the place of a question; of a word behind an option that takes fewer, that."""
    place = tokens.index(error.value) if error.value in tokens else 0
    if error.is_kind or "(" in error.value or not any(token.startswith("--") for token in tokens[:place]):
        return str(error)
    return _unused(error.value, app, command, tokens, f"See quietmean {command} --help.")


def _unused(value: str, app: App, command: str | None, tokens: Sequence[str], listed: str) -> str:
    if _QUESTION.fullmatch(value):
        ask = f"quietmean study new {shlex.quote(value)} --out study.toml"
        return f"{value!r} is a question, which {command} does not take. Ask it in a study: {ask}"
    index = tokens.index(value) if value in tokens else 0
    before = next((place for place in reversed(range(index)) if tokens[place].startswith("--")), None)
    named = {name for argument in _arguments(app, tokens) if argument.index is None for name in argument.names}
    if before is None and "--study" in named and Path(value).is_file():
        return f"{value!r} has no option before it. Write --study {shlex.quote(value)}. {listed}"
    if before is None:
        placed = [one for _, one in _placed(app, tokens)]
        if len(placed) > 1:
            few = "one value" if len(placed) == 2 else "fewer values"
            return (
                f"{command} takes {few} without an option, not {shlex.join(placed)}. Leave out what is too much, or put a name "
                f"with blanks in quotation marks. {listed}"
            )
        return f"{value!r} is a value too many for {command}. Leave it out, or name the option that it is for. {listed}"
    option, values = tokens[before], tokens[before + 1 : index + 1]
    arguments = {name: argument for argument in _arguments(app, tokens) for name in argument.names}
    own = arguments.get(option)
    meant = next(
        (name for name, argument in arguments.items() if name != option and _may_be(option, argument, name, values)), None
    )
    if meant is not None:
        return f"{option} takes fewer values than {' '.join(values)}. Did you mean {meant}? {listed}"
    if own is not None and get_origin(_plain(own.hint)) is list and own.token_count()[0] == 1:
        repeated = " ".join(f"{option} {each}" for each in values)
        return f"{value!r} stands behind {option}, which takes one value each time. Write {repeated}. {listed}"
    texts = own is not None and bool(_kinds(own.hint) & {str, Path})
    if own is not None and texts and own.token_count() == (1, False) and len(values) > 1:
        whole = f"write {option} {shlex.quote(' '.join(values))}"
        return f"{value!r} stands behind {option}, which takes one value. Leave it out, or {whole}. {listed}"
    single = own is not None and get_origin(_plain(own.hint)) is not list
    few = {0: "no value", 1: "one value"}.get(own.token_count()[0], "fewer values") if own and single else "fewer values"
    return f"{value!r} stands behind {option}, which takes {few}. Leave it out, or name the option that it is for. {listed}"


def _may_be(option: str, argument: Argument, name: str, values: Sequence[str]) -> bool:
    """Whether an option that takes so many values has nearly the name of another one."""
    return argument.token_count()[0] == len(values) > 1 and bool(difflib.get_close_matches(option, [name], n=1, cutoff=0.8))


def _plain(hint: Any) -> Any:
    """A type without None."""
    inside = [inner for inner in get_args(hint) if inner is not NoneType]
    return inside[0] if get_origin(hint) in (Union, UnionType) and len(inside) == 1 else hint


def _near(name: str, known: Mapping[str, str] | Iterable[str], cutoff: float = 0.65) -> str:
    """A name that begins as this one does, or is nearly the same; hyphens, which all options have, make none alike.

    ``known``: the names, and how each is shown unless that is as it is.
    """
    shown = known if isinstance(known, Mapping) else {each: each for each in known}
    names, bare = {longer.lstrip("-"): shown[longer] for longer in shown}, name.lstrip("-").lower()
    begun = [longer for longer in names if longer.startswith(bare) and len(bare) > 1]
    matches = dict.fromkeys([*begun[:1], *difflib.get_close_matches(bare, names, n=1, cutoff=cutoff)])
    likely = dict.fromkeys(names[match] for match in matches)
    return f" (Did you mean {' or '.join(likely)}?)" if likely else ""
