"""Settings that all tests share."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.effort import THOROUGH, covering, spread
from support.forked import Forked
from support.kinds import KINDS, Kind
from support.ports import reserved

# Derandomised: the same examples on every run and machine, so that a red run can be repeated.
settings.register_profile(
    THOROUGH, derandomize=True, deadline=None, max_examples=60, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quietmean", settings.get_profile(THOROUGH), max_examples=25)
settings.load_profile("quietmean")


def pytest_collection() -> None:
    """What is made for all tests stays until the end: nobody looks for waste among it, which took a tenth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is marked ``sampled``, some of its cases run everywhere; the others are slow."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and isinstance(item, pytest.Function):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for every in cases.values():
        marker = every[0].get_closest_marker("sampled")
        assert marker is not None
        kept = spread(len(every), *marker.args) if marker.args else covering([item.callspec.params for item in every])
        for index, item in enumerate(every):
            if index not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own, for a minute at most."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def run() -> None:
        async with asyncio.timeout(60.0):
            await pyfuncitem.obj(**given)

    asyncio.run(run())
    return True


@pytest.fixture(autouse=True)
def own_users(own_folders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties that are processes of one machine are users of their own."""
    monkeypatch.setattr(subprocess, "Popen", OwnUser)


class OwnUser(Forked):
    """Who has a key of another name is another user, with a ledger of its own: as parties on machines of their own have."""

    def __init__(self, args: Any, *more: Any, **given: Any) -> None:
        words = list(args) if isinstance(args, list | tuple) else []
        environment = dict(given.get("env") or os.environ)
        if "--key" in words[:-1] and environment.get("XDG_DATA_HOME"):
            user = Path(str(words[words.index("--key") + 1])).stem
            given["env"] = environment | {"XDG_DATA_HOME": str(Path(environment["XDG_DATA_HOME"]) / user)}
        super().__init__(args, *more, **given)


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are executed, and no copies of a process that has imported what they import."""
    monkeypatch.setattr(Forked, "copies", False)


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """A study, then a session."""
    found: Kind = request.param
    return found


@pytest.fixture
def free_ports() -> Iterator[Callable[[int], list[int]]]:
    """Gives so many ports of this machine on which nobody listens, and keeps them from everybody else while the test runs."""
    with contextlib.ExitStack() as stack:
        yield lambda count: stack.enter_context(reserved(count))
