"""``quietmean``: the entry point, its commands, those of other distributions, and exit codes.

A module is imported when its command is asked for, and for nothing else. The commands of quietmean itself cannot be replaced.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError, Group, Parameter

import quietmean
from quietmean.cli.common import FIRST_OPTIONS, GROUPS, Common, StrayValue, command_of, epilogue
from quietmean.cli.console import fail, out, output_options, warn
from quietmean.cli.mistakes import in_own_words, refuse_fractions, refuse_pasted, sentence_of, sentence_of_stray
from quietmean.core.errors import InputError, NotStarted, QuietmeanError, StorageError, in_sentences
from quietmean.core.keywords import as_argument, called_by_command
from quietmean.core.logs import hide_error_texts
from quietmean.core.outage import ONCE_MORE, Trouble, outage_of, trouble_of

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

GROUP = "quietmean.commands"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Our commands that are distributed apart: the distribution, and its folder in the sources.
SEPARATE = {"reproduce": ("quietmean-reproduction", "reproduction")}


@dataclass(frozen=True)
class Extension:
    """A command's name, and every entry point that claims it: more than one is a clash."""

    name: str
    claims: tuple[EntryPoint, ...]

    @property
    def purpose(self) -> str:
        """One line for the list of commands, from the distribution's metadata: the command itself is not imported."""
        if len(self.claims) > 1:
            return f"Claimed by {_owners(self.claims)}. Uninstall all but one."
        owner = self.claims[0].dist
        if owner is None or "Summary" not in owner.metadata:
            return f"From {_owners(self.claims)}."
        return owner.metadata["Summary"]

    @property
    def path(self) -> str:
        """Where its function is, as MODULE:NAME: enough to list it."""
        return f"{self.claims[0].module}:{self.claims[0].attr}"

    def load(self) -> Callable[..., Any]:
        """Import the command. Raises :class:`InputError` if it is broken or if several distributions claim its name."""
        if len(self.claims) > 1:
            raise InputError(f"command {self.name} is claimed by {_owners(self.claims)}. Uninstall all but one of them.")
        try:
            loaded = self.claims[0].load()
        # Somebody else's module may raise anything when it is imported.
        except Exception as error:
            raise self._broken(f"{type(error).__name__}: {error}") from error
        if not callable(loaded):
            raise self._broken(f"{self.claims[0].value} is not callable")
        command: Callable[..., Any] = loaded
        return command

    def _broken(self, why: str) -> InputError:
        return InputError(f"command {self.name} of {_owners(self.claims)} cannot be loaded ({why}). Repair or uninstall it.")


def find_extensions() -> dict[str, Extension]:
    """All commands of other distributions, by name in alphabetical order."""
    claims: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        claims.setdefault(point.name, []).append(point)
    return {name: Extension(name, tuple(claims[name])) for name in sorted(claims)}


def usable(extensions: Mapping[str, Extension], built_in: Collection[str]) -> tuple[list[Extension], list[str]]:
    """The commands that can be used, and one sentence for every other one."""
    good, sentences = [], []
    for name, extension in extensions.items():
        owners = _owners(extension.claims)
        if name in built_in:
            sentences.append(
                f"command {name} of {owners} is not used, quietmean has one of that name. Uninstall that distribution."
            )
        elif _NAME.fullmatch(name) is None:
            sentences.append(
                f"command {name!r} of {owners} is not used: its name is not made of small letters, digits and dashes"
            )
        else:
            good.append(extension)
    return good, sentences


def check_installed(name: str, extensions: Collection[str]) -> None:
    """Raise :class:`InputError` for a command of ours whose distribution is not installed."""
    if name in SEPARATE and name not in extensions:
        distribution, folder = SEPARATE[name]
        raise InputError(
            f"command {name} belongs to the distribution {distribution}, which is not installed. Run pip install ./"
            f"{folder} in a copy of quietmean's sources."
        )


def _owners(claims: Collection[EntryPoint]) -> str:
    return " and ".join(
        "an unnamed distribution" if claim.dist is None else f"distribution {claim.dist.name}" for claim in claims
    )


