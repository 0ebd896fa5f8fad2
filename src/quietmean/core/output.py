"""The one way in which files that a person names come about: whole or not at all, never in the place of something else."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from quietmean.core.codec import canonical_json, decode_json
from quietmean.core.errors import InputError, reason_of
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import owner_only, sync_folder, write_down
from quietmean.core.tables import Tabular, csv_bytes

Recognises = Callable[[bytes], bool]

# Bytes that are read of a file before it is replaced: no file of quietmean is larger.
_LARGEST = 256 * 2**20
# How to say in Python that a file may be replaced.
FROM_PYTHON = "force=True"
# Ends of names that say what is in a file.
_DOCUMENTS = frozenset(
    f".{end}"
    for ends in (
        "csv doc docx gz htm html jpeg jpg json md",
        "parquet pdf png rtf svg tex toml tsv txt",
        "xls xlsx xml yaml yml zip",
    )
    for end in ends.split()
)
# Of these quietmean has some without an end of its own.
_OWN = frozenset({".json", ".toml", ".txt"})
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def nothing(content: bytes) -> bool:
    """Recognise no file."""
    return False


@dataclass(frozen=True)
class Output:
    """A file that is to be written to ``path``; ``what`` it is, such as "the plan"; and the command's ``option`` for its place.

    A file that is there stays, with two exceptions: ``own`` recognises by its content an earlier version of this very document,
    such as the receipt of the same party in the same study; ``kind``, where the user says ``force``, any file of the same kind.
    ``saying_so``: how that is said, from Python otherwise than to a command. ``private``: only its owner may read it.
    ``ends``: how its name may end, the usual end first; none where any will do that is not of another program's documents.
    """

    path: Path
    what: str
    option: str = "--out"
    own: Recognises = nothing
    kind: Recognises = nothing
    force: bool = False
    private: bool = False
    saying_so: str = "--force"
    ends: Sequence[str] = ()

    def require_free(self, content: bytes | None = None) -> None:
        """Before anything is computed. Raises :class:`InputError` where the file could not be written; ``content``: what is to be
        written, where that is known already, which may be there."""
        if (end := self.path.suffix.lower()) in _DOCUMENTS - {*(self.ends or _OWN)}:
            if self.ends:
                right = self.path.with_suffix(self.ends[0])
                raise InputError(f"{self.path} would hold {self.what} as {self.ends[0][1:].upper()}. Name it {right}.")
            raise InputError(f"{self.path} ends in {end}, and {self.what} is another kind of file. Name it {self.path.stem}.")
        folder = self.path.parent
        if not folder.is_dir():
            raise self._impossible(f"no folder {folder}")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(
                f"{self.what} cannot be written to folder {folder} (no right). Name another place with {self.option}."
            )
        self._replaced(content)

    def write(self, content: bytes) -> None:
        """Write the file, whole or not at all, and durable when this returns.

        Raises :class:`InputError` where :meth:`require_free` does.
        """
        try:
            if _is_stream(self.path):
                self.path.write_bytes(content)
                return
            there = self._replaced(content)
            # What is there already may not be on the disk: an fsync of it may have failed.
            if there != content or _may_be_written(self.path):
                self._put(content, replace=there is not None)
        except OSError as error:
            refuse_outage(error, self.path)
            raise self._impossible(reason_of(error)) from None

    def write_json(self, document: Any) -> None:
        """Writes the document as canonical JSON."""
        self.write(canonical_json(document) + b"\n")

    def append(self) -> IO[str]:
        """The file, open for lines of text behind those that ``kind`` recognises. Raises :class:`InputError`."""
        try:
            if not _is_stream(self.path):
                there = _content(self.path)
                if there and not self.kind(there):
                    raise self._refused("holds something else")
            return self.path.open("a", encoding="utf-8")
        except OSError as error:
            refuse_outage(error, self.path)
            raise self._impossible(reason_of(error)) from None

    def _replaced(self, content: bytes | None) -> bytes | None:
        """The content that is replaced; None without a file. Raises :class:`InputError` for a file that must stay."""
        if _is_stream(self.path):
            return None
        try:
            there = _content(self.path)
        except OSError as error:
            refuse_outage(error, self.path)
            raise self._impossible(reason_of(error)) from None
        if there is None or there == content:
            return there
        if self.own(there):
            return self._writable(there)
        if self.kind(there):
            if self.force:
                return self._writable(there)
            raise self._refused("exists already", f", or replace it with {self.saying_so}")
        raise self._refused("exists already", ", nothing is overwritten")

    def _writable(self, there: bytes) -> bytes:
        if not _may_be_written(self.path):
            raise self._impossible("it is read-only")
        return there

    def _refused(self, why: str, else_: str = "") -> InputError:
        return InputError(f"file {self.path} {why}. Name another for {self.what}{self._where}{else_}.")

    def _impossible(self, why: str) -> InputError:
        return InputError(f"{self.what} cannot be written to {self.path} ({why}). Choose another place{self._where}.")

    @property
    def _where(self) -> str:
        return f" with {self.option}" if self.option else ""

    def _put(self, content: bytes, *, replace: bool) -> None:
        fresh = self.path.with_name(f".quietmean-{os.getpid()}-{threading.get_ident():x}.new")
        # Left by a process with the same numbers that crashed.
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(fresh, flags, 0o600 if self.private else 0o666), "wb") as file:
                if self.private:
                    owner_only(file.fileno())
                write_down(file, content)
            if replace:
                fresh.replace(self.path)
            else:
                self._name(fresh)
        finally:
            fresh.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _name(self, fresh: Path) -> None:
        """Gives a whole file its name, unless another process has made one of that name in the meantime."""
        try:
            self.path.hardlink_to(fresh)
        except FileExistsError:
            raise self._refused("exists already", ", nothing is overwritten") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without links: the name is taken first, and then filled.
            with self.path.open("xb"):
                fresh.replace(self.path)


def require_apart(outputs: Iterable[Output], *others: Path) -> None:
    """Require that outputs are apart.

    Raises :class:`InputError` where two, or one and another file of the command, are one file.
    """
    paths = {other.resolve(): str(other) for other in others}
    for output in outputs:
        if (before := paths.get(output.path.resolve())) is not None:
            raise InputError(f"{before} and {output.what} would be one file, {output.path}. Name another with {output.option}.")
        paths[output.path.resolve()] = output.what


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object in a file; an empty one if it holds something else."""
    try:
        return decode_json(content, dict[str, Any], InputError)
    except InputError:
        return {}


