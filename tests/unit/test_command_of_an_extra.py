"""A sentence about a missing extra names packages that an index has: quietmean may come from a wheel or a clone."""

from __future__ import annotations

import shlex
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from quietmean.core import extensions

EXTRAS: dict[str, list[str]] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


@pytest.mark.parametrize("extra", [extra for extra, packages in EXTRAS.items() if "quietmean[" not in "".join(packages)])
def test_it_installs_the_packages_of_the_extra(extra: str) -> None:
    command, verb, *packages = shlex.split(extensions.command_for(extra))
    assert (command, verb) == ("pip", "install")
    assert sorted(packages) == sorted(EXTRAS[extra])


def test_without_metadata_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extensions, "requires", absent)
    assert extensions.command_for("report") == "pip install quietmean[report]"
