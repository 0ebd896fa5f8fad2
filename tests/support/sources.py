"""The package's own modules as syntax trees, read once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import quietmean

PACKAGE = Path(quietmean.__file__).parent


@cache
def modules() -> tuple[Path, ...]:
    """Every file of the package, sorted."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, in the order of :func:`ast.walk`."""
    return tuple(ast.walk(tree))
