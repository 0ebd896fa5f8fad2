"""Baselines without privacy, as a person runs them: exact, and nothing that they print or write looks like a promise."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SAYS = {
    "gossip": "gossip has no differential privacy, epsilon is infinite, and it reveals every party's value",
    "secret-sharing": "secret-sharing has no differential privacy, epsilon is infinite, and it reveals the exact sum",
}


def quietmean(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "quietmean.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["gossip", pytest.param("secret-sharing", marks=pytest.mark.slow)])
def test_run_certify_and_report(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "v.csv").write_text("age\n" + "\n".join(str(20 + place % 50) for place in range(60)))
    asked = ["run", "--data", "v.csv", "mean(age in 20..90)", "--parties", "3", "--protocol", protocol]
    refused = quietmean(tmp_path, *asked, "--out", "none")
    assert refused.returncode == 2
    assert SAYS[protocol] in refused.stderr
    done = quietmean(tmp_path, *asked, "--no-privacy", "--out", "out")
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert f"! NO PRIVACY Nothing has noise: {SAYS[protocol]}" in shown
    assert "cost more than the target" not in done.stderr
    assert "! COST" not in shown
    assert " Privacy none Protocol " in shown
    assert "guaranteed" not in shown
    receipt = json.loads((tmp_path / "out" / "receipt.json").read_text())
    result: dict[str, Any] = receipt["result"]
    assert result["estimate"] == pytest.approx(sum(20 + place % 50 for place in range(60)) / 60, abs=1e-6)
    assert (result["epsilon"], result["epsilon_a_priori"], result["enforced_by"]) == (
        "inf",
        "inf",
        "nothing, since it adds no noise",
    )
    assert any(SAYS[protocol] in one["text"] for one in result["certificate"]["assumptions"])
    for page in ("report.html", "privacy.html"):
        assert SAYS[protocol] in html.unescape((tmp_path / "out" / page).read_text()), page
    certified = quietmean(tmp_path, "verify", "receipt", "out/receipt.json", "--corrupt", "0", "--details")
    assert certified.returncode == 0, certified.stderr
    assert SAYS[protocol] in certified.stdout
    assert "the sum of parties 1, 2 is disclosed" in certified.stdout or protocol == "gossip"
