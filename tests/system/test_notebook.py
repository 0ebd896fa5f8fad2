"""The page about Python runs in a real notebook kernel, where an event loop runs already, cell by cell with the same answers."""

from __future__ import annotations

import ast
import asyncio
import doctest
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import quietmean
from quietmean.core.blocking import blocking
from support.pages import DOCS

# Runs a notebook: in a process of its own, as the kernel's client warns of its own dependencies.
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=120, kernel_name="python3").execute()
nbformat.write(book, sys.argv[1])
"""
# Calls of the entry points of processes, which no library function is.
OWN_PROCESS = {"node/local/child.py", "core/blocking.py"}


Cell = dict[str, Any]


def code(number: int, source: str, *, fails: bool = False) -> Cell:
    tags = ["raises-exception"] if fails else []
    metadata = {"tags": tags}
    return {
        "cell_type": "code",
        "id": f"c{number}",
        "source": source,
        "metadata": metadata,
        "outputs": [],
        "execution_count": None,
    }


def executed(cells: list[Cell], place: Path) -> list[Cell]:
    place.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    done = subprocess.run([sys.executable, "-c", RUN, str(place)], cwd=place.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Cell] = json.loads(place.read_text())["cells"]
    return found


def answer(cell: Cell) -> str:
    """What the cell shows: its result, what it printed, or its error."""
    parts = []
    for output in cell["outputs"]:
        match output["output_type"]:
            case "execute_result":
                parts += output["data"]["text/plain"]
            case "stream" if output["name"] == "stdout":
                parts += output["text"]
            case "error":
                parts.append(f"{output['ename']}: {output['evalue']}")
    return " ".join("".join(parts).split())


@pytest.mark.slow
def test_the_page_about_python_is_a_notebook(tmp_path: Path) -> None:
    examples = doctest.DocTestParser().get_examples((DOCS / "analyse" / "python.md").read_text())
    cells = [code(number, one.source, fails=one.exc_msg is not None) for number, one in enumerate(examples)]
    for example, cell in zip(examples, executed(cells, tmp_path / "page.ipynb"), strict=True):
        if example.exc_msg is not None:
            assert answer(cell).split(": ", 1)[1] == " ".join(example.exc_msg.split(": ", 1)[1].split())
            continue
        wanted = " ".join(example.want.split())
        options = sum(example.options) | doctest.ELLIPSIS
        assert doctest.OutputChecker().check_output(wanted, answer(cell), options), (example.source, wanted, answer(cell))


@pytest.mark.slow
def test_a_result_is_a_table(tmp_path: Path) -> None:
    source = (
        "import quietmean as qm, pandas as pd\n"
        "frame = pd.DataFrame({'site': list('abc') * 40, 'age': [30, 40, 50] * 40})\n"
        "qm.Study({'age': (20, 90)}, ['mean(age)'], epsilon=8.0, delta=1e-6).run(frame, party_column='site')"
    )
    (cell,) = executed([code(0, source)], tmp_path / "book.ipynb")
    (shown,) = [one for one in cell["outputs"] if one["output_type"] == "execute_result"]
    assert "<table" in "".join(shown["data"]["text/html"])


def test_in_a_running_loop_errors_and_results_come_back() -> None:
    async def whole(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number

    async def cell() -> int:
        with pytest.raises(ValueError, match="negative"):
            blocking(whole(-1))
        return blocking(whole(3))

    assert blocking(cell()) == 3


@pytest.mark.slow
def test_ctrl_c_ends_what_was_begun() -> None:
    ended = []

    async def whole() -> None:
        try:
            threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    async def cell() -> None:
        # The handler of a plain process, not that of asyncio.run.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        blocking(whole())

    before, loop = signal.getsignal(signal.SIGINT), asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
    assert ended == [True]


def test_no_library_function_calls_asyncio_run() -> None:
    package = Path(quietmean.__file__).parent
    calling = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("run", "Runner") and ast.unparse(node.value) == "asyncio":
                calling.add(str(path.relative_to(package)))
    assert {path for path in calling if not path.startswith("cli/")} == OWN_PROCESS
