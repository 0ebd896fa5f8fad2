"""What the page about liars says of spare bits in sums modulo a number: accidents that are seen, influence, bytes, error."""

from __future__ import annotations

from pathlib import Path

import pytest

from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.influence import planned_influence
from quietmean.protocols import get_protocol
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME

PAGE = (Path(__file__).parents[2] / "docs" / "liars.md").read_text()
PRIMES = {2: SMALL_PRIME, 4: LARGE_PRIME}


def table() -> list[list[str]]:
    part = PAGE.split("## Why sums have no spare bits")[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")][1:]


def planned(parties: int, prime: int | None = None, dimension: int = 1) -> tuple[Plan, float, float]:
    """The plan, how far one party moves the mean, and the chance that a number uniform modulo p makes no possible sum."""
    target = Target(parties, 1.0, 1e-6, dimension, 1.0, max(1, parties // 10), 0.1)
    plan = calibrate(target, get_protocol("packed-sharing").from_options({} if prime is None else {"prime": prime}))
    influence, protocol = planned_influence(plan), plan.protocol
    assert influence is not None
    assert isinstance(protocol, PackedSharing)
    # Possible sums are as far apart as one party can move them.
    possible = influence.largest * parties / (protocol.step * protocol.prime)
    return plan, influence.largest, max(0.0, 1.0 - possible)


@pytest.mark.parametrize("row", table(), ids=lambda row: "-".join(row[:2]))
def test_the_table_is_of_the_plans(row: list[str]) -> None:
    parties, word_bytes = int(row[0]), int(row[1])
    plan, moved, seen = planned(parties, PRIMES[word_bytes])
    digits = len(row[2].split()[0].partition(".")[2])
    assert row[2] == f"{100 * seen:.{digits}f} %"
    assert row[3] == f"{moved:.3g}"
    assert row[4] == f"{float(plan.prediction['mse_noise']):.3g}"
    assert isinstance(plan.protocol, PackedSharing)
    assert plan.protocol.word_bytes == word_bytes


def test_plans_take_few_bytes_and_influence_does_not_depend_on_it() -> None:
    rows = table()
    assert {int(row[0]) for row in rows} == {5, 20, 100}
    for parties in (5, 20, 100):
        (small, *few), (_, *many) = ([row[1], *row[3:]] for row in rows if int(row[0]) == parties)
        assert few == many
        plan = planned(parties)[0]
        assert isinstance(plan.protocol, PackedSharing)
        assert plan.protocol.word_bytes == int(small) == 2


def test_of_twenty_wrong_coordinates_one_is_seen_among_few_parties() -> None:
    assert [1 - (1 - planned(parties, dimension=20)[2]) ** 20 > 0.98 for parties in (5, 20, 100)] == [True, True, False]