# Commands by whose task they are: the module, and the purpose. A module is imported when its command is asked for: what is quick
# to answer starts quickly.
HEADINGS: dict[str, dict[str, tuple[str, str]]] = {
    "Analyse": {
        "demo": ("run", "A first study on real data, each party a process."),
        "run": ("run", "Run a whole study here, each party a process."),
        "plan": ("plan", "Compare protocols: error, privacy and cost."),
        "result": ("by_file", "Show a result again, or what a committee opened."),
        "simulate": ("simulate", "Run a plan many times on a simulated population."),
    },
    "Coordinate": {
        "study new": ("new", "Write a study file, from options or by questions."),
        "study mock": ("mock", "Make up a table of a study, to try programs on."),
        "study synthesize": ("synthesize", "Make up rows that are like a study's records."),
        "study invite": ("convening", "Invite parties: one signed file, or a line of text."),
        "study vouchers": ("forms", "Make vouchers that admit unnamed contributors."),
        "study seal": ("convening", "Make the signed study from all entries."),
        "study form": ("forms", "Make a page with which browsers contribute."),
        "study start": ("convening", "Start now, with the parties that are connected."),
        "study combine": ("by_file", "Add up the contributions to a study by file."),
    },
    "Take part": {
        "accept": ("agreeing", "Accept an invitation, with keys for this study."),
        "check": ("check", "Find trouble before a study, here and with others."),
        "join": ("join", "Take part over the network, or through a folder."),
        "send": ("by_file", "Take part with one file, without connections."),
    },
    "Answer for data": {
        "site data": ("check_view", "What a study finds in a data file, for its owner."),
        "site contract": ("agreeing", "What a study asks and costs, before a yes."),
        "site approve": ("agreeing", "Sign a yes with the data owner's key."),
        "site budget": ("ledger", "Privacy budgets, and what studies have cost."),
        "site audit": ("records", "What this site was asked, and what it did."),
        "site status": ("records", "What a node is doing, or how it ended."),
        "site clean": ("records", "List or remove what studies left here."),
        "site desk": ("desk", "Studies, contracts and results in a browser."),
    },
    "Machines": {
        "serve relay": ("servers", "Connect parties that cannot reach each other."),
        "serve drop": ("servers", "Receive contributions to a committee by HTTPS."),
    },
    "Check": {
        "verify receipt": ("certify", "Recompute the privacy loss from a receipt."),
        "verify attack": ("simulate", "Attack the real code, and compare the bounds."),
        "verify words": ("convening", "Show the safety code, to compare by telephone."),
    },
    "Keys": {
        "key new": ("identity", "Make a key."),
        "key revoke": ("agreeing", "Refuse a key from now on."),
    },
    "For programs": {
        "schema": ("programs", "JSON Schemas of results and receipts."),
        "completion": ("programs", "Complete commands and options in a shell."),
    },
}
# Only `quietmean --help --all` shows these, and the commands of each group.
LATER = ("simulate", "schema", "completion")
_ALL = "--all"
# `quietmean help protocol NAME` lists what --with may say.
_PROTOCOL = "protocol"
# No option has one that takes it back, such as --no-json.
_ONE_WAY = Parameter(negative="")
COMMANDS = {line: command for commands in HEADINGS.values() for line, command in commands.items()}
_OWN = tuple(dict.fromkeys(line.partition(" ")[0] for line in COMMANDS))
# What goes on where it stopped, if it is given again.
_CONTINUED = {
    **dict.fromkeys(("join", "send"), "; nothing was lost: the same command continues a study that had begun"),
    "reproduce": "; what was computed is kept: the same command continues",
}
# What serves others until it is stopped, and serves on when it is started again.
_SERVERS = ("serve relay", "serve drop", "site desk")

# Too many open files, of this process or of the machine.
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


def make_app(command: str | None, *, every: bool = True) -> App:
    """The application. Commands of other distributions are looked for unless ``command`` is one of our own.

    ``every``: its help lists all of them, those of the groups too.

    Raises :class:`InputError` if ``command`` is one of another distribution and cannot be loaded.
    """
    more = "quietmean help COMMAND shows its options"
    app = App(
        name="quietmean",
        help="Statistics of private records, with nobody in the middle to trust.",
        version=lambda: quietmean.__version__,
        suppress_keyboard_interrupt=False,
        help_epilogue=more if every else f"{more}. All commands: quietmean --help {_ALL}",
    )
    listing = _Listing(every)
    for place, (title, commands) in enumerate(HEADINGS.items()):
        heading = Group(title, sort_key=place, help_formatter=listing)
        for order, (line, (module, purpose)) in enumerate(commands.items()):
            word, _, second = line.partition(" ")
            name = second or word
            if second and word not in app:
                app.command(_group(word, heading))
            about: dict[str, Any] = {"help": purpose, "help_epilogue": epilogue(line), "show": every or line not in LATER}
            if not second:
                about["group"] = heading
            owner = app[word] if second else app
            path = f"quietmean.cli.{module}:{name}_command"
            formatter = None if every or line not in FIRST_OPTIONS else _First(FIRST_OPTIONS[line])
            owner.command(path, name=name, sort_key=order, default_parameter=_ONE_WAY, help_formatter=formatter, **about)
    app["--help"].group = app["--version"].group = Group("Options", sort_key=len(HEADINGS) + 1, help_formatter=listing)
    first_word = None if command is None else command.partition(" ")[0]
    if first_word not in _OWN:
        _add_extensions(app, first_word, Group("Other packages", sort_key=len(HEADINGS), help_formatter=listing))
    return app


def _group(word: str, heading: Group) -> App:
    """A group of commands, which alone lists them."""
    group = App(name=word, group=heading, help=GROUPS[word], help_epilogue=f"quietmean {word} COMMAND --help shows its options")
    group["--help"].group = group["--version"].group = Group("Options", sort_key=1)
    return group


def app_of(command: str) -> App:
    """The application of one command, such as "run" or "study seal". Raises KeyError for one that is not there."""
    app = make_app(command)
    for word in command.split():
        app = app[word]
    return app


