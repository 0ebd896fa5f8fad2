"""The shape of the package: party machines are pure, randomness has one source, files stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
