"""One list of assumptions an execution: Python, commands, receipts and pages show the same, in full, for every protocol."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import quietmean as qm
from quietmean.cli.answers import write_privacy_page
from quietmean.cli.certify import ShownOptions, receipt_command
from quietmean.cli.console import print_privacy
from quietmean.cli.simulate import AdversaryOptions
from quietmean.core.assumptions import STANDING, Assumption, Key, any_coalition, listing, ranked, usual_colluders
from quietmean.core.codec import to_plain
from quietmean.graphs import ExecutionTrace
from quietmean.protocols import registry
from quietmean.protocols.execution import Execution
from quietmean.report import StudyReport, write_study_report
from quietmean.report.words import rounded_up
from quietmean.studies import StudyOutcome, StudyTerms
from quietmean.testing import example_execution
from quietmean.testing.strategies import executions
from support.certifiable import certifiable
from support.outcomes import DELTA, run_of, studied

WITH_TRANSCRIPT = sorted(name for name, protocol in registry().items() if protocol.TRAITS.has_transcript)
ONCE = settings(
    max_examples=1,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


def keys(assumptions: tuple[Assumption, ...]) -> list[str]:
    return [one.key for one in assumptions]


def long_sentences(assumptions: Iterable[Assumption]) -> list[str]:
    """Sentences of more than 20 words; a piece in brackets is the term of the field."""
    sentences = [sentence for one in assumptions for sentence in re.split(r"(?<=[.;:])\s", one.text)]
    return [sentence for sentence in sentences if len(re.findall(r"[^\W_][\w'.-]*", re.sub(r"\([^)]*\)", "", sentence))) > 20]


def text_of(path: Path) -> str:
    return html.unescape(path.read_text(encoding="utf-8"))


def test_each_kind_of_assumption_says_who_must_hold_it() -> None:
    """What people must hold comes first, and one of an unknown kind before what the program holds."""
    assert {key: Assumption(key, "").held_by for key in Key if Assumption(key, "").held_by == Assumption("new", "").held_by} == {}
    some = [Assumption(key, "") for key in (Key.PUBLIC, Key.SAMPLER, "new", Key.MACHINES, Key.COLLUDING)]
    assert keys(tuple(ranked(some))) == [Key.COLLUDING, Key.MACHINES, "new", Key.SAMPLER, Key.PUBLIC]


def report_of(outcome: StudyOutcome) -> StudyReport:
    return StudyReport(
        title="study",
        terms=["age"],
        bounds=[(0.0, 1.0)],
        estimate=np.array([0.5]),
        standard_error=np.array([0.1]),
        of_noise=np.array([[0.304, 0.696]]),
        execution=outcome.execution,
        privacy=outcome.privacy,
        certificate=outcome.certificate,
        target_epsilon=1.0,
        unit="party",
        party_names=[f"clinic {party}" for party in range(outcome.execution.parties)],
        records=outcome.execution.parties,
        parties_counted=outcome.parties_counted,
        messages=0,
        bytes=0,
        seconds=1.0,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WITH_TRANSCRIPT)
def test_everything_that_shows_figures_shows_the_same_list_and_the_same_figures(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp(name)

    @ONCE
    @given(execution=executions(name, max_parties=6))
    def agree(execution: Execution) -> None:
        execution = certifiable(execution, 1)
        # Somebody has to be there for a result.
        execution = execution.with_trace(ExecutionTrace.everyone(execution.schedule.rounds, execution.parties))
        size = min(1, execution.parties - 1 - len(execution.protocol.traits.trusted))
        certificate = execution.privacy(DELTA).coalitions(size)
        listed = certificate.assumptions
        assert set(keys(listed)) >= {one.key for one in STANDING} | {Key.COLLUDING, Key.NEIGHBOURS}
        assert len(set(keys(listed))) == len(listed)
        assert long_sentences(listed) == []
        expected = [one.to_json() for one in listed]
        path = folder / "execution.json"
        execution.save(path)
        for json_form in (False, True):
            with redirect_stdout(StringIO()) as told:
                against, files = AdversaryOptions(colluding=size), ShownOptions(report=folder / "page.html", details=True)
                receipt_command(path, against=against, delta=DELTA, shown=files, json=json_form)
            if json_form:
                document = json.loads(told.getvalue())
                assert document["assumptions"] == expected
                assert document["epsilon_a_priori"] == to_plain(certificate.epsilon_a_priori)
                assert {name: document[name] for name in ("mu", "epsilon", "max_epsilon", "sensitivity", "numbers")} == to_plain(
                    {name: getattr(certificate, name) for name in ("mu", "epsilon", "max_epsilon", "numbers")}
                    | {"sensitivity": execution.sensitivity}
                )
                assert document["certificates"]["coalitions"] == to_plain(certificate.to_json())
                assert document["certificates"]["everyone_else"]["mu"] == to_plain(execution.privacy(DELTA).single_honest())
            else:
                assert " ".join(" ".join(listing(expected)).split()) in " ".join(told.getvalue().split())
                # The first screen begins with its verdict, on the realised figure if there is one; all figures are below it.
                verdict, _, figures = told.getvalue().partition(": --details\n")
                assert ("realised" if math.isfinite(certificate.max_epsilon) else "No privacy") in verdict
                assert figures.index("guaranteed") < figures.index("realised")
        outcome = studied(execution, size)
        outcome.save_receipt(folder / "receipt.json")
        receipt = json.loads((folder / "receipt.json").read_text())
        told_by_receipt = receipt["result"]["certificate"]
        assert told_by_receipt["assumptions"] == expected
        tried = document["certificates"]["coalitions"]
        assert {name: told_by_receipt[name] for name in tried} == tried
        assert told_by_receipt["everyone_else_epsilon"] == document["certificates"]["everyone_else"]["max_epsilon"]
        for name in ("epsilon_a_priori", "enforced_by"):
            assert receipt["result"][name] == document[name]
        report = report_of(outcome)
        assert to_plain(report.certificate.epsilon) == document["epsilon"]
        write_study_report(report, folder / "report.html")
        write_privacy_page(folder / "privacy.html", run_of("study", outcome))
        with redirect_stdout(StringIO()) as told:
            study = StudyTerms.parse(
                {"name": "study", "column": [{"name": "age", "low": 0, "high": 1}], "epsilon": 1.0, "delta": DELTA}
            )
            print_privacy(outcome.to_json(), study.epsilon)
        pages = [text_of(folder / page) for page in ("page.html", "report.html", "privacy.html")]
        for page in pages:
            for figure in (certificate.epsilon_a_priori, certificate.max_epsilon, outcome.everyone_else_epsilon):
                assert figure is not None
                assert f"ε = {rounded_up(figure)}" in page.replace("\u00a0", " ")
        # At most eight lines on a screen; pages and documents have each in full.
        assert len(listing(expected)) <= 9
        assert " ".join(" ".join(listing(expected)).split()) in " ".join(told.getvalue().split())
        for page in pages:
            assert [one.text for one in listed if one.text not in page] == []
        for shown in (*pages, told.getvalue()):
            assert shown.index("guaranteed") < shown.index("realised")
        for shown in (repr(outcome), repr(certificate)):
            assert 0 < shown.index("guaranteed epsilon") < shown.index("realised epsilon")

    agree()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inca", "local-dp", "central-dp", "cordp-dme", "gopa", "secagg", "consensus", "muffliato"])
def test_a_plan_has_the_list_before_anything_happens(name: str) -> None:
    plan = qm.plan(protocol=name, parties=12, epsilon=1.0, delta=DELTA, colluding=2)
    assert plan.assumptions[0] == any_coalition(2, 12, plan.protocol.traits.trusted)
    assert set(keys(plan.assumptions)) >= {one.key for one in STANDING} | {Key.NUMBERS, Key.SAMPLER}
    assert long_sentences(plan.assumptions) == []
    assert (Key.CURATOR in keys(plan.assumptions)) == (name == "central-dp")
    assert (Key.COMPUTING in keys(plan.assumptions)) == (name == "secagg")
    assert (Key.AGGREGATOR in keys(plan.assumptions)) == (name == "secagg")


def test_the_keys_stay() -> None:
    """Contracts and programs refer to them: a new one may come, none may go or change."""
    assert {one.key for one in STANDING} == {
        "passive-adversary",
        "channels",
        "honest-logs",
        "silent-parties",
        "attendance",
        "public",
        "bounds",
        "person",
        "generator",
        "machines",
        "one-study",
    }
    others = {
        "colluding",
        "trusted-curator",
        "aggregator",
        "bounded-computing",
        "agreed-keys",
        "neighbours",
        "numbers",
        "rounding",
    }
    assert {str(key) for key in Key} - {one.key for one in STANDING} >= others | {"sampler", "any-history"}


def test_the_number_of_colluders_says_whether_it_is_the_default() -> None:
    assert [usual_colluders(parties) for parties in (1, 10, 11, 200)] == [1, 1, 2, 20]
    assert "The usual number is one party in ten." in any_coalition(2, 20).text
    assert "The usual number" not in any_coalition(3, 20).text
    assert "outsider" in any_coalition(0, 20).text
    assert "none of them party 3" in any_coalition(2, 20, frozenset({3})).text


def test_intercepted_messages_have_no_a_priori_figure_and_a_trusted_colluder_has_none_that_is_finite() -> None:
    privacy = example_execution("inca", 6, rounds=3, sigma_star=1.0, sigma_delta=2.0).privacy(DELTA)
    assert privacy.against({0}).epsilon_a_priori == privacy.coalitions(1).epsilon_a_priori
    intercepted = privacy.against({0}, {(1, 0)})
    assert intercepted.epsilon_a_priori is None
    assert "epsilon_a_priori" not in intercepted.to_json()
    curator = example_execution("central-dp", 6, sigma=1.0).privacy(DELTA)
    assert curator.against({0}).epsilon_a_priori == np.inf
    assert curator.against({1}).epsilon_a_priori == pytest.approx(curator.against({1}).max_epsilon)
