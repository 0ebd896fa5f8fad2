"""Every feature in every way in: as the table says, and with a party that is killed at one of its writes and comes again.

The seed is QUIETMEAN_SEED, 0 if it is not given, and printed: a failing cell says the call at which it was struck.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.struck_study import Commands
from support.struck_ways import APART, YES, StruckParties, changes_of, feature_cells, table, write_cell_policy
from support.ways_in import MEMBERS, NAMES, WAYS, Cell, Consortium

SEED = os.environ.get("QUIETMEAN_SEED", "0")
CELLS = {(feature, cell.way): cell for feature, cell in feature_cells()}
TAKEN, REFUSED = ([cell for cell in CELLS if (table()[cell[0]][cell[1]] == YES) is taken] for taken in (True, False))
# One party runs all or folds the files of all; members can do without one who comes late.
_RESULTS = {"run": {1}, "file": {1}, "committee": {len(MEMBERS) - 1, len(MEMBERS)}}


def test_the_table_has_every_feature_in_every_way() -> None:
    assert {(feature, way) for feature, ways in table().items() for way in ways} == set(CELLS)
    assert all(set(ways) == set(WAYS) for ways in table().values())


@pytest.mark.parametrize(("feature", "way"), REFUSED)
def test_a_cell_that_is_refused(
    feature: str, way: str, own_folders: None, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    assert consortium(CELLS[feature, way], tmp_path, free_ports).refused_before() == table()[feature][way]


def consortium(cell: Cell, folder: Path, free_ports: Callable[[int], list[int]]) -> Consortium:
    write_cell_policy(cell)
    return Consortium(cell, folder, free_ports(len(cell.names)), charging=True)


@pytest.mark.sampled
@pytest.mark.parametrize(("feature", "way"), TAKEN)
def test_a_cell(
    feature: str, way: str, own_folders: None, tmp_path: Path, free_ports: Callable[[int], list[int]], parties: Commands
) -> None:
    cell = CELLS[feature, way]
    study = consortium(cell, tmp_path, free_ports)
    print(f"QUIETMEAN_SEED={SEED}")
    seed = f"{SEED} {feature} {cell.way}"
    results = StruckParties(parties, study, seed, changes_of(feature)).results()
    assert len(results) in _RESULTS.get(cell.way, {len(NAMES)})
    # Who comes again to a session has the rounds that are left.
    whole, apart = max(results, key=len), APART.get(feature, 1e-9)
    assert whole
    assert sum(len(other) < len(whole) for other in results) <= (cell.way == "session")
    for other in results:
        assert other == pytest.approx(whole[len(whole) - len(other) :], rel=apart, abs=apart)
