"""What a party does not need is not imported: nothing large with any name of the package, and never ``scipy.stats``.

What stands in for parts of SciPy gives the same numbers.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from scipy import optimize, stats

import quietmean as qm
from quietmean.core.roots import root_between
from quietmean.protocols.gopa import _TOO_FEW, _missing
from quietmean.randomness.sobol import sobol
from quietmean.statistics.scenario import counted

SESSION = """
import numpy as np
import quietmean as qm
plan = qm.plan(parties=5, epsilon=2.0, delta=1e-6)
with qm.Session(parties=4, dimension=3, rounds=2, epsilon=2.0, delta=1e-6) as session:
    session.mean(np.zeros((4, 3)))
"""
# What the data are expected to tell, as every party of a study of records looks at before it pays.
STUDY = """
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.expectation import Expectation
columns = Columns([Column(name="age", low=0, high=110), Column(name="visits", low=0, high=30)])
asked = ("mean(age)", "rates(visits, age)", "quantiles(age)")
workload = Workload(columns, tuple(parse_statistic(read_text(text)) for text in asked), PrivacyUnit.RECORD)
found = Expectation(workload, 1e-3, 500.0)
print(found.hopeless)
"""


def modules_after(script: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


# What no name of the package costs before it is called, by what has it: other libraries, and rooms of many modules.
LIBRARIES = ("cyclopts", "jinja2", "matplotlib", "narwhals", "pandas", "polars", "pydantic", "rich", "scipy", "sklearn")
ROOMS = (
    "quietmean.cli",
    "quietmean.desk",
    "quietmean.flower",
    "quietmean.report",
    "quietmean.statistics",
    "quietmean.testing",
    "quietmean.ledger.ledger",
    "quietmean.node.session",
    "quietmean.node.start",
    "quietmean.sessions.joined",
    "quietmean.studies.outcome",
    "quietmean.studies.agreement.study",
    "quietmean.studies.data.reading",
    "quietmean.studies.party",
    "quietmean.learning.estimators",
)
# qm.statistics is a room that someone opens to write statistics, which have columns.
OPENED = {"statistics": {"pydantic", "quietmean.statistics"}}
EACH_NAME = """
import sys
import quietmean as qm
for name in sorted(dir(qm), key="statistics".__eq__):
    before = set(sys.modules)
    getattr(qm, name)
    print(name, *(set(sys.modules) - before))
"""


def test_no_name_costs_much_before_it_is_called() -> None:
    """In one process: what none of all names imports, none of them does alone."""
    done = subprocess.run([sys.executable, "-c", EACH_NAME], capture_output=True, text=True, check=True)
    imported = {name: set(modules) for name, *modules in map(str.split, done.stdout.splitlines())}
    assert set(imported) == set(dir(qm)) >= set(qm.__all__)
    for name, modules in imported.items():
        heavy = {part for part in (*LIBRARIES, *ROOMS) if any(f"{module}.".startswith(f"{part}.") for module in modules)}
        assert heavy == OPENED.get(name, set()), name


def test_a_study_is_described_without_scipy() -> None:
    modules = modules_after("import quietmean as qm; qm.Study({'age': (0, 110)}, ['mean(age)'], epsilon=1.0)")
    assert {"quietmean.statistics.kinds.scores", "quietmean.studies.agreement.study"} <= modules
    assert not {module for module in modules if module.split(".")[0] == "scipy"}


@pytest.mark.parametrize("name", [name for name in qm.__all__ if getattr(qm, name).__module__.startswith("quietmean.api.")])
def test_types_of_arguments_are_known_though_their_rooms_are_imported_late(name: str) -> None:
    named = getattr(qm, name)
    assert get_type_hints(vars(named).get("__init__", named))


@pytest.mark.slow
@pytest.mark.parametrize("script", [SESSION, STUDY])
def test_who_takes_part_never_needs_scipy_stats(script: str) -> None:
    found = modules_after(script)
    assert "scipy.stats" not in found
    # It was not for want of anything to compute.
    assert "scipy.special" in found
    # Where bins are asked for, monotone curves need it.
    assert ("scipy.optimize" in found) == ("quantiles" in script)


GOLDEN = Path(__file__).parents[1] / "golden" / "plans" / "inca.json"
PLANS: dict[str, Callable[[], qm.Plan]] = {
    "inca": lambda: qm.Plan.from_json(json.loads(GOLDEN.read_text())["plan"]),
    "packed-sharing": lambda: qm.plan(parties=4, epsilon=1.0, delta=1e-6, protocol="packed-sharing"),
}
FORK_SERVER = """
import socket
from pathlib import Path
from quietmean.node.local import fork_server
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.close()
fork_server.main(Path({plan!r}), theirs.detach())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="parties are forks on Linux only")
@pytest.mark.parametrize("protocol", PLANS)
def test_what_all_parties_of_a_run_need_is_imported_once(tmp_path: Path, protocol: str) -> None:
    """By the process that they are forks of: with a gate, what decides there; without one, nothing of scipy."""
    plan = PLANS[protocol]()
    plan.save(tmp_path / "plan.json")
    modules = modules_after(FORK_SERVER.format(plan=str(tmp_path / "plan.json")))
    assert plan.gated == (protocol == "inca")
    assert ("quietmean.planning.gate" in modules) == ("scipy.sparse" in modules) == plan.gated


