"""The tool that makes measurements/learning-tables.md: the same again from the seeds, and arms that are what they are called."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from support.programs import module_of

tool = module_of("tools", "learning_tables")


def test_everybody_holds_records_of_every_split(tool: ModuleType) -> None:
    labels = tool.digits()[1][:1500]
    for parties in (20, 100):
        counts = np.bincount(tool.holders(labels, parties, np.random.default_rng(1)), minlength=parties)
        assert counts.min() >= 1
        assert (len(counts), counts.sum()) == (parties, 1500)


def test_the_page_has_the_settings_and_says_what_falls_short(tool: ModuleType) -> None:
    text = tool.PAGE.read_text()
    for setting in tool.SETTINGS:
        assert f"## {setting.title}\n" in text
    for arm in tool.ARMS:
        assert f"| {arm}" in text
    seeds = re.search(r"over (\d+) seeds", text)
    assert seeds is not None
    assert text.startswith(tool.HEAD.format(seeds=seeds[1]).rstrip("\n"))


@pytest.mark.slow
def test_runs_come_out_the_same_again_and_local_noise_is_the_larger(tool: ModuleType) -> None:
    place = next(place for place, one in enumerate(tool.SETTINGS) if one.epsilon == 2.0)
    found = {arm: tool.digits_run((place, arm, 0)) for arm in tool.ARMS}
    assert tool.digits_run((place, "together", 0)) == found["together"]
    assert tool.digits_run((place, "together", 1)) != found["together"]
    right = {arm: one["right"] for arm, one in found.items()}
    assert right["no privacy"] > right["together"] > right["local"] + 10
    assert abs(right["together"] - right["curator of the same variance"]) < 6
    assert all(one["epsilon"] <= 2.0 for one in found.values())


@pytest.mark.slow
def test_the_curator_of_the_same_variance_has_it(tool: ModuleType) -> None:
    """What the arm adds, against what a round of the protocol states: a coordinate of many."""
    from quietmean.sessions import Session

    asked: dict[str, Any] = {"parties": 5, "dimension": 4000, "epsilon": 2.0, "delta": 1e-6, "rounds": 1}
    means = [Session(**asked, engine=engine).mean(np.zeros((5, 4000))) for engine in (tool.SameVariance(1), tool.seeded(1))]
    for one in means:
        assert abs((one.mean / one.standard_error).var() - 1) < 5 * (2 / 4000) ** 0.5
    assert means[0].standard_error == means[1].standard_error
