"""The shape of the package: party machines are pure, randomness has one source, files stay short."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.interfaces import Execution, registry, silence
from golden.machines import load
from support.effort import covering
from support.sources import PACKAGE, modules, parsed, text_of, walked

# The only folder that may ask the operating system for randomness.
RANDOMNESS = "randomness"
IMPURE = frozenset(
    ["socket", "ssl", "asyncio", "anyio", "logging", "time", "random", "secrets", "numpy.random", "os", "pathlib", "datetime"]
)
IMPURE_CALLS = frozenset(["open", "print", "input", "__import__", "exec", "eval"])


@cache
def imported(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in walked(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return frozenset(names)


class Sources:
    """The modules of a package by name, and what they import."""

    def __init__(self, package: Path) -> None:
        self._root = package.parent
        self.package = package.name
        self._imports: dict[tuple[str, bool], set[str]] = {}
        self._used: dict[str, list[str]] = {}

    def path(self, module: str) -> Path | None:
        """Where a module's text is; None if it is none of this package."""
        base = self._root.joinpath(*module.split("."))
        known = [base / "__init__.py", base.with_suffix(".py")] if module.split(".")[0] == self.package else []
        return next((path for path in known if path.is_file()), None)

    def nodes(self, module: str, deep: bool) -> Iterator[ast.AST]:
        """All nodes but those for type checkers; without ``deep`` those only that run when the module is imported."""
        path = self.path(module)
        waiting: list[ast.AST] = [parsed(path)] if path else []
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                waiting += node.orelse
                continue
            yield node
            if deep or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                waiting += ast.iter_child_nodes(node)

    def imports(self, module: str, deep: bool) -> set[str]:
        """Full names: of modules, and of what is taken out of them, which may be modules too."""
        if (module, deep) not in self._imports:
            self._imports[module, deep] = self._found_imports(module, deep)
        return self._imports[module, deep]

    def _found_imports(self, module: str, deep: bool) -> set[str]:
        names: set[str] = set()
        for node in self.nodes(module, deep):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = self._source(module, node)
                taken = {f"{source}.{alias.name}" for alias in node.names}
                # Of a package's own modules, the folder's exports are not what is wanted.
                names |= taken if all(map(self.path, taken)) else taken | {source}
        return names

    def reached(self, start: Iterable[str]) -> set[str]:
        """Modules of the package that these import, and theirs; what functions import counts inside ``protocols``."""
        found: set[str] = set()
        waiting = list(start)
        while waiting:
            module = waiting.pop()
            if module not in found and self.path(module):
                found.add(module)
                waiting += self.imports(module, self.is_protocol(module))
        return found

    def is_protocol(self, module: str) -> bool:
        return module.split(".")[1:2] == ["protocols"]

    def impurities(self, start: Iterable[str]) -> list[str]:
        """What is impure in all that these modules reach."""
        found = []
        for module in sorted(self.reached(start)):
            allowed = {"secrets"} if module.split(".")[1:2] == [RANDOMNESS] else set()
            deep = self.is_protocol(module)
            imports = self.imports(module, deep)
            parts = {name.split(".")[0] for name in imports} | imports
            found += [f"{module} imports {name}" for name in sorted(parts & IMPURE - allowed)]
            found += [f"{module} uses {use}" for use in self.uses(module)]
        return found

    def uses(self, module: str) -> list[str]:
        """What it calls that is impure."""
        if module not in self._used:
            self._used[module] = sorted(self._uses(module))
        return self._used[module]

    def _uses(self, module: str) -> Iterator[str]:
        for node in self.nodes(module, deep=True):
            if isinstance(node, ast.Attribute) and node.attr == "random" and ast.unparse(node) in ("np.random", "numpy.random"):
                yield "numpy.random"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                yield f"{node.func.id}()"

    def _source(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        path = self.path(module)
        parts = module.split(".") + (["__init__"] if path and path.name == "__init__.py" else [])
        return ".".join([*parts[: -node.level], *([node.module] if node.module else [])])


@cache
def sources_of(package: Path) -> Sources:
    """Read once for all protocols."""
    return Sources(package)


def machines_of(protocol: str) -> list[Any]:
    """Real machines of all parties in all golden executions: every role that the protocol has."""
    machines = []
    for case in load("machines")[protocol]:
        execution, values = Execution.from_json(case["execution"]), np.array(case["values"])
        machines += [execution.machine(party, value, silence()) for party, value in enumerate(values)]
    return machines


def modules_of(value: Any, seen: set[int]) -> set[str]:
    """Where the classes of an object are defined, and of all that it holds, as far as they are ours."""
    if id(value) in seen:
        return set()
    seen.add(id(value))
    found = {kind.__module__ for kind in type(value).__mro__ if kind.__module__.split(".")[0] == PACKAGE.name}
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        parts = list(value)
    else:
        parts = [getattr(value, name, None) for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        parts += list(getattr(value, "__dict__", {}).values())
    return found.union(*(modules_of(part, seen) for part in parts))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("protocol", registry())
def test_party_machines_are_pure(protocol: str) -> None:
    """No clock, no network, no file, no randomness of their own: not in any module that a machine is made of or reaches."""
    seen: set[int] = set()
    machines = machines_of(protocol)
    assert machines, protocol
    start = set[str]().union(*(modules_of(machine, seen) for machine in machines))
    assert sources_of(PACKAGE).impurities(start) == []


IMPURE_SOURCES = {
    "directly": ({"protocols/mine/party.py": "import time"}, ["imports time"]),
    "with another name": ({"protocols/mine/party.py": "from os import path as p"}, ["imports os"]),
    "inside a function": ({"protocols/mine/party.py": "def f():\n    import secrets"}, ["imports secrets"]),
    "inside a class": ({"protocols/mine/party.py": "class A:\n    import asyncio.events"}, ["imports asyncio"]),
    "as an attribute": ({"protocols/mine/party.py": "import numpy as np\ndef f():\n    np.random.rand()"}, ["uses numpy.random"]),
    "as a part": ({"protocols/mine/party.py": "from numpy import random"}, ["imports numpy.random"]),
    "without an import": ({"protocols/mine/party.py": "def f():\n    return open('x')"}, ["uses open()"]),
    "two steps away": (
        {
            "protocols/mine/party.py": "from package.protocols.mine import edge",
            "protocols/mine/edge.py": "from ..other import helper",
            "protocols/other.py": "from package.core.codec import helper",
            "core/codec.py": "import logging",
        },
        ["imports logging"],
    ),
    "through a package": (
        {
            "protocols/mine/party.py": "from package.core import b",
            "core/__init__.py": "from .b import c",
            "core/b.py": "import datetime",
        },
        ["imports datetime"],
    ),
    "randomness has a door of its own": (
        {"protocols/mine/party.py": "import package.randomness", "randomness/__init__.py": "import secrets"},
        [],
    ),
    "and no other": (
        {"protocols/mine/party.py": "import package.randomness", "randomness/__init__.py": "import os"},
        ["imports os"],
    ),
    "for type checkers": (
        {"protocols/mine/party.py": "import typing\nif typing.TYPE_CHECKING:\n    import time\nelse:\n    import math"},
        [],
    ),
    "beyond a machine's reach": ({"protocols/mine/party.py": "import math", "protocols/mine/protocol.py": "import time"}, []),
    "in a function elsewhere": (
        {
            "protocols/mine/party.py": "from package.core import b",
            "core/__init__.py": "",
            "core/b.py": "def f():\n    import time",
        },
        [],
    ),
}


@pytest.mark.parametrize(("files", "expected"), IMPURE_SOURCES.values(), ids=IMPURE_SOURCES.keys())
def test_impure_modules_are_found(tmp_path: Path, files: dict[str, str], expected: list[str]) -> None:
    """A test of the test above."""
    for name, text in files.items():
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = Sources(tmp_path / "package").impurities(["package.protocols.mine.party"])
    assert [line.split(" ", 1)[1] for line in found] == expected


def test_every_protocol_folder_is_a_protocol_with_machines_for_every_party() -> None:
    folders = {path.name for path in (PACKAGE / "protocols").iterdir() if (path / "__init__.py").is_file()} - {
        "committee",
        "mechanism",
        "push_sum",
    }
    defined = {protocol.__module__.split(".")[2] for protocol in registry().values()}
    assert folders == defined
    for name in registry():
        for machine in machines_of(name):
            assert machine.rounds >= 1
            state = machine.start().state
            assert isinstance(state, machine.state_type), name
            assert state.round == 1


def test_randomness_has_one_source() -> None:
    for path in modules():
        if path.parent.name == RANDOMNESS:
            continue
        text = text_of(path)
        assert "np.random" not in text, path
        assert not {"random", "secrets", "numpy.random"} & imported(path), path


def test_only_the_node_opens_sockets() -> None:
    for path in modules():
        if "node" not in path.parts:
            assert not {"socket", "ssl"} & imported(path), path


def test_files_are_short() -> None:
    for path in modules():
        assert len(text_of(path).splitlines()) <= 450, path


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


def test_no_circle_between_files_either_where_one_is_for_type_checkers() -> None:
    """Who must know another's type knows it: two files that know each other are read as one."""
    graph = dict[str, set[str]]()
    for here, there in _arrows(PACKAGE, with_types=True):
        graph.setdefault(".".join(here), set()).add(".".join(there))
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of files: {' -> '.join(error.args[1])}")


def test_circles_for_type_checkers_are_found(tmp_path: Path) -> None:
    package = tmp_path / "quietmean"
    package.mkdir()
    (package / "a.py").write_text("from quietmean.b import x")
    (package / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from quietmean.a import y")
    names = [("quietmean", "a"), ("quietmean", "b")]
    assert _arrows(package, with_types=True) == {(names[0], names[1]), (names[1], names[0])}
    assert _arrows(package) == {(names[0], names[1])}


def test_rooms_of_the_node_are_entered_by_their_faces() -> None:
    rooms = {path.parent.name for path in (PACKAGE / "node").glob("*/__init__.py")}
    for here, there in _arrows(PACKAGE):
        inner = there[:2] == ("quietmean", "node") and len(there) > 3 and there[2] in rooms
        if inner and there[3] != "__init__":
            assert here[:3] == there[:3], f"{'.'.join(here)} imports {'.'.join(there)}, not {'.'.join(there[:3])}"


@cache
def _arrows(package: Path, *, with_types: bool = False) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(file, file that it imports), both as names from the root; a folder's own file is its ``__init__``.

    ``with_types``: also what is imported for type checkers alone.
    """
    names = {path.relative_to(package.parent).with_suffix("").parts: path for path in sorted(package.rglob("*.py"))}
    return {
        (here, there) for here, path in names.items() for there in _imported_files(path, set(names), with_types) if here != there
    }


def _imported_files(path: Path, names: set[tuple[str, ...]], with_types: bool) -> Iterator[tuple[str, ...]]:
    """Also of imports inside functions, which hide a circle from the interpreter only."""
    waiting: list[ast.AST] = [parsed(path)]
    while waiting:
        node = waiting.pop()
        for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if isinstance(node, ast.If) and for_types and not with_types:
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


# --- what refuses says so ---------------------------------------------------------------------------------------------

SAYS = ("InputError", "Raises", "refuse")


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Of a function, without what is defined in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _own_nodes(node)


def silent_refusals(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Public functions of these (file, its tree) that raise an InputError themselves, and neither they nor their class say so.

    A method without a docstring has that of the class that it overrides.
    """
    found, said = [], set[str]()
    for place, tree in trees:
        for owner in walked(tree):
            if not isinstance(owner, ast.Module | ast.ClassDef):
                continue
            for function in (node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
                own = ast.get_docstring(function) or ""
                if any(word in own for word in SAYS):
                    said.add(function.name)
                    continue
                raised = [node.exc for node in _own_nodes(function) if isinstance(node, ast.Raise) and node.exc is not None]
                refuses = any(ast.unparse(error).startswith("InputError(") for error in raised)
                names = [function.name, *([owner.name] if isinstance(owner, ast.ClassDef) else [])]
                of_class = isinstance(owner, ast.ClassDef) and any(word in (ast.get_docstring(owner) or "") for word in SAYS)
                if refuses and not of_class and not any(name.startswith("_") for name in names):
                    found.append((place, function.name, own))
    return [f"{place}: {name}" for place, name, own in found if own or name not in said]


def test_public_functions_that_refuse_say_so() -> None:
    """But commands, whose docstrings are their help."""
    trees = [(path.relative_to(PACKAGE).as_posix(), parsed(path)) for path in modules()]
    assert [name for name in silent_refusals(trees) if not (name.startswith("cli/") and name.endswith("_command"))] == []


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("def f():\n    raise InputError('no')", ["a.py: f"]),
        ("def f():\n    'One.'\n    raise InputError('no')", ["a.py: f"]),
        ("def f():\n    'Raises :class:`InputError` always.'\n    raise InputError('no')", []),
        ("def _f():\n    raise InputError('no')", []),
        ("class A:\n    def f(self):\n        raise InputError('no')", ["a.py: f"]),
        ("class A:\n    'Raises InputError.'\n    def f(self):\n        raise InputError('no')", []),
        (
            "class A:\n    def f(self):\n        'Raises InputError.'\n"
            "class B(A):\n    def f(self):\n        raise InputError('no')",
            [],
        ),
        ("def f():\n    def g():\n        raise InputError('no')\n    return g", []),
    ],
)
def test_silent_refusals_are_found(text: str, silent: list[str]) -> None:
    assert silent_refusals([("a.py", ast.parse(text))]) == silent


# --- long lists of parameters ------------------------------------------------------------------------------------------

# What is given together belongs together: from so many parameters on, there is a type that is missing.
MANY_PARAMETERS = 9
# Functions that have so many: constructors and commands whose keywords are what users write.
WITH_MANY = 9


def with_many_parameters(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Functions and methods of these (file, its tree) with at least :data:`MANY_PARAMETERS`, without self or cls."""
    long = []
    for place, tree in trees:
        for function in walked(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                given = function.args
                names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                rest = [each for each in (given.vararg, given.kwarg) if each is not None]
                if len(names) + len(rest) - (names[:1] in (["self"], ["cls"])) >= MANY_PARAMETERS:
                    long.append(f"{place}: {function.name}")
    return long


def test_few_functions_have_many_parameters() -> None:
    long = with_many_parameters((path.relative_to(PACKAGE).as_posix(), parsed(path)) for path in modules())
    assert len(long) <= WITH_MANY, f"give a type to what belongs together: {', '.join(long)}"


@pytest.mark.parametrize(
    ("parameters", "many"),
    [
        ("a, b, c, d, e, f, g, h", False),
        ("self, a, b, c, d, e, f, g, h", False),
        ("a, b, c, /, d, e, f, *, g, h, i", True),
        ("a, b, c, d, e, f, g, *h, **i", True),
    ],
)
def test_functions_with_many_parameters_are_counted(parameters: str, many: bool) -> None:
    tree = ast.parse(f"class A:\n    async def f({parameters}): ...")
    assert with_many_parameters([("a.py", tree)]) == (["a.py: f"] if many else [])


# --- errors that nobody takes, and bytes of strangers -------------------------------------------------------------------

# Where tasks are made, each with an owner; and where another thread waits for what it hands to a loop.
OWNERS = {
    "node/tasks.py": {"create_task"},
    "sessions/joined.py": {"run_coroutine_threadsafe"},
}
MAKERS = {"create_task", "ensure_future", "run_coroutine_threadsafe", "run_in_executor"}


def made_in(tree: ast.Module) -> set[str]:
    """Names of the functions called in it that begin work beside their caller."""
    calls = (node.func for node in walked(tree) if isinstance(node, ast.Call))
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return names & MAKERS


def test_every_task_has_an_owner() -> None:
    """What one raises would else be seen by nobody: the node lives on, and answers nobody."""
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        assert made_in(parsed(path)) == OWNERS.get(place, set()), path


def test_tasks_without_an_owner_are_found() -> None:
    assert made_in(ast.parse("async def f():\n    asyncio.create_task(g())")) == {"create_task"}
    assert made_in(ast.parse("from asyncio import ensure_future\nensure_future(g())")) == {"ensure_future"}
    assert made_in(ast.parse("loop.create_connection(g)")) == set()


def test_one_function_knows_the_errors_of_the_decoder() -> None:
    """msgspec raises UnicodeDecodeError and RecursionError, too: who names only its own lets a stranger's bytes through."""
    for path in modules():
        if path.relative_to(PACKAGE).as_posix() == "core/codec.py":
            continue
        names = {node.attr for node in walked(parsed(path)) if isinstance(node, ast.Attribute)}
        assert not names & {"DecodeError", "ValidationError", "MsgspecError"}, path
        text = text_of(path)
        assert "RecursionError" not in text, path
        assert "msgspec.json.decode" not in text, path
        assert "msgspec.msgpack.decode" not in text, path
        assert "msgspec.convert" not in text, path


def test_what_starts_imports_nothing_that_is_slow() -> None:
    """What pages, plans with a number of records or attacks need takes longer to import than all else of a party together."""
    code = "import sys, quietmean.cli.join, quietmean.cli.run, quietmean.studies.party; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert {"matplotlib", "pandas", "scipy.stats", "seaborn", "sklearn"}.isdisjoint(done.stdout.split())


def test_who_reads_a_receipt_needs_no_node() -> None:
    """Certificates are computed from a file alone: sockets, event loops and ciphers took a fifth of that time."""
    code = "import sys, quietmean.cli.certify, quietmean.studies; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert {"quietmean.node", "asyncio", "ssl"}.isdisjoint(done.stdout.split())


def test_who_writes_a_protocol_reads_one_short_class_and_fills_in_few_methods(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    core = parsed(PACKAGE / "protocols" / "mechanism.py")
    (mechanism,) = (node for node in core.body if isinstance(node, ast.ClassDef) and node.name == "Mechanism")
    assert [ast.unparse(base) for base in mechanism.bases] == ["Configured", "ABC"]
    assert (mechanism.end_lineno or 0) - mechanism.lineno < 200
    assert sum(isinstance(node, ast.FunctionDef) for node in mechanism.body) <= 21
    (traits,) = (node for node in parsed(PACKAGE / "protocols" / "traits.py").body if getattr(node, "name", "") == "Traits")
    assert isinstance(traits, ast.ClassDef)
    assert not traits.bases
    # One that was written from outside, by the page that tells how.
    path = pytestconfig.rootpath / "tests" / "thirdparty" / "quietmean_groups" / "protocol.py"
    (written,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    assert len([one for one in written.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]) <= 8


# What an analyst asks for, and what a programmer fits: both are called so in their fields.
TWICE = {"LinearRegression", "LogisticRegression"}


def test_a_public_class_has_a_name_of_its_own() -> None:
    names = [
        node.name
        for path in modules()
        for node in walked(parsed(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in names if names.count(name) > 1} == TWICE


def test_every_table_of_refusals_has_its_test(pytestconfig: pytest.Config) -> None:
    tests = pytestconfig.rootpath / "tests"
    written = "\n".join(path.read_text() for path in tests.rglob("test_*.py"))
    used = re.findall(r'\brefused_(?:rows|table)\("(\w+)"\)', written)
    assert sorted(used) == sorted(tomllib.loads((tests / "data" / "refusals.toml").read_text("utf-8")))


@pytest.mark.parametrize(("features", "ways"), [(1, 1), (1, 9), (9, 1), (18, 6), (6, 18), (7, 7)])
def test_a_sample_of_a_matrix_has_each_value_of_each_parameter(features: int, ways: int) -> None:
    """Where some cells are missing, too; and no value much more often than another."""
    cells = [{"feature": one, "way": other} for one in range(features) for other in range(ways) if (one * other) % 5 != 4]
    kept = [cells[place] for place in covering(cells)]
    for name in ("feature", "way"):
        assert {cell[name] for cell in kept} == {cell[name] for cell in cells}
    assert len(kept) <= max(features, ways) + 1
    assert max(Counter(cell["way"] for cell in kept).values()) <= -(-len(kept) // ways) + 1
