"""What strangers do for months leaves few lines in logs, and no place in the code keeps others from being heard."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.logs import FewLines, keep_logs_short


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def record(place: int, text: str) -> logging.LogRecord:
    return logging.LogRecord("asyncio", logging.ERROR, "file.py", place, "%s", (text,), None)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 30.0)), max_size=300))
def test_of_any_lines_few_of_each_kind_pass_and_all_are_counted(events: list[tuple[int, float]]) -> None:
    now = 0.0
    filtered = FewLines(4, 60.0, lambda: now)
    passed: dict[int, list[tuple[float, str]]] = {0: [], 1: [], 2: []}
    for place, pause in events:
        now += pause
        one = record(place, f"from 192.0.2.1 at {now}")
        if filtered.filter(one):
            passed[place].append((now, one.getMessage()))
    for place, lines in passed.items():
        happened = sum(one == place for one, _ in events)
        assert len(lines) <= 4 * (1 + now / 60.0)
        assert len(lines) >= min(happened, 4)
        # Of any time of that length there are at most as many as two such times may have.
        assert all(sum(begin <= time < begin + 60.0 for time, _ in lines) <= 8 for begin, _ in lines)
        told = sum(int(text.split("(")[1].split()[0]) for _, text in lines if "(" in text)
        assert len(lines) + told <= happened


def test_who_is_asked_twice_filters_once() -> None:
    logger, kept = logging.getLogger("quietmean.test-few-lines"), Kept()
    logger.addHandler(kept)
    try:
        for _ in range(2):
            keep_logs_short(logger.name)
        assert len(logger.filters) == 1
        for number in range(1000):
            logger.warning("socket.send() raised exception %d", number)
        assert len(kept.lines) == 10
        logger.warning("something else")
        assert kept.lines[-1] == "something else"
    finally:
        logger.removeHandler(kept)
        logger.filters.clear()


@pytest.mark.parametrize("most", [1, 3])
def test_the_next_line_says_how_many_were_left_out(most: int) -> None:
    now = 0.0
    filtered = FewLines(most, 10.0, lambda: now)
    assert [filtered.filter(record(1, "x")) for _ in range(20)] == [True] * most + [False] * (20 - most)
    now = 10.0
    one = record(1, "x")
    assert filtered.filter(one)
    assert one.getMessage() == f"x ({20 - most} lines of this kind were left out before)"
