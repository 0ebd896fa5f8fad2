"""Errors of studies between processes of ``quietmean join``, some killed and started again, are as large as they state.

Studies and measure are those of tools/joined_errors.py, which runs 60 of each protocol for measurements/joined-errors.md.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quietmean.protocols import registry
from support.programs import module_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tool forks its parties, on Linux only")
STUDIES = 8
tool = module_of("tools", "joined_errors")


def told(tool: ModuleType, folder: Path, names: list[str], studies: range) -> list[Any]:
    path = folder / "studies.jsonl"
    asyncio.run(tool.run(path, names, studies, 3))
    return list(tool.stories(path))


@pytest.mark.slow
def test_a_party_that_is_killed_and_comes_back_is_counted_once(tool: ModuleType, tmp_path: Path) -> None:
    (story,) = told(tool, tmp_path, ["packed-sharing"], range(1, 2))
    assert story.failed == ()
    assert (story.trouble, story.counted) == (tool.RESTARTED, (0, 1, 2, 3))
    # Of a Gaussian, one in 1.7 million is so far off.
    assert max(abs(value.z) for value in story.values) < 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registry()))
def test_errors_are_as_stated(tool: ModuleType, tmp_path: Path, name: str) -> None:
    """The interval (99.9 %) is wide for eight studies: what it excludes is a fault of tens of percent."""
    if not tool.joinable(name):
        return
    stories = told(tool, tmp_path, [name], range(STUDIES))
    assert len(stories) == STUDIES
    assert [said for story in stories for said in story.failed] == []
    whole = [story for story in stories if not tool.in_part(story)]
    found = tool.errors(whole)
    print(f"{name}: {found}; killed {sum(story.struck for story in stories)}")
    if found is None:
        assert all(
            abs(one.estimate - one.truth) <= tool.EXACT * max(abs(one.truth), 1) for story in whole for one in story.values
        )
    else:
        assert found.low <= 1 <= found.high
        assert 0.5 < found.root < 1.6
