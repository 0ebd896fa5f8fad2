"""What is left without any extra: run, join and certify go on to the end; what needs an extra says so in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quietmean
from quietmean.core.extensions import command_for
from support.json_documents import faults

# Everything that only extras install, and what these bring along.
ABSENT = [
    "matplotlib",
    "jinja2",
    "polars",
    "narwhals",
    "pandas",
    "pyarrow",
    "python_calamine",
    "openpyxl",
    "duckdb",
    "pyreadstat",
    "adbc_driver_postgresql",
    "joblib",
    "distributed",
    "sklearn",
]


@pytest.fixture
def light(tmp_path: Path) -> dict[str, str]:
    """An environment whose interpreters, of parties too, find none of them."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nfor name in {ABSENT!r}:\n    sys.modules[name] = None\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(quietmean.__file__).parent.parent)])}


def command(folder: Path, environment: dict[str, str], *arguments: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "quietmean", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_a_study_without_any_extra(tmp_path: Path, light: dict[str, str]) -> None:
    (tmp_path / "t.csv").write_text("age\n" + "".join(f"{20 + row}\n" for row in range(40)))
    study = [
        "--data",
        "t.csv",
        "mean(age in 0..100)",
        "--parties",
        "4",
        "--protocol",
        "local-dp",
        "--accept-wide",
    ]
    told, said = command(tmp_path, light, "run", *study, "--out", "out", "--json")
    document = json.loads(told)
    assert faults("result", document) == []
    assert document["report"] is None
    assert document["privacy_page"] is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["receipt.json"]
    remedy = f"no report was written, reports need an extra: {command_for('report')}, then quietmean verify receipt"
    assert said.count(remedy) == 1
    told, _ = command(tmp_path, light, "verify", "receipt", "out/receipt.json", "--json")
    assert json.loads(told)["epsilon_a_priori"] <= 1
    _, said = command(tmp_path, light, "verify", "receipt", "out/receipt.json", "--report", "page.html", code=2)
    assert said == f"quietmean: the page needs the extra 'report', which is not installed. Run {command_for('report')}\n"
    for workers, extra in (("2", "workers"), ("tcp://127.0.0.1:9", "dask")):
        trying = ("verify", "attack", "out/receipt.json", "--target", "1", "--workers", workers)
        _, said = command(tmp_path, light, *trying, code=2)
        assert f"needs the extra '{extra}', which is not installed. Run {command_for(extra)}\n" in said
    told, said = command(tmp_path, light, "demo")
    assert "blood_pressure" in told
    assert said.startswith("$ quietmean run quietmean-demo/patients.csv")
    assert said.count(remedy) == 1
    _, said = command(tmp_path, light, "plan", "--parties", "4")
    assert "extra" not in said


def test_what_is_absent_would_be_found_missing(tmp_path: Path, light: dict[str, str]) -> None:
    code = "import importlib.util as u; assert u.find_spec('matplotlib') is None; import matplotlib"
    done = subprocess.run([sys.executable, "-c", code], env=light, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
