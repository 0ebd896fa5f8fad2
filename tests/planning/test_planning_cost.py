"""What a plan takes is stated before it is made: many parties cost neither gigabytes nor minutes, unless somebody asks for it."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import pytest

from quietmean.core.schema import options_of
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import general_protocols, rank
from quietmean.protocols import Server, configure, registry
from quietmean.protocols.traits import PlanningCost
from support.refusals import refused

SCRIPT = """
import resource
from quietmean.planning import Target
from quietmean.planning.candidates import rank
from quietmean.protocols import Server
found = rank(Target({parties}, 1.0, 1e-7, 1, 1.0, {parties} // 10, 0.1), server=Server.AGGREGATOR)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss // 1024, used.ru_utime, len(found), len(found.left_out))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory has another unit elsewhere")
@pytest.mark.parametrize("parties", [20_000, 1_000_000])
def test_plans_of_many_parties_take_a_gigabyte_and_twenty_seconds_at_most(parties: int) -> None:
    script = SCRIPT.format(parties=parties)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    megabytes, seconds, planned, left_out = map(float, done.stdout.split())
    assert megabytes <= 1000
    assert seconds <= 20
    assert planned >= 3
    assert planned + left_out == len(general_protocols(Server.AGGREGATOR))


def many(parties: int) -> Target:
    return Target(parties, 1.0, 1e-7, 1, 1.0, parties // 10, 0.1)


def test_what_is_left_out_is_named_with_what_it_would_take() -> None:
    found = rank(many(20_000), server=Server.AGGREGATOR)
    assert "cordp-dme (about 8.6 GB)" in found.left_out
    assert "inca (about 2.4e+02 s of one core)" in found.left_out
    assert {one.plan.protocol.name for one in found} >= {"packed-sharing", "gopa", "local-dp"}


def test_where_nothing_is_left_the_sentence_says_how_to_have_one() -> None:
    refused(r"a plan of secagg takes about .* GB. Name it with protocol", rank, many(20_000), ["secagg"], strict=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["secagg", "secagg-plus", "cordp-dme"])
def test_memory_is_about_what_is_stated(name: str) -> None:
    """At most as much as is stated and what every plan takes, and no less than a quarter of it."""
    target, protocol = many(1000), configure(name)
    tracemalloc.start()
    try:
        calibrate(target, protocol)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    stated = 8 * protocol.traits.planning_cost.numbers * 1000**2
    assert stated / 4 <= peak <= 1.3 * stated + 1e7


def test_every_plan_of_a_hundred_parties_is_made() -> None:
    for name, kind in registry().items():
        assert options_of(kind) is not None
        assert not configure(name).traits.planning_cost.too_much(100), name
    assert not PlanningCost().too_much(10**9)
    assert PlanningCost(1e5, 0.01).too_much(100) == "8 GB and 1e+02 s of one core"
