"""Sweeps: the same table whatever happens on the way, nothing computed twice, nothing half written."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky import get_reusable_executor

from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.extensions import command_for
from quietmean_reproduction.sweeps import Task, Workers, run_sweep
from quietmean_reproduction.sweeps.store import SweepStore, read_provenance, table, write_table

ONE = Workers(1)
# Workers import functions by name: those of a test file have none that they know.
SOURCE = """
import math
from pathlib import Path
import numpy as np
from quietmean.core.errors import InputError

def normals(*, seed, count, scale=1.0):
    matrix = np.random.default_rng(seed).normal(size=(count, count)) * scale
    inverse = np.linalg.inv(matrix @ matrix.T)
    return [{"count": count, "row": row, "value": value} for row, value in enumerate(inverse[0])]

def odd(*, seed):
    first = {"whole": 1, "number": 1, "word": "a", "flag": True}
    return [first, {"number": math.inf, "flag": False}, {"number": np.float64(0.1)}]

def nested(*, seed):
    return [{"value": [1, 2]}]

def refuse(*, seed, marker):
    if Path(marker).exists():
        raise InputError("refused on purpose")
    return [{"value": 1.0}]
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "sweep_functions_of_tests.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    # Processes that wait for work since an earlier test do not have the folder on their path.
    get_reusable_executor().shutdown(wait=True)
    yield importlib.import_module("sweep_functions_of_tests")
    sys.path.remove(str(folder))


@pytest.fixture
def tasks(functions: Any) -> list[Task]:
    return [Task(functions.normals, {"count": count}) for count in (2, 9, 4, 7, 3, 8)]


class Stop(Exception):
    """Instead of Ctrl-C."""


def stop_after(limit: int) -> Any:
    def progress(done: int, total: int, before: int) -> None:
        if done - before >= limit:
            raise Stop

    return progress


def test_rows_are_in_the_order_of_the_tasks(tasks: list[Task], tmp_path: Path) -> None:
    sweep = run_sweep(tasks, tmp_path, workers=ONE)
    assert sweep.rows["count"].to_list() == [count for count in (2, 9, 4, 7, 3, 8) for _ in range(count)]
    assert sweep.computed == len(tasks)


def test_a_stopped_sweep_continues_and_ends_with_the_same_bytes(tasks: list[Task], tmp_path: Path) -> None:
    whole = run_sweep(tasks, tmp_path / "whole", workers=ONE)
    for limit in (1, 2, 2):
        with pytest.raises(Stop):
            run_sweep(tasks, tmp_path / "parts", workers=ONE, progress=stop_after(limit))
    assert len(list((tmp_path / "parts" / "tasks").iterdir())) == 5
    rest = run_sweep(tasks, tmp_path / "parts", workers=ONE)
    assert rest.computed == 1
    assert rest.path.read_bytes() == whole.path.read_bytes()
    assert run_sweep(tasks, tmp_path / "parts", workers=ONE).computed == 0


def test_processes_change_nothing(tasks: list[Task], tmp_path: Path) -> None:
    alone = run_sweep(tasks, tmp_path / "alone", workers=ONE)
    together = run_sweep(tasks, tmp_path / "together", workers=Workers(2))
    assert together.path.read_bytes() == alone.path.read_bytes()


def test_more_tasks_reuse_what_is_done(tasks: list[Task], functions: Any, tmp_path: Path) -> None:
    run_sweep(tasks, tmp_path, workers=ONE)
    more = run_sweep([Task(functions.odd), *reversed(tasks)], tmp_path, workers=ONE)
    assert more.computed == 1
    assert more.rows["count"].drop_nulls()[0] == 8


def test_the_same_task_twice_is_computed_once(tasks: list[Task], tmp_path: Path) -> None:
    sweep = run_sweep([tasks[0], tasks[0]], tmp_path, workers=ONE)
    assert sweep.computed == 1
    assert sweep.rows["row"].to_list() == [0, 1, 0, 1]


def test_seeds_follow_label_and_root_alone(functions: Any) -> None:
    one, other = Task(functions.normals, {"count": 3}), Task(functions.normals, {"count": 4})
    assert one.number(0) != other.number(0) != other.number(1)
    assert replace(one, seed="x").number(5) == replace(other, seed="x").number(5)
    assert one.number(0) == Task(functions.normals, {"count": 3}, version=2).number(0)


