"""Fifty rounds of a session by five processes: two are killed and restarted, one is gone for good, and no store grows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.studies.agreement.session_study import SessionStudy
from support.rosters import on_this_machine, write_roster
from support.sessions import entry_of, receipt_of

NAMES = ("ada", "bob", "cyd", "dan", "eve")
ROUNDS = 50
TERMS: dict[str, Any] = {
    "name": "soak",
    "dimension": 100,
    "rounds": ROUNDS,
    "epsilon": 8.0,
    "delta": 1e-5,
    "colluding": 1,
    "dropouts": 0.4,
    "protocol": "cordp-dme",
    "round_timeout": 4.0,
}
PROGRAM = """
import json, sys, warnings
from pathlib import Path
import numpy as np
import quietmean as qm
from quietmean.core.errors import ProtocolFailure
warnings.simplefilter("ignore")
terms, name = json.loads(sys.argv[1]), sys.argv[2]
with qm.session(terms, "roster.toml", f"{name}.key", new_account=name) as rounds:
    while not rounds.over:
        try:
            mean = rounds.mean(np.full(terms["dimension"], 0.01))
        except ProtocolFailure as error:
            counted = None
        else:
            counted = mean.counted
        size = sum(path.stat().st_size for path in Path().glob(f"soak-{name}.store*"))
        print(json.dumps([rounds.round, counted, size]), flush=True)
"""


class Party:
    """One party and the processes that it had."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = Path(f"{name}.lines")
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(Path(qm.__file__).parents[1])}
        with self.lines.open("ab") as out, Path(f"{self.name}.errors").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(TERMS), self.name], stdout=out, stderr=errors, env=environment
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process = self._start()

    @property
    def seen(self) -> list[Any]:
        """(round, who is counted or None, bytes on disk), one for each call."""
        return [json.loads(line) for line in self.lines.read_text().splitlines() if line.endswith("]")]

    @property
    def round(self) -> int:
        return self.seen[-1][0] if self.seen else 0


@pytest.mark.slow
def test_fifty_rounds_with_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(5)))
    parties = {name: Party(name) for name in NAMES}
    steady, steps = parties["ada"], [(8, "bob", 4), (15, "eve", None), (22, "cyd", 5), (33, "bob", 3)]
    back: list[tuple[int, str]] = []
    end = time.monotonic() + 500
    try:
        while steady.process.poll() is None and time.monotonic() < end:
            here = steady.round
            if steps and here >= steps[0][0]:
                _, name, away = steps.pop(0)
                parties[name].kill()
                if away is not None:
                    back.append((here + away, name))
            for when, name in [one for one in back if here >= one[0]]:
                parties[name].restart()
                back.remove((when, name))
            time.sleep(0.05)
        for name in NAMES:
            if name != "eve":
                assert parties[name].process.wait(timeout=120) == 0, Path(f"{name}.errors").read_text()[-2000:]
    finally:
        for party in parties.values():
            party.process.kill()
            party.process.wait()
    assert not steps
    assert not back
    seen = steady.seen
    assert [number for number, _, _ in seen] == list(range(1, ROUNDS + 1))
    with_mean = [counted for _, counted, _ in seen if counted]
    assert len(with_mean) >= 45
    # Different members were away, and came back.
    assert any("bob" not in counted for counted in with_mean)
    assert any("cyd" not in counted for counted in with_mean)
    assert set(NAMES) - {"eve"} <= set(with_mean[-1])
    terms = SessionStudy.parse(TERMS).terms(5)
    for name in NAMES:
        paid = entry_of(name)
        if name == "eve":
            # Nobody knows what a party that never came back would still have sent.
            assert paid.charged == terms.charge(ROUNDS)
            continue
        begun = receipt_of("soak", name)["rounds"]["begun"]
        assert paid.charged == terms.charge(begun)
        assert paid.charged.mu <= paid.reserved.mu
        assert begun == ROUNDS if name == "ada" else begun <= ROUNDS
        sizes = [size for _, _, size in parties[name].seen]
        assert max(sizes[20:]) <= 1.1 * max(sizes[:20]), sizes
