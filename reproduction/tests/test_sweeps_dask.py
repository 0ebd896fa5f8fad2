"""Sweeps on real processes: Dask workers that die, a sweep that is interrupted, and equal tables whatever ran it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean_reproduction import registry
from quietmean_reproduction.run import reproduce
from quietmean_reproduction.sweeps import Task, Workers, run_sweep
from support.dask_cluster import cluster
from support.other_processes import found_by_all

# Starting processes takes seconds.
pytestmark = pytest.mark.slow

SOURCE = """
import os, time
from pathlib import Path
import numpy as np

def slowly(*, seed, number, log, seconds):
    # One file for each beginning: a task that was begun twice has two.
    Path(log, f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(seconds)
    matrix = np.random.default_rng(seed).normal(size=(60, 60))
    rows = [{"number": number, "value": value} for value in np.linalg.eigvalsh(matrix @ matrix.T)[:3]]
    Path(log, f"{number}-{os.getpid()}-end").touch()
    return rows
"""
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from slow_functions_of_tests import slowly
from quietmean_reproduction import registry
from quietmean_reproduction.run import reproduce
from quietmean_reproduction.sweeps import Task, Workers, run_sweep
if __name__ == "__main__":
    tasks = [Task(slowly, {"number": number, "log": sys.argv[2], "seconds": 0.3}, seed=str(number)) for number in range(12)]
    run_sweep(tasks, Path(sys.argv[3]), workers=Workers(sys.argv[4]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with found_by_all(tmp_path_factory.mktemp("functions"), "slow_functions_of_tests", SOURCE, SCRIPT) as place:
        yield place


def make_tasks(log: Path, seconds: float, count: int = 12) -> list[Task]:
    log.mkdir(exist_ok=True)
    slowly: Any = importlib.import_module("slow_functions_of_tests").slowly
    return [Task(slowly, {"number": n, "log": str(log), "seconds": seconds}, seed=str(n)) for n in range(count)]


def begun(log: Path) -> Counter[int]:
    return Counter(int(path.name.split("-")[0]) for path in log.iterdir() if not path.name.endswith("-end"))


def ended(log: Path) -> int:
    return sum(path.name.endswith("-end") for path in log.iterdir())


def test_all_workers_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "log", 0.0)
    alone = run_sweep(tasks, tmp_path / "alone", workers=Workers(1)).path.read_bytes()
    figure = registry()["cordp-dme-3"]
    reproduce([figure], tmp_path / "figure", workers=Workers(1))
    with cluster(folder) as running:
        for place, workers in enumerate((Workers(3), Workers(running.address))):
            sweep = run_sweep(tasks, tmp_path / str(place), workers=workers)
            assert sweep.computed == len(tasks)
            assert sweep.path.read_bytes() == alone
            reproduce([figure], tmp_path / f"figure {place}", workers=workers)
            for end in ("csv", "png", "json"):
                name = f"{figure.name}.{end}"
                assert (tmp_path / f"figure {place}" / name).read_bytes() == (tmp_path / "figure" / name).read_bytes()


def test_a_killed_dask_worker_loses_and_doubles_nothing(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tasks = make_tasks(log, 0.4)
    killed: list[int] = []

    def progress(done: int, total: int, before: int) -> None:
        if done == 3:
            # The latest beginner is at work for another while: end its process, without any chance to say goodbye.
            latest = max(
                (path for path in log.iterdir() if not path.name.endswith("-end")), key=lambda path: int(path.name.split("-")[2])
            )
            pid = int(latest.name.split("-")[1])
            os.kill(pid, signal.SIGKILL)
            killed.append(int(latest.name.split("-")[0]))

    with cluster(folder, 3) as running:
        sweep = run_sweep(tasks, tmp_path / "sweep", workers=Workers(running.address), progress=progress)
    assert len(killed) == 1
    # The task of the dead worker was begun again, and every task is in the table once.
    assert begun(log)[killed[0]] == 2
    assert sweep.rows["number"].to_list() == [number for number in range(12) for _ in range(3)]
    assert len(list((tmp_path / "sweep" / "tasks").iterdir())) == 12
    calm = run_sweep(tasks, tmp_path / "calm", workers=Workers(1))
    assert sweep.path.read_bytes() == calm.path.read_bytes()


@pytest.mark.parametrize("where", ["here", "scheduler"])
def test_ctrl_c_loses_only_what_is_being_computed(where: str, folder: Path, tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "sweep"
    log.mkdir()
    if where == "here":
        assert stopped_and_continued(folder, log, target, "2") == 0
    else:
        with cluster(folder) as running:
            # The scheduler's workers live on, and end what they were computing.
            assert 0 <= stopped_and_continued(folder, log, target, running.address) <= 2
    calm = run_sweep(make_tasks(log, 0.3), tmp_path / "calm", workers=Workers(1))
    assert (target / "sweep.parquet").read_bytes() == calm.path.read_bytes()


def stopped_and_continued(folder: Path, log: Path, target: Path, workers: str) -> int:
    """How many tasks were computed that were there already."""
    command = [sys.executable, str(folder / "script.py"), str(folder), str(log), str(target), workers]
    # A session of its own: the signal goes to all its processes, as from a terminal.
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    limit = time.monotonic() + 120
    while len(finished(target)) < 3:
        assert time.monotonic() < limit
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    done = finished(target)
    assert 3 <= len(done) < 12
    # Of what was computed to the end, at most one result for each of two workers was not yet written.
    before = ended(log)
    assert before <= len(done) + 2
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return ended(log) - before - (12 - len(done))


def finished(target: Path) -> list[Path]:
    folder = target / "tasks"
    return [path for path in folder.iterdir() if path.suffix == ".json" and path.name[0] != "."] if folder.exists() else []
