"""What a party's ledger says of a packed sharing study without a result: given back if nobody can have published, kept else.

Five parties as persons start them, with ``join`` and a ledger each. Two of them die at the beginning of a round: their programs
kill themselves, as a signal from outside would come rounds later.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.cli.main import main
from support.rosters import on_this_machine, write_roster
from support.sessions import entry_of

NAMES = ("ada", "bob", "cyd", "dan", "eve")
# q = 4 and T = 1 + 3: whoever is left of five without two can neither decide nor conclude.
STUDY = """
[study]
name = "three columns"
epsilon = 2.0
delta = 1e-6
colluding = 1
dropouts = 0.2
protocol = "packed-sharing"
round_timeout = 8.0
start_timeout = 500.0

[study.options]
secrets = 3
"""
COLUMN = """
[[column]]
name = "{name}"
low = 0
high = 100
"""
DIES = """
import os, signal, sys
from quietmean.cli.live import NodeDisplay
from quietmean.cli.main import main
from quietmean.node.monitor import RoundBegun
from quietmean.node.phase import Phase

shown = NodeDisplay.report

def report(self, event):
    if isinstance(event, RoundBegun) and (event.phase, event.round) == (Phase.MIXING, int(sys.argv[1])):
        os.kill(os.getpid(), signal.SIGKILL)
    shown(self, event)

NodeDisplay.report = report
main(sys.argv[2:])
"""


@pytest.fixture
def consortium(tmp_path: Path, free_ports: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]) -> Path:
    """Keys, data, a ledger for each party, study and roster."""
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(len(NAMES))))
    for place, name in enumerate(NAMES):
        rows = [f"{(7 * row + place) % 100},{(3 * row) % 100},{row}" for row in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["one,two,three", *rows]))
        main(["site", "budget", "--ledger", str(tmp_path / f"{name}.ledger"), "--account", name, "--budget", "5", "1e-5"])
    capsys.readouterr()
    (tmp_path / "study.toml").write_text(STUDY + "".join(COLUMN.format(name=name) for name in ("one", "two", "three")))
    return tmp_path


def join(name: str, folder: Path, dying_in: int | None = None) -> subprocess.Popen[str]:
    arguments = ["join", "study.toml", "--roster", "roster.toml", "--data", f"{name}.csv", "--key", f"{name}.key", "--json"]
    arguments += ["--store", f"{name}.store", "--receipt", f"{name}.json", "--ledger", f"{name}.ledger", "--account", name]
    program = ["-m", "quietmean.cli.main"] if dying_in is None else ["-c", DIES, str(dying_in)]
    command = [sys.executable, *program, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: Path, dying_in: int | None) -> dict[str, tuple[int, str, str]]:
    """Exit code, standard output and error of each party; dan and eve die, if anybody does."""
    processes = {name: join(name, folder, dying_in if name in ("dan", "eve") else None) for name in NAMES}
    ended = {name: process.communicate(timeout=580) for name, process in processes.items()}
    return {name: (processes[name].returncode, *texts) for name, texts in ended.items()}


def why_no_result(code: int, output: str, errors: str) -> str:
    """What ``join --json`` says on standard output where no result: a document, with the sentence for people in it."""
    assert code == 3, errors
    document = json.loads(output)
    assert document.keys() == {"error", "exit"}
    assert document["exit"] == code
    reason: str = document["error"]
    assert reason.startswith("no result: ")
    assert f"quietmean: {reason}\n" in errors
    return reason


@pytest.mark.slow
@pytest.mark.parametrize("dying_in", [1, 2])
def test_before_anybody_can_have_voted_it_is_given_back(consortium: Path, dying_in: int) -> None:
    """Two parties die before they deal, or once they have dealt: q = 4 members cannot vote any more, and all three say so."""
    for name, (code, output, errors) in run(consortium, dying_in).items():
        entry = entry_of(name, consortium / f"{name}.ledger")
        assert entry.reserved.mu > 0
        # What the sampler is off by hid what was dealt: it stays.
        assert entry.charged.tv == entry.reserved.tv > 0
        if name in ("dan", "eve"):
            # Who died has reserved, and knows no more.
            assert code < 0
            assert entry.charged == entry.reserved
            continue
        assert "nobody has published anything: what was charged is given back" in why_no_result(code, output, errors)
        assert (entry.charged.mu, entry.charged.beta, entry.settled) == (0.0, 0.0, True)
        assert "nobody published anything" in entry.note
    # Asked again, a party says the same, and nothing is charged again.
    again = join("ada", consortium)
    output, errors = again.communicate(timeout=580)
    assert "given back" in why_no_result(again.returncode, output, errors)
    assert entry_of("ada", consortium / "ada.ledger").charged.mu == 0.0


@pytest.mark.slow
def test_once_all_have_voted_it_is_kept(consortium: Path) -> None:
    """Two parties die before they publish: three sums are told and four are needed, but a colluder may have its own."""
    for name, (code, output, errors) in run(consortium, 5).items():
        entry = entry_of(name, consortium / f"{name}.ledger")
        assert entry.charged == entry.reserved
        assert entry.charged.mu > 0
        assert not entry.settled
        if name not in ("dan", "eve"):
            reason = why_no_result(code, output, errors)
            assert "3 of the 4 sums that a result needs arrived" in reason
            assert "stays charged" in reason


@pytest.mark.slow
def test_with_a_result_it_is_what_the_execution_cost(consortium: Path) -> None:
    for name, (code, output, errors) in run(consortium, None).items():
        assert code == 0, errors
        assert json.loads(output)["parties_counted"] == len(NAMES)
        entry = entry_of(name, consortium / f"{name}.ledger")
        assert 0 < entry.charged.mu <= entry.reserved.mu
        assert entry.settled