def test_keys_tell_all_apart_that_changes_rows(functions: Any) -> None:
    task = Task(functions.normals, {"count": 3})
    others = [
        replace(task, version=2),
        replace(task, seed="x"),
        Task(functions.normals, {"count": 3, "scale": 2.0}),
        Task(functions.odd),
    ]
    keys = {task.key(0), task.key(1), *(other.key(0) for other in others)}
    assert len(keys) == 6


def test_a_changed_source_file_is_not_taken_for_the_old_one(functions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(functions.normals, {"count": 3})
    before = task.key(0)
    monkeypatch.setattr("quietmean_reproduction.sweeps.task._source_digest", lambda path: "other")
    assert Task(functions.normals, {"count": 3}).key(0) != before


def test_a_damaged_file_is_computed_again(tasks: list[Task], tmp_path: Path) -> None:
    whole = run_sweep(tasks, tmp_path, workers=ONE).path.read_bytes()
    files = sorted((tmp_path / "tasks").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:40])
    files[1].write_bytes(files[2].read_bytes())
    files[3].unlink()
    again = run_sweep(tasks, tmp_path, workers=ONE)
    assert again.computed == 3
    assert again.path.read_bytes() == whole


def test_an_error_keeps_what_is_finished(tasks: list[Task], functions: Any, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    refusing = Task(functions.refuse, {"marker": str(marker)})
    with pytest.raises(InputError, match="on purpose") as caught:
        run_sweep([tasks[0], refusing, tasks[1]], tmp_path / "sweep", workers=ONE)
    assert "refuse" in "".join(caught.value.__notes__)
    assert len(list((tmp_path / "sweep" / "tasks").iterdir())) == 1
    marker.unlink()
    assert run_sweep([tasks[0], refusing, tasks[1]], tmp_path / "sweep", workers=ONE).computed == 2


def test_cells_survive_bit_for_bit(functions: Any, tmp_path: Path) -> None:
    rows = run_sweep([Task(functions.odd)], tmp_path, workers=ONE).rows
    assert rows["number"].to_list() == [1.0, math.inf, 0.1]
    assert rows["word"].to_list() == ["a", None, None]
    assert rows["flag"].to_list() == [True, False, None]
    assert rows["whole"].to_list() == [1, None, None]


def test_numbers_that_are_none_survive(tmp_path: Path, tasks: list[Task]) -> None:
    store = SweepStore(tmp_path)
    store.save("key", tasks[0], [{"value": math.nan, "other": -math.inf, "tiny": 5e-324}], 0.25)
    assert store.seconds("key") == 0.25
    found = store.load("key")
    assert found is not None
    assert math.isnan(float(str(found[0]["value"])))
    assert found[0]["other"] == -math.inf
    assert found[0]["tiny"] == 5e-324
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_table(tmp_path / "table.parquet", [{"value": 1}], {"unwritable": object()})
    assert list(tmp_path.iterdir()) == []


def test_the_table_says_where_it_comes_from(tasks: list[Task], tmp_path: Path) -> None:
    sweep = run_sweep(tasks, tmp_path, seed=3, workers=ONE)
    assert read_provenance(sweep.path) == sweep.provenance
    assert sweep.provenance["seed"] == 3
    assert sweep.provenance["functions"] == ["sweep_functions_of_tests.normals version 1"]
    assert str(tmp_path) not in json.dumps(sweep.provenance)


def test_no_rows_make_an_empty_table() -> None:
    assert table([]).is_empty()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: Task(lambda seed: []), r"cannot find it\. Move it out\.$"),
        (lambda f: Task(f.normals, {"seed": 1}), "is taken"),
        (lambda f: Task(f.normals, {"count": object()}), "plain JSON"),
        (lambda f: run_sweep([], Path("unused")), "at least one task"),
    ],
)
def test_mistakes_are_named(make: Any, words: str, functions: Any) -> None:
    with pytest.raises(InputError, match=words):
        make(functions)


def test_mistakes_that_show_only_when_run(functions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = [Task(functions.odd)]
    with pytest.raises(InputError, match="returned list"):
        run_sweep([Task(functions.nested)], tmp_path, workers=ONE)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=rf"\. Run {re.escape(command_for('dask'))}\.$"):
        run_sweep(task, tmp_path, workers=Workers("tcp://somewhere:1"))
    (tmp_path / "file").touch()
    with pytest.raises(QuietmeanError, match="is no directory"):
        run_sweep(task, tmp_path / "file")
