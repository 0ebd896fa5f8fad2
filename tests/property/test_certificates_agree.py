"""Python, the command and the report say the same about every execution of every protocol that has a transcript."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quietmean as qm
from quietmean.cli.certify import ShownOptions, receipt_command
from quietmean.cli.simulate import AdversaryOptions
from quietmean.core.codec import to_plain
from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary, PrivacyAnalysis
from quietmean.protocols import registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.report.certificate import certificate_page, write_certificate_report
from quietmean.testing import example_execution
from quietmean.testing.strategies import executions
from support.certifiable import certifiable

DELTA = 1e-6
WITH_TRANSCRIPT = sorted(name for name, protocol in registry().items() if protocol.TRAITS.has_transcript)
EXECUTIONS, COALITIONS = 4, 5


def coalitions(parties: int, number: int) -> Iterator[frozenset[int]]:
    """Random ones of random size that leave somebody honest."""
    stream = BitStream(insecure_seed(number, "coalitions"))
    for _ in range(COALITIONS):
        size = int(stream.uniform(1)[0] * parties)
        yield frozenset(int(party) for party in stream.permutation(parties)[:size])


def told_by_command(path: Path, corrupt: frozenset[int], report: Path | None = None) -> dict[str, Any]:
    text = StringIO()
    with redirect_stdout(text):
        against = AdversaryOptions(corrupt=",".join(map(str, sorted(corrupt))))
        receipt_command(path, against=against, delta=DELTA, shown=ShownOptions(report=report), json=True)
    document: dict[str, Any] = json.loads(text.getvalue())
    return document


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WITH_TRANSCRIPT)
def test_three_ways_to_one_certificate(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(name)

    @settings(max_examples=EXECUTIONS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(execution=executions(name, max_parties=7), number=st.integers(0, 2**32 - 1))
    def agree(execution: Execution, number: int) -> None:
        path = folder / "execution.json"
        execution = certifiable(execution)
        # The same number draws another execution elsewhere, and no file is overwritten.
        path.unlink(missing_ok=True)
        execution.save(path)
        for place, corrupt in enumerate(coalitions(execution.parties, number)):
            certificate = qm.certify(execution, corrupt)
            told = told_by_command(path, corrupt)
            told.pop("diagnostics", None)
            assert told == to_plain(certificate.to_json())
            if place:
                continue  # a page tries many more coalitions, so one for each execution
            page = certificate_page(execution, delta=DELTA, adversary=Adversary(corrupt))
            assert list(page.parties) == told["honest"]
            assert to_plain(page.epsilons) == told["epsilon"]
            # The page has each in its own order, below who has to keep it.
            listed = [(each["key"], each["text"]) for each in page.officer.sections()["assumptions"]]
            assert sorted(listed) == sorted((each["key"], each["text"]) for each in told["assumptions"])
            assert to_plain(page.officer.certificate.epsilon_a_priori) == told.get("epsilon_a_priori")
            assert to_plain(page.explanation.certificate.mu_upper) == told["mu_upper"]
            # Peer to peer up to rounding, one whom the protocol does not trust.
            assert page.explanation.epsilon == pytest.approx(max(page.epsilons), rel=1e-6)

    agree()


def test_an_aggregator_with_half_of_the_parties_is_no_exact_matter_in_python_either() -> None:
    """The continuous noise of the transcript would say far less than the bound for the discrete noise that is really there."""
    plan = qm.plan(protocol="secagg-plus", parties=30, epsilon=1.0, delta=DELTA, colluding=0.1)
    execution = plan.execution(insecure_seed(0), ExecutionTrace.everyone(plan.protocol.rounds, 30))
    corrupt = range(15)
    assert plan.protocol.traits.indispensable <= set(corrupt)
    certificate = qm.certify(execution, corrupt)
    gaussian = PrivacyAnalysis.of_gaussian(execution.transcript(), execution.sensitivity, DELTA).against(corrupt)
    assert certificate.numbers == "upper bound"
    assert gaussian.numbers == "exact"
    assert certificate.max_epsilon > 4.0 * gaussian.max_epsilon


def test_every_certificate_says_what_is_claimed(tmp_path: Path) -> None:
    for name, protocol in registry().items():
        assert protocol.TRAITS.guarantee, name
        assert ("(epsilon, delta)" in protocol.TRAITS.guarantee) == (protocol.TRAITS.private and name != "priv-unit-g"), name
    execution = example_execution("gossip", 4, rounds=3)
    execution.save(tmp_path / "execution.json")
    told = told_by_command(tmp_path / "execution.json", frozenset({0}), tmp_path / "page.html")
    assert told["guarantee"] == execution.protocol.traits.guarantee
    assert told["guarantee"].startswith("none")
    assert told["guarantee"] in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_report_builds_the_transcript_once_and_asks_once_for_everybody_else(tmp_path: Path) -> None:
    execution = example_execution("inca", 6, rounds=3, sigma_star=1.0, sigma_delta=2.0)
    execution.save(tmp_path / "execution.json")
    protocol = type(execution.protocol)
    asked: list[frozenset[int]] = []
    against = PrivacyAnalysis.against

    def counted(analysis: PrivacyAnalysis, corrupt: Any = (), observed: Any = ()) -> Any:
        asked.append(frozenset(corrupt))
        return against(analysis, asked[-1], observed)

    with (
        patch.object(protocol, "transcript", autospec=True, side_effect=protocol.transcript) as built,
        patch.object(PrivacyAnalysis, "against", counted),
        redirect_stdout(StringIO()),
    ):
        shown = ShownOptions(report=tmp_path / "page.html")
        receipt_command(tmp_path / "execution.json", against=AdversaryOptions(colluding=1), shown=shown, json=True)
    assert built.call_count == 1
    assert [len(corrupt) for corrupt in asked].count(5) == 6, "everybody else, once for each party"


def test_an_analysis_is_made_once_for_each_delta(tmp_path: Path) -> None:
    execution = example_execution("inca", 5, rounds=2, sigma_star=1.0, sigma_delta=2.0)
    assert execution.privacy(DELTA) is execution.privacy(DELTA)
    assert execution.privacy(DELTA).transcript is execution.privacy(1e-9).transcript is execution.transcript()
    assert execution.privacy(1e-9).against({0}).max_epsilon > execution.privacy(DELTA).against({0}).max_epsilon
    write_certificate_report(execution, tmp_path / "page.html", delta=DELTA, size=1)
    assert execution.privacy(DELTA).coalitions(1) is execution.privacy(DELTA).coalitions(1)
    with pytest.raises(InputError, match="delta"):
        execution.privacy(1.0)
