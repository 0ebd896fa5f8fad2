"""The page that explains a certificate, and the numbers on it against plain certificates."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.privacy import Adversary, PrivacyAnalysis
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols.execution import Execution
from quietmean.report.certificate import write_certificate_report
from quietmean.report.curves import Explanation, explain, has_static_neighbours
from quietmean.report.words import rounded_up
from quietmean.testing import example_execution
from quietmean.testing.examples import certificate_of
from support.command_lines import fails
from support.pages import words_of

DELTA = 1e-6
INCA = example_execution("inca", 9, rounds=5, sigma_star=1.0, sigma_delta=2.5, permanent=0.12, temporary=0.1)
RING = example_execution("inca", 10, rounds=5, sigma_star=1.5, sigma_delta=3.0, schedule="ring")


def epsilon_of(execution: Execution, adversary: Adversary, party: int) -> float:
    certificate = certificate_of(execution.transcript(), adversary, execution.sensitivity)
    return epsilon_of_mu(float(certificate.mu_upper[certificate.honest.index(party)]), DELTA)


def page_of(execution: Execution, folder: Path, *, size: int = 1, adversary: Adversary | None = None) -> str:
    path = folder / "certificate.html"
    write_certificate_report(execution, path, delta=DELTA, size=size, adversary=adversary)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain(INCA, Adversary.collusion({0, 4}), DELTA)


def test_messages_are_those_of_the_party_that_nobody_saw(found: Explanation) -> None:
    delivered = INCA.trace.delivered(INCA.schedule)
    own = {
        (round_ + 1, sender)
        for round_, sender, slot in zip(*(part.tolist() for part in np.nonzero(delivered)), strict=True)
        if found.party in (sender, INCA.schedule.neighbours[round_, sender, slot])
        and not {0, 4} & {sender, int(INCA.schedule.neighbours[round_, sender, slot])}
    }
    assert {(message.round, message.sender) for message in found.messages} == own
    assert len(own) == found.unseen > 2


def test_each_message_is_worth_what_a_certificate_says(found: Explanation) -> None:
    for message in found.messages:
        adversary = Adversary(frozenset({0, 4}), frozenset({(message.sender, message.round - 1)}))
        assert message.epsilon == pytest.approx(epsilon_of(INCA, adversary, found.party), rel=1e-6)
        assert found.epsilon * (1 - 1e-9) <= message.epsilon <= found.all_intercepted * (1 + 1e-6)
    assert [m.epsilon for m in found.messages] == sorted((m.epsilon for m in found.messages), reverse=True)


def test_each_neighbour_is_worth_what_a_certificate_says(found: Explanation) -> None:
    assert {neighbour.party for neighbour in found.neighbours} == set(range(9)) - {0, 4, found.party}
    assert found.candidates == 6
    for neighbour in found.neighbours:
        larger = Adversary.collusion({0, 4, neighbour.party})
        assert neighbour.epsilon == pytest.approx(epsilon_of(INCA, larger, found.party), rel=1e-6)


def test_the_curve_is_that_of_all_coalitions(found: Explanation) -> None:
    assert [point.size for point in found.curve] == list(range(9))
    for point in found.curve[:4]:
        certificate = INCA.privacy(DELTA).coalitions(point.size, limit=point.tried)
        assert point.exhaustive
        assert point.worst == pytest.approx(certificate.max_epsilon, rel=1e-6)
        assert point.median <= point.worst
    alone = epsilon_of_mu(float(PrivacyAnalysis.of_gaussian(INCA.transcript(), 1.0, 1e-6).single_honest().max()), DELTA)
    assert all(before.worst <= after.worst for before, after in zip(found.curve, found.curve[1:], strict=False))
    assert found.curve[-1].worst == pytest.approx(alone, rel=1e-6)


def test_groups_and_watched_parties_of_a_ring() -> None:
    found = explain(RING, Adversary.collusion({1, 3, 5}), DELTA)
    assert found.groups == [[0, 6, 7, 8, 9], [2], [4]]
    assert found.watched == [2, 4]
    assert found.unseen == 0
    assert has_static_neighbours(RING)
    assert not has_static_neighbours(INCA)


def test_interception_splits_the_crowd() -> None:
    every = frozenset((party, round_) for party in range(10) for round_ in range(5))
    assert len(explain(RING, Adversary.eavesdropper(every), DELTA).groups) == 10


def test_the_page_says_what_was_found(tmp_path: Path) -> None:
    page = page_of(INCA, tmp_path, size=2)
    words = words_of(page)
    certificate = INCA.privacy(DELTA).coalitions(2)
    worst = rounded_up(certificate.max_epsilon)
    party = int(np.argmax(certificate.mu))
    found = explain(INCA, Adversary.collusion(certificate.worst), DELTA)
    assert found.party == party
    assert f"Party {party} pays most: ε = {worst} at δ = 10⁻⁶" in words
    assert "any coalition of 2 parties (all 36 checked)" in words
    assert f"All {found.unseen} together: ε = {rounded_up(found.all_intercepted)}" in words
    most = found.neighbours[0]
    assert f"party {most.party} {most.messages} {worst} {rounded_up(most.epsilon)}" in words
    assert f'--corrupt "{",".join(map(str, sorted(certificate.worst)))}"' in words


@pytest.mark.slow
def test_a_ring_is_warned_of(tmp_path: Path) -> None:
    words = words_of(page_of(RING, tmp_path, adversary=Adversary.collusion({1, 3, 5})))
    assert "fall apart into 3 groups" in words
    assert "0, 6, 7, 8 and 9; 2; 4" in words
    assert "saw all that parties 2 and 4 sent and received" in words
    assert "Theorem 4.9" in words
    assert "Only its own noise protects party" in words
    assert "whose neighbours all collude is never hidden" in words_of(page_of(RING, tmp_path, size=0))


def test_intercepted_messages_are_part_of_the_adversary(tmp_path: Path) -> None:
    adversary = Adversary(frozenset({0}), frozenset({(1, 0), (2, 1)}))
    words = words_of(page_of(INCA, tmp_path, adversary=adversary))
    certificate = certificate_of(INCA.transcript(), adversary, 1.0)
    assert f"ε = {rounded_up(certificate.max_epsilon)}" in words
    assert "2 messages intercepted" in words
    assert "--observed observed.json" in words


@pytest.mark.parametrize(
    ("protocol", "parameters", "expected"),
    [
        ("local-dp", {"sigma": 2.0}, ["Only its own noise", "learn no more than an outsider", "Nobody: its ε stays the same"]),
        (
            "central-dp",
            {"sigma": 2.0},
            ["party 0 trusted never to collude", "1 message that the adversary does not see protects"],
        ),
        ("gossip", {"rounds": 3}, ["has no bound", "is disclosed", "Nothing protects party", "adds no noise"]),
    ],
)
def test_other_protocols(protocol: str, parameters: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    words = words_of(page_of(example_execution(protocol, 6, **parameters), tmp_path))
    for phrase in expected:
        assert phrase in words
    assert "nan" not in words
    assert not re.search(r"\binf\b", words)


def test_no_adversary_is_an_outsider(tmp_path: Path) -> None:
    assert "an outsider who sees what is published" in words_of(page_of(INCA, tmp_path, adversary=Adversary()))


def test_work_is_bounded_for_large_executions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("quietmean.report.curves._SMALL", 10)
    found = explain(INCA, Adversary.collusion({0}), DELTA, size=3)
    assert [point.size for point in found.curve] == [0, 1, 2, 3, 4, 8]
    assert found.curve[2].tried == 4
    assert not found.curve[2].exhaustive
    monkeypatch.setattr("quietmean.report.curves._FEW_TRIED", 3)
    assert len(found.messages) > 3
    words = words_of(page_of(INCA, tmp_path, adversary=Adversary.collusion({0})))
    assert re.search(r"3 of the \d+ were tried", words)
    assert "The 3 parties that exchanged most with it were tried" in words
    assert "4 random coalitions of that size" in words


@pytest.mark.slow
def test_the_page_needs_nothing_else_and_is_the_same_every_time(tmp_path: Path) -> None:
    page = page_of(INCA, tmp_path)
    assert page == page_of(INCA, tmp_path)
    addresses = re.findall(r"https?://[^\s\"'<>]*", page)
    assert all(address.startswith("http://www.w3.org/") for address in addresses), addresses
    assert not re.search(r"<(script|link|img|iframe|object|image)\b|@import|url\((?!#)", page)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, report = tmp_path / "execution.json", tmp_path / "out.html"
    INCA.save(path)
    main(["verify", "receipt", str(path), "--colluding", "1", "--report", str(report), "--json"])
    assert capsys.readouterr().out.startswith("{")
    assert "any coalition of 1 party" in report.read_text()
    main(["verify", "receipt", str(path), "--corrupt", "0,4", "--report", str(report)])
    assert f"explained in {report}" in capsys.readouterr().out.replace("\n", "")
    assert "parties 0, 4 colluding" in report.read_text()
    fails(["verify", "receipt", str(path), "--report", str(tmp_path / "nowhere" / "out.html")], capsys, "Choose another place")


def test_infinite_values_are_drawn(tmp_path: Path) -> None:
    """One colluder learns nothing exactly, three do: finite and infinite points in one figure."""
    execution = example_execution("inca", 6, rounds=3, sigma_star=0.0, sigma_delta=2.0)
    found = explain(execution, Adversary(), DELTA)
    assert math.isinf(found.curve[-1].worst)
    assert "∞" in words_of(page_of(execution, tmp_path))
