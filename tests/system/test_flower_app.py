"""The Flower app of the examples, really run: what it releases, and what the SuperLink got to see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.flower import FlowerAgreement
from support.flower_runs import MISSING, FlowerRun, flower_python
from support.flower_star import in_one_process, make_homes

PARTIES, ROUNDS, DIMENSION = 10, 3, 200
AWAY = {1: 4, 2: 0, 3: 7}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(flower_python() is None, reason=MISSING)]


@pytest.fixture
def data() -> Vector:
    found = np.random.default_rng(11).normal(size=(PARTIES, DIMENSION))
    return np.asarray(found / np.linalg.norm(found, axis=1)[:, None], dtype=np.float64)


def run(tmp_path: Path, data: Vector, *, simulated: bool) -> tuple[FlowerRun, FlowerAgreement, list[dict[str, Any]]]:
    homes = tmp_path / "homes"
    homes.mkdir()
    agreement = make_homes(homes, PARTIES, ROUNDS, DIMENSION)
    agreement.save(tmp_path / "agreement.json")
    for party in range(PARTIES):
        np.save(homes / str(party) / "data.npy", data[party])
    python = flower_python()
    assert python is not None
    flower = FlowerRun(tmp_path, python, AWAY)
    settings = f"agreement='{tmp_path}/agreement.json' out='{tmp_path}/means.json' quietmean-homes='{homes}'"
    if simulated:
        flower.simulate(400, settings)
    else:
        flower.deploy([homes / str(party) for party in range(PARTIES)], 900, settings)
    return flower, agreement, json.loads((tmp_path / "means.json").read_bytes())


@pytest.mark.parametrize("simulated", [True, False], ids=["simulation", "deployment"])
def test_an_app_releases_what_one_process_does_and_shows_nothing_else(tmp_path: Path, data: Vector, simulated: bool) -> None:
    flower, agreement, rounds = run(tmp_path, data, simulated=simulated)
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


def spellings(data: Vector, updates: list[Vector]) -> Iterator[bytes]:
    """A few coordinates of every party's data and updates as they could be written."""
    for rows in (data, *updates):
        for one in rows[:, [0, DIMENSION // 2, DIMENSION - 1]].reshape(-1):
            yield from (np.float64(one).tobytes(), np.float64(one).tobytes()[::-1], np.float32(one).tobytes())
            yield f"{one:.8f}".encode()
