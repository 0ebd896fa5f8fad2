"""The report of a study: complete, self-contained, harmless and reproducible."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from quietmean.core.readable import Fact, decimals_for, fixed, with_error
from quietmean.graphs import ExecutionTrace
from quietmean.node import NodeResult
from quietmean.node.local import LocalOutcome
from quietmean.privacy.analysis import A_PRIORI, HAPPENED
from quietmean.protocols import Target, configure
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed
from quietmean.report import Stamps, StudyReport, exchange_figure, write_study_report
from quietmean.report.exchange import MOST_PARTIES, MessageTraffic, rounds_used, shown_parties, statement
from quietmean.report.words import cards_of, data_size, listed, power, rounded_up
from quietmean.studies.outcome.local import senders
from support.pages import words_of

DELTA = 1e-6
HOSTILE = "<script>alert('$x$ & \"y\"')</script>"


def _execution(protocol: str = "inca", parties: int = 8, *, away: bool = False, lost: bool = False) -> Execution:
    options: dict[str, object] = {"rounds": 4} if protocol in ("inca", "gossip") else {}
    asked = configure(protocol, options)
    configured = template_of(asked, Target(parties=parties, epsilon=1.0, delta=DELTA)).with_noise(1.5, 3.0)
    schedule = configured.draw_schedule(parties, Seed.public("report"))
    trace = ExecutionTrace.everyone(schedule.rounds, parties)
    if away:
        trace.online[3:, 5] = False  # for good
        trace.online[2, 6] = False  # and back
    if lost:
        mask = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
        mask[0, 1] = True
        trace = ExecutionTrace(trace.online, mask)
    return Execution(configured, schedule, trace, 1.0, np.ones(parties))


def _report(execution: Execution, *, colluding: int = 2, truth: bool = True, target: float = 5.0) -> StudyReport:
    privacy = execution.privacy(DELTA)
    return StudyReport(
        title="Age and weight of patients",
        terms=["age", "weight"],
        bounds=[(0.0, 100.0), (-20.0, 2000.0)],
        estimate=np.array([48.31, 71.234]),
        standard_error=np.array([0.62, 12.0]),
        of_noise=np.array([[47.0948, 49.5252], [47.7144, 94.7536]]),
        execution=execution,
        privacy=privacy,
        certificate=privacy.coalitions(colluding),
        target_epsilon=target,
        unit="record",
        party_names=[f"clinic {party}" for party in range(execution.parties)],
        records=442,
        parties_counted=int(execution.trace.finished.sum()),
        messages=120,
        bytes=1_234_567,
        seconds=3.21,
        truth=np.array([47.07, 80.0]) if truth else None,
        party_epsilon=7.5,
        killed=["clinic 5"],
    )


def _page(report: StudyReport, folder: Path) -> str:
    path = folder / "report.html"
    write_study_report(report, path, force=True)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def usual() -> StudyReport:
    return _report(_execution(away=True, lost=True))


def test_says_what_it_cost_against_whom(usual: StudyReport, tmp_path: Path) -> None:
    words = words_of(_page(usual, tmp_path))
    promised = usual.certificate.epsilon_a_priori
    assert promised is not None
    as_happened = rounded_up(usual.certificate.max_epsilon)
    assert f"Guaranteed at most ε = {rounded_up(promised)}, realised at most ε = {as_happened} (δ = 10⁻⁶)" in words
    assert usual.certificate.describe() in words
    assert rounded_up(usual.privacy.epsilon(usual.privacy.single_honest().max())) in words
    assert "one record of one party" in words
    # A sentence and no card: only one record is protected.
    assert "Epsilon 7.5000 at delta 1e-06 for all the records of one party together." in words
    assert "quietmean verify receipt receipt.json" in words
    assert "(passive adversary)" in words
    assert "Claim: (epsilon, delta)-differential privacy" in words


def test_gives_the_answer_in_the_units_of_each_column(usual: StudyReport, tmp_path: Path) -> None:
    words = words_of(_page(usual, tmp_path))
    assert "age 48.31 0.62 47.09 to 49.53 47.07 +2.0 standard errors 0 to 100" in words
    assert "weight 71 12 48 to 95 80 −0.7 standard errors −20 to 2,000" in words
    assert "within 2 standard errors of the truth" in words


def test_says_who_left_and_what_was_lost(usual: StudyReport, tmp_path: Path) -> None:
    words = words_of(_page(usual, tmp_path))
    assert "Dropped out for good clinic 5" in words
    assert "Stopped by force clinic 5" in words
    assert "Parties counted 7 of 8" in words
    assert re.search(r"not delivered \(\d+\)", words)


def test_says_by_whom_messages_were_counted(usual: StudyReport, tmp_path: Path) -> None:
    """Who was killed told no number, and what arrived is known of all: it may be more."""
    arrived = MessageTraffic.of(usual.execution, ()).arrived
    words = words_of(_page(replace(usual, messages=arrived - 1, sent_by="the 7 parties that finished"), tmp_path))
    assert f"Messages sent {arrived - 1} by the 7 parties that finished" in words
    assert f"Data sent {data_size(usual.bytes)} by the 7 parties that finished" in words
    assert f"Exchange {arrived} messages of all parties arrived" in words
    assert f"{arrived} of them" not in words
    bare = words_of(_page(_report(_execution("local-dp")), tmp_path))
    assert "Messages sent 120" in bare
    assert "of all parties arrived" not in bare


@pytest.mark.parametrize(("told", "said"), [(6, "all 6 parties"), (4, "the 4 parties that finished"), (0, "all who took part")])
def test_a_run_on_one_machine_says_who_counted(told: int, said: str) -> None:
    results = dict.fromkeys(range(told), cast(NodeResult, None))
    assert senders(LocalOutcome(results, {}, (4, 5), 1.0, 10, 10), 6) == said


def test_says_without_whom_it_began(usual: StudyReport, tmp_path: Path) -> None:
    online = usual.execution.trace.online.copy()
    # Before it had sent anything: of whoever leaves later, a part is in the result.
    online[1:, 5] = False
    silent = replace(usual, execution=usual.execution.with_trace(ExecutionTrace(online)))
    page = words_of(_page(replace(silent, stamps=Stamps(absent=("clinic <8>",))), tmp_path))
    assert "clinic <8> and clinic 5" in page
    assert "7 of 9 parties" in page
    assert "of those who began is left out. It began without 1 party, of whose records nothing is known" in page
    assert "began without" not in words_of(_page(usual, tmp_path))


def test_without_truth_says_nothing_of_it(tmp_path: Path) -> None:
    words = words_of(_page(_report(_execution(), truth=False), tmp_path))
    assert "true mean" not in words
    assert "truth" not in words
    assert "age 48.31 0.62 47.09 to 49.53 0 to 100" in words


def test_one_column_is_named_in_the_heading(usual: StudyReport, tmp_path: Path) -> None:
    single = replace(
        usual,
        terms=["age"],
        bounds=[(0.0, 100.0)],
        estimate=np.array([48.31]),
        standard_error=np.array([0.62]),
        truth=None,
    )
    assert "The private mean of age is 48.31 (standard error 0.62)" in words_of(_page(single, tmp_path))


def test_infinite_epsilon_is_said_plainly(tmp_path: Path) -> None:
    report = replace(_report(_execution("gossip"), colluding=1), standard_error=np.zeros(2))
    words = words_of(_page(report, tmp_path))
    assert "no bound holds for everybody" in words
    assert "given away exactly" in words
    assert "ε = ∞" in words
    assert "no noise" in words
    assert re.search(r"\binf\b", words) is None


def test_a_run_above_its_target_says_so(tmp_path: Path) -> None:
    report = _report(_execution(), target=0.01)
    assert "This execution cost more than the target" in words_of(_page(report, tmp_path))


@pytest.mark.parametrize(("protocol", "expected"), [("local-dp", "Nobody sends anything"), ("central-dp", "curator sees every")])
def test_protocols_without_mixing_have_a_report(protocol: str, expected: str, tmp_path: Path) -> None:
    assert expected in words_of(_page(_report(_execution(protocol), colluding=0), tmp_path))


def test_hostile_names_are_text(usual: StudyReport, tmp_path: Path) -> None:
    parties = usual.execution.parties
    report = replace(
        usual,
        title=HOSTILE,
        terms=[HOSTILE, "b"],
        party_names=[f"{HOSTILE}{party}" for party in range(parties)],
        killed=[HOSTILE],
    )
    page = _page(report, tmp_path)
    assert "<script" not in page
    assert HOSTILE in words_of(page).replace("’", "'")


def test_needs_nothing_else(usual: StudyReport, tmp_path: Path) -> None:
    page = _page(usual, tmp_path)
    addresses = re.findall(r"https?://[^\s\"'<>]*", page)
    assert all(address.startswith("http://www.w3.org/") for address in addresses), addresses
    assert not re.search(r"<(script|link|img|iframe|object|image)\b|@import|url\((?!#)", page)


def test_element_ids_are_unique_and_references_lead_somewhere(usual: StudyReport, tmp_path: Path) -> None:
    page = _page(usual, tmp_path)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', page)) <= {(name, "") for name in ids} | {
        ("", name) for name in ids
    }


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / "one.html", tmp_path / "two.html"]
    for path in paths:
        write_study_report(_report(_execution(away=True, lost=True)), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_values_far_outside_the_bounds_are_drawn(usual: StudyReport, tmp_path: Path) -> None:
    noisy = replace(usual, estimate=np.array([9000.0, -9e6]), standard_error=np.array([4000.0, 1e3]))
    assert "standard errors of the truth" in words_of(_page(noisy, tmp_path))


def test_traffic_counts_what_the_transcript_says() -> None:
    execution = _execution(away=True, lost=True)
    traffic = MessageTraffic.of(execution, {0, 3})
    delivered = execution.trace.delivered(execution.schedule)
    assert traffic.arrived == delivered.sum()
    assert traffic.arrived == traffic.seen + traffic.sent.sum() + traffic.quiet.sum()
    # Every scheduled message arrived, was kept by its sender, or its sender was away.
    assert traffic.arrived + traffic.kept == execution.trace.online[1:].sum()
    assert statement(execution, {0, 3}) == f"2 colluders together receive {traffic.seen} of the {traffic.arrived} messages"
    assert "outside" in statement(execution, ())


def test_of_what_might_be_sent_only_what_came_is_drawn() -> None:
    # In packed sharing everybody may send to everybody in every round that a further ballot would need.
    target = Target(6, 1.0, 1e-6, sensitivity=1.0, colluding=1)
    plan = configure("packed-sharing").calibrate(target)
    execution = plan.execution(Seed.public("all"), ExecutionTrace.everyone(plan.protocol.rounds, 6))
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[3:] = True
    early = execution.with_trace(replace(execution.trace, lost=lost))
    traffic = MessageTraffic.of(early, {0})
    assert rounds_used(early) == traffic.table[:, 0].max() == 3
    assert traffic.kept == 0
    assert rounds_used(_execution(lost=True)) == _execution(lost=True).schedule.rounds


@pytest.mark.slow
def test_large_populations_show_sixty_parties_with_the_coalition(tmp_path: Path) -> None:
    execution = _execution(parties=80)
    shown = shown_parties(execution, {3, 77})
    assert len(shown) == MOST_PARTIES
    assert {3, 77} <= set(shown)
    report = _report(_execution(parties=12))
    names = [f"clinic {party}" for party in range(80)]
    large = replace(report, execution=execution, party_names=names, certificate=replace(report.certificate, mu=np.full(80, 0.1)))
    assert "60 of 80 parties are drawn" in words_of(_page(large, tmp_path))


def test_what_is_the_same_of_all_parties_stands_once(usual: StudyReport, tmp_path: Path) -> None:
    """Twenty equal rows are one, with all names beneath; unequal ones are listed one by one."""
    plan = configure("packed-sharing").calibrate(Target(20, 1.0, 1e-6, sensitivity=1.0, colluding=1))
    execution = plan.execution(Seed.public("all"), ExecutionTrace.everyone(plan.protocol.rounds, 20))
    page = _page(_report(execution, colluding=1), tmp_path)
    words = words_of(page)
    assert re.search(r"20 parties in the result yes 22 5.0 % ", words)
    assert f"The 20 parties: {', '.join(f'clinic {party}' for party in range(20))}." in words
    assert page.count("<rect") == 1
    assert "each of the 20 parties" in words
    # Where everybody sends to everybody, an arrow for each message says nothing.
    assert "Every party sends to every other one." in words
    assert 'class="picture"' not in page
    assert "The messages in numbers" in words
    unequal = _page(usual, tmp_path)
    assert unequal.count("<rect") >= len(usual.party_names)
    assert 'class="picture"' in unequal


@pytest.mark.parametrize("truth", [True, False])
def test_an_interval_is_drawn_between_its_bounds_and_in_its_own_surroundings(truth: bool, tmp_path: Path) -> None:
    """The estimate's point is drawn last: the line of the truth lies behind it."""
    page = _page(_report(_execution(), truth=truth), tmp_path)
    rows = re.findall(r'<div class="estimate-row">.*?</div>', page, re.DOTALL)
    assert [row.count("<svg") for row in rows] == [2, 2]
    for drawn in (svg for row in rows for svg in re.findall(r"<svg.*?</svg>", row, re.DOTALL)):
        assert ('class="tick"' in drawn) == truth
        assert drawn.rindex("<circle") > drawn.rindex("<line")
    # 48.31 with an error of 0.62, of bounds that are 100 wide.
    assert re.findall(r"<text[^>]*>(.*?)</text>", rows[0]) == ["0", "100", "47.09", "49.53"]


