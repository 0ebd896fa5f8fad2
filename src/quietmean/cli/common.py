"""Options, examples and help that every command of ours has."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, TypeAlias

from cyclopts import Parameter

from quietmean.cli.console import err, output_options
from quietmean.core.errors import InputError
from quietmean.core.folders import require_folder
from quietmean.core.output import Output

Out: TypeAlias = Annotated[Path | None, Parameter(name="--out")]
_LOG = "--log-file"
_LOGGER = "quietmean.log"
# How a line of a log begins.
_LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} [A-Z]+ ")


@dataclass(frozen=True)
class Common:
    """``quiet``: results and errors only. ``force``: files of the same kind are replaced. ``log``: a file for what happens."""

    quiet: bool = False
    force: bool = False
    log: Path | None = None

    @classmethod
    def taken(cls, tokens: Sequence[str]) -> tuple[Common, list[str]]:
        """These options, and the line without them. Raises :class:`InputError` for a log without a file."""
        rest: list[str] = []
        quiet, force, log = False, False, None
        waiting = iter(tokens)
        for token in waiting:
            if token == "--quiet":  # noqa: S105
                quiet = True
            elif token == "--force":  # noqa: S105
                force = True
            elif token == _LOG or token.startswith(f"{_LOG}="):
                name = token.partition("=")[2] or next(waiting, "")
                if not name or name.startswith("-"):
                    raise InputError(f"{_LOG} names no file. Write {_LOG} FILE.")
                log = Path(name)
            else:
                rest.append(token)
        return cls(quiet, force, log), rest

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the command runs. Raises :class:`InputError` if the log cannot be written."""
        handler = None if self.log is None else _opened(self.log)
        logger = logging.getLogger(_LOGGER)
        output_options.quiet, output_options.force, output_options.log = (
            self.quiet,
            self.force,
            None if handler is None else logger,
        )
        if handler is not None:
            logger.propagate = False
            logger.setLevel(logging.INFO)
            logger.addHandler(handler)
        try:
            yield
        finally:
            output_options.quiet, output_options.force, output_options.log = False, False, None
            if handler is not None:
                logger.removeHandler(handler)
                handler.close()


class _FileLines(logging.StreamHandler[IO[str]]):
    """Lines into a file, which is closed with it."""

    def close(self) -> None:
        self.stream.close()
        super().close()


def _is_log(content: bytes) -> bool:
    return _LINE.match(content) is not None


def _opened(path: Path) -> logging.Handler:
    handler = _FileLines(Output(path, "the log", _LOG, kind=_is_log).append())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    return handler


# What the first word of a command with two means.
GROUPS = {
    "study": "Write a study, invite parties, sign, combine.",
    "site": "Contracts, approvals, budgets, records and a desk.",
    "serve": "A relay for parties, a drop for contributions.",
    "verify": "Recompute a receipt, attack it, compare words.",
    "key": "Make a key, or refuse one from now on.",
}
# An example of each command as it may be typed, apart from names of files.
EXAMPLES = {
    "demo": "quietmean demo --out first-study",
    "run": 'quietmean run patients.csv "mean(age in 0..110)" --parties 20',
    "study new": 'quietmean study new "mean(days in 0..60)" --name stay --epsilon 1 --out study.toml',
    "study mock": "quietmean study mock study.toml --rows 500 --out mock.csv",
    "study synthesize": "quietmean study synthesize receipt.json --out synthetic.csv",
    "study invite": "quietmean study invite study.toml --key coordinator.key --out study.invitation",
    "accept": "quietmean accept study.invitation --key north.key --name north --out north.entry",
    "study form": "quietmean study form study.sealed https://drop.example.org form.html --key coordinator.key",
    "study seal": "quietmean study seal study.invitation north.entry south.entry --key coordinator.key --out study.sealed",
    "study vouchers": "quietmean study vouchers study.invitation --key registrar.key --out vouchers",
    "verify words": "quietmean verify words study.sealed",
    "key new": "quietmean key new --key north.key --name north --address north.example.org:7000",
    "key revoke": "quietmean key revoke north.key.revocation",
    "site data": "quietmean site data visits.csv study.sealed",
    "check": "quietmean check study.sealed --key north.key --data visits.csv",
    "join": "quietmean join study.sealed --key north.key --data visits.csv",
    "send": "quietmean send study.sealed --key north.key --data visits.csv --out north.contribution",
    "study combine": "quietmean study combine study.sealed north.contribution south.contribution",
    "result": "quietmean result study-north.receipt.json --details",
    "serve relay": "quietmean serve relay --listen :443 --certificate relay.pem --private-key relay.key --admit study.sealed",
    "serve drop": "quietmean serve drop --study study.sealed --listen :443 --folder box --certificate drop.pem "
    "--private-key drop.key",
    "site desk": "quietmean site desk studies --party north",
    "site approve": "quietmean site approve study.sealed --party north --owner-key owner.key --account wards --until 2030-12-31",
    "site contract": "quietmean site contract study.sealed --key north.key",
    "study start": "quietmean study start study.sealed --key ada.key",
    "site status": "quietmean site status --study study.toml",
    "site clean": "quietmean site clean studies --remove studies/stay-north.store",
    "verify receipt": "quietmean verify receipt study-north.receipt.json --colluding 2",
    "verify attack": "quietmean verify attack receipt.json",
    "plan": "quietmean plan --parties 20 --epsilon 1 --delta 1e-6",
    "simulate": "quietmean simulate plan.json --runs 1000",
    "site budget": "quietmean site budget --ledger my.ledger --account wards --budget 1.0 1e-6",
    "site audit": "quietmean site audit verify --against study-north.receipt.json",
    "schema": "quietmean schema result --out result.schema.json",
    "completion": "quietmean completion --install",
}
# What a command does in which order, for who types it for the first time.
HAPPENS = {
    "run": "Your table is shared out between made-up parties on this machine. They compute with noise, as in a real study. "
    "You see their answer beside the true value, which only you have.",
    "accept": "It makes keys for this study. You send the entry to the coordinator, and later get the signed study. No data "
    "leave.",
    "check": "It tries all that join needs, and says what is missing. No data leave, and no budget is charged.",
    "join": "You see what the study asks and costs. Nothing leaves before you type yes. Then it waits for the other sites, "
    "computes with them and prints the answer. It writes a receipt, from which anybody can check the cost.",
    "send": "You see what the study asks and costs. After your yes it writes one file. Send that file. You need not stay online.",
    "site contract": "You see what the study asks, who could learn what, and what it costs. Nothing is sent or charged. You say "
    "yes later, in join or send.",
    "site budget": "A budget says how much all studies together may reveal about one record. Each study takes some of it.",
    "verify attack": "It plays colluding parties against one other on made-up values, many times. It says whether they learn "
    "more than was promised. No private data are used.",
}
# Options that the help of a command shows first; with --all it shows every other one.
_OF_STUDY = (
    *("--epsilon", "--delta", "--unit", "--count", "--colluding", "--dropouts", "--protocol", "--with", "--committee"),
    *("--out", "--json"),
)
FIRST_OPTIONS = {
    "run": ("--study", "--parties", "--party-column", *_OF_STUDY),
    "study new": ("--name", "--dictionary", "--minimum", "--start-by", "--transport", "--contribute-by", *_OF_STUDY),
}
_COMMON = (
    "With every command, --quiet shows only results and errors. --force overwrites a file of the same kind, but "
    "never a key, data, a receipt, a contribution or a signed study. --log-file FILE also writes a log, with nothing "
    "about the data. With --json an error is a JSON document too."
)
_CODES = (
    "Exit codes: 0 done; 1 a defect of quietmean; 2 a mistake in the command or its files, and the message says how to "
    "correct it; 3 a protocol could not finish; 75 the disk or the memory is full or fails, and the same command continues "
    "later; 130 interrupted."
)


