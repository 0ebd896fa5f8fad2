"""The shape of the package: party machines are pure, randomness has one source, files stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import quietmean

PACKAGE = Path(quietmean.__file__).parent
IMPURE = {"socket", "ssl", "asyncio", "anyio", "logging", "time", "random", "secrets", "os", "pathlib", "datetime"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", [path for path in modules() if path.name == "party.py"], ids=str)
def test_party_machines_are_pure(path: Path) -> None:
    names = set(imported(path))
    assert not {name for name in names if name.split(".")[0] in IMPURE}
    assert "numpy.random" not in names
    assert "np.random" not in path.read_text()


def test_every_protocol_folder_has_a_party_or_builds_on_one() -> None:
    for folder in (PACKAGE / "protocols").iterdir():
        if folder.is_dir() and not folder.name.startswith("__"):
            sources = "".join(path.read_text() for path in folder.glob("*.py"))
            assert "PROTOCOL" in sources, folder.name
            assert "Party" in sources, folder.name


def test_randomness_has_one_source() -> None:
    for path in modules():
        if path.parent.name == "entropy":
            continue
        text = path.read_text()
        assert "np.random" not in text, path
        assert not {"random", "secrets", "numpy.random"} & set(imported(path)), path


def test_only_the_node_opens_sockets() -> None:
    for path in modules():
        if "node" not in path.parts:
            assert not {"socket", "ssl"} & set(imported(path)), path


def test_files_are_short() -> None:
    for path in modules():
        assert len(path.read_text().splitlines()) <= 500, path


# --- no circles ------------------------------------------------------------------------------------------------------


def test_no_circle_between_the_files_and_folders_of_a_folder() -> None:
    arrows = _arrows(PACKAGE)
    for folder in sorted({path.parent for path in modules()}):
        try:
            tuple(TopologicalSorter(_inside(folder.relative_to(PACKAGE.parent).parts, arrows)).static_order())
        except CycleError as error:
            pytest.fail(f"a circle of imports in {folder.relative_to(PACKAGE.parent)}: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"a.py": "from quietmean.b import x", "b.py": "def f():\n    import quietmean.a"}, True),
        ({"a.py": "from quietmean import b", "b.py": "from quietmean.a import y"}, True),
        ({"one/a.py": "from quietmean.two.a import x", "two/a.py": "pass", "two/b.py": "from quietmean.one import a"}, True),
        ({"one/__init__.py": "from quietmean.one.a import x", "one/a.py": "from quietmean.one import x"}, True),
        ({"one/__init__.py": "from quietmean.one.a import x", "one/a.py": "from quietmean.b import x", "b.py": ""}, False),
        (
            {
                "a.py": "from quietmean.b import x",
                "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from quietmean.a import y",
            },
            False,
        ),
    ],
)
def test_circles_are_found(files: dict[str, str], circle: bool, tmp_path: Path) -> None:
    package = tmp_path / "quietmean"
    for name, text in {"__init__.py": "", **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    arrows = _arrows(package)
    found = 0
    for folder in {path.parent for path in package.rglob("*.py")}:
        try:
            tuple(TopologicalSorter(_inside(folder.relative_to(tmp_path).parts, arrows)).static_order())
        except CycleError:
            found += 1
    assert (found > 0) == circle


def test_rooms_of_the_node_are_entered_by_their_faces() -> None:
    rooms = {path.parent.name for path in (PACKAGE / "node").glob("*/__init__.py")}
    for here, there in _arrows(PACKAGE):
        inner = there[:2] == ("quietmean", "node") and len(there) > 3 and there[2] in rooms
        if inner and there[3] != "__init__":
            assert here[:3] == there[:3], f"{'.'.join(here)} imports {'.'.join(there)}, not {'.'.join(there[:3])}"


@cache
def _arrows(package: Path) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(file, file that it imports), both as names from the root; a folder's own file is its ``__init__``."""
    names = {path.relative_to(package.parent).with_suffix("").parts: path for path in sorted(package.rglob("*.py"))}
    return {(here, there) for here, path in names.items() for there in _imported_files(path, set(names)) if here != there}


def _imported_files(path: Path, names: set[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Also of imports inside functions, which hide a circle from the interpreter only; not those for type checkers alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        wanted = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # What is imported from a folder is a file in it, or a name that its ``__init__`` has.
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in wanted:
            parts = tuple(name.split("."))
            candidates = (parts, (*parts, "__init__"), parts[:-1], (*parts[:-1], "__init__"))
            yield from [candidate for candidate in candidates if candidate in names][:1]


def _inside(folder: tuple[str, ...], arrows: set[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, set[str]]:
    """Who imports whom among the files and folders of a folder."""
    depth, graph = len(folder), dict[str, set[str]]()
    for here, there in arrows:
        if here[:depth] == folder == there[:depth] and here[depth] != there[depth]:
            graph.setdefault(here[depth], set()).add(there[depth])
    return graph
