"""Who computes: this process, several, or a Dask scheduler by its address; and what is said where one of them is not there."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.errors import InputError, QuietmeanError, StorageError
from quietmean.core.extensions import command_for
from quietmean.core.workers import Workers
from support.dask_cluster import Cluster, cluster
from support.other_processes import found_by_all

SOURCE = """
import os, signal, time
from pathlib import Path
from typing import Any
import numpy as np

def inverse(common, job):
    matrix = np.random.default_rng(job).normal(size=(60, 60)) + common
    return np.linalg.inv(matrix @ matrix.T)

def slowly(common, job):
    Path(common, f"{job}-{os.getpid()}").touch()
    time.sleep(0.6)
    return job

def once_killed(common, job):
    marker = Path(common, "killed")
    if job == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return job

def refused(common, job):
    from quietmean.core.errors import InputError
    raise InputError(f"{common} is refused. Take another")
"""
SCRIPT = """
import sys
from quietmean.core.workers import Workers
from functions_of_workers import slowly
if __name__ == "__main__":
    for done in Workers(sys.argv[1]).each(slowly, sys.argv[2], range(40)):
        print(done, flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with found_by_all(tmp_path_factory.mktemp("functions"), "functions_of_workers", SOURCE, SCRIPT) as place:
        yield place


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Cluster]:
    with cluster(folder) as started:
        yield started


def function(name: str) -> Any:
    return getattr(__import__("functions_of_workers"), name)


@pytest.mark.parametrize("where", ["2", "4", "scheduler"])
def test_results_are_the_same_to_the_bit_and_in_order(where: str, folder: Path, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("running").address if where == "scheduler" else where
    alone = [matrix.tobytes() for matrix in Workers().in_order(function("inverse"), 0.5, range(9))]
    assert [matrix.tobytes() for matrix in Workers(address).in_order(function("inverse"), 0.5, range(9))] == alone
    assert len(set(alone)) == 9


@pytest.mark.parametrize("where", ["1", "2", "scheduler"])
def test_errors_of_jobs_are_raised_here(where: str, folder: Path, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("running").address if where == "scheduler" else where
    with pytest.raises(InputError, match=r"water is refused\. Take another"):
        list(Workers(address).in_order(function("refused"), "water", range(3)))


def test_who_stops_early_leaves_nothing_running(folder: Path, tmp_path: Path, running: Cluster) -> None:
    first = list(islice(Workers(running.address).in_order(function("slowly"), str(tmp_path), range(30)), 2))
    assert first == [0, 1]
    time.sleep(1.5)
    begun = len(list(tmp_path.iterdir()))
    time.sleep(1.5)
    assert len(list(tmp_path.iterdir())) == begun <= 6


@pytest.mark.parametrize(
    "where", ["", "two", "1.5", "0", "-3", "513", "localhost:8786", "http://host:1", "4 processes", "--4", True, 0, -1]
)
def test_what_are_no_workers(where: str | int) -> None:
    with pytest.raises(InputError, match=r"workers .*(such as tcp://host:8786|Choose 1 to 512)"):
        Workers(where)


@pytest.mark.parametrize(("where", "extra"), [("2", "workers"), ("tcp://127.0.0.1:1", "dask")])
def test_a_missing_library_is_named_with_its_remedy(
    where: str, extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"workers": "joblib", "dask": "distributed"}[extra], None)
    with pytest.raises(InputError, match=rf"needs the extra '{extra}'.*\. Run {re.escape(command_for(extra))}\.$"):
        list(Workers(where).each(function("inverse"), 0.0, range(2)))
    assert len(list(Workers(1).each(function("inverse"), 0.0, range(2)))) == 2


def within(seconds: float, where: str, name: str, common: object, jobs: int) -> QuietmeanError:
    """The error, which comes in time."""
    begun = time.monotonic()
    with pytest.raises(QuietmeanError) as caught:
        list(Workers(where).each(function(name), common, range(jobs)))
    assert time.monotonic() - begun < seconds
    assert "\n" not in str(caught.value)
    return caught.value


def test_nobody_at_the_address(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        error = within(40, silent, "inverse", 0.0, 2)
        assert isinstance(error, InputError)
        assert "no Dask scheduler answers at" in str(error)
    assert "no Dask scheduler answers at" in str(within(30, silent, "inverse", 0.0, 2))


@pytest.mark.slow
def test_a_scheduler_without_workers(folder: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, 0) as started:
        assert "has no workers. Start some" in str(within(60, started.address, "inverse", 0.0, 2))


@pytest.mark.slow
def test_a_worker_of_a_scheduler_that_is_killed_changes_nothing(folder: Path, tmp_path: Path) -> None:
    with cluster(folder) as started:
        assert list(Workers(started.address).in_order(function("once_killed"), str(tmp_path), range(8))) == list(range(8))
        assert (tmp_path / "killed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["scheduler", "workers"])
def test_all_that_compute_are_killed(what: str, folder: Path, tmp_path: Path) -> None:
    with cluster(folder) as started:
        ended = [started.scheduler] if what == "scheduler" else started.workers
        for process in ended:
            threading.Timer(3.0, process.kill).start()
        error = within(60, started.address, "slowly", str(tmp_path), 100)
        assert isinstance(error, StorageError)
        assert started.address in str(error)


def test_a_process_here_that_is_killed_is_told_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    error = within(60, "2", "once_killed", str(tmp_path), 8)
    assert isinstance(error, StorageError)
    assert "a process that computed was ended from outside" in str(error)
    # And the next call is as if nothing had happened.
    assert list(Workers(2).in_order(function("once_killed"), str(tmp_path), range(8))) == list(range(8))


def test_ctrl_c_ends_all_children(folder: Path, tmp_path: Path) -> None:
    """Also where only the process itself is told."""
    command = [sys.executable, str(folder / "script.py"), "2", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert program.stdout is not None
    children: set[int] = set()
    while len(children) < 2:
        assert program.stdout.readline()
        children = {int(path.name.split("-")[1]) for path in tmp_path.iterdir()}
    program.send_signal(signal.SIGINT)
    assert program.wait(30) != 0
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < until
        time.sleep(0.1)
    program.stdout.close()