def test_what_nothing_bounds_for_a_whole_party_has_a_remedy(usual: StudyReport, tmp_path: Path) -> None:
    words = words_of(_page(replace(usual, party_epsilon=float("inf")), tmp_path))
    assert "all the records of one party together are not. That is usual" in words
    assert 'unit = "party" protects whole parties, too' in words.replace("“", '"')
    assert "That is usual" not in words_of(_page(replace(usual, party_epsilon=1.5), tmp_path))


@pytest.mark.parametrize(("happened", "cards"), [(1.0, ["guaranteed and realised"]), (0.5, ["guaranteed", "realised"])])
def test_equal_figures_stand_once(happened: float, cards: list[str]) -> None:
    facts = [Fact(A_PRIORI, 1.0, "exact", "any 2", "one"), Fact(HAPPENED, happened, "exact", "any 2", "two")]
    assert [card["label"] for card in cards_of(facts)] == cards


def test_the_figure_stands_on_its_own(tmp_path: Path) -> None:
    path = tmp_path / "exchange.png"
    exchange_figure(_execution(away=True), {1, 2}).savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_epsilon_is_never_rounded_down() -> None:
    assert [rounded_up(value) for value in (0.98001, 1.0, 0.3, 12.341, 1234.5, 0.0, float("inf"))] == [
        "0.981", "1.00", "0.300", "12.4", "1,240", "0", "∞",
    ]  # fmt: skip


def test_numbers_show_two_digits_of_their_error() -> None:
    assert with_error(48.314, 0.42) == "48.31 (standard error 0.42)"
    assert with_error(-1234.6, 37.0) == "−1,235 (standard error 37)"
    assert with_error(2.5, 0.0) == "2.5000 (standard error 0)"
    assert [decimals_for(error) for error in (0.0042, 1.2, 500.0)] == [4, 1, -1]
    assert fixed(-0.001, 2, sign=True) == "0.00"


def test_other_words() -> None:
    assert power(1e-6) == "10⁻⁶"
    assert power(2.5e-5) == "2.5 × 10⁻⁵"
    assert power(0.01) == "0.01"
    assert data_size(999) == "999 bytes"
    assert data_size(1_234_567) == "1.23 MB (1,234,567 bytes)"
    assert listed(["a"]) == "a"
    assert listed([str(number) for number in range(14)], most=2) == "0, 1 and 12 more"
