"""One piece of a sweep: a function, its parameters and its own seed. What it returns depends on nothing else."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quietmean.core.codec import canonical_json, digest
from quietmean.core.errors import InputError
from quietmean.randomness.insecure import insecure_seed

Cell = str | int | float | bool | None
Row = dict[str, Cell]
TaskFunction = Callable[..., Sequence[Mapping[str, Any]]]

VERSION = version("quietmean")
_SEED_BYTES = 7


@dataclass(frozen=True)
class Task:
    """``function(seed=<int>, **parameters)`` returns rows: flat mappings of names to numbers, words, truth values or None.

    ``function`` is defined at the top level of a module, so that other processes find it. ``parameters`` are plain JSON.
    ``seed`` labels the task's random numbers; by default its parameters do. Tasks with one label in common draw the same numbers.
    ``version``: raise it when the function comes to mean something else although no Python file of its folder changed.
    """

    function: TaskFunction
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: str = ""
    version: int = 1

    def __post_init__(self) -> None:
        if "<" in self.function.__qualname__:
            raise InputError(f"{self.name} is defined inside a function, where other processes cannot find it. Move it out.")
        if "seed" in self.parameters:
            raise InputError(f"a parameter of {self.name} is called seed: that name is taken by the task's random numbers")
        try:
            canonical_json(self.parameters)
        except (TypeError, ValueError) as error:
            raise InputError(f"parameters of {self.name} are no plain JSON ({error}). Give numbers, words and lists.") from None

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def label(self) -> str:
        return self.seed or canonical_json(self.parameters).decode()

    def number(self, root: int) -> int:
        """The seed that the function gets; ``root`` is that of the whole sweep. Insecure by construction."""
        return int.from_bytes(insecure_seed(root, "sweep task", self.label).secret[:_SEED_BYTES], "big")

    def describe(self) -> dict[str, Any]:
        """What the rows depend on, apart from the sweep's own seed."""
        return {
            "function": self.name,
            "version": self.version,
            "source": self.source,
            "quietmean": VERSION,
            "parameters": dict(self.parameters),
            "seed": self.label,
        }

    def key(self, root: int) -> str:
        """SHA-256 of all that the rows depend on, hexadecimal: the name under which they are kept."""
        return digest({**self.describe(), "root": root})

    @cached_property
    def source(self) -> str:
        """Digest of the Python files in the function's folder: after a change of any of them nothing old is taken for new."""
        return _source_digest(inspect.getsourcefile(self.function))

    def rows(self, root: int) -> list[Row]:
        """Run it."""
        return [{str(name): _cell(value, self) for name, value in row.items()} for row in self._call(root)]

    def _call(self, root: int) -> Sequence[Mapping[str, Any]]:
        return self.function(**self.parameters, seed=self.number(root))


@cache
def _source_digest(path: str | None) -> str:
    if path is None or not Path(path).is_file():
        return ""
    files = sorted(Path(path).parent.glob("*.py"))
    return digest([[file.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in files])[:16]


def _cell(value: Any, task: Task) -> Cell:
    # Numbers of numpy print and compare like ours, but only ours survive a trip through JSON.
    plain = value.item() if hasattr(value, "item") else value
    if plain is None or isinstance(plain, str | int | float | bool):
        return plain
    raise InputError(
        f"{task.name} returned {type(value).__name__} in a row: rows hold numbers, words, truth values and None only"
    )
