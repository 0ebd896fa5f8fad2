"""Three sites that take part in a study through a folder: the commands of its page, in processes that share nothing else."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import NotYet
from quietmean.studies.agreement.sealed import Sealed
from support.pages import commands
from support.site_policy import write_policy

PARTIES = ("north", "south", "east")
PAGE = "take-part/connect.md"


class Sites:
    """Three parties that accepted and sealed; their processes. ``start_by``: seconds until two of them may start.

    ``changes``: of lines of the study file, by what they are on the page.
    """

    def __init__(
        self,
        folder: Path,
        start: float = 300.0,
        interval: float = 60.0,
        start_by: float | None = None,
        changes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.share = folder / "share"
        self.share.mkdir()
        # What the parties are told; a bucket's URL instead.
        self.place = str(self.share)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.output: dict[str, str] = {}
        new, *lines, self.line = commands(PAGE, "A folder")
        keygen, invite, accept, seal = lines
        for line in (new, keygen):
            main(shlex.split(line)[1:])
        study = folder / "study.toml"
        self.first = datetime.now(UTC) + timedelta(seconds=start)
        agreed = f'deadlines = {{first = "{self.first.isoformat()}", interval = {interval}, poll = 2.0}}'
        text, changed = re.subn("^deadlines = .*$", agreed, study.read_text(), flags=re.MULTILINE)
        assert changed == 1
        if start_by is not None:
            when = datetime.now(UTC) + timedelta(seconds=start_by)
            text = text.replace("colluding = 1", f"colluding = 0\nminimum = 2\nstart_by = {when.isoformat()}")
        for before, after in changes.items():
            assert before in text
            text = text.replace(before, after)
        study.write_text(text)
        main(shlex.split(invite)[1:])
        for name in PARTIES:
            main(shlex.split(accept.replace("south", name))[1:])
        main(shlex.split(seal)[1:])
        self.sealed = Sealed.load(folder / "study.sealed")
        for place, name in enumerate(PARTIES):
            (folder / f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + place, 60 + place))))

    def join(self, *names: str, once: bool = False) -> None:
        for name in names:
            line = self.line.replace("south", name).replace("/mnt/share", self.place)
            command = [
                sys.executable,
                "-m",
                "quietmean.cli.main",
                *shlex.split(line)[1:],
                "--yes",
                "--json",
                *(["--once"] if once else []),
            ]
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

    def visit(self, *names: str) -> dict[str, int]:
        """One process after the other, never two together; their exit codes."""
        codes = {}
        for name in names:
            self.join(name, once=True)
            self.output[name], errors = self.processes[name].communicate(timeout=120)
            codes[name] = self.processes[name].returncode
            assert codes[name] in (0, NotYet.exit_code), errors
        return codes

    def visit_until_the_end(self, *names: str, pause: float = 0.0, seconds: float = 400.0) -> list[dict[str, Any]]:
        """Visits in turn until nobody has any left; the results."""
        left, deadline = list(names), time.monotonic() + seconds
        while left:
            assert time.monotonic() < deadline
            codes = self.visit(*left)
            left = [name for name in left if codes[name]]
            time.sleep(pause)
        return [json.loads(self.output[name]) for name in names]

    def finish(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name, process in self.processes.items():
            output, errors = process.communicate(timeout=240)
            assert process.returncode == 0, (name, errors)
            found[name] = json.loads(output)
        return found

    def rounds(self) -> list[str]:
        return [path.name for path in self.share.glob("*/q*") if any(path.iterdir())]

    def wait_for_rounds(self, count: int = 1) -> None:
        """Until there are files of so many; all processes go on meanwhile."""
        deadline = time.monotonic() + 120
        while len(self.rounds()) < count:
            for name, process in self.processes.items():
                assert process.poll() is None, (name, process.communicate())
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].communicate()

    def close(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
                process.communicate()


def sites_in(folder: Path, patch: pytest.MonkeyPatch, *given: Any) -> contextlib.closing[Sites]:
    """``given``: of :class:`Sites`."""
    patch.chdir(folder)
    # Two of three start only where nobody colludes.
    write_policy(unattended=True, least_colluding=0)
    return contextlib.closing(Sites(folder, *given))
