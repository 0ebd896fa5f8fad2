"""Modules that belong to no package: tools of this repository, and its examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def module_of(folder: str, name: str) -> Callable[[], Iterator[ModuleType]]:
    """Make a fixture: the module of a file in a folder of this repository, while those beside it can be imported too."""

    @pytest.fixture(scope="module", name="tool" if folder == "tools" else name)
    def loaded() -> Iterator[ModuleType]:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(ROOT / folder))
            yield import_module(name)

    return loaded
