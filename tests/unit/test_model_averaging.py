"""Averages of models: structures kept, differences clipped, what the adaptive bound follows."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.learning import ModelAveraging, Tree
from quietmean.learning.sites import InOneProcess
from quietmean.randomness.insecure import InsecureSilentPopulation
from quietmean.sessions import MemoryEngine
from support.refusals import refused

Layer = namedtuple("Layer", "weight bias")
SILENT = InOneProcess(MemoryEngine(lambda round_, parties: InsecureSilentPopulation(parties)))


class Tensor:
    """As much of a tensor of PyTorch as is used."""

    def __init__(self, array: Any, dtype: str = "float32") -> None:
        self.array = np.asarray(array, dtype=dtype)

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def double(self) -> Tensor:
        return Tensor(self.array, "float64")

    def numpy(self) -> Any:
        return self.array

    def is_floating_point(self) -> bool:
        return self.array.dtype.kind == "f"

    def new_tensor(self, array: Any) -> Tensor:
        return Tensor(array, str(self.array.dtype))


def nested() -> dict[str, Any]:
    return {
        "layers": [Layer(np.ones((2, 3), np.float32), np.zeros(3)), (np.float64(2.0), 3.5)],
        "steps": np.int64(7),
        "name": "net",
        "nothing": None,
    }


def averaging(model: Any, **changed: Any) -> ModelAveraging:
    asked: dict[str, Any] = {"parties": 4, "rounds": 10, "epsilon": 8.0, "delta": 1e-5}
    return ModelAveraging(model, **(asked | changed))


def test_a_model_goes_to_a_vector_and_back() -> None:
    tree = Tree(nested())
    vector = tree.flat(nested())
    assert vector.size == tree.size == 11
    again = tree.filled(vector * 2)
    assert isinstance(again["layers"][0], Layer)
    assert again["layers"][0].weight.dtype == np.float32
    assert np.array_equal(again["layers"][0].weight, 2 * np.ones((2, 3)))
    assert again["layers"][1] == (4.0, 7.0)
    assert (again["steps"], again["name"], again["nothing"]) == (7, "net", None)


def test_tensors_come_back_as_tensors_of_their_type_and_torch_is_not_imported() -> None:
    state = OrderedDict({"fc.weight": Tensor(np.ones((2, 2))), "count": Tensor([3], "int64")})
    tree = Tree(state)
    again = tree.filled(tree.flat(state) + 1)
    assert isinstance(again, OrderedDict)
    assert again["fc.weight"].array.dtype == np.float32
    assert np.array_equal(again["fc.weight"].array, np.full((2, 2), 2.0))
    assert again["count"] is state["count"]
    assert np.array_equal(state["fc.weight"].array, np.ones((2, 2)))


@pytest.mark.slow
def test_learning_imports_neither_torch_nor_sklearn() -> None:
    program = "import sys, quietmean as qm; qm.learning.ModelAveraging; print('torch' in sys.modules, 'sklearn' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"bn.running_mean": np.zeros(3), "w": np.zeros(2)}, "statistic of BatchNorm"),
        ({"count": np.arange(3)}, "no array of floating-point numbers"),
        ({"w": np.zeros(2, complex)}, "complex128 cannot be averaged"),
        ({"w": {1, 2}}, "w is a set"),
    ],
)
def test_models_that_cannot_be_averaged_are_refused(model: Any, sentence: str) -> None:
    refused(sentence, Tree, model)


def test_another_structure_is_refused_by_name_and_costs_nothing() -> None:
    made = averaging({"w": np.zeros(3)})
    for wrong, sentence in [
        ({"w": np.zeros(4)}, r"w of the model of party 0 has shape \(4,\)"),
        ({"v": np.zeros(3)}, "party 0 has no array w"),
        ({"w": np.zeros(3), "v": np.zeros(1)}, "party 0 has an array more, v"),
    ]:
        refused(sentence, made.average, [wrong] * 4)
    assert made.session.begun == 0


def test_differences_are_clipped_to_the_bound() -> None:
    made = averaging({"w": np.zeros(4)}, clip=2.0, site=SILENT)
    far = {"w": np.array([300.0, 0, 0, 0])}
    near = {"w": np.array([0.0, 1.0, 0, 0])}
    found = made.average([far, near, near, near])
    assert np.allclose(found["w"], [0.5, 0.75, 0, 0], atol=0.05)


def test_ten_rounds_take_eight_lines() -> None:
    def train(model: Any, part: Any) -> Any:
        return {"w": model["w"] + 0.5 * (part - model["w"])}

    script = """
import numpy as np
import quietmean as qm
parts = [np.full(3, 0.1 * party) for party in range(20)]
averaging = qm.learning.ModelAveraging({"w": np.zeros(3)}, parties=20, rounds=10, epsilon=20, delta=1e-3)
for _ in range(10):
    averaging.average([train(averaging.model, part) for part in parts])
model, epsilon = averaging.model, averaging.epsilon
"""
    names: dict[str, Any] = {"train": train}
    exec(script, names)  # noqa: S102
    assert len(script.strip().splitlines()) <= 8
    assert names["epsilon"] <= 20
    assert np.allclose(names["model"]["w"], 0.95, atol=0.6)


def test_momentum_is_applied_to_what_was_released() -> None:
    made = averaging({"w": np.zeros(2)}, clip=1.0, momentum=0.5, learning_rate=0.1, site=SILENT)
    for expected in (0.05, 0.05 + 0.075):
        step = {"w": made.model["w"] + np.array([0.5, 0.0])}
        assert made.average([step] * 4)["w"][0] == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
def test_the_adaptive_bound_finds_the_quantile_of_the_norms() -> None:
    lengths = np.linspace(0.1, 8.0, 150)
    made = ModelAveraging(
        {"w": np.zeros(2)}, parties=150, rounds=20, epsilon=10, delta=1e-5, adaptive=True, clip=2.0, quantile=0.5
    )
    for _ in range(20):
        made.average([{"w": made.model["w"] + np.array([length, 0.0])} for length in lengths])
    assert made.clip == pytest.approx(np.median(lengths), rel=0.25)


def test_adaptive_clipping_of_few_parties_is_refused_with_its_deviation() -> None:
    with pytest.raises(InputError, match=r"a fraction with a standard deviation of 0\.\d+, above 0\.1"):
        averaging({"w": np.zeros(2)}, parties=20, adaptive=True)
    refused("Give records", averaging, {"w": np.zeros(2)}, unit="record", adaptive=True)


def test_gradients_of_records_descend() -> None:
    made = averaging({"w": np.zeros(3), "b": 0.0}, unit="record", records=400, adaptive=True, clip=4.0, site=SILENT)
    gradients = {"w": np.tile([2.0, 0, 0], (100, 1)), "b": np.zeros(100)}
    found = made.descend([gradients] * 4)
    assert np.allclose(found["w"], [-2.0, 0, 0], atol=0.05)
    assert made.within == pytest.approx(1.0, abs=0.02)
    refused("Hand gradients of records to descend", made.average, [{"w": np.zeros(3), "b": 0.0}] * 4)


def test_a_keyword_with_a_typo_is_refused() -> None:
    refused("did you mean 'momentum'", averaging, {"w": np.zeros(2)}, momentun=0.5)
    assert qm.learning.ModelAveraging is ModelAveraging
