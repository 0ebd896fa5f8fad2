"""The vocabulary: canonical bytes, domains, bounds, errors."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.bounds import Bound
from quietmean.core.codec import canonical_json, decode_json, digest, dump_state, load_state, to_plain
from quietmean.core.errors import InputError, NumericalError, PeerError, ProtocolFailure, QuietmeanError
from support.refusals import raised


@dataclass(frozen=True)
class Remembered:
    round: int
    held: NDArray[np.float64]
    heard: tuple[int, ...]


@dataclass(frozen=True)
class Nothing:
    round: int


def test_canonical_json_is_pinned() -> None:
    value = {"b": np.array([1.0, 0.1, math.inf]), "a": (np.int64(3), None, True, "é"), "c": frozenset({3, 1, 2}), 7: -math.inf}
    expected = b'{"7":"-inf","a":[3,null,true,"\\u00e9"],"b":[1.0,0.1,"inf"],"c":[1,2,3]}'
    assert canonical_json(value) == expected
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_canonical_json_does_not_depend_on_order() -> None:
    assert canonical_json({"a": 1, "b": {"d": 1, "c": 2}}) == canonical_json({"b": {"c": 2, "d": 1}, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_not_a_number_is_refused() -> None:
    raised(ValueError, "Out of range float", canonical_json, {"a": math.nan})


def test_plain_copies_nested_arrays() -> None:
    assert to_plain([np.eye(2), {"x": np.float64(1.5)}]) == [[[1.0, 0.0], [0.0, 1.0]], {"x": 1.5}]
    assert to_plain(b"raw") == b"raw"


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3)])
def test_state_survives_storage_to_the_last_bit(shape: tuple[int, ...]) -> None:
    held = np.random.default_rng(1).normal(size=shape)
    again = load_state(Remembered, dump_state(Remembered(3, held, (1, 5))))
    assert again.held.shape == shape
    assert again.held.tobytes() == held.tobytes()
    assert (again.round, again.heard) == (3, (1, 5))
    again.held[...] = 0.0  # a loaded array is a copy that may be written to


def test_special_numbers_survive_storage() -> None:
    held = np.array([math.inf, -0.0, 5e-324, math.nan])
    assert load_state(Remembered, dump_state(Remembered(0, held, ()))).held.tobytes() == held.tobytes()


def test_storage_of_other_things_is_refused() -> None:
    raised(msgspec.ValidationError, "", load_state, Remembered, dump_state(Nothing(1)))
    raised(TypeError, "cannot serialise object", dump_state, object())
    raised(msgspec.ValidationError, "", load_state, Remembered, dump_state({"round": "x", "held": np.zeros(1), "heard": ()}))


@pytest.mark.parametrize("text", ["a" * 1_000_000, '"[' * 500_000, "\\" * 1_000_000], ids=["plain", "quotes", "backslashes"])
def test_json_with_a_long_text_is_read_in_a_few_times_its_size(text: str) -> None:
    raw = msgspec.json.encode([text, [text]])
    tracemalloc.start()
    try:
        assert decode_json(raw, list, InputError) == [text, [text]]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6 * len(raw)


def test_bound() -> None:
    assert Bound(1.0, 2.0, 3.0).relative_width == 1.0
    assert Bound.exact(math.inf).relative_width == 0.0
    assert Bound.exact(2.0) == Bound(2.0, 2.0, 2.0)
    for numbers in ((2.0, 1.0, 3.0), (1.0, 4.0, 3.0), (1.0, math.nan, 3.0)):
        raised(ValueError, "not ordered", Bound, *numbers)


def test_exit_codes() -> None:
    assert QuietmeanError.exit_code == 3
    assert InputError.exit_code == 2
    assert {error.exit_code for error in (ProtocolFailure, PeerError, NumericalError)} == {3}
    assert all(issubclass(error, QuietmeanError) for error in (InputError, ProtocolFailure, PeerError, NumericalError))
