"""simulate, certify and attack by several processes and a Dask scheduler: the same to the bit, and clear where it cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.codec import to_plain
from quietmean.privacy import Adversary
from quietmean.protocols import Mechanism
from quietmean.simulation import attack, runs
from quietmean.testing import example_execution
from support.dask_cluster import Cluster, cluster
from support.other_processes import computing as computing_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    target = qm.Target(parties=24, epsilon=2.0, delta=1e-6, colluding=2)
    plan = qm.IncA(rounds=6).calibrate(target, executions=2)
    (place / "plan.json").write_text(json.dumps(to_plain(plan.to_json())))
    execution = example_execution("inca", 24, rounds=5, sigma_star=1.0, sigma_delta=3.0, permanent=0.1)
    (place / "execution.json").write_text(json.dumps(to_plain(execution.to_json())))
    return place


def command(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "quietmean", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


COMMANDS = {
    "simulate": ["simulate", "plan.json", "--runs", "2500", "--json"],
    "simulate --gate": ["simulate", "plan.json", "--runs", "25", "--gate", "--json"],
    "verify receipt": ["verify", "receipt", "execution.json", "--colluding", "3", "--json"],
    "verify attack": ["verify", "attack", "execution.json", "--target", "1", "--corrupt", "3,4", "--trials", "200000", "--json"],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_to_the_bit_by_any_workers(name: str, folder: Path, running: Cluster) -> None:
    alone, _ = command(folder, *COMMANDS[name])
    for workers in ("2", "4", running.address):
        assert command(folder, *COMMANDS[name], "--workers", workers) == (alone, "")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", [qm.IncA(rounds=4), "local-dp", "packed-sharing", "cordp-dme"])
@pytest.mark.parametrize("gate", [False, True])
def test_python_says_the_same(protocol: Mechanism | str, gate: bool, monkeypatch: pytest.MonkeyPatch, running: Cluster) -> None:
    """Whatever the blocks are: results belong to them, not to who computes them."""
    plan = qm.plan(parties=8, epsilon=2.0, delta=1e-6, dropouts=0.1, protocol=protocol)
    if gate and not (plan.protocol.TRAITS.gate is not None):
        return
    monkeypatch.setattr(runs, "_RUNS", 7)
    told: list[list[int]] = []
    results = []
    for workers in (1, 2, "4", running.address):
        done: list[int] = []
        results.append(runs.simulate(plan, runs=30, seed=3, gate=gate, workers=workers, progress=done.append))
        told.append(done)
    for result in results[1:]:
        assert result.estimates.tobytes() == results[0].estimates.tobytes()
        assert result.truth.tobytes() == results[0].truth.tobytes()
        assert result.refused == results[0].refused
        assert result.first.to_json() == results[0].first.to_json()
    assert told[1:] == [told[0]] * 3
    values = np.linspace(0, 1, 8)
    assert qm.simulate(plan, values, runs=9, workers=2).mse == qm.simulate(plan, values, runs=9).mse


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["packed-sharing", "inca"])
def test_attacks_from_python_say_the_same(protocol: str) -> None:
    options: dict[str, Any] = {"packed-sharing": {}, "inca": {"rounds": 4, "sigma_star": 1.0, "sigma_delta": 2.0}}[protocol]
    if protocol == "inca":
        execution = example_execution(protocol, 8, **options)
    else:
        execution = qm.plan(parties=8, epsilon=2.0, delta=1e-6, protocol=protocol).simulate(runs=1).first
    one, two = (attack(execution, 1, Adversary.collusion({3, 4}), trials=300_000, workers=workers) for workers in (1, 2))
    assert one == two


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ("0", "Choose 1 to 512 processes"),
        ("two", "neither processes nor the address of a scheduler"),
        ("tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
@pytest.mark.sampled(3)
def test_what_cannot_be_is_one_sentence(name: str, workers: str, says: str, folder: Path) -> None:
    words = [word for word in COMMANDS[name] if word != "--json"]
    told, said = command(folder, *words, "--workers", workers, code=2)
    assert told == ""
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_children(number: signal.Signals, folder: Path) -> None:
    """Only the command itself is told, as by a service manager."""
    words = ["simulate", "plan.json", "--runs", "2000", "--gate", "--workers", "2"]
    program = subprocess.Popen([sys.executable, "-m", "quietmean", *words], cwd=folder, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 90
    while len(computing := computing_for(program.pid)) < 2:
        assert program.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(1.0)
    program.send_signal(number)
    _, said = program.communicate(timeout=60)
    assert program.returncode == 130
    assert said.strip().splitlines()[-1] == "quietmean: interrupted"
    assert "Traceback" not in said
    while any(Path(f"/proc/{child}").exists() for child in computing):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_what_deletes_leftovers_of_processes_is_silent() -> None:
    """A command that ends early leaves files registered that others delete; their end is nobody's business."""
    code = (
        "from operator import add\n"
        "from quietmean.core.workers import Workers\n"
        "assert sorted(Workers(2).each(add, 1, [1, 2])) == [(0, 2), (1, 3)]\n"
        "from joblib.externals.loky.backend.resource_tracker import register, unregister\n"
        "register('/of/nobody', 'file')\n"
        "unregister('/never/registered', 'file')\n"
        "import sys; print('heard', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=90)
    assert (done.returncode, done.stderr) == (0, "heard\n")


@pytest.mark.slow
def test_a_process_that_is_killed_is_one_sentence(folder: Path) -> None:
    words = ["simulate", "plan.json", "--runs", "2000", "--gate", "--workers", "2"]
    program = subprocess.Popen([sys.executable, "-m", "quietmean", *words], cwd=folder, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 90
    while len(computing := computing_for(program.pid)) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(2.0)
    os.kill(computing[0], signal.SIGKILL)
    _, said = program.communicate(timeout=60)
    assert program.returncode == 75
    assert "a process that computed was ended from outside" in said
    assert "Traceback" not in said
    assert not any(Path(f"/proc/{child}").exists() for child in computing)
