"""What README and tutorial tell a newcomer to type works as it stands, in the order of the page, and once more after that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quietmean.cli.run import patients
from support.pages import blocks

ROOT = Path(__file__).parents[2]


def readme_block() -> str:
    """All that "On your own data" shows."""
    section = (ROOT / "README.md").read_text().partition("## On your own data")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^    (.*)$", section, re.MULTILINE))


def tutorial_blocks() -> str:
    return "\n".join(
        re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "start" / "tutorial.md").read_text(), re.DOTALL | re.MULTILINE)
    )


def analyst_blocks() -> str:
    return "\n".join(blocks("start/analyst.md", "sh"))


@pytest.fixture
def account(tmp_path: Path) -> dict[str, str]:
    """One account of its own, with the command, in the folder after ``make demo``."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / "demo-output").mkdir()
    (tmp_path / "demo-output" / "patients.csv").write_bytes(patients())
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": "",
        "XDG_CONFIG_HOME": "",
        "XDG_CACHE_HOME": "",
        "COLUMNS": "120",
    }


def typed(script: str, account: dict[str, str]) -> subprocess.CompletedProcess[str]:
    shell = ["/bin/bash", "-e", "-c", script]
    done = subprocess.run(shell, cwd=account["HOME"], env=account, capture_output=True, text=True, timeout=1200, check=False)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README", "tutorial"])
def test_a_page_is_typed_twice(page: str, account: dict[str, str]) -> None:
    script = readme_block() if page == "README" else tutorial_blocks()
    assert script.count("quietmean ") >= 3
    for time in (1, 2):
        done = typed(script, account)
        assert done.returncode == 0, (time, done.stderr)
        assert "age" in done.stdout
        assert "guaranteed" in done.stdout


@pytest.mark.slow
def test_an_analyst_types_the_start_page(account: dict[str, str]) -> None:
    """In a fresh account; the second time nothing of the first is replaced, and a sentence says so."""
    script = analyst_blocks()
    assert [line.split()[1] for line in script.splitlines() if line.startswith("quietmean")] == ["demo", "run", "study", "plan"]
    account = {**account, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{account['PATH']}"}
    done = typed(script, account)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("guaranteed, against") == 2
    assert "for a width of 2 (+-1) you need " in " ".join(done.stdout.split())
    again = typed(script, account)
    assert again.returncode == 2
    assert "quietmean-demo exists already" in again.stderr
