"""A mapping that grows is a value: whatever is made of it, and in whichever order, each one keeps what it had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.growing import GrowingMap

# Which of those made so far grows, and by which keys.
Steps = st.lists(st.tuples(st.integers(0, 10), st.sets(st.integers(0, 8), max_size=3), st.booleans()), max_size=12)


@given(Steps)
def test_each_is_as_a_copy_would_be(steps: list[tuple[int, set[int], bool]]) -> None:
    made: list[tuple[GrowingMap[int, int], dict[int, int]]] = [(GrowingMap({3: 1}), {3: 1})]
    for number, (chosen, keys, looks) in enumerate(steps):
        ours, copied = made[chosen % len(made)]
        new = dict.fromkeys(sorted(keys - copied.keys()), number)
        made.append((ours.with_entries(new), {**copied, **new}))
        if looks:
            assert ours == copied
    for ours, copied in made:
        assert len(ours) == len(copied)
        for other, other_copied in made:
            assert (ours == other) == (copied == other_copied)
        assert list(ours.items()) == list(copied.items())
        assert all(key in ours and ours[key] == copied[key] for key in copied)
        assert not any(key in ours for key in range(9) if key not in copied)


def test_a_key_is_never_given_another_value() -> None:
    with pytest.raises(ValueError, match="both"):
        GrowingMap({1: 1}).with_entries({1: 2})


def test_what_grows_does_not_copy_what_it_had() -> None:
    """Work, not time: entries that are hashed again."""
    hashed = 0

    class Counted(int):
        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return int(self)

    growing: GrowingMap[Counted, int] = GrowingMap({Counted(key): key for key in range(1000)})
    hashed = 0
    for key in range(1000, 1100):
        growing = growing.with_entries({Counted(key): key})
    assert hashed < 1000
    assert len(growing) == 1100
