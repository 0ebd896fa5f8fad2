"""What README and tutorial tell a newcomer to type works as it stands, in the order of the page, and once more after that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def readme_block() -> str:
    """All that "On your own data" shows."""
    section = (ROOT / "README.md").read_text().partition("## On your own data")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^    (.*)$", section, re.MULTILINE))


def tutorial_blocks() -> str:
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL | re.MULTILINE))


@pytest.fixture
def account(tmp_path: Path) -> dict[str, str]:
    """One account of its own, with the command, in the folder after ``make demo``."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / "demo-output").mkdir()
    program = "import sys; from quietmean.cli.demo import patients; patients().write_csv(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "demo-output" / "patients.csv")], check=True)
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": "",
        "XDG_CONFIG_HOME": "",
        "XDG_CACHE_HOME": "",
        "COLUMNS": "120",
    }


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README", "tutorial"])
def test_a_page_is_typed_twice(page: str, account: dict[str, str]) -> None:
    script = readme_block() if page == "README" else tutorial_blocks()
    assert script.count("quietmean ") >= 3
    for time in (1, 2):
        done = subprocess.run(
            ["/bin/bash", "-e", "-c", script],
            cwd=account["HOME"],
            env=account,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, (time, done.stderr)
        assert "age" in done.stdout
        assert "a priori" in done.stdout
        assert "Traceback" not in done.stderr
