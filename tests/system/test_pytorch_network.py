"""The example with PyTorch, really run; its environment is made by make demo-pytorch."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("QUIETMEAN_TORCH_PYTHON", str(ROOT / ".venv-torch" / "bin" / "python"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no environment with quietmean[torch]: make demo-pytorch makes one"),
]


def test_a_network_learns_from_records_that_are_protected() -> None:
    program: list[str | Path] = [PYTHON, ROOT / "examples" / "pytorch_network.py"]
    told = subprocess.run(program, capture_output=True, text=True, check=True, timeout=300).stdout
    found = re.fullmatch(r"right: (0\.\d+) of 297 digits; epsilon (\d\.\d+) at delta 1e-5, for each record\n", told)
    assert found is not None, told
    # A guess is right in 0.1; eight runs told 0.82 to 0.87.
    assert float(found[1]) > 0.7
    assert 7.9 < float(found[2]) <= 8.0
