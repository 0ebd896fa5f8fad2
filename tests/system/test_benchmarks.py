"""``make bench`` runs every benchmark, and shows every table that docs/measurements/performance.md says it does."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"
# One benchmark of each kind: without a fixture of pytest-benchmark, marked slow, and with one.
SAMPLE = """
import pytest

def test_plain(table):
    table("a plain table")

@pytest.mark.slow
def test_slow(table):
    table("a slow table")

def test_timed(benchmark, table):
    benchmark(lambda: None)
    table("a timed table")
"""


def recipe(target: str) -> list[str]:
    """The arguments with which a target of the Makefile calls pytest."""
    text = re.sub(
        r"\$\(if \$\(filter bench-all,\$@\),(.*?)\)", r"\1" if target == "bench-all" else "", (ROOT / "Makefile").read_text()
    )
    _, rule, rest = re.split(rf"^((?:[\w-]+ )*{target}(?: [\w-]+)*):", text.replace("\\\n", " "), maxsplit=1, flags=re.MULTILINE)
    assert target in rule.split()
    lines = rest.split("\n\n")[0].splitlines()
    calls = [shlex.split(line.strip()) for line in lines if "/pytest " in line]
    assert len(calls) == 1
    place = next(index for index, word in enumerate(calls[0]) if word.endswith("/pytest"))
    return calls[0][place + 1 :]


def run_pytest(arguments: list[str], folder: Path) -> str:
    # As from a shell: a worker of pytest-xdist marks its environment, and pytest-benchmark then refuses to measure.
    shell = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    shell |= {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=shell
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def functions(path: Path) -> list[ast.FunctionDef]:
    """The benchmarks of a file."""
    nodes = ast.parse(path.read_text()).body
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.mark.slow
def test_the_recipe_runs_every_kind_and_shows_its_tables(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(BENCHMARKS / "conftest.py", tmp_path / "benchmarks")
    (tmp_path / "benchmarks" / "test_sample.py").write_text(SAMPLE)
    shown = run_pytest(recipe("bench"), tmp_path)
    assert re.search(r"\b3 passed\b", shown), shown
    assert not re.search(r"skipped|deselected", shown)
    assert "benchmark: 1 tests" in shown, "pytest-benchmark measured nothing"
    tables = shown[shown.index("tables") :]
    for kind in ("plain", "slow", "timed"):
        assert f"a {kind} table" in tables


@pytest.mark.slow
def test_the_recipe_collects_every_benchmark() -> None:
    shown = run_pytest([*recipe("bench-all"), "--collect-only", "-q"], ROOT)
    assert "deselected" not in shown
    found = set(re.findall(r"^benchmarks/(\w+\.py)::(\w+)", shown, re.MULTILINE))
    assert found == {(path.name, each.name) for path in BENCHMARKS.glob("test_*.py") for each in functions(path)}


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("test_*.py")), ids=lambda path: path.name)
def test_every_benchmark_shows_a_table(path: Path) -> None:
    for each in functions(path):
        assert "table" in {argument.arg for argument in each.args.args}, each.name
    assert not re.search(r"^ +print\(", path.read_text(), re.MULTILINE), "what a passing test prints is not seen"


def test_every_table_of_the_documentation_has_its_benchmark() -> None:
    sections = (ROOT / "docs" / "measurements/performance.md").read_text().split("\n## ")[1:]
    with_tables = [section for section in sections if "|---" in section]
    assert with_tables
    for section in with_tables:
        names = re.findall(r"benchmarks/(test_\w+\.py)", section)
        assert names, f"no benchmark is named under {section.splitlines()[0]!r}"
        assert all((BENCHMARKS / name).is_file() for name in names)


def test_the_comparison_with_flower_has_a_target() -> None:
    assert recipe("bench-flower")[0] == "benchmarks/test_secagg.py"
    text = (ROOT / "Makefile").read_text()
    assert "QUIETMEAN_FLOWER_PYTHON" in text
    pins = (BENCHMARKS / "flower-constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+", pin) for pin in pins)
    assert any(pin.startswith("flwr==1.41.") for pin in pins)