ROOTS: dict[str, tuple[Callable[[float], float], float, float]] = {
    "cubic": (lambda x: x**3 - 2 * x - 5, 2, 3),
    "steep": (lambda x: math.expm1(40 * x) - 3, -2, 5),
    "flat": (lambda x: (x - 0.3) ** 9, -1, 2),
    "endless": (lambda x: math.log(x) if x > 0 else -math.inf, 0, 9),
    "jump": (lambda x: 1.0 if x > 0.1 else -1.0, -3, 4),
    "at an end": (lambda x: x, 0, 1),
    "falling": (lambda x: math.cos(x) - x, 2, 0),
    "tiny": (lambda x: x - 1e-250, -1e-240, 1),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots_are_those_of_scipy(name: str) -> None:
    """To the last bit: the parties of a study make the same plan, whichever version of this they have."""

    def found(solve: Callable[..., float], *given: float, **errors: float) -> float | None:
        try:
            return solve(function, *given, **errors)
        except (RuntimeError, ArithmeticError):
            # In 100 steps neither finds it.
            return None

    function, low, high = ROOTS[name]
    numbers = np.random.default_rng(3)
    for absolute, relative in ((2e-12, 8.881784197001252e-16), (1e-300, 1e-14), (1e-6, 1e-14)):
        for _ in range(50):
            ends = (low, high) if name == "at an end" else (low - numbers.random() * abs(low), high + numbers.random())
            if name == "falling":
                ends = (low + numbers.random(), high - numbers.random())
            own = found(root_between, *ends, absolute, relative)
            assert own == found(optimize.brentq, *ends, xtol=absolute, rtol=relative)
    with pytest.raises(ArithmeticError):
        root_between(lambda x: x * x + 1, -1, 1)


@pytest.mark.parametrize("dimension", [1, 2, 9, 65])
@pytest.mark.parametrize("seed", [None, 20_30, 7])
def test_points_are_those_of_scipy(dimension: int, seed: int | None) -> None:
    expected = stats.qmc.Sobol(dimension, scramble=seed is not None, rng=seed).random_base2(10)
    np.testing.assert_array_equal(sobol(dimension, 10, seed), expected)


def test_without_its_file_scipy_answers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with_file = sobol(5, 8, 3)
    monkeypatch.setattr("quietmean.randomness.sobol._FILE", ("nowhere", "nothing.npz"))
    np.testing.assert_array_equal(sobol(5, 8, 3), with_file)


def test_counts_are_those_of_scipy() -> None:
    numbers = np.random.default_rng(8)
    drawn = np.concatenate([numbers.random(2000), [1e-5, 1 - 1e-5]])
    for level in (1e-13, 1e-3, 0.1, 1.0, 3.3, 17.0, 400.0):
        mean = level * numbers.uniform(0.5, 2, len(drawn))
        np.testing.assert_array_equal(counted(mean, None, drawn), stats.poisson.ppf(drawn, np.maximum(mean, 1e-12)))
        for spread in ((1.0, 2.0), (5.0, 3.0), (0.2, 4.0), (30.0, 20.0)):
            size = spread[0] ** 2 / (spread[1] ** 2 - spread[0])
            expected = stats.nbinom.ppf(drawn, size, size / (size + np.maximum(mean, 1e-12)))
            np.testing.assert_array_equal(counted(mean, spread, drawn), expected)


@pytest.mark.parametrize("parties", [5, 30, 333, 10_000, 1_000_000])
def test_missing_partners_are_those_of_the_hypergeometric_distribution(parties: int) -> None:
    for part in (0.0, 0.05, 0.3, 0.6):
        for partners in {1, 2, 9, 90} & set(range(1, parties)):
            leaving = int(part * parties)
            expected = stats.hypergeom.isf(_TOO_FEW / parties, parties - 1, leaving, partners)
            assert _missing(parties, leaving, partners) == expected
