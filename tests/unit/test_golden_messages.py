"""What parties of today say, parties of tomorrow must say: to the last bit of every message, good and bad ones handed to them.

See ``tests/golden/make.py`` for when the files may be made anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from golden.interfaces import Execution, canonical_json, public_noise, registry
from golden.machines import EXPECTED, expectations, load
from golden.rounds import release_text, state_digest, step_of

CASES = [(protocol, case) for protocol, cases in load("machines").items() for case in cases]
NAMES = [f"{protocol}: {case['name']}" for protocol, case in CASES]
EXACT = [case for _, case in CASES if case["exact"]]
EXACT_NAMES = [name for name, (_, case) in zip(NAMES, CASES, strict=True) if case["exact"]]


def test_every_protocol_has_golden_messages() -> None:
    assert set(load("machines")) == set(registry())


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=NAMES)
def test_execution_files_are_written_as_they_were(case: dict[str, Any]) -> None:
    execution = Execution.from_json(case["execution"])
    assert canonical_json(execution.to_json()) == canonical_json(case["execution"])


@pytest.mark.sampled(25)
@pytest.mark.parametrize("case", EXACT, ids=EXACT_NAMES)
def test_machines_say_what_they_said(case: dict[str, Any]) -> None:
    found = expectations(case)
    for name in EXPECTED:
        assert found[name] == case[name], name


@pytest.mark.sampled(45)
@pytest.mark.parametrize("case", EXACT, ids=EXACT_NAMES)
def test_a_run_of_an_execution_is_the_same(case: dict[str, Any]) -> None:
    values = np.array(case["values"])
    done = Execution.from_json(case["execution"]).run(values, public_noise(case["seed"], len(values)))
    steps = [step_of(state, done.releases.get(party)) for party, state in enumerate(done.states)]
    assert [state_digest(step) for step in steps] == case["states"]
    assert {str(party): release_text(steps[party]) for party in sorted(done.releases)} == case["releases"]


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=NAMES)
def test_the_batch_releases_the_same(case: dict[str, Any]) -> None:
    values = np.array(case["values"])
    execution = Execution.from_json(case["execution"])
    batch = execution.run_batch(values, public_noise(case["seed"], len(values)))
    golden = {int(party): _numbers(text) for party, text in case["releases"].items()}
    assert sorted(golden) == np.nonzero(batch.by)[0].tolist()
    for party, numbers in golden.items():
        found = [batch.weight[party], *batch.vector[party]]
        np.testing.assert_allclose(found, numbers, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [case for _, case in CASES if not case["exact"]], ids=lambda case: case["name"])
def test_machines_that_use_functions_of_the_platform(case: dict[str, Any]) -> None:
    """Their last bits may differ between machines."""
    found = expectations(case)
    assert found["messages"] == case["messages"]
    assert sorted(found["releases"]) == sorted(case["releases"])
    for party, numbers in case["releases"].items():
        np.testing.assert_allclose(found["releases"][party], numbers, rtol=1e-12)


def _numbers(release: str | list[float]) -> list[float]:
    """Weight and vector, from the text of an exact case or the numbers of another."""
    if isinstance(release, list):
        return release
    weight, vector = release.split(" ")
    raw = bytes.fromhex(vector.split(":")[1])
    return [float.fromhex(weight), *np.frombuffer(raw, dtype="<f8").tolist()]
