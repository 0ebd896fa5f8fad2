"""The shape of the package: randomness has one source, no sockets, files stay short."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import quietmean_reproduction

MODULES = sorted(Path(quietmean_reproduction.__file__).parent.rglob("*.py"))
FORBIDDEN = {"random", "secrets", "socket", "ssl"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module(path: Path) -> None:
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    assert not FORBIDDEN & {name.split(".")[0] for name in names}
    assert "np.random" not in text
    assert len(text.splitlines()) <= 500
