"""The command ``quietmean plan`` of few and of many parties, beside the same command where every protocol is planned to the end.

``pytest benchmarks/test_planning.py``. Processor time of the whole process tree, start and imports included; ratios of one run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import pytest
from benchmarks.measuring import processor_seconds

from quietmean.planning.candidates import general_protocols
from quietmean.protocols import configure
from support.bars import Bar

# Seconds of a first screen and of all that is known; the growth from 3 to a million parties, as an exponent.
SCREEN, DETAILS, GROWTH = 2.0, 5.0, 0.1
SIZES = (3, 20, 100, 10_000, 1_000_000)


def planned(parties: int, *options: str) -> float:
    """Processor seconds of a plan in which a tenth leaves."""
    line = ["plan", "--parties", f"{parties}", "--dropouts", "0.1", *options]
    return processor_seconds([sys.executable, "-m", "quietmean.cli.main", *line])


def in_full(parties: int) -> float:
    """The same of all protocols whose plan takes no gigabyte and no twenty seconds; named, they are planned to the end."""
    names = [name for name in general_protocols() if not configure(name).traits.planning_cost.too_much(parties)]
    return planned(parties, *(word for name in names for word in ("--protocol", name)))


def test_plans_of_few_and_of_many_parties(table: Callable[[str], None], bar: Bar) -> None:
    bare = processor_seconds([sys.executable, "-m", "quietmean.cli.main", "--version"])
    seconds = {}
    for parties in SIZES:
        seconds[parties], details, full = planned(parties), planned(parties, "--details"), in_full(parties)
        table(
            f"plan of {parties} parties: {seconds[parties]:.2f} s, with --details {details:.2f} s, every protocol in full "
            f"{full:.2f} s ({full / seconds[parties]:.1f}x); of these {bare:.2f} s are a bare start"
        )
        bar(f"plan of {parties} parties in seconds", seconds[parties], SCREEN)
        bar(f"plan of {parties} parties with --details in seconds", details, DETAILS)
    exponent = math.log(seconds[SIZES[-1]] / seconds[SIZES[0]]) / math.log(SIZES[-1] / SIZES[0])
    table(f"from {SIZES[0]} to {SIZES[-1]} parties it grows as n^{exponent:.2f}")
    bar(f"growth of a plan from {SIZES[0]} to {SIZES[-1]} parties, exponent", exponent, GROWTH)


@pytest.mark.parametrize("server", ["aggregator", "curator"])
def test_plans_with_a_server(server: str, table: Callable[[str], None], bar: Bar) -> None:
    found = planned(20, "--server", server)
    table(f"plan of 20 parties with server {server}: {found:.2f} s")
    bar(f"plan of 20 parties with server {server} in seconds", found, SCREEN)
