"""Settings that all tests share."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

# Derandomised: the same examples on every run and machine, so that a red run can be repeated.
settings.register_profile(
    "quietmean", derandomize=True, deadline=None, max_examples=60, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quietmean")
_HOMES = itertools.count()


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test uses this user's ledger, or what another test charged to one."""
    base = tmp_path_factory.getbasetemp() / f"home-{next(_HOMES)}"
    monkeypatch.setenv("XDG_DATA_HOME", str(base / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base / "config"))


@pytest.fixture
def free_ports() -> Iterator[Callable[[int], list[int]]]:
    """Gives so many ports of this machine on which nobody listens, and keeps them from everybody else while the test runs.

    A port that was merely closed again may be another connection's a moment later.
    """
    with contextlib.ExitStack() as stack:

        def reserve(count: int) -> list[int]:
            holders = [stack.enter_context(socket.socket()) for _ in range(count)]
            for holder in holders:
                # Bound and not listening: whoever sets this option too, as servers do, can listen; the system gives it to nobody.
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind(("127.0.0.1", 0))
            return [holder.getsockname()[1] for holder in holders]

        yield reserve
