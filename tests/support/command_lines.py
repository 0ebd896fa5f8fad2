"""Lines that somebody types: as processes, and in this process."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from quietmean.cli.main import main
from support.refusals import stops_twice


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process of ``quietmean`` with these arguments, in the folder."""
    line = [sys.executable, "-m", "quietmean.cli.main", *arguments]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ending(process: subprocess.Popen[str], timeout: float = 240) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    output, errors = process.communicate(timeout=timeout)
    return process.returncode, output, errors


def called(folder: Path, *arguments: str) -> str:
    """What a command prints that ends well."""
    code, output, errors = ending(command(folder, *arguments), 300)
    assert code == 0, errors
    return output


def fails(line: str | Sequence[str], capsys: pytest.CaptureFixture[str], *words: str, code: int = 2, warned: bool = False) -> str:
    """Return what a command that ends with this exit code says on standard error, with all these words in it.

    With 2 it is one sentence and nothing else, after warnings where those are allowed.
    """
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line) if isinstance(line, str) else list(line))
    output = capsys.readouterr()
    assert ended.value.code == code, output.err
    if code == 2 and not warned:
        assert output.err.count("\n") == 1, output.err
        assert output.out == ""
    assert "Traceback" not in output.err
    assert not stops_twice(output.err), output.err
    for word in words:
        assert word in output.err, f"{word!r} is missing in: {output.err}"
    return output.err