def mapping_of(value: object) -> Mapping[str, Any]:
    """A part of a JSON document that is an object; empty for what is none."""
    return value if isinstance(value, Mapping) else {}


def require_version(form: object, known: str | bytes, subject: str, error: type[InputError] = InputError) -> None:
    """Raises ``error`` for a format that differs from the known one in its number alone: all else may differ then.

    Of a file that is not text, ``form`` is what it begins with, as much as ``known`` has.
    """
    number, expected = (text.decode("latin-1").strip("\n") if isinstance(text, bytes) else text for text in (form, known))
    stem = re.escape(str(expected).rstrip("0123456789"))
    if isinstance(number, str) and number != expected and re.fullmatch(stem + r"[\w.-]{1,20}", number):
        raise error(f"{subject} was written by another version of quietmean ({number}). Use that version for it.")


def has_fields(*names: str) -> Recognises:
    """Recognises JSON objects with these fields."""
    return lambda content: set(names) <= set(json_object(content))


def _content(path: Path) -> bytes | None:
    """What a plain file holds, as much as is looked at; None where there is none. Raises :class:`OSError` for anything else."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(state.st_mode):
        raise OSError(errno.EEXIST, "it is a link, which is not followed")
    if stat.S_ISDIR(state.st_mode):
        raise OSError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EEXIST, "it is not a plain file")
    with path.open("rb") as file:
        return file.read(_LARGEST)


def _may_be_written(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


def _is_stream(path: Path) -> bool:
    """A terminal, a pipe or the null device: nothing in it can be lost. Their names under /dev are links."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


class TableFile(Tabular):
    """A result that is a table, also as a CSV file."""

    def to_csv(self, path: str | Path, *, force: bool = False) -> None:
        """The rows as a CSV file; with ``force`` in the place of an earlier one with the same heads.

        Raises :class:`InputError` for another file that is there.
        """
        rows = self.rows()
        content = csv_bytes(rows, list(self.kinds() or (rows[0] if rows else ())))
        head = content.partition(b"\n")[0] + b"\n"
        output = Output(
            Path(path),
            "the table",
            "",
            kind=lambda there: there.startswith(head),
            force=force,
            saying_so=FROM_PYTHON,
            ends=(".csv", ".txt"),
        )
        output.write(content)
