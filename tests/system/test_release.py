"""A release in a copy of this repository: built, compared, installed in a new environment, and asked for its version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="a release is made in a repository")
def test_a_tagged_copy_is_released_and_its_wheel_says_its_version(tmp_path: Path) -> None:
    for module in ("hatchling", "hatch_vcs", "twine"):
        pytest.importorskip(module, reason="make release installs it")
    copy = tmp_path / "copy"
    subprocess.run([*GIT, "clone", "-q", ROOT, copy], check=True, timeout=300)
    log = copy / "CHANGELOG.md"
    log.write_text(re.sub(r"^(## [\d.]+) \(.*\)$", r"\1 (2026-12-01)", log.read_text(), count=1, flags=re.MULTILINE))
    number = re.findall(r"^## ([\d.]+) ", log.read_text(), re.MULTILINE)[0]
    subprocess.run([*GIT, "commit", "-q", "-a", "-m", "A release"], cwd=copy, check=True, timeout=60)
    subprocess.run([*GIT, "tag", f"v{number}"], cwd=copy, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, copy / "tools" / "release.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f": quietmean {number}\n" in done.stdout
    assert {path.name for path in (copy / "dist").iterdir()} == {
        f"quietmean-{number}.tar.gz",
        f"quietmean-{number}-py3-none-any.whl",
    }
