"""Tables of the benchmarks, printed together after the last one: what a passing test prints is kept back by pytest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_TABLES = pytest.StashKey[dict[str, list[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLES] = {}


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds lines to the benchmark's table."""
    return request.config.stash[_TABLES].setdefault(request.node.nodeid, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tables = {name: lines for name, lines in terminalreporter.config.stash[_TABLES].items() if lines}
    if tables:
        terminalreporter.section("tables")
    for name, lines in tables.items():
        terminalreporter.line(f"\n{name}", bold=True)
        for line in lines:
            terminalreporter.line(line)
