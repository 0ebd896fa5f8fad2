"""Tables and bars of the benchmarks, printed together after the last one: what a passing test prints is kept back by pytest.

What is measured depends on the machine and on its other work, so a bar that is not held is a line of the last table, and no
failure: a benchmark fails only where something does not run or is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from support.bars import Bar

_TABLES = pytest.StashKey[dict[str, list[str]]]()
_BARS = pytest.StashKey[list[tuple[bool, str]]]()
_SECONDS = pytest.StashKey[dict[str, float]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLES], config.stash[_BARS], config.stash[_SECONDS] = {}, [], {}


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds lines to the benchmark's table."""
    return request.config.stash[_TABLES].setdefault(request.node.nodeid, []).append


@pytest.fixture
def bar(request: pytest.FixtureRequest) -> Bar:
    """Adds a line to the table of bars."""

    def note(what: str, measured: float, most: float) -> None:
        request.config.stash[_BARS].append((measured <= most, f"{what}: {measured:.3g}, bar {most:g}"))

    return note


@pytest.fixture(autouse=True)
def seconds_of_each(request: pytest.FixtureRequest) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    file, seconds = request.node.path.name, request.config.stash[_SECONDS]
    seconds[file] = seconds.get(file, 0.0) + time.perf_counter() - begun


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stash = terminalreporter.config.stash
    tables = {name: lines for name, lines in stash[_TABLES].items() if lines}
    if tables:
        terminalreporter.section("tables")
    for name, lines in tables.items():
        terminalreporter.line(f"\n{name}", bold=True)
        for line in lines:
            terminalreporter.line(line)
    if stash[_BARS]:
        terminalreporter.section("bars")
    for held, line in stash[_BARS]:
        terminalreporter.line(f"{'held    ' if held else 'NOT HELD'}  {line}", bold=not held)
    if stash[_SECONDS]:
        terminalreporter.section("seconds that each file took")
    for file, seconds in stash[_SECONDS].items():
        terminalreporter.line(f"{seconds:7.0f}  {file}")
