"""``import quietmean as qm``: its names are seen, its version is known, and they stay what they are whatever else is imported."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError, named
from quietmean.core.keywords import as_keyword
from quietmean.protocols import registry
from quietmean.testing import example_execution
from support.command_lines import fails
from support.refusals import refused

STUDY = qm.Study({"age": (0, 110)}, ["mean(age)"], epsilon=8.0, delta=1e-6)
# What no type checker lets through is called, too.
called: Any = qm
FRAME = pl.DataFrame({"age": [30.0, 40.0]})
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
    refused(r"protocol 'incA' is unknown \(did you mean 'inca'\?\)", qm.plan, parties=6, epsilon=1.0, delta=1e-6, protocol="incA")


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


def test_every_protocol_is_a_name() -> None:
    for protocol in registry().values():
        assert getattr(qm, protocol.__name__) is protocol


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: called.Target(20, 1.0, 1e-6, colludin=2), "Target has no keyword 'colludin' (did you mean 'colluding'?)"),
        (lambda: called.Study(statistics="mean(age)"), "Study needs columns, which is not given. Call it with columns=..."),
        (lambda: called.plan(epsilon=1.0), "plan needs parties, which is not given"),
        (lambda: STUDY.run(FRAME), "Give either parties=N or party_column=NAME"),
        (
            lambda: STUDY.run({"north": FRAME, "south": FRAME}, parties=2),
            "a dict has one table for each party. Leave out parties",
        ),
        (
            lambda: STUDY.run(cast(Any, {"age": [30.0, 40.0]})),
            "'age' is not a table. Give a dict with one table for each party, by its name",
        ),
        (lambda: STUDY.run({"": FRAME, "south": FRAME}), "'' is not a name of a party"),
    ],
)
def test_what_is_called_wrongly_is_told_in_words_of_python(call: Callable[[], object], message: str) -> None:
    told = refused("", call)
    assert message in told
    assert "--" not in told


def test_only_keywords_of_the_call_stand_in_the_place_of_options() -> None:
    error = InputError(f"give {named('parties', 'N')} or {named('party-column', 'NAME')}, or another {named('ledger')}")
    assert str(error) == "give --parties N or --party-column NAME, or another --ledger"
    error.words = partial(as_keyword, ("parties", "party_column"))
    assert str(error) == "give parties=N or party_column=NAME, or another ledger"
    assert error.fields == ("parties", "party-column", "ledger")


def test_what_a_command_calls_keeps_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """The same functions serve both."""
    fails("plan --parties 20 --epsilon 1 --protocol gossip", capsys, "ask for that with --no-privacy")
    refused("ask for that with no_privacy", qm.rank, qm.Target(20, 1.0, 1e-6), ["gossip"])


@pytest.mark.parametrize("statistics", ["mean(age)", ["mean(age)"], STUDY.statistics[0]])
def test_one_statistic_needs_no_list(statistics: Any) -> None:
    (asked,) = qm.Study({"age": (0, 110)}, statistics, epsilon=8.0).statistics
    assert asked.text == "mean(age)"


# Made by others than users, or errors, which have no keywords.
MADE_FOR_USERS = {"Execution", "Plan", "Ranking", "InputError", "QuietmeanError"}


@pytest.mark.parametrize("name", sorted(set(qm.__all__) - MADE_FOR_USERS))
def test_a_misspelt_keyword_of_any_name_is_refused_in_one_sentence(name: str) -> None:
    def call() -> None:
        answer = getattr(called, name)(no_such_keyword=1)
        if inspect.iscoroutine(answer):
            asyncio.run(answer)

    refused(r"has no (keyword|field) 'no_such_keyword'", call)
