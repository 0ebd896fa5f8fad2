"""The JavaScript that seals contributions, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FORM = Path(__file__).parents[2] / "src/quietmean/form"
DRIVER = Path(__file__).with_name("sealing.mjs")


def asked(questions: Sequence[dict[str, Any]], folder: Path = FORM) -> list[dict[str, Any]]:
    """The ``answer`` or the ``error`` of each question to the modules of a folder, in one process."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node runs the JavaScript that seals, and is not on this machine")
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    command = [node, str(DRIVER), folder.as_uri()]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(questions)
    return answers


def answers_of(questions: Sequence[dict[str, Any]], folder: Path = FORM) -> list[Any]:
    """The answers, where none is an error."""
    found = asked(questions, folder)
    assert not [each["error"] for each in found if "error" in each]
    return [each["answer"] for each in found]


def mutated(folder: Path, module: str, before: str, after: str) -> Path:
    """A copy of the modules in ``folder``, of which one has other text at one place."""
    shutil.copytree(FORM, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    path = folder / f"{module}.js"
    text = path.read_text()
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, after))
    return folder
