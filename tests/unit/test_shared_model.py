"""A public model that parties move together: files of it, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.learning import SharedModel
from support.refusals import raised, refused, refused_rows


@dataclass
class Mean:
    round: int
    mean: Any


def model() -> dict[str, Any]:
    return {"w": np.zeros((2, 2), np.float32), "b": np.zeros(1)}


def test_a_difference_is_in_the_unit_ball_and_its_mean_moves_the_model() -> None:
    shared = SharedModel(model(), clip=2.0, momentum=0.5)
    near = shared.difference({"w": np.array([[1.0, 0], [0, 0]]), "b": np.zeros(1)})
    np.testing.assert_array_equal(near, [0.5, 0, 0, 0, 0])
    assert np.linalg.norm(shared.difference({"w": np.full((2, 2), 100.0), "b": np.zeros(1)})) == pytest.approx(1.0)
    moved = shared.move(Mean(1, near))
    assert moved["w"].dtype == np.float32
    assert moved["w"][0, 0] == 1.0
    # Momentum goes on; a difference is one from the model as it is now.
    np.testing.assert_array_equal(shared.difference(moved), np.zeros(5))
    assert shared.move(Mean(2, np.zeros(5)))["w"][0, 0] == 1.5


def test_decay_is_the_gradient_of_a_penalty() -> None:
    start = {"w": np.full((2, 2), 4.0), "b": np.ones(1)}
    shared = SharedModel(start, learning_rate=0.5, decay={"w": np.full((2, 2), 0.1), "b": np.zeros(1)})
    moved = shared.move(Mean(1, np.zeros(5)))
    np.testing.assert_allclose(moved["w"], 4.0 - 0.5 * 0.1 * 4.0)
    assert moved["b"][0] == 1.0
    assert SharedModel(start, decay=0.5).move(Mean(1, np.zeros(5)))["b"][0] == 0.5
    refused("decay has a number", SharedModel, start, decay=-0.5)
    refused("decay has no array b", SharedModel, start, decay={"w": np.zeros((2, 2))})


def test_rows_go_against_gradients_of_records() -> None:
    shared = SharedModel(model())
    rows = shared.steps({"w": np.full((3, 2, 2), 0.1), "b": np.zeros((3, 1))})
    assert rows.shape == (3, 5)
    np.testing.assert_array_equal(rows[:, :4], np.full((3, 4), -0.1))


def test_who_missed_rounds_is_told_and_goes_on_with_the_model_of_another(tmp_path: Path) -> None:
    ahead, behind = SharedModel(model(), momentum=0.5), SharedModel(model(), momentum=0.5)
    for round_ in range(1, 4):
        ahead.move(Mean(round_, np.full(5, 0.1 * round_)))
    ahead.save(tmp_path / "model.npz")
    ahead.move(Mean(4, np.full(5, 0.2)))
    refused("after round 0, and this is the mean of round 4. Load the model after round 3", behind.move, Mean(4, np.full(5, 0.2)))
    assert behind.round == 0
    behind.load(tmp_path / "model.npz")
    behind.move(Mean(4, np.full(5, 0.2)))
    assert behind.model["w"].tobytes() == ahead.model["w"].tobytes()
    refused("mean of round 4", behind.move, Mean(4, np.full(5, 0.2)))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_files_that_hold_no_model_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    refused("is not a file of a shared model", SharedModel(model()).load, path)


def test_models_of_another_size_or_with_impossible_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    SharedModel({"w": np.zeros(3)}).save(path)
    shared = SharedModel(model())
    refused("of a model of 3 numbers, this one has 5", shared.load, path)
    np.savez(path, vector=np.full(5, np.nan), velocity=np.zeros(5), clip=1.0, round=1)
    refused("numbers that no round makes", shared.load, path)
    np.savez(path, vector=np.array([{}] * 5, dtype=object), velocity=np.zeros(5), clip=1.0, round=1)
    refused("is not a file of a shared model", shared.load, path)
    refused("is not a file", shared.load, tmp_path / "nowhere.npz")
    assert shared.round == 0


@refused_rows("impossible_numbers_are_refused")
def test_impossible_numbers_are_refused(changed: dict[str, Any], sentence: str) -> None:
    raised((InputError, TypeError), sentence, SharedModel, model(), **changed)
