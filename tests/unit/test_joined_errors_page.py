"""The page about errors of joined studies is that of the tool: words, protocols, and verdicts that follow from figures."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.protocols import registry
from quietmean.statistics import Workload
from support.programs import module_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tool forks its parties, on Linux only")
tool = module_of("tools", "joined_errors")


def test_the_page_is_that_of_the_tool(tool: ModuleType) -> None:
    page = tool.PAGE.read_text()
    assert page.startswith(tool.HEAD), "run python tools/joined_errors.py page STUDIES.jsonl"
    assert tool.KINDS in page
    lines = page.removeprefix(tool.HEAD).split(tool.KINDS)[0].splitlines()
    named = [line.split("`")[1] for line in lines]
    joinable = [name for name in sorted(registry()) if tool.joinable(name)]
    # A protocol that came since is measured with the next ``make pages``.
    assert named == [name for name in joinable if name in named], "measure again: protocols have changed"
    assert len(named) >= 12
    for line in lines:
        cells = line.strip("| ").split(" | ")
        assert int(cells[1]) == tool.STUDIES
        if found := re.match(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", cells[6]):
            root, low, high = map(float, found.groups())
            kept = tool.LOW <= root <= tool.HIGH and low <= 1 <= high
            assert cells[-1] == ("kept" if kept else "**not kept**")


def test_truths_are_what_the_statistics_tell_without_noise(tool: ModuleType) -> None:
    """Of every term that is released: none is left untested."""
    for asked in tool.data_sets():
        records = asked.drawn(np.random.default_rng(3))
        workload: Workload = asked.study("local-dp", 0.0).workload
        assert workload.unit == PrivacyUnit.RECORD
        truths = asked.truths(records)
        for answer in workload.decode(workload.of_records(records).mean(axis=0), 1e-9, len(records)):
            told = dict(zip(answer.estimates.terms, answer.estimates.value.tolist(), strict=True))
            assert told == pytest.approx(truths[answer.statistic.text], rel=1e-6, abs=1e-6)


def test_a_root_mean_square_has_an_interval_that_holds_it(tool: ModuleType) -> None:
    """Of 400 sets of 60 studies, in each of which all twelve values are nearly one; seed 7. It would be 99.9 %: at least 98 %."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        values = 0.95 * rng.standard_normal((60, 1)) + np.sqrt(1 - 0.95**2) * rng.standard_normal((60, 12))
        found = tool.Mean.of(values.tolist())
        held += found.low <= 1 <= found.high
    assert held >= 392


@pytest.mark.parametrize(("stated", "kept"), [(1.0, True), (1.4, False), (0.7, False)])
def test_a_wrong_standard_error_is_not_kept(tool: ModuleType, stated: float, kept: bool) -> None:
    """Seed 8; a right one is not kept once in a thousand times."""
    values = np.random.default_rng(8).standard_normal((60, 12)) / stated
    assert tool.Mean.of(values.tolist()).kept == kept
