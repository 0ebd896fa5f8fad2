"""The version comes from the repository's tags, wherever the source is from; a release waits until all files name it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from packaging.version import Version

from support.programs import ROOT, module_of
from support.refusals import raised, refused_rows

LOG = "# Changelog\n\n## 0.3.0 ({})\n\n- New.\n\n## 0.2.0 (2026-01-01)\n"
FILES = {"CITATION.cff": "version: 0.3.0\n", "r/DESCRIPTION": "Version: 0.3.0\n", "CHANGELOG.md": LOG.format("2026-12-01")}
tool = module_of("tools", "release")


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A repository of one commit in ``tmp_path / "source"``, with what says the version; other settings of git do not count."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "SETUPTOOLS_SCM"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = tmp_path / "source"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".git_archival.txt", ".gitattributes"):
        shutil.copy(ROOT / name, folder / name)

    def run(*arguments: str) -> str:
        who = (
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgsign=false",
        )
        done = subprocess.run(
            [str(shutil.which("git")), *who, *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    run("init", "-q")
    run("add", "-A")
    run("commit", "-q", "-m", "one")
    return run


def version(folder: Path) -> str:
    pytest.importorskip("hatch_vcs", reason="pip fetches it where a wheel is built")
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    return str(ProjectMetadata(str(folder), PluginManager()).version)


def test_the_version_is_the_tag_of_the_commit_and_counts_commits_after_it(git: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "source"
    before = Version(version(folder))
    assert before.is_devrelease
    assert str(before.local).startswith("g")
    git("tag", "v0.3.0")
    assert version(folder) == "0.3.0"
    # What GitHub and `git archive` hand out has no repository; nor has a copied folder, which knows nothing.
    git("archive", "--format=tar", "-o", "../archive.tar", "HEAD")
    shutil.unpack_archive(tmp_path / "archive.tar", tmp_path / "archive", filter="data")
    assert version(tmp_path / "archive") == "0.3.0"
    git("commit", "-q", "--allow-empty", "-m", "two")
    after = Version(version(folder))
    assert Version("0.3.0") < after < Version("0.3.1")
    assert before < Version("0.3.0")
    shutil.copytree(folder, tmp_path / "copied", ignore=shutil.ignore_patterns(".git", ".git_archival.txt"))
    assert version(tmp_path / "copied") == "0.0"


@refused_rows("a_release_is_refused_until_all_say_its_number")
def test_a_release_is_refused_until_all_say_its_number(
    git: Callable[..., str], tool: ModuleType, tmp_path: Path, name: str, content: str, words: str
) -> None:
    folder = tmp_path / "source"
    (folder / name).write_text(content, encoding="utf-8")
    git("commit", "-q", "-a", "-m", "two")
    git("tag", "v0.3.0")
    raised(tool.ReleaseError, words, tool.tagged, folder)


def test_a_release_is_of_a_tagged_commit(git: Callable[..., str], tool: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    raised(tool.ReleaseError, r"git tag v0\.3\.0", tool.tagged, folder)
    git("tag", "v0.3.0")
    (folder / "new.py").touch()
    raised(tool.ReleaseError, "not committed", tool.tagged, folder)
    (folder / "new.py").unlink()
    assert tool.tagged(folder) == "0.3.0"


def test_all_files_name_the_newest_version_of_the_change_log(tool: ModuleType) -> None:
    number, day = tool.newest(ROOT)
    assert tool.disagreeing(ROOT, number) == []
    assert day == "unreleased" or re.fullmatch(tool.DAY, day)
