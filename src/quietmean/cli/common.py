"""Options that every command of ours has, taken from the line before the command sees it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quietmean.cli.console import saying
from quietmean.core.errors import InputError

_LOG = "--log-file"
_LOGGER = "quietmean.log"


@dataclass(frozen=True)
class Common:
    """``quiet``: results and errors only. ``log``: a file for what happens."""

    quiet: bool = False
    log: Path | None = None

    @classmethod
    def taken(cls, tokens: Sequence[str]) -> tuple[Common, list[str]]:
        """These options, and the line without them. Raises :class:`InputError` for a log without a file."""
        rest: list[str] = []
        quiet, log = False, None
        waiting = iter(tokens)
        for token in waiting:
            if token == "--quiet":  # noqa: S105
                quiet = True
            elif token == _LOG or token.startswith(f"{_LOG}="):
                name = token.partition("=")[2] or next(waiting, "")
                if not name or name.startswith("-"):
                    raise InputError(f"{_LOG} names no file: write {_LOG} FILE")
                log = Path(name)
            else:
                rest.append(token)
        return cls(quiet, log), rest

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the command runs. Raises :class:`InputError` if the log cannot be written."""
        handler = None if self.log is None else _opened(self.log)
        logger = logging.getLogger(_LOGGER)
        saying.quiet, saying.log = self.quiet, None if handler is None else logger
        if handler is not None:
            logger.propagate = False
            logger.setLevel(logging.INFO)
            logger.addHandler(handler)
        try:
            yield
        finally:
            saying.quiet, saying.log = False, None
            if handler is not None:
                logger.removeHandler(handler)
                handler.close()


def _opened(path: Path) -> logging.Handler:
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the log cannot be written to {path} ({error.strerror}): choose another place with {_LOG}") from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    return handler
