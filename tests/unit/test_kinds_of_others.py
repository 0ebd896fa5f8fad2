"""Protocols and statistics of other distributions: found by entry points, one sentence for what is wrong with them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean import protocols, statistics
from support.refusals import refused

PROTOCOL = """
from quietmean.protocols.local_dp import LocalDP

class Mine(LocalDP):
    name = "mine"

class Clash(LocalDP):
    name = "inca"
"""
STATISTIC = """
from quietmean.statistics.kinds.means import Mean

class Mine(Mean):
    name = "mine"

class Clash(Mean):
    name = "mean"
"""
UNFINISHED = {
    "protocol": "\nfrom quietmean.protocols import Mechanism as Base, Traits\n",
    "statistic": "\nfrom quietmean.statistics import Statistic as Base\n",
}
SUMMARY = {"protocol": "    TRAITS = Traits(summary='mine')\n", "statistic": "    summary = 'mine'\n"}
SOURCES = {"protocol": PROTOCOL, "statistic": STATISTIC}
REGISTRIES: dict[str, Callable[[], Any]] = {"protocol": protocols.registry, "statistic": statistics.registry}
GET: dict[str, Callable[[str], Any]] = {"protocol": protocols.get_protocol, "statistic": statistics.get_statistic}
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with one entry point on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(word: str, target: str, source: str | None = None) -> None:
        (tmp_path / "kinds_of_others.py").write_text(SOURCES[word] if source is None else source)
        info = tmp_path / "others-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[quietmean.{word}s]\nany = kinds_of_others:{target}\n")
        forget()

    def forget() -> None:
        for registry in (protocols.registry, statistics.registry):
            registry.cache_clear()

    yield write
    sys.modules.pop("kinds_of_others", None)
    forget()


@pytest.mark.parametrize("word", SOURCES)
def test_it_is_one_of_ours(install: Install, word: str) -> None:
    before = set(REGISTRIES[word]())
    install(word, "Mine")
    assert set(REGISTRIES[word]()) == {*before, "mine"}
    assert GET[word]("mine").__name__ == "Mine"
    refused(rf"{word} 'mne' is unknown \(did you mean 'mine'\?\). Choose one of .*mine", GET[word], "mne")


@pytest.mark.parametrize("word", SOURCES)
@pytest.mark.parametrize(
    ("target", "source", "words"),
    [
        ("Mine", "import no_such_package_anywhere", "cannot be loaded (No module named 'no_such_package_anywhere')"),
        ("Mine", "raise RuntimeError('no licence')", "cannot be loaded (no licence)"),
        ("Missing", None, "cannot be loaded"),
        ("Mine", "Mine = 3", "is not a subclass of"),
        ("Mine", "class Mine: pass", "is not a subclass of"),
        ("Clash", None, "is registered already. Give it another name"),
        ("Mine", "{base}class Mine(Base): summary = 'mine'", "does not define name, "),
    ],
)
def test_a_broken_one(install: Install, word: str, target: str, source: str | None, words: str) -> None:
    install(word, target, None if source is None else source.replace("{base}", UNFINISHED[word]))
    caught = refused(re.escape(words), REGISTRIES[word])
    told = caught
    assert told.startswith(word)
    assert f"(kinds_of_others:{target})" in told
    assert "\n" not in told


@pytest.mark.parametrize(("word", "missing"), [("protocol", "draw_schedule, machine, rounds"), ("statistic", "decode, features")])
def test_an_unfinished_one_is_told_what_it_lacks(install: Install, word: str, missing: str) -> None:
    install(word, "Mine", UNFINISHED[word] + "class Mine(Base):\n    name = 'mine'\n" + SUMMARY[word])
    refused(f"does not define {missing}. Repair or uninstall it", REGISTRIES[word])
