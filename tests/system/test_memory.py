"""Memory that runs out costs nobody a study: what a party needs is imported before it pays, and what is left ends with 75."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.cli.main import COMMANDS, main
from quietmean.core import outage
from support import after_the_charge
from support.command_lines import command, ending
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy

NAMES = ("north", "south", "east")
TERMS = """
name = "both"
epsilon = 4.0
delta = 1e-6
colluding = 0
protocol = "{protocol}"
round_timeout = 60.0
start_timeout = 120.0
"""
STUDY = "[study]" + TERMS + '[[column]]\nname = "age"\nlow = 0\nhigh = 100\n'
SESSION = "[session]" + TERMS + 'dimension = 3\nrounds = 2\nunit = "party"\n'
PROGRAM = """
import numpy as np
import quietmean as qm
rounds = qm.joined()
while not rounds.over:
    rounds.mean(np.full(3, 0.1))
"""
PROTOCOLS = ("packed-sharing", "cordp-dme", "gopa", "inca", "local-dp", "muffliato", "secagg", "secagg-plus")
WAYS = [("study", protocol) for protocol in PROTOCOLS] + [("session", "packed-sharing"), ("session", "cordp-dme")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> Path:
    """A folder with what each of three parties has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    write_policy(unattended=True, least_colluding=0)
    Path("program.py").write_text(PROGRAM)
    for index, name in enumerate(NAMES):
        Path(f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + index, 60))))
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))
    return tmp_path


def line(name: str, kind: str = "study") -> list[str]:
    own = ["--data", f"{name}.csv"] if kind == "study" else ["--program", "program.py"]
    files = ["--roster", "roster.toml", "--key", f"{name}.key", "--store", f"{name}.store", "--receipt", f"{name}.json"]
    return ["join", "agreed.toml", *files, *own, "--ledger", f"{name}.ledger", "--new-account", name, "--yes", "--json"]


def late_imports(site: Path, arguments: list[str]) -> subprocess.Popen[str]:
    program = [sys.executable, str(Path(after_the_charge.__file__)), *arguments]
    return subprocess.Popen(program, cwd=site, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("kind", "protocol"), [pytest.param(*way, marks=() if index == 0 else pytest.mark.slow) for index, way in enumerate(WAYS)]
)
def test_nothing_is_imported_between_the_charge_and_the_answer(site: Path, kind: str, protocol: str) -> None:
    Path("agreed.toml").write_text((STUDY if kind == "study" else SESSION).format(protocol=protocol))
    # Of the others the plain command, which needs no watching.
    running = [late_imports(site, line(NAMES[0], kind)), *(command(site, *line(name, kind)) for name in NAMES[1:])]
    endings = [ending(process) for process in running]
    assert [code for code, _, _ in endings] == [0, 0, 0], endings
    (said,) = [text for text in endings[0][2].splitlines() if text.startswith(after_the_charge.MARK)]
    late = json.loads(said.removeprefix(after_the_charge.MARK))
    assert late == [], late


def limited(process: subprocess.Popen[str], room: int) -> None:
    """From now on the process gets ``room`` more bytes of memory, and no more."""
    try:
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        resource.prlimit(process.pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + room, -1))
    except (ProcessLookupError, ValueError, FileNotFoundError):
        return


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are Linux's")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
@pytest.mark.usefixtures("executed")
def test_a_party_whose_memory_runs_out_goes_on_by_the_same_command(site: Path, seed: int) -> None:
    draw = random.Random(seed)
    protocol = draw.choice(("packed-sharing", "cordp-dme", "inca"))
    Path("agreed.toml").write_text(STUDY.format(protocol=protocol))
    others = [command(site, *line(name)) for name in NAMES[1:]]
    victim = command(site, *line(NAMES[0]))
    while not Path(f"{NAMES[0]}.store").exists() and victim.poll() is None:
        time.sleep(0.01)
    time.sleep(draw.uniform(0.0, 1.5))
    limited(victim, draw.choice((0, 1 << 16, 1 << 20)))
    print(f"seed {seed}: {protocol}")
    time.sleep(1.0)
    codes = []
    for _ in range(3):
        # The memory comes back, for a process that waits for it.
        resource.prlimit(victim.pid, resource.RLIMIT_AS, (-1, -1)) if victim.poll() is None else None
        code, output, errors = ending(victim)
        codes.append((code, errors))
        if code == 0:
            break
        victim = command(site, *line(NAMES[0]))
    endings = [ending(process) for process in others]
    assert [code for code, _ in codes] in ([0], [75, 0]), codes
    assert [code for code, _, _ in endings] == [0, 0], endings
    results = [json.loads(text) for text in (output, *(one for _, one, _ in endings))]
    assert len({str(result["estimate"]) for result in results}) == 1


@pytest.mark.parametrize("command_name", sorted(COMMANDS))
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libfoo.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_each_command_says_that_memory_is_gone(
    command_name: str, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("quietmean.cli.main.make_app", gone)
    with pytest.raises(SystemExit) as end:
        main(command_name.split())
    said = capsys.readouterr().err
    goes_on = command_name in ("join", "send", "serve relay", "serve drop", "site desk")
    assert end.value.code == (75 if goes_on or isinstance(error, OSError) else 2), said
    assert said.count("\n") == 1
    assert "memory" in said


@pytest.mark.parametrize(
    "error", [ImportError("no module"), RuntimeError("a defect"), ValueError("memory"), OSError(11, "again")]
)
def test_other_errors_are_not_of_memory(error: Exception) -> None:
    assert outage.outage_of(error, "store") is None
