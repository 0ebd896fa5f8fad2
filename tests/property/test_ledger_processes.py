"""Many processes on one ledger, killed at random: nothing that was answered is lost, and together they never overspend."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quietmean.ledger import Ledger
from quietmean.privacy import Charge, mu_of_budget
from quietmean.privacy.composition import fits

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)

# Workers are forked from one process, as a start of Python takes longer than all they do. Each writes a study's name once the
# ledger has answered; the pipe outlives it. The first argument is the ledger, then rounds, workers, mu of a study and whether the
# workers of a round reserve the same studies.
NURSERY = """
import os, random, signal, sys, time
from datetime import UTC, datetime
from pathlib import Path
from quietmean.core.errors import InputError
from quietmean.ledger import Ledger
from quietmean.privacy import Charge, mu_of_budget

# What is imported at the first charge is imported once, before the forks.
mu_of_budget(1.0, 1e-6)
path, rounds, workers, mu, shared = Path(sys.argv[1]), *map(int, sys.argv[2:4]), float(sys.argv[4]), sys.argv[5] == "shared"
when = datetime(2030, 1, 2, 12, tzinfo=UTC)
random.seed(rounds)

def work(name):
    with Ledger.open(path, create=True) as ledger:
        for number in range(10**6):
            study = f"{name}.{number}"
            try:
                ledger.reserve("wards", study, Charge(mu), name=study, when=when)
            except InputError as error:
                os.write(1, f"refused {error}\\n".encode())
                return
            os.write(1, f"reserved {study}\\n".encode())
            if number % 3 == 0:
                ledger.settle(study, Charge(mu / 2), when=when)
                os.write(1, f"settled {study}\\n".encode())

for round_ in range(rounds):
    children = []
    for worker in range(workers):
        child = os.fork()
        if not child:
            work(f"r{round_}" if shared else f"r{round_}w{worker}")
            os._exit(0)
        children.append(child)
    time.sleep(random.uniform(0.0, 0.08))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


def nursery(path: Path, rounds: int, workers: int, mu: float, shared: bool = False) -> Iterator[tuple[str, str]]:
    """(what, which) for each answer that a worker got."""
    arguments = [str(path), str(rounds), str(workers), str(mu), "shared" if shared else "apart"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", NURSERY, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Error" not in run.stderr, run.stderr
    for line in run.stdout.splitlines():
        what, which = line.split(" ", 1)
        yield what, which


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shared", [False, True])
def test_killed_while_reserving(tmp_path: Path, shared: bool) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path, create=True) as ledger:
        ledger.set_budget("wards", 20.0, 1e-6, when=NOON)
    answers = list(nursery(path, rounds=40, workers=3, mu=1e-4, shared=shared))
    reserved = {which for what, which in answers if what == "reserved"}
    settled = {which for what, which in answers if what == "settled"}
    assert len(reserved) > 20
    assert not [which for what, which in answers if what == "refused"]
    with Ledger.open(path) as ledger:
        entries = {entry.study: entry for entry in ledger.trace("wards")}
        assert reserved <= set(entries)
        assert all(entries[study].mu == 5e-5 for study in settled)
        # At most one study a worker was charged whose answer did not get out, whichever way it was killed.
        assert len(set(entries) - reserved) <= 40 * 3
        for study in reserved:
            ledger.reserve("wards", study, Charge(1e-4), name="again", when=NOON)
        assert {entry.study: entry for entry in ledger.trace("wards")} == entries


def test_racing_for_the_last_of_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    budget = mu_of_budget(1.0, 0.99e-6)
    mu = budget / 5.5
    with Ledger.open(path, create=True) as ledger:
        ledger.set_budget("wards", 1.0, 1e-6, when=NOON)
    answers = list(nursery(path, rounds=12, workers=6, mu=mu))
    assert any(what == "refused" and "left of 1" in which for what, which in answers)
    with Ledger.open(path) as ledger:
        account = ledger.account("wards")
    assert not account.overspent
    assert not fits(budget, [*account.mus, mu])


def test_made_by_many_at_once(tmp_path: Path) -> None:
    """Nobody has made the file: all try, each is told that the account is missing, none breaks it."""
    path = tmp_path / "ledger"
    refusals = [which for what, which in nursery(path, rounds=15, workers=6, mu=0.1) if what == "refused"]
    assert refusals
    assert all("'wards' is not in ledger" in refusal for refusal in refusals), set(refusals)
    with Ledger.open(path) as ledger:
        assert ledger.accounts() == ()
