"""The Flower app of the examples, really run: what it releases, and what the SuperLink got to see."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.flower import FlowerAgreement, Home
from quietmean.flower.site import SITE
from quietmean.ledger import Ledger
from quietmean.sessions.receipt import certified
from quietmean.studies.party.audit import AuditLog, Event, verify
from support.flower_runs import MISSING, FlowerRun, flower_python
from support.flower_star import in_one_process, make_homes
from support.site_policy import write_policy

PARTIES, ROUNDS, DIMENSION = 10, 3, 200
AWAY = {1: 4, 2: 0, 3: 7}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(flower_python() is None, reason=MISSING)]


@pytest.fixture
def data() -> Vector:
    found = np.random.default_rng(11).normal(size=(PARTIES, DIMENSION))
    return np.asarray(found / np.linalg.norm(found, axis=1)[:, None], dtype=np.float64)


def made(tmp_path: Path, data: Vector) -> tuple[FlowerRun, FlowerAgreement, list[Path], str]:
    """An app with the folders of its clients, of which all are charged, and the settings of a run."""
    homes = tmp_path / "homes"
    homes.mkdir()
    agreement = make_homes(homes, PARTIES, ROUNDS, DIMENSION)
    agreement.save(tmp_path / "agreement.json")
    for party in range(PARTIES):
        home = homes / str(party)
        np.save(home / "data.npy", data[party])
        budget = {"epsilon": 10.0, "delta": 1e-4, "ledger": f"{home}/ledger"}
        write_policy(home / "policy.toml", budget=budget, audit={"log": f"{home}/audit.jsonl"}, largest_epsilon=5.0)
        accept = Home(home).contract.accept_digest
        (home / SITE).write_text(f'account = "own"\npolicy = "policy.toml"\naccept = "{accept}"\n')
    python = flower_python()
    assert python is not None
    settings = f"agreement='{tmp_path}/agreement.json' out='{tmp_path}/means.json' quietmean-homes='{homes}'"
    return FlowerRun(tmp_path, python, AWAY), agreement, [homes / str(party) for party in range(PARTIES)], settings


@pytest.mark.parametrize("simulated", [True, False], ids=["simulation", "deployment"])
def test_an_app_releases_what_one_process_does_and_shows_nothing_else(tmp_path: Path, data: Vector, simulated: bool) -> None:
    flower, agreement, homes, settings = made(tmp_path, data)
    if simulated:
        flower.simulate(400, settings)
    else:
        flower.deploy(homes, 900, settings)
    rounds = json.loads((tmp_path / "means.json").read_bytes())
    model, updates = np.zeros(DIMENSION), []
    for number, found in enumerate(rounds, 1):
        updates.append((model - 0.5 * (model - data)) - model)
        expected = in_one_process(tmp_path / "homes", agreement, updates[-1], number, {AWAY[number]})
        assert found["missing"] == [AWAY[number]]
        assert np.array_equal(found["mean"], expected)
        model = model + expected
    assert len(rounds) == ROUNDS
    seen = b"\0".join(flower.seen)
    # The search can find: the last mean, which clients tell the server in clear, is in the SuperLink's files.
    if not simulated:
        assert any(np.float64(one).tobytes() in seen for one in rounds[-1]["mean"])
    for private in spellings(data, updates):
        assert private not in seen
    for party, home in enumerate(homes):
        begun = [number for number, away in AWAY.items() if away != party]
        charged = agreement.terms.charge(len(begun) if begun[-1] == ROUNDS else ROUNDS)
        with Ledger.open(home / "ledger") as book:
            assert [entry.charged for entry in book.account("own").entries] == [charged]
        if begun[-1] == ROUNDS:
            assert certified(json.loads((home / "receipt.json").read_bytes()))["rounds"]["begun"] == len(begun)
        log = verify(AuditLog(home / "audit.jsonl"), {})
        assert not log.faults
        assert [entry.event for entry in log.entries].count(Event.STARTED) == len(begun)


def test_an_app_whose_clients_do_not_come_or_may_not_says_so(tmp_path: Path, data: Vector) -> None:
    flower, _, homes, settings = made(tmp_path, data)
    write_policy(homes[0] / "policy.toml", audit={"log": f"{tmp_path}/audit.jsonl"}, largest_epsilon=1.0)
    begun = time.monotonic()
    # One of four may not, and one does not answer: it keeps nobody waiting for the minutes that it has for a step.
    flower.deploy(homes[:4], 300, f"{settings} wait=60.0 timeout=300.0", frozen=1)
    assert time.monotonic() - begun < 250
    assert "2 of 10 clients are there after 60 s, and the agreement plans for 9 or more" in flower.said
    assert "the site of this client does not take part" in flower.said
    assert not (tmp_path / "means.json").exists()


def test_a_link_that_ends_at_its_start_is_noticed_at_once(tmp_path: Path, data: Vector) -> None:
    flower, _, homes, settings = made(tmp_path, data)
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in flower.programs.iterdir():
        if program.name != "flower-supernode":
            (programs / program.name).symlink_to(program)
    (programs / "flower-supernode").write_text("#!/bin/sh\necho no such key\nexit 3\n")
    (programs / "flower-supernode").chmod(0o700)
    flower.programs = programs
    begun = time.monotonic()
    with pytest.raises(AssertionError, match="node-0 ended with 3: no such key"):
        flower.deploy(homes[:1], 900, settings)
    assert time.monotonic() - begun < 120


def spellings(data: Vector, updates: list[Vector]) -> Iterator[bytes]:
    """A few coordinates of every party's data and updates as they could be written."""
    for rows in (data, *updates):
        for one in rows[:, [0, DIMENSION // 2, DIMENSION - 1]].reshape(-1):
            yield from (np.float64(one).tobytes(), np.float64(one).tobytes()[::-1], np.float32(one).tobytes())
            yield f"{one:.8f}".encode()
