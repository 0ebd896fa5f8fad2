"""Files that were made to do harm, or badly: one sentence, no more memory than is stated, nothing read beyond the file."""

from __future__ import annotations

import gzip
import os
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core import columnar
from quietmean.core.errors import InputError
from quietmean.core.portability import TooManyCellsError
from quietmean.statistics import Column, Columns
from quietmean.studies.data import formats, read_columns, reading, table, text_files
from quietmean.studies.data.isolated import EndedError

AGE = Columns([Column(name="age", low=0, high=110)])


def workbook(path: Path, cells: dict[str, object]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["age", "note"])
    for age in (40, 50):
        book.active.append([age, "x"])
    for place, cell in cells.items():
        book.active[place] = cell
    book.save(path)
    return path


def sheet_rewritten(source: Path, target: Path, change: Callable[[bytes], bytes]) -> None:
    """Write a workbook whose sheet is not what any program would write."""
    with zipfile.ZipFile(source) as honest, zipfile.ZipFile(target, "w") as archive:
        for entry in honest.infolist():
            content = honest.read(entry)
            if entry.filename.startswith("xl/worksheets/"):
                assert change(content) != content
                content = change(content)
            archive.writestr(entry.filename, content)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("place", "records"),
    [("A1048576", [40, 50, 7]), ("XFD3", [40, 50]), ("Z2", [40, 50])],
)
def test_a_stray_cell_is_a_row_at_most(place: str, records: list[float], tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", {place: 7})
    np.testing.assert_allclose(read_columns(path, AGE).ravel(), records)


def test_a_cell_too_far_away_in_both_directions_ends_the_process_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.xlsx cannot be read as a workbook. Save it again"):
        read_columns(workbook(tmp_path / "t.xlsx", {"XFD1048576": 7}), AGE)


def test_a_workbook_that_lies_about_its_size(tmp_path: Path) -> None:
    honest = workbook(tmp_path / "honest.xlsx", {})
    sheet_rewritten(honest, tmp_path / "t.xlsx", lambda content: content.replace(b'ref="A1:B3"', b'ref="A1:XFD1048576"'))
    np.testing.assert_allclose(read_columns(tmp_path / "t.xlsx", AGE).ravel(), [40, 50])


@pytest.mark.skipif(sys.platform == "win32", reason="memory is not limited there")
@pytest.mark.parametrize(
    ("name", "start", "words"),
    [
        ("t.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"t\.xls cannot be read as a workbook. Save it again"),
        (
            "t.parquet",
            b"PAR1",
            r"t\.parquet cannot be read as a table. Check that it is not a damaged Parquet file, and that reading it takes",
        ),
        (
            "t.feather",
            b"ARROW1",
            r"t\.feather cannot be read as a table. Check that it is not a damaged Arrow file, and that reading it takes",
        ),
    ],
)
def test_a_process_that_reads_a_file_may_end_as_it_likes(
    name: str, start: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("python_calamine", "narwhals"):
        pytest.importorskip(module)
    (tmp_path / name).write_bytes(start + bytes(4096))
    limited = "from quietmean.core.portability import limit_process; limit_process(2**30, 1)"
    much, long = f"{limited}; bytearray(2**31)", f"{limited}\nwhile True: pass"
    broken = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    begin = subprocess.Popen
    endless = "import time; print('Sentinel', flush=True); time.sleep(60)"
    for program in ("import os; os.abort()", broken, "import sys; sys.exit(1)", much, long, "print('Sentinel')", endless):

        def started(command: list[str], program: str = program, **options: Any) -> Any:
            return begin([command[0], "-c", program], **options)

        monkeypatch.setattr("quietmean.studies.data.isolated.subprocess.Popen", started)
        monkeypatch.setattr("quietmean.studies.data.isolated.MOST_SECONDS", 0.3 if program == endless else 60)
        with pytest.raises(InputError, match=words) as caught:
            read_columns(tmp_path / name, AGE)
        assert "Sentinel" not in str(caught.value)


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_UNPACKED", 2**16)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"age\n" + b"1\n" * 2**17))
    with pytest.raises(InputError, match=r"bomb\.csv\.gz unpacks to more than"):
        read_columns(tmp_path / "bomb.csv.gz", AGE)
    monkeypatch.setattr(formats, "MOST_UNPACKED", 2**10)
    with pytest.raises(InputError, match=r"t\.xlsx unpacks to more than"):
        read_columns(workbook(tmp_path / "t.xlsx", {}), AGE)


def test_a_bomb_takes_no_more_memory_than_is_stated(tmp_path: Path) -> None:
    import tracemalloc

    with gzip.open(tmp_path / "bomb.csv.gz", "wb") as file:
        file.write(b"age\n")
        for _ in range(40):
            file.write(bytes(2**20))
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table, "MOST_UNPACKED", 2**20)
            with pytest.raises(InputError, match="unpacks to more than"):
                read_columns(tmp_path / "bomb.csv.gz", AGE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_names_in_a_database_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE Sentinel (age)")
        base.execute("CREATE VIEW v AS SELECT age AS years FROM Sentinel")
        base.commit()
    whole = path.read_bytes()
    for name in (b"age", b"Sentinel", b"years"):
        path.write_bytes(whole.replace(name, b"\xfd" + name[1:]))
        with pytest.raises(InputError, match=r"t\.sqlite") as caught:
            read_columns(path, AGE)
        assert "Sentinel" not in str(caught.value)


def test_a_view_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_CELLS", 2**18)
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as base:
        base.execute(
            "CREATE VIEW endless AS WITH RECURSIVE n(age) AS (SELECT 1 UNION ALL SELECT age + 1 FROM n) SELECT age FROM n"
        )
        base.commit()
    assert table.MOST_CELLS >= 10**8
    with pytest.raises(InputError, match=r"t\.sqlite has more than 128 million cells"):
        read_columns(f"{tmp_path / 't.sqlite'}#query_mixes_rows=true", AGE)


def test_a_view_that_computes_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr("quietmean.studies.data.database.MOST_SECONDS", 0.3)
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as base:
        base.execute(
            "CREATE VIEW v AS WITH RECURSIVE n(age) AS (SELECT 1 UNION ALL SELECT age + 1 FROM n) SELECT age FROM n WHERE age < 0"
        )
        base.commit()
    with closing(duckdb.connect(str(tmp_path / "t.duckdb"))) as base:
        base.execute("CREATE VIEW v AS SELECT sum(a.range * b.range) AS age FROM range(100000000) a, range(100000000) b")
    for name in ("t.sqlite", "t.duckdb"):
        with pytest.raises(InputError, match=f"{name} cannot be read.*take 0.005 minutes"):
            read_columns(f"{tmp_path / name}#query_mixes_rows=true", AGE)


def test_cells_of_a_database_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as base:
        base.execute("CREATE TABLE t AS SELECT 41 AS age UNION ALL SELECT zeroblob(10000000)")
        base.commit()
    with closing(duckdb.connect(str(tmp_path / "t.duckdb"))) as base:
        base.execute("CREATE TABLE t AS SELECT unnest(['41', repeat('7', 1000000)]) AS age")
    monkeypatch.setattr("quietmean.studies.data.database.MOST_TEXT", 2**16)
    for name in ("t.sqlite", "t.duckdb"):
        np.testing.assert_array_equal(read_columns(tmp_path / name, AGE).ravel(), [41, np.nan])
    monkeypatch.setattr("quietmean.studies.data.database.MOST_TEXT", 2**14)
    for name in ("t.sqlite", "t.duckdb"):
        with pytest.raises(InputError, match="more than 128 million cells"):
            read_columns(tmp_path / name, AGE)


@pytest.mark.skipif(sys.platform == "win32", reason="names of files there are not pipes")
def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for name, words in (
        ("pipe.csv", "is a pipe or a device"),
        ("zero.csv", "is a pipe or a device"),
        ("loop.csv", "cannot be read"),
    ):
        with pytest.raises(InputError, match=f"{name} {words}"):
            read_columns(tmp_path / name, AGE)
    with pytest.raises(InputError, match="does not exist"):
        read_columns(f"{tmp_path}/a\0b.csv", AGE)
    # Nor is what is said beside a file.
    (tmp_path / "t.csv").write_text("age\n41\n")
    for make in (
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_text("a=" + "[" * 9999),
    ):
        make(tmp_path / "t.format.toml")
        with pytest.raises(InputError, match=r"t\.format\.toml cannot be read"):
            read_columns(tmp_path / "t.csv", AGE)
        (tmp_path / "t.format.toml").unlink()


@pytest.mark.parametrize("place", ["A1099511627776", "ZZZZZZ4"])
def test_rows_and_columns_of_a_workbook_where_none_can_be(place: str, tmp_path: Path) -> None:
    honest, row = workbook(tmp_path / "honest.xlsx", {}), place.lstrip("AZ")
    stray = f'<row r="{row}"><c r="{place}"><v>7</v></c></row></sheetData>'.encode()
    sheet_rewritten(honest, tmp_path / "t.xlsx", lambda content: content.replace(b"</sheetData>", stray))
    with pytest.raises(InputError, match=r"t\.xlsx cannot be read as a workbook. Save it again"):
        read_columns(tmp_path / "t.xlsx", AGE)


@pytest.mark.parametrize("elsewhere", ["read_csv('{folder}/other.csv')", "read_parquet('http://127.0.0.1:9/x.parquet')"])
def test_a_duckdb_file_reaches_nothing_but_itself(elsewhere: str, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "other.csv").write_text("age\n99\n")
    path = tmp_path / "t.duckdb"
    with closing(duckdb.connect(str(path))) as base:
        base.execute("CREATE TABLE inside AS SELECT 40 AS age")
        if "http" in elsewhere:
            base.execute("CREATE TABLE later AS SELECT 41 AS age")
        else:
            base.execute(f"CREATE VIEW later AS SELECT * FROM {elsewhere.format(folder=tmp_path)}")  # noqa: S608
    query = tmp_path / "q.sql"
    query.write_text(f"SELECT age FROM {elsewhere.format(folder=tmp_path)}")  # noqa: S608
    for said in ("#table=later", f"#query={query}") if "http" not in elsewhere else (f"#query={query}",):
        with pytest.raises(InputError, match=r"a table function in the (query|view).* is not allowed"):
            read_columns(f"{path}{said}", AGE)
        with pytest.raises(InputError, match=r"t\.duckdb cannot be read.*Let no view reach beyond the file"):
            read_columns(f"{path}{said},query_mixes_rows=true", AGE)
    np.testing.assert_allclose(read_columns(f"{path}#table=inside", AGE).ravel(), [40])


def test_a_query_changes_no_setting_of_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect(str(tmp_path / "t.duckdb"))) as base:
        base.execute("CREATE TABLE inside AS SELECT 40 AS age")
    query = tmp_path / "q.sql"
    query.write_text("SELECT age FROM inside); SET enable_external_access = true; SELECT (1")
    for declared in ("", ",query_mixes_rows=true"):
        with pytest.raises(InputError, match="cannot be read"):
            read_columns(f"{tmp_path / 't.duckdb'}#query={query}{declared}", AGE)


def test_a_database_with_a_log_where_nobody_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("CREATE TABLE t (age REAL)")
        base.executemany("INSERT INTO t VALUES (?)", [(40,), (50,)])
        base.commit()
    monkeypatch.setattr("quietmean.studies.data.database.os.access", lambda path, mode: False)
    np.testing.assert_allclose(read_columns(path, AGE).ravel(), [40, 50])
    assert [one.name for one in tmp_path.iterdir()] == ["t.sqlite"]


# --- Parquet and Arrow -----------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """As Parquet's metadata hold it."""
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def with_footer(raw: bytes, footer: bytes) -> bytes:
    return raw[: -8 - int.from_bytes(raw[-8:-4], "little")] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


ROWS = 54_321


def lying_parquet(path: Path, rows: int) -> None:
    from pyarrow import parquet, table

    parquet.write_table(table({"age": [41.0] * ROWS, "note": ["Sentinel"] * ROWS}), path)
    raw = path.read_bytes()
    footer = raw[-8 - int.from_bytes(raw[-8:-4], "little") : -8]
    path.write_bytes(with_footer(raw, footer.replace(varint(2 * ROWS), varint(2 * rows))))


def lying_arrow(path: Path, rows: int) -> None:
    from pyarrow import feather, table

    feather.write_feather(table({"age": [41.0] * ROWS, "note": ["Sentinel"] * ROWS}), path)
    path.write_bytes(path.read_bytes().replace(ROWS.to_bytes(8, "little"), rows.to_bytes(8, "little")))


def long_footer(path: Path) -> None:
    lying_parquet(path, ROWS)
    path.write_bytes(path.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "as many rows as can be said": lambda path: lying_parquet(path, 2**60),
    "as many rows as memory could hold": lambda path: lying_parquet(path, 2**31),
    "no rows": lambda path: lying_parquet(path, 0),
    "rows of Arrow": lambda path: lying_arrow(path, 2**60),
    "a footer longer than the file": long_footer,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", HOSTILE)
def test_metadata_that_lie(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("narwhals")
    HOSTILE[kind](tmp_path / "t.parquet")
    started, told = time.monotonic(), list[str]()
    try:
        assert len(read_columns(tmp_path / "t.parquet", AGE, told.append)) in (0, ROWS)
    except InputError as error:
        told.append(str(error))
    assert not [sentence for sentence in told if "Sentinel" in sentence or "\n" in sentence]
    assert time.monotonic() - started < 60


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def pieces_apart(module: Any, said: list[str]) -> Iterator[bytes]:
        try:
            yield from columnar.pieces(said[0], said[1], int(said[2]), said[3:])
        except (MemoryError, TooManyCellsError):
            raise EndedError(columnar.TOO_LARGE) from None

    monkeypatch.setattr("quietmean.studies.data.isolated.pieces_apart", pieces_apart)


def test_groups_without_rows_and_columns_beside_that_nobody_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    in_this_process(monkeypatch)
    deep = pyarrow.float64()
    for _ in range(300):
        deep = pyarrow.list_(deep)
    schema = pyarrow.schema([("age", pyarrow.float64()), ("deep", deep)])
    with parquet.ParquetWriter(tmp_path / "t.parquet", schema) as writer:
        for ages in (*([] for _ in range(300)), [41.0]):
            writer.write_table(
                pyarrow.table([pyarrow.array(ages, schema[0].type), pyarrow.nulls(len(ages), deep)], schema=schema)
            )
    np.testing.assert_array_equal(read_columns(tmp_path / "t.parquet", AGE).ravel(), [41])


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_long_text_that_is_said_many_times(dictionary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    in_this_process(monkeypatch)
    monkeypatch.setattr(columnar, "MOST_TEXT", 2**20)
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2**10, pyarrow.int32()), ["7" * 2**12])
    parquet.write_table(pyarrow.table({"age": texts if dictionary else texts.cast(pyarrow.string())}), tmp_path / "t.parquet")
    # Each text is handed over once, however often it is there; a library that does not know it refuses so many.
    np.testing.assert_array_equal(read_columns(tmp_path / "t.parquet", AGE).ravel(), np.full(2**10, np.nan))
    with monkeypatch.context() as patch:
        patch.setattr(columnar, "_LIBRARIES", {"pyarrow": columnar._LIBRARIES["pyarrow"]})
        with pytest.raises(InputError, match="more than 128 million cells"):
            read_columns(tmp_path / "t.parquet", AGE)
    monkeypatch.setattr(columnar, "MOST_TEXT", 2**11)
    with pytest.raises(InputError, match="more than 128 million cells"):
        read_columns(tmp_path / "t.parquet", AGE)
    monkeypatch.setattr(columnar, "MOST_TEXT", 2**20)
    # One long cell is one cell.
    parquet.write_table(pyarrow.table({"age": ["41", "7" * 10**6]}), tmp_path / "t.parquet")
    np.testing.assert_array_equal(read_columns(tmp_path / "t.parquet", AGE).ravel(), [41, np.nan])


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_a_text_that_is_no_utf_8_is_one_cell(kind: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    feather = pytest.importorskip("pyarrow.feather")
    in_this_process(monkeypatch)
    width = "large_" if kind == "large_string" else ""
    raw = pyarrow.array([b"a", b"\xe4\xff", b"b"], getattr(pyarrow, f"{width}binary")())
    texts = pyarrow.Array.from_buffers(getattr(pyarrow, f"{width}string")(), 3, raw.buffers())
    if kind == "dictionary":
        texts = pyarrow.DictionaryArray.from_arrays([0, 1, 2], texts)
    path = tmp_path / f"t.{ending}"
    (parquet.write_table if ending == "parquet" else feather.write_feather)(
        pyarrow.table({"arm": texts, "age": [1.0, 2, 3]}), path
    )
    columns = Columns([*AGE, Column(name="arm", levels=("a", "b"))])
    np.testing.assert_array_equal(read_columns(path, columns), [[1, 0], [2, -1], [3, 1]])


@pytest.mark.parametrize("name", ["t[1].parquet", "*.parquet", "year=2020.parquet", "%41.parquet"])
def test_a_name_is_no_pattern(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    in_this_process(monkeypatch)
    polars.DataFrame({"age": [99.0]}).write_parquet(tmp_path / "other.parquet")
    for write in ("write_parquet", "write_ipc"):
        with (tmp_path / name).open("wb") as file:
            getattr(polars.DataFrame({"age": [41.0]}), write)(file)
        np.testing.assert_array_equal(read_columns(tmp_path / name, AGE).ravel(), [41])


@pytest.mark.skipif(sys.platform == "win32", reason="memory is not limited there")
def test_who_has_less_memory_is_content_with_it() -> None:
    program = (
        "import resource; from quietmean.core.portability import limit_process; least = 2**30;"
        "resource.setrlimit(resource.RLIMIT_AS, (least, least)); limit_process(2**33, 9);"
        "assert resource.getrlimit(resource.RLIMIT_AS) == (least, least)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not limited there")
@pytest.mark.parametrize("name", ["t.xlsx", "t.parquet", "t.feather", "t.sav", "t.dta", "t.xpt"])
def test_each_process_that_reads_a_file_is_limited(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them runs the module that it was begun with, which says its limits before it opens a file."""
    began: list[list[str]] = []

    def other(command: list[str], **options: Any) -> Any:
        began.append(command)
        raise OSError("nothing is begun")

    start = {"t.xlsx": b"PK\x03\x04", "t.parquet": b"PAR1", "t.feather": b"ARROW1", "t.sav": b"$FL2"}
    other_start = {"t.dta": b"<stata_dta>", "t.xpt": b"HEADER RECORD*******LIB"}
    (tmp_path / name).write_bytes((start | other_start)[name] + bytes(400))
    with monkeypatch.context() as patch:
        patch.setattr("quietmean.studies.data.isolated.subprocess.Popen", other)
        with pytest.raises(InputError):
            read_columns(tmp_path / name, AGE)
    module = began[0][began[0].index("-m") + 1]
    program = (
        "import resource, runpy, sys; from quietmean.core import portability; limit = portability.limit_process\n"
        "def limited(*asked):\n"
        "    limit(*asked)\n"
        "    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]\n"
        "    sys.exit(10 if all(0 < one <= 2**33 for one in limits) else 11)\n"
        "portability.limit_process = limited; sys.argv = ['x', 'parquet', '9', '9']\n"
        f"runpy.run_module({module!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=False)
    assert done.returncode == 10


# --- workbooks -------------------------------------------------------------------------------------------------------

ENTITIES = (
    '<!DOCTYPE x [<!ENTITY a "Sentinel">'
    + "".join(f'<!ENTITY {chr(98 + place)} "{10 * f"&{chr(97 + place)};"}">' for place in range(12))
    + "]>"
)


@pytest.mark.parametrize("declared", [ENTITIES, '<!DOCTYPE x [<!ENTITY m SYSTEM "file:///etc/passwd">]>'])
def test_entities_of_a_workbook_are_not_expanded(declared: str, tmp_path: Path) -> None:
    honest = workbook(tmp_path / "honest.xlsx", {})
    stray = b'<row r="9"><c r="A9" t="inlineStr"><is><t>&m;</t></is></c></row></sheetData>'
    sheet_rewritten(
        honest,
        tmp_path / "t.xlsx",
        lambda content: declared.encode() + content[content.index(b"<worksheet") :].replace(b"</sheetData>", stray),
    )
    with pytest.raises(InputError, match=r"t\.xlsx cannot be read as a workbook") as caught:
        read_columns(tmp_path / "t.xlsx", AGE)
    assert "Sentinel" not in str(caught.value)


# --- while it is read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["longer", "shorter", "another"])
def test_a_file_that_changes_while_it_is_read(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age\n41\n42\n")
    read = text_files.read_delimited

    def changing(location: Any, wanted: Any, tell: Any) -> Iterator[Any]:
        yield from read(location, wanted, tell)
        if change == "another":
            (tmp_path / "new").write_text("age\n41\n43\n")
            (tmp_path / "new").replace(path)
        else:
            path.write_text("age\n41\n42\n43\n" if change == "longer" else "age\n")

    monkeypatch.setattr(formats, "read_delimited", changing)
    with pytest.raises(InputError, match=r"t\.csv was changed while it was read. Wait until"):
        read_columns(path, AGE)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE VIEW v AS SELECT * FROM v", "is refused by the database|more than 50 levels"),
        ("CREATE VIEW v AS SELECT load_extension('x') AS age", "is refused by the database|SELECT without FROM"),
        ("CREATE TABLE v (age); INSERT INTO v VALUES (41); CREATE TRIGGER g AFTER INSERT ON v BEGIN DELETE FROM v; END", ""),
        (
            "CREATE TABLE x (n); PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES "
            "('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING csv(filename=''/etc/passwd'')')",
            "is refused by the database|the virtual table",
        ),
    ],
)
def test_what_a_sqlite_file_brings_along(sql: str, words: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as base:
        base.executescript(sql)
    if words:
        for declared in ("", ",query_mixes_rows=true"):
            with pytest.raises(InputError, match=words):
                read_columns(f"{tmp_path / 't.sqlite'}#table=v{declared}", AGE)
    else:
        np.testing.assert_array_equal(read_columns(tmp_path / "t.sqlite", AGE).ravel(), [41])
