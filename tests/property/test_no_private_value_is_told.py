"""No private value is in anything that is printed, logged or written, whatever goes wrong.

Values that are nowhere else stand in data files, vectors and cells; everything that comes out is searched for them. The search is
held against programs that do tell a value.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import quietmean as qm
from quietmean.cli import console
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, secrecy
from quietmean.node.storage import Store
from quietmean.planning import Plan
from quietmean.protocols import configure
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics import Column, Columns, Encoded, Workload
from quietmean.studies.data import cells as cells_of_data
from quietmean.studies.data import read_columns, text_files
from quietmean.studies.data.cells import ColumnReader
from quietmean.studies.data.table import Table
from quietmean.studies.outcome import local
from support.effort import examples
from support.faults import Crash, FaultPlan, run_with_faults
from support.rosters import on_this_machine, write_roster

NUMBER, TEXT = 987654.321, "Sentinel-Cell"
VALUE = 0.271828
# As it stands, rounded by any format, and as a number of another sign or scale.
TOLD = re.compile(r"98765|9\.876|0\.9876|Sentinel", re.IGNORECASE)

CELLS = st.sampled_from([f"{NUMBER}", f"-{NUMBER}", TEXT, f"{TEXT},{TEXT}", "", "20", "30", f'"{TEXT}', "inf", f"{NUMBER} mg"])
HEADINGS = st.sampled_from(["age,clinic", f"{NUMBER},{TEXT}", "ages,clinic", ""])
# What is wrong besides the data, if anything.
FAULTS = {
    "more parties than rows": ["--parties", "50"],
    "one party": ["--parties", "1"],
    "both ways": ["--parties", "3", "--party-column", "clinic"],
    "no such column": ["mean(weight in 0..1)", "--parties", "2"],
    "no such party column": ["--party-column", "ward"],
    "no privacy": ["--parties", "2", "--protocol", "gossip"],
    "wrong option": ["--parties", "2", "--with", "neighbours=7"],
    "wrong epsilon": ["--parties", "2", "--epsilon", "0"],
    "wrong rule": ["--parties", "2", "mean(clinic in 0..9 [missing=drop])"],
    "wrong bounds": ["--parties", "2", "mean(clinic in 9..0)"],
}


def write_table(folder: Path, heading: str, rows: list[str], ending: str) -> Path:
    path = folder / f"table.{ending}"
    if ending == "csv":
        path.write_text("\n".join([heading, *rows]) + "\n")
    elif ending == "broken.parquet":
        path.write_bytes(f"PAR1 {TEXT} {NUMBER}".encode())
    else:
        pl.DataFrame({"age": [NUMBER] * len(rows), "clinic": [TEXT] * len(rows)}).write_parquet(path)
    return path


def ends(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """All that a command says; it must fail."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    output = capsys.readouterr()
    assert stop.value.code in (2, 3)
    return output.out + output.err


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fault=st.sampled_from(sorted(FAULTS)),
    heading=HEADINGS,
    rows=st.lists(st.tuples(CELLS, CELLS).map(",".join), max_size=4),
    ending=st.sampled_from(["csv", "csv", "csv", "parquet", "broken.parquet"]),
)
def test_a_run_that_fails(
    fault: str, heading: str, rows: list[str], ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_table(tmp_path, heading, rows, ending)
    told = ends(["run", "--data", str(path), "mean(age in 0..100)", "--accept-wide", *FAULTS[fault]], capsys)
    assert not TOLD.search(told), told


def consortium(folder: Path) -> list[str]:
    write_roster(folder, on_this_machine(("ada", "bob"), (1, 2)))
    (folder / "study.toml").write_text(
        '[study]\nprotocol = "local-dp"\nstart_timeout = 0.1\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n'
    )
    return [str(folder / "study.toml"), "--roster", str(folder / "roster.toml"), "--key", str(folder / "ada.key")]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(["join", "check"]),
    heading=HEADINGS,
    rows=st.lists(st.tuples(CELLS, CELLS).map(",".join), max_size=3),
    more=st.sampled_from([[], ["--account", "a"], ["--plan", "none.json"], ["--no-privacy"]]),
)
def test_a_party_that_cannot_take_part(
    command: str,
    heading: str,
    rows: list[str],
    more: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for protection in ("forbid_tracing", "forbid_core_dumps"):
        monkeypatch.setattr(secrecy, protection, lambda: None)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    path = write_table(folder, heading, rows, "csv")
    wait = ["--wait", "0", "--json"] if command == "check" else []
    # Ports below 1024 and without a listener: neither command can go on.
    told = ends([command, *consortium(folder), "--data", str(path), *wait, *more], capsys)
    written = [file.read_bytes() for file in folder.iterdir() if file.name != path.name and not file.name.endswith(".store")]
    assert not TOLD.search(told), told
    assert not any(TOLD.search(content.decode("latin-1")) for content in written)


@pytest.mark.parametrize("arguments", [["verify", "receipt"], ["simulate"], ["verify", "attack", "--target", "0"]])
@pytest.mark.parametrize("content", [f"age\n{NUMBER}\n", f'{{"age": {NUMBER}}}', f"[{NUMBER}]", f'"{TEXT}"'])
def test_a_data_file_in_the_place_of_another(
    arguments: list[str], content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "values.json"
    path.write_text(content)
    assert not TOLD.search(ends([arguments[0], str(path), *arguments[1:]], capsys))
    (tmp_path / "study.toml").write_text(content)
    told = ends(["join", str(tmp_path / "study.toml"), "--roster", str(path), "--data", str(path)], capsys)
    assert not TOLD.search(told)


VECTORS = st.lists(st.sampled_from([NUMBER, -NUMBER, float("nan"), float("inf"), 1e300, 0.5]), min_size=1, max_size=4)

_PROTOCOLS = [qm.LocalDP(), qm.SecAgg(), qm.PrivUnitG(), qm.IncA(rounds=2, value_bits=32)]
_TARGET = qm.Target(parties=3, epsilon=1.0, delta=1e-6, dimension=3, sensitivity=2.0)


@cache
def plan_of(place: int) -> Plan:
    """Of a protocol, when its first example is drawn: IncA's takes seconds."""
    plan: Plan = _PROTOCOLS[place].calibrate(_TARGET)
    return plan


@given(
    vector=VECTORS,
    weight=st.sampled_from([1.0, 0.0, -1.0, float("nan"), float("inf")]),
    place=st.sampled_from(range(len(_PROTOCOLS))),
    timeout=st.sampled_from([1.0, 0.0]),
)
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_vector_from_python(
    vector: list[float], weight: float, place: int, timeout: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(place)
    identities = [Identity.generate() for _ in range(3)]
    roster = Roster(tuple(RosterEntry(f"p{n}", ("127.0.0.1", 4000 + n), one.public_key) for n, one in enumerate(identities)))
    told = ""
    try:
        given_settings = NodeSettings(
            identity=identities[0],
            roster=roster,
            brought=PlannedValue(plan, plan.admit(np.array(vector), weight)),
            store=tmp_path / "store",
            waits=Waits(round=timeout, start=1.0),
        )
        told += repr(given_settings)
        noise = InsecurePopulationNoise(0, 3).party(0)
        told += repr(plan.machine(plan.schedule(Seed.public("schedule")), 0, plan.admit(np.array(vector), weight), noise))
        # Without the door in front of it, too.
        told += repr(plan.protocol.machine(plan.schedule(Seed.public("schedule")), 0, np.array(vector), weight, noise))
    except InputError as error:
        told += str(error)
    output = capsys.readouterr()
    assert not TOLD.search(told + output.out + output.err), told


def test_what_holds_a_value_does_not_show_it() -> None:
    assert not TOLD.search(repr(Encoded(np.array([NUMBER]), 3.0, 98765, 98765)))


# --- what the search is worth ----------------------------------------------------------------------------------------


def _telling_encode(workload: Workload, records: Any, step: float) -> Encoded:
    raise InputError(f"row 1 is {records[0, 0]:g}. Correct it")


def _telling_columns(place: str, wanted: Collection[str], names: Sequence[str]) -> InputError:
    return InputError(f"column {min(wanted)!r} of {place} is not there: it has {', '.join(names)}")


def _telling_cells(cells: Any, *more: Any) -> Any:
    raise InputError(f"cannot read {cells[0]!r}")


def _telling_notes(reader: ColumnReader, table: Table) -> NDArray[np.float64]:
    raise InputError(f"{table.column(reader.column.name)[0]!r} is strange")


def _telling_owner(parts: Any) -> None:
    console.warn(f"{parts[0].vector.tolist()} and {parts[0].clamped * NUMBER}")


@pytest.mark.parametrize(
    ("place", "name", "mutant", "heading"),
    [
        (Workload, "encode", _telling_encode, "age,clinic"),
        (text_files, "heading_absent", _telling_columns, f"{NUMBER},{TEXT}"),
        (cells_of_data, "understood", _telling_cells, "age,clinic"),
        (console, "tell_owner", _telling_owner, "age,clinic"),
    ],
)
def test_a_program_that_tells_a_value_is_found(
    place: Any,
    name: str,
    mutant: Callable[..., Any],
    heading: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_table(tmp_path, heading, [f"{NUMBER},{TEXT}", "20,x"], "csv")

    def no_processes(*arguments: Any, **options: Any) -> None:
        raise InputError("no processes can be started here")

    # The last step of all, so that everything before it has its say.
    monkeypatch.setattr(local, "run_study", no_processes)
    arguments = [
        "run",
        "--accept-wide",
        "--data",
        str(path),
        "mean(age in 0..100)",
        "--parties",
        "2",
        "--protocol",
        "local-dp",
    ]
    assert not TOLD.search(ends(arguments, capsys))
    assert not TOLD.search(ends([*arguments, "--json"], capsys))
    monkeypatch.setattr(place, name, mutant)
    if place is console:
        monkeypatch.setattr("quietmean.cli.run.tell_owner", mutant)
        arguments.append("--json")
    assert TOLD.search(ends(arguments, capsys))


def test_a_note_to_the_owner_that_shows_a_cell_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_table(tmp_path, "age,clinic", [f"{TEXT},a", f"{NUMBER} mg,b", "20,c"], "csv")

    def no_processes(*arguments: Any, **options: Any) -> None:
        raise InputError("no processes can be started here")

    monkeypatch.setattr(local, "run_study", no_processes)
    run = ["run", "--accept-wide", "--data", str(path), "mean(age in 0..100)", "--parties", "2"]
    told = ends([*run, "--protocol", "local-dp"], capsys)
    assert "column 'age': 2 cells hold no number and count as missing (lines 2, 3) (for you only)" in told
    assert not TOLD.search(told)
    monkeypatch.setattr(ColumnReader, "values", _telling_notes)
    assert TOLD.search(ends([*run, "--protocol", "local-dp"], capsys))


CRASH = """
import sys
from quietmean.cli import main as program
from quietmean.core import logs
from quietmean.statistics import Workload
def encode(workload, records, step):
    raise RuntimeError(f"defect at {records[0, 0]}")
Workload.encode = encode
if MUTANT:
    program.hide_error_texts = lambda: None
sys.argv = ["quietmean", "run", "--data", "table.csv", "mean(age in 0..100)", "--parties", "2"]
sys.argv += ["--accept-wide"]
program.main()
"""


@pytest.mark.parametrize("mutant", [False, True])
def test_a_defect_is_shown_without_the_text_of_the_error(mutant: bool, tmp_path: Path) -> None:
    write_table(tmp_path, "age,clinic", [f"{NUMBER},{TEXT}", "20,x"], "csv")
    code = CRASH.replace("MUTANT", str(mutant))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert bool(TOLD.search(done.stderr)) is mutant, done.stderr


# Every way in which an error may end where nobody handles it.
UNHANDLED = """
import asyncio, gc, logging, threading, warnings
from quietmean.core import logs
if not MUTANT:
    logs.hide_error_texts()
def defect(*_):
    raise RuntimeError("defect at 987654.321")
async def task():
    defect()
class Destroyed:
    def __del__(self):
        defect()
async def main():
    loop = asyncio.get_running_loop()
    forgotten = asyncio.create_task(task())
    loop.call_soon(defect)
    await asyncio.sleep(0.01)
    del forgotten
    gc.collect()
    loop.call_exception_handler({"message": "a node's background task failed", "exception": RuntimeError("987654.321")})
    await asyncio.gather(loop.run_in_executor(None, print, ""), return_exceptions=True)
asyncio.run(main())
thread = threading.Thread(target=defect)
thread.start()
thread.join()
Destroyed()
try:
    defect()
except RuntimeError as error:
    logging.getLogger("quietmean.node").exception("it failed: %s", error)
try:
    defect()
except RuntimeError as error:
    raise ValueError("Sentinel-Cell") from error
"""


@pytest.mark.parametrize("mutant", [False, True])
def test_an_error_that_nobody_handles_is_shown_without_its_text(mutant: bool) -> None:
    """In tasks, callbacks, threads and destructors, logged, or raised from another."""
    done = subprocess.run(
        [sys.executable, "-c", UNHANDLED.replace("MUTANT", str(mutant))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    told = done.stderr + done.stdout
    if mutant:
        assert len(TOLD.findall(told)) >= 7
    else:
        assert not TOLD.search(told), told
        assert told.count("its text is left out") == 7, told


# Loaded by every process of a run, its parties included: a defect in the midst of the rounds, whose text has a value.
DEFECT_IN_A_PARTY = """
import sys
if any("child" in argument or "fork_server" in argument for argument in sys.orig_argv):
    from quietmean.core import logs
    from quietmean.PLACE import NAME
    def defect(self, *arguments, **more):
        raise RuntimeError("defect at 987654.321")
    NAME.METHOD = defect
    if MUTANT:
        logs.without_text = lambda kind, trace: "defect at 987654.321"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "method"),
    [("node.session.rounds", "PhaseRunner", "_exchange"), ("node.storage.store", "Store", "record")],
)
@pytest.mark.parametrize("mutant", [False, True])
def test_a_defect_in_a_party_of_a_run(place: str, name: str, method: str, mutant: bool, tmp_path: Path) -> None:
    """The run fails and says so; what the party said of its defect has no text, on the screen or in its folder."""
    (tmp_path / "code").mkdir()
    code = DEFECT_IN_A_PARTY.replace("PLACE", place).replace("NAME", name).replace("METHOD", method)
    (tmp_path / "code" / "sitecustomize.py").write_text(code.replace("MUTANT", str(mutant)))
    write_table(tmp_path, "age,clinic", [f"{20 + row},x" for row in range(60)], "csv")
    arguments = ["run", "--data", "table.csv", "mean(age in 0..100)", "--parties", "2"]
    arguments += ["--protocol", "local-dp", "--round-timeout", "0.5", "--out", "out", "--json"]
    path = os.pathsep.join([str(tmp_path / "code"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "quietmean.cli.main", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    files = [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file() and "code" not in file.parts]
    told = "".join([done.stdout, done.stderr, *files])
    assert bool(TOLD.search(told)) is mutant, told


OTHERS = ("local-dp", "gopa", "cordp-dme", "consensus", "muffliato", "secagg", "packed-sharing")


def patterns(plan: Plan, value: NDArray[np.float64], weight: float) -> list[bytes]:
    """A party's vector as it may stand in a file: as given, weighted, as it goes through the door, and in steps of the grid."""
    kinds = [value, weight * value, plan.admit(value, weight).vector]
    found = [number.tobytes() for kind in kinds for number in np.asarray(kind, dtype="<f8")]
    if plan.grid:
        units = [np.rint(kind / plan.grid).astype("<i8") for kind in kinds]
        found += [unit.tobytes() for kind in units for unit in kind]
    return found + [f"{number:.6f}"[:-1].encode() for number in value]


@pytest.mark.parametrize(
    "name",
    ["inca", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)],
)
def test_no_store_has_the_value_whenever_its_party_is_killed(name: str, tmp_path: Path) -> None:
    """At any write, committed or not, for good or coming back; and after the end."""
    options = {"inca": {"rounds": 3}, "consensus": {"iterations": 3}, "muffliato": {"rounds": 3}}.get(name, {})
    target = qm.Target(parties=4, epsilon=1.0, delta=1e-6, dimension=3, sensitivity=2.0)
    plan = configure(name, options).calibrate(target)
    values = 0.137 + 0.0731928374 * np.arange(12.0).reshape(4, 3)
    secret = [patterns(plan, value, 1.0) for value in values]
    for write, away in [(None, None), (3, None), (5, 0.5), (8, None), (11, None), (14, 0.5)]:
        folder = tmp_path / f"{write}"
        folder.mkdir()
        crashes = {} if write is None else {1: [Crash(write, committed=write % 2 == 0, away=away)]}
        run_with_faults(plan, values, FaultPlan(crashes=crashes), folder)
        for file in folder.iterdir():
            content, party = file.read_bytes(), int(file.name.split(".")[0])
            assert not [pattern for pattern in secret[party] if pattern in content], f"{file.name} after write {write}"


def test_a_store_with_the_value_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Store.record

    def telling(store: Store, phase: int, step: Any, *more: Any, **options: Any) -> None:
        record(store, phase, step, *more, **options)
        store.keep_remarks([f"{VALUE:.6f}"])

    monkeypatch.setattr(Store, "record", telling)
    plan = qm.LocalDP().calibrate(qm.Target(parties=3, epsilon=1.0, delta=1e-6))
    run_with_faults(plan, np.full((3, 1), VALUE), FaultPlan(), tmp_path)
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert any(pattern in content for pattern in patterns(plan, np.array([VALUE]), 1.0))


def test_a_study_from_end_to_end(tmp_path: Path) -> None:
    """Of three processes: nothing that is printed or kept has a value, nor how many were outside or missing but for its owner."""
    rows = [f"{NUMBER},{TEXT}", f"-{NUMBER},{TEXT}", f"{TEXT},{TEXT}", *(f"{20 + row},x" for row in range(9))]
    write_table(tmp_path, "age,clinic", rows, "csv")
    arguments = [
        "run",
        "--accept-wide",
        "--data",
        "table.csv",
        "mean(age in 0..100)",
        "--parties",
        "3",
        "--out",
        "out",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "quietmean.cli.main", *arguments, "--protocol", "local-dp"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert len(written) == 3
    for text in (done.stdout, done.stderr, *written):
        assert not TOLD.search(text)
    assert "2 values lie outside their bounds and count as the nearest bound and 1 cell counts as missing" in done.stderr
    # How many are missing is estimated with noise, and never counted for others.
    assert not re.search(
        "clamped|clipped|hold no|cells? counts? as missing", json.dumps(json.loads(done.stdout)) + "".join(written[:1])
    )
    assert read_columns(tmp_path / "table.csv", Columns([Column(name="age", low=0, high=1)]))[0, 0] == NUMBER
