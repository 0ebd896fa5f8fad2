"""Documents, frames, messages and plans are what they were, to the last bit."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import msgspec
import numpy as np
import pytest

from golden.certificates import certified, execution_of
from golden.compare import differences
from golden.interfaces import Execution, Plan, canonical_json, public_noise, reframed, registry, vector_bytes
from golden.machines import EXPECTED, FOLDER, expectations, load
from golden.plans import DESIGNED, PLANS, changes, planned
from golden.rounds import release_text, state_digest, step_of

# -- Files of before are judged as before: what the command certifies of small executions of every protocol.
CASES = load("certificates")["small"]
# By case, for each party the least that any version said since charges are bounds for every coalition (22 November 2026).
CHARGES: dict[str, dict[str, list[Any]]] = json.loads((FOLDER / "charges_of_before.json").read_text())


def name(case: dict[str, Any]) -> str:
    of = ": ".join(case["machines"]) if "machines" in case else case["execution"]["protocol"]
    return " ".join([of, *case["arguments"]])


@pytest.mark.sampled(13)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_certificate_is_what_it_was(case: dict[str, Any]) -> None:
    found = certified(case)
    assert found["code"] == case["code"]
    assert differences(case["document"], found["document"]) == []


def whole_name(case: dict[str, Any]) -> str:
    execution = execution_of(case)
    of = ": ".join(case["machines"]) if "machines" in case else f"{execution['protocol']} of {execution['parties']}"
    whole = json.dumps([execution, case["arguments"]], sort_keys=True)
    return " ".join([of, *case["arguments"], hashlib.sha256(whole.encode()).hexdigest()[:8]])


def test_no_receipt_costs_more_than_it_did() -> None:
    """Golden files may be made anew after a better bound; what a ledger settles by them may then be less, never more."""
    cases = {whole_name(case): case["document"] for file in load("certificates").values() for case in file}
    assert CHARGES.keys() <= cases.keys(), "a receipt of before is judged no more"
    for case, figures in CHARGES.items():
        for figure, before in figures.items():
            for party, (then, now) in enumerate(zip(before, cases[case][figure], strict=True)):
                assert float(now) <= float(then) * (1 + 1e-6) + 1e-9, f"{case}: {figure} of party {party}"


# -- Frames by their tags and fields, as since version 5, whatever the classes behind them are called.
VECTOR = struct.pack("<3d", 1.0, -2.0, 1e-300)
STEPS = struct.pack("<3i", 2, -4, 2**31 - 1)
FRAMES: list[tuple[list[Any], bytes]] = [
    (["H", 5, 2, "ab" * 32], b""),
    (["K", b"n" * 32, b"k" * 1184], b""),
    (["E", b"n" * 32, b"c" * 1088, b"g" * 64], b""),
    (["S", b"g" * 64], b""),
    (["W", 1, 3], b""),
    (["b", 1, 3], b""),
    (["N", "study differs"], b""),
    (["t", 9, 1, 2, 0.25, 8000, b"12345678", 3, b"", 8], VECTOR),
    (["t", 9, 1, 2, 0.25, 8000, b"12345678", 3, b"known", 4], STEPS),
    (["t", 9, 0, 2, 0.0, 8000, b"12345678", 0, b"", 8], b"a content"),
    (["w", 10, 1, 2], b""),
    (["f", 11, 1, 2], b""),
    (["g", 12, 2, 1], b""),
    (["p", 12, 1, 2], b""),
    (["l", 13, b""], b"a log"),
    (["k", 14, 2], b"logs"),
    (["v", 15, b"d" * 32, True], b""),
    (["a", 13, "no", 3, 0, "why"], b""),
    (["s", 16, 2, (0, 2), b"g" * 64, b"h" * 32, ([0, b"n" * 32, 2.5, b"x" * 32],), True, b"e" * 1088], b""),
    (["i", 17, 3, msgspec.msgpack.encode(["p", 0, 1, 2])], b""),
    (["i", 18, 3, msgspec.msgpack.encode(["l", 0, b""])], b"a log"),
]


def as_sent(fields: list[Any], payload: bytes) -> bytes:
    header = msgspec.msgpack.encode(fields)
    return struct.pack(">II", len(header), len(payload)) + header + payload


@pytest.mark.parametrize(("fields", "payload"), FRAMES, ids=lambda part: part[0] if isinstance(part, list) else "")
def test_a_frame_is_read_and_sent_as_it_was(fields: list[Any], payload: bytes) -> None:
    raw = as_sent(fields, payload)
    assert reframed(raw) == (fields, payload, raw)


def test_the_bytes_of_all_frames() -> None:
    # Frame b is of version 9, and frames s and i were added to it; frames K, E and S are of version 11, of studies with hybrid
    # links. From version 11 on every study starts by frame s: there are no frames c and r. All others have their bytes of before.
    everything = b"".join(as_sent(*frame) for frame in FRAMES if frame[0][0] not in ("b", "s", "i", "K", "E", "S"))
    assert hashlib.sha256(everything).hexdigest() == "13fa388b240166d9819cc2a7570c89c4f0165c4d43f0825277a8d0ef8668085e"
    (begin,) = (as_sent(*frame) for frame in FRAMES if frame[0][0] == "b")
    assert begin.hex() == "000000050000000093a1620103"


def test_vectors() -> None:
    assert vector_bytes(np.array([1.0, -2.0, 1e-300]), 0.0) == VECTOR
    assert vector_bytes(np.array([1.0, -2.0, 0.5 * (2**31 - 1)]), 0.5) == STEPS
    # Too many steps for 32 bits: as they are.
    assert vector_bytes(np.array([2.0**31]), 0.5) == struct.pack("<d", 2.0**31)
    assert vector_bytes(np.zeros(0), 0.0) == b""


# -- What parties of today say, parties of tomorrow must say: to the last bit of every message, good and bad ones handed to
# them.
MESSAGE_CASES = [(protocol, case) for protocol, cases in load("machines").items() for case in cases]
NAMES = [f"{protocol}: {case['name']}" for protocol, case in MESSAGE_CASES]
EXACT = [case for _, case in MESSAGE_CASES if case["exact"]]
EXACT_NAMES = [name for name, (_, case) in zip(NAMES, MESSAGE_CASES, strict=True) if case["exact"]]


def test_every_protocol_has_golden_messages() -> None:
    missing = sorted(set(registry()) ^ set(load("machines")))
    assert not missing, (
        f"{missing}: run python -m golden.make NAME in tests; more cases than the usual one go into golden/cases.py"
    )


@pytest.mark.parametrize("case", [case for _, case in MESSAGE_CASES], ids=NAMES)
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


@pytest.mark.parametrize("case", [case for _, case in MESSAGE_CASES], ids=NAMES)
def test_the_batch_releases_the_same(case: dict[str, Any]) -> None:
    values = np.array(case["values"])
    execution = Execution.from_json(case["execution"])
    batch = execution.run_batch(values, public_noise(case["seed"], len(values)))
    golden = {int(party): _numbers(text) for party, text in case["releases"].items()}
    assert sorted(golden) == np.nonzero(batch.by)[0].tolist()
    for party, numbers in golden.items():
        found = [batch.weight[party], *batch.vector[party]]
        np.testing.assert_allclose(found, numbers, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [case for _, case in MESSAGE_CASES if not case["exact"]], ids=lambda case: case["name"])
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


# -- Golden plans are read and written as they are, under the same digest; and those by formula come out the same.
GOLDEN = load("plans")


def test_there_is_a_file_for_every_plan() -> None:
    assert {name: document["arguments"] for name, document in GOLDEN.items()} == {
        name: arguments.split() for name, arguments in PLANS.items()
    }


@pytest.mark.parametrize("document", GOLDEN.values(), ids=GOLDEN)
def test_a_plan_file_keeps_its_bytes_and_its_digest(document: dict[str, Any]) -> None:
    plan = Plan.from_json(document["plan"])
    assert canonical_json(plan.to_json()) == canonical_json(document["plan"])
    assert plan.digest == document["answer"]["candidates"][0]["digest"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", DESIGNED)
def test_a_plan_by_formula_is_what_it_was(name: str) -> None:
    golden = GOLDEN[name]
    assert changes(golden, planned(golden["arguments"])) == []
