"""Ways without a server beside each other: error, who may collude, what a site does and sends."""

from __future__ import annotations

import pytest

from quietmean.planning.candidates import Ranking, rank
from quietmean.planning.ways import USUAL, Way, compare_ways
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee


def ranking(dropouts: float = 0.1, epsilon: float = 1.0) -> Ranking:
    return rank(Target(40, epsilon, 1e-6, colluding=4, dropouts=dropouts), ["packed-sharing", "cordp-dme", "local-dp"])


def by_name(ways: list[Way]) -> dict[str, Way]:
    return {way.name: way for way in ways}


def test_three_ways_beside_each_other() -> None:
    ways = by_name(compare_ways(ranking()))
    assert list(ways) == ["equals", "committee of 5", "by file"]
    equals, committee, file = ways.values()
    assert (equals.protocol, committee.protocol, file.protocol) == ("packed-sharing", "packed-sharing-committee", "cordp-dme")
    assert equals.against == "any 4 of the 40 sites"
    assert committee.against == "all other sites with any 1 of the 5 members"
    assert committee.steps.startswith("1 file")
    assert file.steps == "1 file"
    assert equals.steps.startswith("online together for ")
    assert None not in (equals.mse, committee.mse, file.mse, committee.over_central, committee.sent, equals.sent)
    # k = 4 dealings of noise, of which 3 are credited: 4/3 of a curator's, and what 4 of 40 that stay away cost besides.
    assert committee.over_central == pytest.approx(4 / 3 * (40 / 36) ** 2, rel=0.05)
    assert committee.sent < equals.sent  # type: ignore[operator]
    assert committee.to_json()["way"] == "committee of 5"


def test_by_file_nobody_may_be_missing_without_a_plan_for_it() -> None:
    file = by_name(compare_ways(ranking(dropouts=0.0)))["by file"]
    assert (file.protocol, file.against) == ("local-dp", "all others")


def test_a_way_that_is_none_says_why() -> None:
    ways = by_name(compare_ways(rank(Target(40, 1.0, 1e-6, colluding=4), ["packed-sharing"]), Committee(9, 2, 2)))
    assert ways["by file"].against == "none: no protocol by file keeps this target"
    assert ways["by file"].mse is None
    assert set(ways["by file"].to_json()) == {"way", "protocol", "against", "steps"}
    assert ways["committee of 9"].against == "all other sites with any 2 of the 9 members"
    assert USUAL.members == 5
