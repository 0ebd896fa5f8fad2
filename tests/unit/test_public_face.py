"""``import quietmean as qm``: its names are seen, its version is known, and they stay what they are whatever else is imported."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from importlib.metadata import version
from pkgutil import iter_modules
from types import ModuleType

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.testing import example_execution

NAMES = {"certify", "Node", "plan", "rank", "simulate", "IncA", "Target", "Execution", "Plan"}


def test_its_names_are_seen() -> None:
    assert set(qm.__all__) >= NAMES
    assert set(dir(qm)) >= {*qm.__all__, "__version__"}
    assert all(callable(getattr(qm, name)) for name in qm.__all__)
    assert qm.statistics is sys.modules["quietmean.statistics"]


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert qm.__version__ == version("quietmean")
    main(["--version"])
    assert capsys.readouterr().out.strip() == qm.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'mode'"):
        getattr(qm, "mode")  # noqa: B009 - the type checker knows that there is none


def test_importing_it_imports_nothing_heavy() -> None:
    script = "import quietmean, sys; dir(quietmean); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "quietmean.api", "quietmean.node", "importlib.metadata"} & set(loaded)


def test_no_public_name_is_that_of_a_package() -> None:
    """Python binds a package in its parent where anybody imports it: whoever calls the name would call that."""
    assert not {module.name for module in iter_modules(qm.__path__)} & set(qm.__all__)


def test_a_party_is_one_class_beside_the_package_that_implements_it() -> None:
    package = importlib.import_module("quietmean.node")
    assert isinstance(package, ModuleType)
    identity = importlib.import_module("quietmean.node.net.identity")
    assert package.Identity is identity.Identity
    for each in (package.Identity, qm.Node):
        assert pickle.loads(pickle.dumps(each)) is each  # noqa: S301


def test_other_packages_are_bound_as_usual() -> None:
    importlib.import_module("quietmean.core")
    assert isinstance(qm.core, ModuleType)
    assert qm.core.errors.InputError is InputError


def test_configured_protocols_are_planned_ranked_and_simulated() -> None:
    target = qm.Target(parties=6, epsilon=1.0, delta=1e-6, sensitivity=1.0)
    plan = qm.LocalDP().calibrate(target)
    assert plan.protocol.name == "local-dp"
    ranking = qm.rank(target, [qm.CentralDP(), "local-dp"])
    assert [one.plan.protocol.name for one in ranking] == ["central-dp", "local-dp"]
    assert ranking.best == ranking[0].plan
    assert qm.plan(parties=6, epsilon=1.0, delta=1e-6, colluding=1, protocol=qm.LocalDP()).digest == plan.digest
    result = plan.simulate(np.linspace(0.0, 1.0, 6), runs=20, rng=np.random.default_rng(1))
    again = plan.simulate(np.linspace(0.0, 1.0, 6), runs=20, rng=np.random.default_rng(1))
    assert result.mse == again.mse


def test_what_is_misspelt_is_refused() -> None:
    with pytest.raises(InputError, match=r"IncA has no field 'roundss' \(did you mean 'rounds'\?\)"):
        qm.IncA(roundss=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"plan has no keyword 'coluding' \(did you mean 'colluding'\?\)"):
        qm.plan(parties=6, epsilon=1.0, delta=1e-6, coluding=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="calibration 'exat' is unknown"):
        qm.IncA().calibrate(qm.Target(parties=6, epsilon=1.0, delta=1e-6), calibration="exat")
    with pytest.raises(InputError, match=r"protocol 'incA' is unknown \(did you mean 'inca'\?\)"):
        qm.plan(parties=6, epsilon=1.0, delta=1e-6, protocol="incA")


def test_results_have_one_line_and_are_tables() -> None:
    execution = example_execution("inca", 6, rounds=3, sigma_star=1.0, sigma_delta=2.0)
    privacy = execution.privacy(1e-6)
    plan = qm.LocalDP().calibrate(qm.Target(parties=6, epsilon=1.0, delta=1e-6))
    results = [privacy.against({0}), privacy.coalitions(1), plan.simulate(runs=5)]
    for value in (execution, plan, plan.protocol, *results):
        assert "\n" not in repr(value)
        assert len(repr(value)) < 300
    for table in [*results, qm.rank(plan.target, ["local-dp"])]:
        frame = table.to_frame()
        assert frame.height == len(table.rows()) > 0
        assert table._repr_html_().count("<tr>") == frame.height + 1
    assert privacy.against({0}).to_frame()["party"].to_list() == [1, 2, 3, 4, 5]