@dataclass(frozen=True)
class _Listing:
    """Show commands in one line each, the heading beside the first; with ``every``, those of a group instead of the group."""

    every: bool

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        names = COMMANDS if self.every else {"--version", *SEPARATE, *_OWN} - set(LATER)
        indent, width = max(map(len, HEADINGS)) + 2, max(map(len, names)) + 2
        title = panel.title
        for entry in panel.entries:
            (name, *_) = entry.positive_names
            purpose = "".join(segment.text for segment in console.render(entry.description))
            of_group = {line: about for line, (_, about) in COMMANDS.items() if line.startswith(f"{name} ")}
            for each, text in (of_group if self.every and of_group else {name: purpose}).items():
                first, *others = wrap(" ".join(text.split()), max(options.max_width - indent - width, 20)) or [""]
                lines = [f"{title:{indent}}{each:{width}}{first}", *(" " * (indent + width) + other for other in others)]
                console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
                title = ""


@dataclass(frozen=True)
class _First:
    """Shows these options of a command, those without a name before them; all others with --all."""

    names: Collection[str]

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        from cyclopts.help import DefaultFormatter

        shown = [
            each
            for each in panel.entries
            if not any(name.startswith("--") for name in each.names) or {*each.names} & {*self.names, "--help", "--version"}
        ]
        panel.entries = shown
        DefaultFormatter()(console, options, panel)


def _add_extensions(app: App, first_word: str | None, group: Group) -> None:
    installed = find_extensions()
    if first_word is not None:
        check_installed(first_word, installed)
    extensions, sentences = usable(installed, _OWN)
    for sentence in sentences:
        warn(sentence)
    for extension in extensions:
        if extension.name == first_word:
            app.command(extension.load(), name=first_word)
        else:
            app.command(extension.path, name=extension.name, help=extension.purpose, group=group)


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit code 0 on success, 2 for a user's mistake, 3 if a protocol could not finish, 75 where it can go on later."""
    words = in_own_words(sys.argv[1:] if arguments is None else arguments)
    if os.environ.get("QUIETMEAN_CALLER") == "r":
        QuietmeanError.words = staticmethod(as_argument)
    _require_streams()
    hide_error_texts()
    output_options.json = "--json" in words
    with _terminated_like_interrupted():
        try:
            common, tokens = Common.taken(words)
            if (command_of(tokens) or "help").partition(" ")[0] not in ("help", *_OWN):
                # Commands of other distributions have options of their own.
                common, tokens = Common(), words
            with common.applied(), called_by_command():
                _run(tokens)
        except QuietmeanError as error:
            fail(str(error), error.exit_code)


def _require_streams() -> None:
    """What a shell has closed (``>&-``) takes what is written and keeps nothing of it; no file of a command gets its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """A service manager's SIGTERM ends a command as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
            # In the background of a shell, Ctrl-C is ignored; the end of the process is not.
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(tokens: list[str]) -> None:
    command = command_of(tokens)
    try:
        if tokens[:1] == [_PROTOCOL] and tokens[-1] == "--help":
            from quietmean.cli.options import protocol_help

            out.print(protocol_help(*tokens[1:-1][:1]), markup=False, highlight=False, soft_wrap=True)
            return
        if _ALL in tokens and (command is None or "--help" in tokens):
            app, tokens = make_app(command), [token for token in tokens if token != _ALL] or ["--help"]
        else:
            app = make_app(command, every=False)
        refuse_pasted(app, tokens)
        refuse_fractions(app, tokens)
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        fail(sentence_of(error, app, command, tokens), 2)
    except StrayValue as error:
        fail(sentence_of_stray(error, app, command, tokens), error.exit_code)
    except NotStarted as error:
        again = "" if error.for_good else "Agree on a time, and type the same command again"
        fail(in_sentences(error, again) if again else str(error), error.exit_code)
    except QuietmeanError as error:
        fail(str(error), error.exit_code)
    except (MemoryError, ImportError, RuntimeError) as error:
        _fail_for_memory(error, command or "")
    except BrokenPipeError:
        # The reader of the output has seen enough (quietmean ... | head). What is in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (OSError, sqlite3.OperationalError) as error:
        path = getattr(error, "filename", None)
        if (outage := outage_of(error, path or "what this command writes", ONCE_MORE)) is not None:
            fail(str(outage), outage.exit_code)
        if path is None or not isinstance(error, OSError):
            raise
        remedy = (
            "Raise the limit of open files (ulimit -n)." if error.errno in _TOO_MANY else "Check the path and your access rights."
        )
        fail(f"{error.filename}: {(error.strerror or 'it cannot be used').lower()}. {remedy}", 2)
    except KeyboardInterrupt:
        fail(f"interrupted{_CONTINUED.get(command or '', '')}", 130)


def _fail_for_memory(error: BaseException, command: str) -> None:
    """End a command for which no memory is left; any other error is raised again."""
    if trouble_of(error) is not Trouble.MEMORY:
        raise error
    if command in (*_CONTINUED, *_SERVERS):
        fail(str(outage_of(error, f"quietmean {command}", ONCE_MORE)), StorageError.exit_code)
    fail("this needs more memory than this machine has. Ask for fewer parties or coordinates.", 2)


if __name__ == "__main__":
    main()
