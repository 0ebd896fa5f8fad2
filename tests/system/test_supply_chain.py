"""What is installed can be compared: the wheel has the same bytes each time, and a list names every package with a digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest

from support.programs import ROOT, module_of

BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def built(folder: Path, when: int) -> str:
    """SHA-256 of the wheel of a copy of the source, whose files are of another time."""
    copy = folder / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src" / "quietmean", copy / "src" / "quietmean", ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*"):
        os.utime(path, (when, when))
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=copy, capture_output=True, text=True, check=True, timeout=120
    )
    return hashlib.sha256((folder / done.stdout.strip().splitlines()[-1]).read_bytes()).hexdigest()


def test_a_wheel_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    pytest.importorskip("hatch_vcs", reason="pip fetches it where a wheel is built")
    assert built(tmp_path / "one", 1_700_000_000) == built(tmp_path / "two", 1_800_000_000)


tool = module_of("tools", "sbom")


def test_every_package_is_listed_with_its_version(tool: ModuleType) -> None:
    """Those that the package asks for, and what these ask for; with an extra more."""
    plain, more = (tool.document(extras) for extras in ((), ("report",)))
    names = {one["name"]: one["version"] for one in plain["components"]}
    assert names.keys() >= {"numpy", "scipy", "cryptography", "cffi", "pydantic", "pydantic-core", "msgspec"}
    assert {one["name"] for one in more["components"]} - names.keys() >= {"matplotlib", "jinja2", "markupsafe"}
    assert "pytest" not in names
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    for name, version in names.items():
        assert {tool.canonical(one): its for one, its in pinned.items()}[name], f"{name} {version} is not pinned"


def test_a_digest_is_of_the_files_that_were_installed(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    one = distribution("numpy")
    assert tool.digest(one) == tool.digest(one)
    record = one.read_text("RECORD") or ""
    changed = record.replace("sha256=", "sha256=x", 1)
    monkeypatch.setattr(type(one), "read_text", lambda self, name: changed)
    other = tool.digest(one)
    monkeypatch.undo()
    assert other != tool.digest(one)
    # What has no hash is of this machine alone: compiled files, the list itself.
    monkeypatch.setattr(type(one), "read_text", lambda self, name: record + "\n__pycache__/new.pyc,,\n")
    found = tool.digest(one)
    monkeypatch.undo()
    assert found == tool.digest(one)


def test_the_document_is_the_same_each_time(tool: ModuleType) -> None:
    assert tool.document(("report",)) == tool.document(("report",))
    assert tool.document(())["bomFormat"] == "CycloneDX"


def test_an_audit_passes_only_where_every_version_was_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what pip-audit prints of an index with a list, with none, and of none that answers."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import audit

    clean = {"name": "numpy", "version": "2.3.1", "vulns": []}
    flawed = {"name": "pip", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
    unknown = {"name": "absl-py", "skip_reason": "Dependency not found"}
    for packages, code, words in (
        ([clean], 0, "none of 1 packages has a known vulnerability"),
        ([clean, flawed], 1, "pip 1.0 has PYSEC-1: 1.1 mends it"),
        ([clean, unknown], 2, "1 of 2 packages were not audited"),
        ([flawed, unknown], 1, "1 of 2 packages were not audited"),
    ):
        ended, sentences = audit.outcome(json.dumps({"dependencies": packages}))
        assert ended == code
        assert words in " ".join(sentences)
    ended, (sentence,) = audit.outcome("")
    assert ended == 2
    assert sentence.startswith("nothing was audited")
