"""Every numeric option of every command, found from the parser, with numbers that nobody should give; and what comes of it."""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
import traceback
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Union, Unpack, get_args, get_origin

import msgspec
import pytest

from quietmean.cli.main import COMMANDS, main
from quietmean.core.arrays import Array
from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.party import Vector
from quietmean.core.schema import options_of
from quietmean.node import local as node_local
from quietmean.node.local import Kill, LocalKeywords
from quietmean.node.local.child import node_settings
from quietmean.node.local.outcome import LocalReport
from quietmean.node.local.processes import ChildSettings
from quietmean.planning import Plan
from quietmean.protocols import registry
from quietmean.studies.outcome import local
from support.arguments import arguments_of

VALUES = (
    "0", "-1", "-0.0", "nan", "inf", "-inf", "1e308", "1e-308", "1e-320", str(2**63), str(10**30), str(10**400),
    "", "abc", "1e", " 5", "2", "0.5",
)  # fmt: skip
NUMBERS = {int, float}
WITH = "--with"


@dataclass(frozen=True)
class Option:
    """``values``: how many numbers it takes."""

    command: str
    name: str
    values: int

    def __str__(self) -> str:
        return f"{self.command} {self.name}"


def kinds(hint: Any) -> set[Any]:
    inside = get_args(hint)
    if get_origin(hint) is Union or inside:
        return {kind for one in inside for kind in kinds(one)}
    return {hint}


def numeric_options(command: str) -> list[Option]:
    """Options with a name of their own, and those of protocols that --with takes."""
    arguments = arguments_of(command)
    own = [Option(command, one.names[0], one.token_count()[0]) for one in arguments if kinds(one.hint) & NUMBERS]
    flags = {
        one.flag: None
        for protocol in registry().values()
        for one in options_of(protocol).values()
        if one.flag is not None and set(one.kinds) & NUMBERS
    }
    takes_more = any(WITH in one.names for one in arguments)
    return [*own, *(Option(command, f"{WITH} {flag}", 1) for flag in flags if takes_more)]


def all_options() -> list[Option]:
    return [one for command in COMMANDS for one in numeric_options(command)]


def protocols_with(name: str) -> list[str]:
    """Protocols that have an option of this name."""
    return [
        protocol
        for protocol, kind in registry().items()
        if any(one.flag == name.removeprefix(WITH).strip(" -") for one in options_of(kind).values())
    ]


class Went(BaseException):
    """What was asked for begins: all options are taken."""


class Hung(BaseException):
    """Nothing came of it in time."""


def _went(*_: Any, **__: Any) -> NoReturn:
    raise Went


class ChildRefuses(Exception):
    """A process of a party would refuse what the command took."""


def _children_begin(
    plan: Plan, values: Vector, directory: Path, *, weights: Array, kills: Sequence[Kill], **how: Unpack[LocalKeywords]
) -> NoReturn:
    """As far as each process of a party gets with its settings, before it connects to anybody."""
    directory.mkdir()
    run = node_local._LocalRun(plan, values, weights, directory, kills, how)
    run._write_rosters([[("127.0.0.1", 9 + party) for party in range(len(values))]] * len(values))
    try:
        for party in range(len(values)):
            settings = decode_json(msgspec.json.encode(run._settings(party, None)), ChildSettings, InputError)
            node_settings(settings, listening=None, report=lambda event: None)
    except QuietmeanError as error:
        raise ChildRefuses(str(error)) from error
    raise Went


def _together_begins(plan: Plan, values: Vector, *, weights: Array, kills: Sequence[Kill], report: LocalReport) -> NoReturn:
    """The same where the parties are in this process."""
    with tempfile.TemporaryDirectory() as folder:
        _children_begin(plan, values, Path(folder) / "run", weights=weights, kills=kills, report=report)


def _not_run(work: Coroutine[Any, Any, Any], **_: Any) -> NoReturn:
    work.close()
    raise Went


