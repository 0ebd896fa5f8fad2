"""No fact is lost: JSON documents have all keys of before the first screens were short, and a page says which is where."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.pages import DOCS

BEFORE: dict[str, list[str]] = json.loads((Path(__file__).parents[1] / "data" / "json_keys.json").read_text())
PAGE = "reference/output.md"
# Sections of the page, and the command whose document has the keys of their tables.
SECTIONS = {
    "run, demo, result, and the end of join": "run",
    "verify receipt": "verify receipt",
    "plan": "plan",
    "site contract, and the terms before the yes": "site contract",
}
MADE = """
run --data v.csv 'mean(age in 0..110)' --parties 5 --epsilon 4 --protocol packed-sharing --out made --json
verify receipt made/receipt.json --json
plan --parties 6 --epsilon 1 --json
study new --name ages 'mean(age in 0..110)' --colluding 1 --protocol cordp-dme --out study.toml
key new --key north.key --name north
study invite study.toml --key north.key --out study.invitation
accept study.invitation --key north.key --name north --address north.example:7001 --out north.entry
accept study.invitation --key south.key --name south --address south.example:7001 --out south.entry
accept study.invitation --key east.key --name east --address east.example:7001 --out east.entry
study seal study.invitation north.entry south.entry east.entry --key north.key --out study.sealed
site contract study.sealed --key north.key --json
"""


def keys(document: Any, path: str = "") -> Iterator[str]:
    """Paths of all keys of a document; items of a list have one path."""
    if isinstance(document, dict):
        for key, value in document.items():
            inner = f"{path}.{key}" if path else key
            yield inner
            yield from keys(value, inner)
    elif isinstance(document, list):
        for value in document:
            yield from keys(value, f"{path}[]")


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Keys of what each command writes."""
    folder = tmp_path_factory.mktemp("facts")
    (folder / "v.csv").write_text("age\n" + "\n".join(str(20 + row % 71) for row in range(400)))
    written = {}
    for line in MADE.strip().splitlines():
        command = [sys.executable, "-m", "quietmean.cli.main", *shlex.split(line)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, (line, done.stderr)
        if line.endswith("--json"):
            written[next(name for name in BEFORE if line.startswith(f"{name} "))] = set(keys(json.loads(done.stdout)))
    return written


@pytest.mark.slow
@pytest.mark.parametrize("command", BEFORE)
def test_json_has_every_key_that_it_had(command: str, now: dict[str, set[str]]) -> None:
    assert len(BEFORE[command]) > 20
    assert set(BEFORE[command]) - now[command] == set()


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_keys_that_the_page_names_are_written(section: str, now: dict[str, set[str]]) -> None:
    (table,) = re.findall(rf"(?ms)^## {re.escape(section)}\n(.*?)(?=^## |\Z)", (DOCS / PAGE).read_text("utf-8"))
    column = [row.split("|")[4] for row in table.splitlines() if row.startswith("| ") and "---" not in row][1:]
    named = {key for cell in column for key in re.findall(r"`([^`]+)`", cell)}
    assert len(named) >= len(column)
    assert named - now[SECTIONS[section]] == set()
    assert re.findall(r"(?m)^## (.+)$", (DOCS / PAGE).read_text("utf-8")) == list(SECTIONS)
