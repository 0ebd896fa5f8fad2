"""A protocol and a statistic of another distribution (tests/thirdparty) appear everywhere, with no line changed in ours."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.extensions import can_report
from support.distribution import installed
from support.pages import blocks, commands

ROOT = Path(__file__).parent.parent.parent
PROJECT = ROOT / "tests" / "thirdparty"
CLI = ("-m", "quietmean.cli.main")
RECORDS = 120
# The same examples on every run, as in all other tests.
PROFILE = """
from hypothesis import HealthCheck, settings
settings.register_profile("page", derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("page")
"""


class Machine:
    """A folder with a table, where the distribution is installed or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = installed(PROJECT, folder / "site")
        self.without = {**self.environment, "PYTHONPATH": str(ROOT / "src")}
        numbers = np.random.default_rng(1)
        self.table = np.column_stack([numbers.integers(20, 90, RECORDS), numbers.integers(60, 200, RECORDS)])
        np.savetxt(folder / "patients.csv", self.table, fmt="%d", delimiter=",", header="age,glucose", comments="")

    def python(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment or self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def quietmean(self, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.python(*CLI, *arguments, "--json", environment=environment))
        return document


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.mark.slow
def test_its_options_are_explained(machine: Machine) -> None:
    text = " ".join(machine.python(*CLI, "help", "protocol", "group-masks").split())
    assert "group-size=N How many parties at least share noise with each other. At least 2;" in text


@pytest.mark.slow
def test_it_is_planned_among_the_others_as_soon_as_it_is_installed(machine: Machine) -> None:
    arguments = ["plan", "--parties", "12", "--epsilon", "1", "--dropouts", "0.1"]
    before = machine.quietmean(*arguments, environment=machine.without)
    assert "group-masks" not in {candidate["protocol"] for candidate in before["candidates"]}
    # The same question: the answer that was kept is not taken.
    after = {candidate["protocol"]: candidate for candidate in machine.quietmean(*arguments)["candidates"]}
    assert set(after) == {"group-masks", *(candidate["protocol"] for candidate in before["candidates"])}
    assert after["group-masks"]["mse_central"] < after["group-masks"]["mse"] < after["local-dp"]["mse"]


@pytest.mark.slow
def test_its_plan_is_simulated(machine: Machine) -> None:
    machine.quietmean("plan", "--protocol", "group-masks", "--parties", "20", "--dropouts", "0.1", "--out", "simulated.json")
    plan = json.loads((machine.folder / "simulated.json").read_text())
    result = machine.quietmean("simulate", "simulated.json", "--runs", "400", "--seed", "7")
    predicted = plan["prediction"]["mse_noise"] + plan["prediction"]["mse_dropout_bias"]
    assert abs(result["mse"] - predicted) < 5 * result["mse_standard_error"]


@pytest.fixture(scope="module")
def study(machine: Machine) -> dict[str, Any]:
    """Its protocol and its statistic between real processes."""
    columns = ["age in 0..100 [missing=centre]", "glucose in 0..300 [missing=centre]"]
    asked = ["mean(age)", "share-above(glucose, 126, share=4)"]
    protocol = ["--protocol", "group-masks", "--with", "group-size=3", "--parties", "6", "--epsilon", "4"]
    # Nothing is missing, and how many are present need not be estimated: the noise of a mean is the same in every run.
    options = [*columns, *asked, *protocol, "--a-priori-above-target", "--out", "study"]
    return machine.quietmean("run", "--data", "patients.csv", *options)


@pytest.mark.slow
def test_it_runs_between_processes_and_answers_its_statistic(machine: Machine, study: dict[str, Any]) -> None:
    mean, share = study["statistics"]
    assert [one["name"] for one in (mean, share)] == ["mean(age)", "share-above(glucose, 126)"]
    assert mean["true_value"] == pytest.approx(machine.table[:, 0].mean())
    assert share["true_value"] == pytest.approx((machine.table[:, 1] > 126).mean())
    for one in (mean, share):
        assert abs(one["estimate"] - one["true_value"]) < 6 * one["standard_error"]
    # Four shares of the budget against one, and 100 years against a share of 1.
    assert mean["standard_error"] == pytest.approx(2 * 100 * share["standard_error"])
    assert study["estimate"] == {"age": mean["estimate"]}
    assert study["true_mean"] == {"age": mean["true_value"]}
    assert study["epsilon"] <= 4
    assert (study["report"] is not None) == can_report()
    assert not can_report() or "share-above(glucose, 126)" in (machine.folder / study["report"]).read_text()


@pytest.mark.slow
def test_its_receipt_is_certified_and_attacked(machine: Machine, study: dict[str, Any]) -> None:
    certificate = machine.quietmean("verify", "receipt", study["receipt"])
    assert certificate["max_epsilon"] == study["epsilon"]
    # Without the others of its group a party has its own noise only: as much as was planned for two honest ones.
    alone = machine.quietmean("verify", "receipt", study["receipt"], "--corrupt", "0,1,2,3,4")
    everyone_else = certificate["certificates"]["everyone_else"]
    assert alone["mu"][0] == pytest.approx(max(everyone_else["mu"]), rel=1e-6)
    assert alone["mu"][0] > 1.3 * max(certificate["mu"])
    attack = machine.quietmean(
        "verify", "attack", study["receipt"], "--target", "5", "--corrupt", "0,1,2,3,4", "--trials", "20000"
    )
    assert 0.8 * attack["mu_certified"] < attack["mu_lower"] <= attack["mu_certified"]


def test_the_table_of_protocols_has_it(machine: Machine) -> None:
    page = machine.python(str(ROOT / "tools" / "protocol_table.py"), "--print")
    assert "| `group-masks` | no server | values are published under noise that cancels within small public groups |" in page
    section = page.split("## group-masks\n")[1].split("\n## ")[0]
    assert "*Guarantee*: " in section
    # It names no source.
    assert "*Source*" not in section
    assert (
        "| `--with group-size=...` | `group_size` | how many parties at least share noise with each other | `group-masks` |"
        in page
    )


@pytest.mark.slow
def test_noise_that_cancels_may_do_so_up_to_rounding_where_nobody_stays(machine: Machine) -> None:
    """All drop out: the mass that would be there if all finished is compared on the scale of the noise that it holds."""
    program = """
from dataclasses import replace
import numpy as np
from quietmean.graphs import ExecutionTrace
from quietmean.testing import check_protocol, example_execution

execution = example_execution("group-masks", 2, group_size=2, sigma_star=1.0, sigma_delta=1.0)
nobody = replace(execution, trace=ExecutionTrace(np.array([[True, True], [False, False]])))
for seed in range(370, 380):
    check_protocol(nobody, np.zeros((2, 1)), seed)
"""
    machine.python("-c", program)


@pytest.mark.slow
def test_a_wrong_build_of_it_is_found_out(machine: Machine) -> None:
    """The kit has teeth: the population of a build with twice the pair noise is not that of its machines."""
    program = """
import numpy as np
import pytest
from quietmean_groups import protocol
from quietmean.testing import check_protocol, example_execution

execution = example_execution("group-masks", 5, group_size=2, sigma_star=1.0, sigma_delta=2.0)
check_protocol(execution, np.eye(5))
right = protocol.population
protocol.population = lambda sigmas, *rest: right((sigmas[0], 2 * sigmas[1]), *rest)
with pytest.raises(AssertionError, match="covariance of 'delta' noise"):
    check_protocol(execution, np.eye(5))
"""
    machine.python("-c", program)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["research/own-protocol.md", "research/own-statistic.md"])
def test_all_that_its_page_says_works(machine: Machine, page: str) -> None:
    assert commands(page)
    for command in commands(page):
        name, *arguments = shlex.split(command)
        assert name == "quietmean"
        machine.python(*CLI, *arguments)
    machine.python("-c", PROFILE + "\n".join(blocks(page, "python")))


@pytest.mark.slow
def test_the_study_file_of_the_page_is_one(machine: Machine) -> None:
    (table,) = blocks("research/own-statistic.md", "toml")
    columns = '[[column]]\nname = "glucose"\nlow = 0\nhigh = 300\n'
    (machine.folder / "study.toml").write_text(columns + table)
    program = (
        "from pathlib import Path; from quietmean.studies import StudyTerms; print(StudyTerms.load(Path('study.toml')).context())"
    )
    told = machine.python("-c", program)
    assert "{'kind': 'share-above', 'share': 2.0, 'column': 'glucose', 'threshold': 126.0}" in told
