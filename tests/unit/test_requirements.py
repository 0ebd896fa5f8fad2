"""What modules need when they are imported is installed: by the package itself, or by the extra of what uses them."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from support.sources import modules, parsed

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "quietmean"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ;]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def needed(body: list[ast.stmt]) -> Iterator[str]:
    """Packages that are imported with the module, not inside a function or for type checkers."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from needed(node.body)


@functools.cache
def imports() -> list[tuple[Path, str, set[str]]]:
    """Of each file each package of others that it imports, with the distributions that have it, in small letters."""
    owners = packages_distributions()
    return [
        (path, package, {name.lower() for name in owners.get(package, [])})
        for path in modules()
        for package in set(needed(parsed(path).body)) - sys.stdlib_module_names - {"quietmean"}
    ]


def missing(folder: Path, installed: set[str]) -> set[str]:
    """Names of files and packages for which no installed distribution is there."""
    return {
        f"{path.relative_to(folder)} needs {package}"
        for path, package, owners in imports()
        if path.is_relative_to(folder) and not owners & installed
    }


# Folders of their own, which only the commands of the same names import, once they have looked for the extra.
DESK = {f"{name}.py needs starlette" for name in ("desk/access", "desk/app", "drop/__init__")}
DESK |= {"node/relay/web.py needs uvicorn"}
# The same for estimators, which are imported when one is asked for.
ESTIMATORS = {f"learning/estimators/{name}.py needs sklearn" for name in ("base", "kmeans", "logistic", "one_study")}


def test_the_package_needs_only_what_it_installs() -> None:
    inside = {"testing/strategies.py needs hypothesis"}
    assert missing(SOURCE, distributions(PROJECT["dependencies"])) == inside | DESK | ESTIMATORS


@pytest.mark.parametrize("folder", ["desk", "drop"])
def test_the_desk_and_the_drop_need_only_their_extra(folder: str) -> None:
    extra: list[str] = PROJECT["optional-dependencies"]["desk"]
    assert missing(SOURCE / folder, distributions([*PROJECT["dependencies"], *extra])) == set()


def test_the_estimators_need_only_their_extra() -> None:
    extra: list[str] = PROJECT["optional-dependencies"]["sklearn"]
    assert missing(SOURCE / "learning", distributions([*PROJECT["dependencies"], *extra])) == set()


def test_the_reference_can_be_built_with_its_extra() -> None:
    extra: list[str] = [*PROJECT["optional-dependencies"]["docs"], *PROJECT["optional-dependencies"]["sklearn"]]
    assert "sklearn" in PROJECT["optional-dependencies"]["all"][0]
    assert missing(SOURCE, distributions([*PROJECT["dependencies"], *extra])) == DESK
    assert "quietmean.desk" not in (ROOT / "docs" / "reference.md").read_text()
