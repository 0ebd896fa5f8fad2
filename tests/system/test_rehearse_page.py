"""The page on rehearsing: its blocks, copied into one shell by one account, end with a result of all five parties."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.pages import blocks

PAGE = "take-part/rehearse.md"
SITES = ("north", "south", "east", "west", "inland")


@pytest.mark.slow
def test_five_sites_in_one_shell(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    script = "\n".join(blocks(PAGE, "sh"))
    assert script.count("port=7001\n") == script.count("port=$((port + 1))\n") == 1
    ports = " ".join(map(str, free_ports(len(SITES))))
    script = script.replace("port=7001\n", f"ports=({ports}); port=${{ports[0]}}\n")
    script = script.replace("port=$((port + 1))\n", 'ports=("${ports[@]:1}"); port=${ports[0]-}\n')
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "CACHE")},
    }
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    shell = ["/bin/bash", "-e", "-c", script]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "epsilon" in done.stdout
    receipts = [json.loads((folder / f"study-{site}.receipt.json").read_text()) for site in SITES]
    assert len({str(receipt["result"]["estimate"]) for receipt in receipts}) == 1
    assert all("age" in (folder / f"{site}.txt").read_text() for site in SITES[1:])