class StrayValue(InputError):
    """A value is in the place of a question, and is none: of an option, perhaps, that stands before it.

    ``is_kind``: it names a statistic, so that it can only be a question without its columns.
    """

    def __init__(self, value: str, *, is_kind: bool = False) -> None:
        self.value, self.is_kind = value, is_kind
        if value == "count":
            super().__init__(f'{value!r} does not say what to count. Write for example "count(where=age >= 65)" "age in 0..110".')
        elif Path(value).is_file():
            super().__init__(f'{value!r} is a file where a question belongs. Write for example "mean(age in 0..110)".')
        elif is_kind:
            super().__init__(f'{value!r} has no columns. Write them behind it, as in "mean(age in 0..110)".')
        else:
            super().__init__(f'{value!r} is not a question. Write for example "mean(age in 0..110)", or leave it out.')


def refuse_stray(ask: Sequence[str], is_statistic: Callable[[str], bool]) -> None:
    """Raises :class:`StrayValue` for the first of the questions that is none."""
    if stray := [text for text in ask if not (is_statistic(text) or " in " in text or "=" in text)]:
        from quietmean.statistics.registry import is_kind

        raise StrayValue(stray[0], is_kind=is_kind(stray[0]))


def command_of(tokens: Sequence[str]) -> str | None:
    """The command that a line asks for, such as "run" or "study seal", whether there is one of that name or not."""
    words = [token for token in tokens if not token.startswith("-")]
    return " ".join(words[: 2 if words[0] in GROUPS else 1]) if words else None


def epilogue(command: str) -> str:
    """The text below the options."""
    example = f"Example: {EXAMPLES[command]}\n\n" if command in EXAMPLES else ""
    happens = f"What happens: {HAPPENS[command]}\n\n" if command in HAPPENS else ""
    more = f"All options: quietmean {command} --help --all. " if command in FIRST_OPTIONS else ""
    return f"{example}{happens}{more}{_COMMON}\n\n{_CODES}"


# Folders of runs are named so, with the time behind it.
RUN, _RECEIPT = "quietmean-run-", "receipt.json"


def execution_or_newest(path: Path | None) -> Path:
    """What was named; of a run's folder its receipt; of no file, or another folder, that of its newest run, which is said.

    Raises :class:`InputError` where neither is there.
    """
    folder = path or Path()
    if path is not None and (not path.is_dir() or (path / _RECEIPT).is_file()):
        return path / _RECEIPT if path.is_dir() else path
    receipts = sorted(folder.glob(f"{RUN}*/{_RECEIPT}"), key=lambda receipt: (receipt.stat().st_mtime_ns, str(receipt)))
    if not receipts and path is not None:
        raise InputError(f"folder {path} has no run in it. Name a receipt, an execution file or the folder of a run.")
    if not receipts:
        raise InputError("which execution is not clear. Name a receipt or an execution file; this folder has no run.")
    err.print(f"quietmean: note: of {receipts[-1]}, the newest run here", soft_wrap=True)
    return receipts[-1]


def make_folder(folder: Path) -> None:
    """Make a folder of results. Raises :class:`InputError` if it cannot be made."""
    require_folder(folder, "name another with --out")
