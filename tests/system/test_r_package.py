"""The R package in ``r/``: a study of five sites, of which two take part from R, says the same everywhere, to the bit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest

from quietmean.statistics.printed import TidyTerms
from quietmean.statistics.tidy import TERM_COLUMNS
from support.command_lines import command, ending
from support.rosters import on_this_machine, write_roster
from support.site_policy import BETWEEN_TWO, write_policy

R = which("Rscript")
ROOT = Path(__file__).parent.parent.parent
PACKAGE, PAGE = ROOT / "r", ROOT / "docs" / "analyse" / "r.md"
COMMAND = str(Path(sys.executable).with_name("quietmean"))
NAMES = ("ada", "bob", "cyd", "dan", "eve")
FROM_R = NAMES[:2]
STUDY = """
[study]
name = "ages"
epsilon = 4.0
delta = 1e-6
colluding = 1
round_timeout = 60.0
start_timeout = 120.0

[[column]]
name = "age"
low = 0
high = 100

[[column]]
name = "arm"
levels = ["drug", "placebo"]

[[statistic]]
kind = "group-means"
column = "age"
by = "arm"

[[statistic]]
kind = "histogram"
column = "age"
bins = 5
"""
# The package as it lies there, without an installation.
LOADED = f"""
tidy <- generics::tidy
glance <- generics::glance
for (file in list.files("{PACKAGE}/R", full.names = TRUE)) source(file)
options(quietmean.command = "COMMAND")
"""
JOINED = """
data <- read.csv("NAME.csv")
result <- qm_join("study.toml", data, key = "NAME.key", roster = "roster.toml", store = "NAME.store", no_ledger = TRUE,
                  receipt = "NAME.receipt.json", yes = TRUE)
# To the last digit, which the writer of JSON leaves out.
rows <- tidy(result)
rows[] <- lapply(rows, function(column) if (is.numeric(column)) ifelse(is.na(column), NA, sprintf("%.17g", column)) else column)
jsonlite::write_json(rows, "NAME.tidy.json", na = "null")
"""


def read(name: str, cell: str | None) -> str | float | None:
    return float(cell) if cell is not None and TERM_COLUMNS[name] is float else cell


def require_r() -> str:
    needed = 'for (name in c("generics", "ggplot2", "jsonlite", "processx")) loadNamespace(name)'
    if R is None or subprocess.run([R, "-e", needed], capture_output=True, check=False).returncode:
        pytest.skip("R is not here, or its packages generics, ggplot2, jsonlite and processx: see make r")
    return R


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    program = require_r()
    page = PAGE.read_text()
    block = re.findall(r"```r\n(.*?)```", page, re.DOTALL)[0]
    calls = re.findall(r"^\| `(.*\bresult\b.*?)` \|", page, re.MULTILINE)
    assert len(calls) == 4
    block += "\n".join(f"stopifnot(!is.null({call}))" for call in calls)
    (tmp_path / "page.R").write_text(LOADED.replace("COMMAND", COMMAND) + block.replace("library(quietmean)", ""))
    done = subprocess.run([program, "--vanilla", "page.R"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "group-means(age, case)" in done.stdout
    assert "epsilon.guaranteed" in done.stdout


@pytest.mark.slow
def test_two_of_five_sites_are_driven_from_r(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    r = require_r()
    write_policy(**BETWEEN_TWO)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(5)))
    (tmp_path / "study.toml").write_text(STUDY)
    for place, name in enumerate(NAMES):
        rows = [f"{20.5 + place + 0.1 * row},{('drug', 'placebo')[row % 2]}" for row in range(200)]
        (tmp_path / f"{name}.csv").write_text("age,arm\n" + "\n".join(rows))
    running = []
    for name in NAMES:
        if name in FROM_R:
            (tmp_path / f"{name}.R").write_text(LOADED.replace("COMMAND", COMMAND) + JOINED.replace("NAME", name))
            line = [r, "--vanilla", f"{name}.R"]
            running.append(subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        else:
            files = ("--roster", "roster.toml", "--data", f"{name}.csv", "--key", f"{name}.key", "--store", f"{name}.store")
            receipt = ("--receipt", f"{name}.receipt.json")
            running.append(command(tmp_path, "join", "study.toml", *files, *receipt, "--no-ledger", "--yes", "--json"))
    endings = [ending(process) for process in running]
    assert [code for code, _, _ in endings] == [0] * 5, endings
    receipts = {name: json.loads((tmp_path / f"{name}.receipt.json").read_text()) for name in NAMES}
    python = TidyTerms.of(receipts["cyd"]["result"]["statistics"]).rows()
    for name in FROM_R:
        from_r = json.loads((tmp_path / f"{name}.tidy.json").read_text())
        assert [{key: read(key, row.get(key)) for key in python[0]} for row in from_r] == python
