"""No number that is below 0, or beyond all use, is taken for an option: refused when it is read, or by the plan, at once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from quietmean.core.errors import InputError
from quietmean.core.schema import options_of
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure, registry
from quietmean.protocols.packed_sharing.ballots import LARGEST_BALLOTS, LEADERLESS, ballots_needed
from support.refusals import refused, refused_rows

# Names of public randomness, and a place on the line of numbers.
SIGNED = {"graph_seed", "dither_seed", "rotation", "centre"}
# Without which an option has no meaning.
BESIDE: dict[str, dict[str, Any]] = {
    "value_sd": {"bits": 3},
    "delta_0": {"bits": 3},
    "delta_min": {"bits": 3},
    "connectivity": {"graph": "harary"},
}
OPTIONS = [(name, key) for name, kind in registry().items() for key in options_of(kind) if key not in SIGNED]


@pytest.mark.parametrize(("name", "key"), OPTIONS, ids=str)
def test_nothing_is_below_zero(name: str, key: str) -> None:
    asked = {key: -1, **BESIDE.get(key, {})}
    refused("", lambda: calibrate(Target(6, 1.0, 1e-6, 1, 1.0, 1), configure(name, asked)))


@refused_rows("rounds_have_an_end")
def test_rounds_have_an_end(name: str, key: str, most: int) -> None:
    """A billion of them was planned for until memory was used up."""
    configure(name, {key: most})
    refused(key, configure, name, {key: most + 1})


@pytest.mark.parametrize("gone", [6, 10**9])
def test_no_more_members_are_gone_than_there_are(gone: int) -> None:
    with pytest.raises(InputError, match=f"gone is {gone}, but there are 6 members. Choose fewer than these"):
        calibrate(Target(6, 1.0, 1e-6, 1, 1.0, 1), configure("packed-sharing", {"gone": gone}))


def test_ballots_are_not_counted_beyond_what_there_can_be() -> None:
    assert ballots_needed(10**6, 10**6 - 1) == LARGEST_BALLOTS + 1
    for members in range(4, 60):
        for leaving in range(members - 1):
            fewest = next(b for b in range(3, 61) if math.comb(leaving, b) <= LEADERLESS * math.comb(members, b))
            assert ballots_needed(members, leaving) == fewest
