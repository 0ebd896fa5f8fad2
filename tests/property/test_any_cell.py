"""A row is a row: no cell of any source ends a study, is shown to anybody, or changes how another row is read.

Every way of reading x every kind of column x odd cells x rows. A sample of it by fixed seeds, all of it by make test-all.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.studies.data import Preview, read_columns
from support.odd_cells import (
    CELLS,
    COLUMNS,
    DAMAGED_XML,
    DUCKDB_CELLS,
    ODD_XML,
    PLACES,
    ROWS,
    USUAL,
    WRITERS,
    CannotHoldError,
    as_text,
    duckdb_cells,
    excel_xml,
    read_files_in_this_process,
    with_cell,
)

CASES = list(itertools.product(USUAL, CELLS, PLACES))
SAMPLE = 40
# Where a source takes long to write.
SMALL = 10
# A cell of so few signs may stand in any sentence.
_FEW = 4
# Words of the sentences themselves.
_WORDS = {"age;visits;ill;arm;day"}


# Polars says so where Python cannot write a number.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_files_in_this_process(monkeypatch)


def read(source: Any, told: list[str]) -> NDArray[np.float64]:
    values = read_columns(source, COLUMNS, told.append)
    assert values.shape == (ROWS, len(COLUMNS.names))
    return values


def hold(source: Any, expected: NDArray[np.float64], row: int, cell: Any, about: object) -> None:
    """All other rows are as ``expected``, and nothing of the cell is told."""
    told: list[str] = []
    values = read(source, told)
    others = np.arange(ROWS) != row
    np.testing.assert_array_equal(values[others], expected[others], err_msg=str(about))
    try:
        text = as_text(cell).strip()
    except CannotHoldError:
        text = "Sentinel"
    shown = [text] if len(text) >= _FEW and text not in _WORDS else []
    assert not [sentence for sentence in told for one in [*shown, "Sentinel"] if one in sentence], (about, told)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [pytest.param(None, marks=pytest.mark.slow, id="all"), pytest.param(SAMPLE, id="sample")])
@pytest.mark.parametrize("name", WRITERS)
def test_no_cell_ends_a_study(name: str, size: int | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write = WRITERS[name]
    expected = read(write(tmp_path, USUAL), [])
    assert np.isfinite(expected).all()
    assert (expected >= 0).all()
    held = 0
    for column, cell, row in (
        CASES
        if size is None
        else random.Random(name).sample(CASES, SMALL if name in ("DuckDB", "PostgreSQL", "SPSS", "Stata", "SAS") else size)
    ):
        try:
            source = write(tmp_path, with_cell(column, row, cell))
        except CannotHoldError:
            continue
        finally:
            # What the program says that writes it is not ours.
            capfd.readouterr()
        about = (name, column, f"cell {next(place for place, one in enumerate(CELLS) if one is cell)}", row)
        try:
            hold(source, expected, row, cell, about)
            if held % 7 == 0:
                Preview.of(source, COLUMNS)
        except AssertionError:
            raise
        except BaseException as error:
            raise AssertionError(f"{about}: {type(error).__name__}: {error}") from error
        held += 1
    assert held >= (40 * len(PLACES) if size is None else 3)
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("cell", ODD_XML)
def test_an_odd_cell_of_a_workbook_is_one_cell(cell: str, tmp_path: Path) -> None:
    expected = read(excel_xml(tmp_path, "age", 1, '<c{at} t="n"><v>40</v></c>'), [])
    for column, row in itertools.product(USUAL, PLACES):
        hold(excel_xml(tmp_path, column, row, cell), expected, row, "Sentinel", (column, row))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("cell", DAMAGED_XML)
def test_a_workbook_with_a_cell_that_no_program_writes_is_refused_without_it(cell: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read as a workbook\. Save it again") as caught:
        read(excel_xml(tmp_path, "day", 1, cell), [])
    assert "Sentinel" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("age", "visits", "ill", "arm")), "day"]
)
def test_a_cell_of_any_type_of_duckdb(column: str, tmp_path: Path) -> None:
    empty = read(WRITERS["semicolon"](tmp_path, {**USUAL, column: [None] * ROWS}), [])
    path = duckdb_cells(tmp_path, column, row=1)
    for number, expression in enumerate(DUCKDB_CELLS):
        hold(f"{path}#table=c{number}", empty, 1, "Sentinel", (column, expression))
