"""Files of SPSS and Stata that were cut off: never a table in which the rows that are gone count as missing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from quietmean.core import foreign
from quietmean.core.cells import STRANGE

ROWS = 40
# Of the last bytes, and of all.
CUTS = [1, 2, 7, 8, 9, 60, 200, 400]
WRITTEN = {"plain": {}, "packed rows": {"row_compress": True}, "compressed": {"compress": True}}


def cells_of(path: Path, kind: str, column: str) -> list[object]:
    _, ((cells, *_), *_) = (msgspec.msgpack.decode(piece) for piece in foreign.pieces(kind, str(path), 10**6, [column]))
    return list(cells)


def ages(path: Path, kind: str) -> list[object]:
    return cells_of(path, kind, "age")


def frame() -> object:
    pandas = pytest.importorskip("pandas")
    days = pandas.Series([dt.date(2001, 1, 1 + row % 28) for row in range(ROWS)], dtype=object)
    return pandas.DataFrame({"age": [20.5 + row for row in range(ROWS)], "ward": [f"é{row}" for row in range(ROWS)], "day": days})


@pytest.mark.parametrize("form", WRITTEN)
def test_a_cut_file_of_spss_is_refused(form: str, tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    path = tmp_path / "t.sav"
    pyreadstat.write_sav(frame(), path, **WRITTEN[form])
    whole = path.read_bytes()
    assert ages(path, foreign.SPSS) == [20.5 + row for row in range(ROWS)]
    for cut in CUTS:
        path.write_bytes(whole[:-cut])
        with pytest.raises(pyreadstat.ReadstatError):
            ages(path, foreign.SPSS)


def test_a_cut_file_of_stata_is_refused_or_has_all_its_rows(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    path = tmp_path / "t.dta"
    pyreadstat.write_dta(frame(), path)
    whole, refused = path.read_bytes(), 0
    for cut in (*CUTS, 600, 900):
        path.write_bytes(whole[:-cut])
        try:
            assert ages(path, foreign.STATA) == [20.5 + row for row in range(ROWS)]
        except pyreadstat.ReadstatError:
            refused += 1
    assert refused


def test_a_cell_that_the_library_cannot_hand_over_is_strange_and_none_but_that(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    path = tmp_path / "t.sav"
    pyreadstat.write_sav(frame(), path)
    # In UTF-8, which the file says it is in, no letter begins so.
    path.write_bytes(path.read_bytes().replace("é39".encode(), b"\xff\xff39"))
    assert cells_of(path, foreign.SPSS, "ward") == [*(f"é{row}" for row in range(ROWS - 1)), STRANGE]
