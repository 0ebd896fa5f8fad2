"""A release in a copy of this repository: built, compared, installed in a new environment, and asked for its version."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from support.programs import ROOT, module_of

tool = module_of("tools", "release")
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
    dist = {path.name.removeprefix(f"quietmean-{number}"): path for path in (copy / "dist").iterdir()}
    assert dist.keys() == {".tar.gz", "-py3-none-any.whl", "-kept.tar.gz", ".sbom.json", ".provenance.json"}
    about = json.loads(dist[".provenance.json"].read_text())
    others = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in dist.items() if "provenance" not in name}
    assert about["files"] == others
    assert (
        about["commit"]
        == subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=copy, check=True, capture_output=True, text=True).stdout.strip()
    )
    assert json.loads(dist[".sbom.json"].read_text())["bomFormat"] == "CycloneDX"
    assert "Nothing was uploaded" in done.stdout
    # What this release made, the command of this source opens.
    shutil.unpack_archive(dist["-kept.tar.gz"], tmp_path / "kept", filter="data")
    assert opened(tmp_path / "kept" / number, f"{sys.executable} -m quietmean")


def opened(folder: Path, command: str) -> str:
    """What was opened, by the tool that made it."""
    tool = ROOT / "tools" / "kept_files.py"
    done = subprocess.run(
        [sys.executable, tool, "open", folder, command], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("earlier", sorted((ROOT / "tests/data/releases").glob("*.tar.gz")), ids=lambda path: path.name)
def test_what_sites_keep_of_an_earlier_release_is_opened(earlier: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(earlier, tmp_path, filter="data")
    for folder in tmp_path.iterdir():
        assert opened(folder, f"{sys.executable} -m quietmean")


def test_the_build_backend_is_pinned_to_what_the_tests_use() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert all("==" in one for one in required)
    assert set(required) <= set((ROOT / "constraints.txt").read_text().splitlines())


def test_what_was_installed_is_listed_with_digests_and_without_addresses(tool: ModuleType) -> None:
    def one(name: str, number: str) -> dict[str, object]:
        archive = {"url": "https://index.example/a.whl", "archive_info": {"hashes": {"sha256": number * 64}}}
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": archive}

    pinned = tool.pinned({"install": [one("numpy", "a"), one("Jinja2", "b")]})
    assert pinned == f"Jinja2==1.0 --hash=sha256:{'b' * 64}\nnumpy==1.0 --hash=sha256:{'a' * 64}\n"
