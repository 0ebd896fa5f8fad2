"""Receipts are documents of strangers: whatever is in one, it is certified or refused in one sentence, in little memory and time.

Each field of an execution file of each protocol is replaced by values of other types and sizes, left out, or given twice.
"""

from __future__ import annotations

import copy
import json
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, settings

from quietmean.core.codec import to_plain
from quietmean.protocols import registry
from quietmean.testing.strategies import executions
from support.effort import examples
from support.hostile_numbers import fault

WITH_EXECUTIONS = sorted(name for name, kind in registry().items() if kind.TRAITS.has_transcript)
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 10**12, 1e308, -0.5, "x", "inf", "nan", [], {}, [1, 2], [[1]], {"a": 1}, [None], ["x"], [2**70],
    [[2**70, 0]], [[-1, 0]], [[10**9, 1, 1]], 10**9, 1e50, -1e50, 1e-50, 1e-300,
)  # fmt: skip
ROOM = 2 * 2**30
SECONDS = 20.0


def document(protocol: str) -> dict[str, Any]:
    """With what a receipt says of how to certify it, and what a certificate needs."""
    quick = settings(max_examples=examples(50), phases=[Phase.generate], derandomize=True, database=None)
    raw: dict[str, Any] = to_plain(find(executions(protocol), lambda one: one.parties >= 3, settings=quick).to_json())
    stated = {"dimension": 3} if protocol.startswith("secagg") else {}
    return {**raw, **stated, "certify": {"colluding": 1, "delta": 1e-6, "epsilon": 1.0}}


def places(raw: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of every value in it; of a list only the first."""
    if path:
        yield path
    inside = raw.items() if isinstance(raw, dict) else enumerate(raw[:1]) if isinstance(raw, list) else ()
    for name, one in inside:
        yield from places(one, (*path, name))


def numbers(raw: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """The places of all numbers, and what is there."""
    for path in places(raw):
        inner: Any = raw
        for name in path:
            inner = inner[name]
        if isinstance(inner, int | float) and not isinstance(inner, bool):
            yield path, inner


def changed(raw: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(raw)
    inner: Any = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return made


@contextmanager
def little_memory() -> Iterator[None]:
    """No more than ROOM bytes beyond what this process has."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def texts(raw: dict[str, Any], every: int) -> Iterator[str]:
    number = 0
    for path in places(raw):
        for value in WRONG:
            number += 1
            if number % every == 0:
                yield json.dumps(changed(raw, path, value))
    whole = json.dumps(raw)
    yield whole[: len(whole) // 2]
    yield whole.replace('{"protocol"', '{"protocol": "gopa", "protocol"', 1)
    yield "[" * 200_000
    yield '{"certify": ' + "[" * 5000 + "]" * 5000 + "}"
    for name in raw:
        yield json.dumps({key: value for key, value in raw.items() if key != name})


def faults(lines: list[list[str]], documents: Iterable[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    found = []
    for text in documents:
        Path("strange.json").write_text(text)
        for line in lines:
            with little_memory():
                wrong = fault(line, "", capsys, SECONDS)
            if wrong or "more memory" in wrong:
                found.append(f"{wrong[:500]} for {text[:300]}")
    return found


CERTIFY = [["verify", "receipt", "strange.json"]]
ALL = [
    *CERTIFY,
    ["verify", "receipt", "strange.json", "--corrupt", "0"],
    ["verify", "attack", "strange.json", "--target", "1", "--trials", "100"],
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("lines", "every"), [pytest.param(CERTIFY, 151, id="some"), pytest.param(ALL, 1, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("protocol", WITH_EXECUTIONS)
def test_receipts_of_strangers(
    protocol: str,
    lines: list[list[str]],
    every: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert faults(lines, texts(document(protocol), every), capsys) == []


@pytest.mark.parametrize("protocol", WITH_EXECUTIONS)
def test_a_number_that_no_study_has(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A few of the above, of every protocol in every run: each number is once too large."""
    raw = document(protocol)
    too_large = [changed(raw, path, 1e308 if isinstance(number, float) else 2**70) for path, number in numbers(raw)]
    assert faults(CERTIFY, map(json.dumps, too_large), capsys) == []


EXTREMES = [(1e50, 1e-50), (1e-50, 1e50), (1e50, 1e50), (1e-50, 1e-50), (0.0, 1e50), (1e-50, 0.0)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", WITH_EXECUTIONS)
def test_two_numbers_at_the_ends_of_what_studies_have(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What follows from both neither overflows nor divides by 0."""
    raw = document(protocol)
    scales = [name for name, value in raw.items() if isinstance(value, float)]
    both = [raw | dict(zip(pair, values, strict=True)) for pair in combinations(scales, 2) for values in EXTREMES]
    assert faults(ALL, map(json.dumps, both), capsys) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", WITH_EXECUTIONS)
def test_messages_of_another_protocol(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    raw = document(protocol)
    parties = range(raw["parties"])
    rounds: list[list[list[int]]] = [
        [[other for other in parties if other != own] for own in parties],
        [[(own + 1) % len(parties)] for own in parties],
        [[] for _ in parties],
    ]
    usual = {name: value for name, value in raw.items() if name not in ("lost", "seen", "settled")}
    others = [usual | {"neighbours": [round_] * raw["rounds"]} for round_ in rounds]
    assert faults(CERTIFY, map(json.dumps, others), capsys) == []
