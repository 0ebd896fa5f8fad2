"""Options that every command of ours has, taken from the line before the command sees it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, TypeAlias

from cyclopts import Parameter

from quietmean.cli.console import output_options
from quietmean.core.errors import InputError
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
                    raise InputError(f"{_LOG} names no file: write {_LOG} FILE")
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
