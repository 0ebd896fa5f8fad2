"""``import quietmean as qm``: its names are seen, its version is known, and they stay what they are whatever else is imported."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType

import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError

NAMES = {"certify", "load_execution", "node", "plan", "simulate"}
# Ways to import the package that implements a node, before or after the public name was used.
IMPORTS = [
    "from quietmean.node import Identity",
    "import quietmean.node",
    "import quietmean.node.net.identity",
    "from quietmean.node.net.identity import Identity",
    "import importlib; importlib.import_module('quietmean.node')",
    "from quietmean import node",
    "import quietmean.cli.main, quietmean.node.local",
]
STEPS = """
import inspect, sys
import quietmean as qm
for statement in {statements!r}:
    exec(statement)
    assert inspect.isclass(qm.node), statement
    assert hasattr(qm.node, "__aenter__")
from quietmean.node import Identity, Roster
from quietmean.node.net.identity import Identity as again
assert again is Identity is sys.modules["quietmean.node"].Identity
"""


def test_its_names_are_seen() -> None:
    assert set(qm.__all__) >= NAMES
    assert set(dir(qm)) >= {*qm.__all__, "__version__"}
    assert all(callable(getattr(qm, name)) for name in qm.__all__)


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert qm.__version__ == version("quietmean")
    main(["--version"])
    assert capsys.readouterr().out.strip() == qm.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'mode'"):
        getattr(qm, "mode")  # noqa: B009 - the type checker knows that there is none


def test_importing_it_imports_nothing_heavy() -> None:
    script = "import quietmean, sys; dir(quietmean); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "quietmean.api", "quietmean.node", "importlib.metadata"} & set(loaded)


@pytest.mark.parametrize("statements", [IMPORTS, ["qm.node", *reversed(IMPORTS)]], ids=["before", "after"])
def test_node_stays_what_is_called(statements: list[str]) -> None:
    script = STEPS.format(statements=statements)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_of_that_name_stays_importable() -> None:
    package = importlib.import_module("quietmean.node")
    assert isinstance(package, ModuleType)
    identity = importlib.import_module("quietmean.node.net.identity")
    assert package.Identity is identity.Identity
    for each in (package.Identity, qm.node):
        assert pickle.loads(pickle.dumps(each)) is each  # noqa: S301


def test_other_packages_are_bound_as_usual() -> None:
    importlib.import_module("quietmean.core")
    assert isinstance(qm.core, ModuleType)
    assert qm.core.errors.InputError is InputError