@contextmanager
def nothing_begins() -> Iterator[None]:
    """Commands end where they would listen, start processes, or wait for others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run", _not_run)
        patch.setattr(local, "run_local", _children_begin)
        patch.setattr(local, "run_together", _together_begins)
        patch.setattr(import_module("quietmean.desk"), "serve", _went)
        patch.setattr(import_module("quietmean.node.relay"), "open_entrance", _went)
        yield


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Of work of this process, however busy its machine is."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGPROF, hung)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def put_back(before: dict[str, bytes]) -> None:
    """The working folder as it was."""
    for path in sorted(Path().rglob("*"), reverse=True):
        if str(path) not in before:
            path.rmdir() if path.is_dir() else path.unlink()
        elif path.is_file() and path.read_bytes() != before[str(path)]:
            path.write_bytes(before[str(path)])


# Options of several numbers, which have names of their own, and one that files call otherwise.
PARTS = {"--budget": ("epsilon", "delta"), "--deadline-interval": ("deadlines interval",)}


def named_by(option: str, sentence: str) -> bool:
    """Whether a sentence names the option, with hyphens or without."""
    plain = re.sub(r"[_.-]", " ", sentence.lower())
    names = (re.sub(r"[_-]", " ", option.removeprefix(WITH)).strip(), *PARTS.get(option, ()))
    return any(re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", plain) for name in names)


_VERBS = re.compile(
    "Add|Ask|Check|Choose|Copy|Correct|Declare|Encode|Export|Give|Install|Keep|Leave|Let|Make|Name|Plan|Restore|Run|Save|Say|Scale|See"
    "|Set|Sort|Split|Stay|Take|Unpack|Use|Wait|Write"
)


def has_remedy(sentence: str) -> bool:
    """Whether one is told what to do: behind a colon, or in a sentence of its own."""
    behind = re.split(r"(?<=[.?]) ", sentence)[1:]
    return ": " in sentence or any(_VERBS.fullmatch(one.split()[0]) for one in behind if one[:1].isupper())


def fault(line: Sequence[str], option: str, capsys: pytest.CaptureFixture[str], seconds: float, known: str = "") -> str:
    """What is wrong with how a line ends; empty for nothing. One that is refused leaves the working folder as it was.

    ``known``: with what the line is refused without the option, too.
    """
    before = state(Path())
    try:
        return _fault(line, option, capsys, seconds, known, before)
    finally:
        put_back(before)


def refusal(line: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a line that should be right is refused with; empty where it is not."""
    before = state(Path())
    capsys.readouterr()
    try:
        with nothing_begins():
            main(line)
    except Went:
        return ""
    except SystemExit:
        return capsys.readouterr().err
    finally:
        put_back(before)
    return ""


def _fault(
    line: Sequence[str], option: str, capsys: pytest.CaptureFixture[str], seconds: float, known: str, before: dict[str, bytes]
) -> str:
    capsys.readouterr()
    try:
        with within(seconds), nothing_begins():
            main(line)
    except Went:
        return ""
    except Hung:
        return f"{line}: nothing in {seconds:g} s"
    except SystemExit as end:
        code = end.code
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{line}: {type(error).__name__} {error} in {frame.filename}:{frame.lineno}"
    else:
        return ""
    said = capsys.readouterr().err
    told = [one for one in said.splitlines() if not one.startswith("quietmean: note:")]
    if code in (None, 0, 3) or (known and said == known):
        return ""
    if code != 2 or len(told) != 1 or not told[0].startswith("quietmean: "):
        return f"{line}: exit {code}, {said!r}"
    if not named_by(option, told[0]):
        return f"{line}: {option} is not named in {told[0]!r}"
    if not has_remedy(told[0].removeprefix("quietmean: ")):
        return f"{line}: no remedy in {told[0]!r}"
    if state(Path()) != before:
        return f"{line}: was refused and left {sorted(set(state(Path())) - set(before))}"
    return ""
