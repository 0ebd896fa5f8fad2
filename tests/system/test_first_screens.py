"""First screens of results: every fact that must not be missed, for every protocol, unit and what may have happened.

Which facts hold is found here from the execution, its certificate and what was done to the receipt, not from the predicates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.answers import ResultScreen, write_privacy_page, write_report
from quietmean.cli.main import main
from quietmean.core.assumptions import assumptions_json, listing
from quietmean.core.codec import to_plain
from quietmean.core.errors import InputError
from quietmean.core.readable import UNKNOWN, AlwaysFact, epsilon_shown, for_terminal
from quietmean.graphs import ExecutionTrace
from quietmean.planning.influence import influence_of
from quietmean.protocols import registry
from quietmean.randomness import Seed
from quietmean.report import StudyReport, write_study_report
from quietmean.report.released import released_of
from quietmean.statistics.estimate import Flag
from quietmean.statistics.printed import TidyTests, notes_of, together
from quietmean.statistics.printed import shown as shown_term
from quietmean.statistics.tidy import terms_of
from quietmean.studies import StudyOutcome, conclude
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome import ended
from quietmean.studies.outcome.about_intervals import ABOUT_THESE
from quietmean.studies.outcome.ended import ALWAYS, Ended
from quietmean.studies.outcome.first_screen import first_screen
from support.outcomes import EVERY_KIND, finished, run_of
from support.promises import lines_of_page
from system.test_printed_promises import NAMES, PARTIES, WITHOUT, outcome_of, planned

# What may have happened: the receipt's origin as nodes and committees write it, with the words that the screen then shows.
Receipt = dict[str, Any]
HAPPENED: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "nothing": ({}, ()),
    "a lie to one": ({"equivocating": [[2, "00" * 32, 1, "11" * 32]]}, ("! FALSE", "east", "south", "Keep the receipt")),
    "an impossible sum": ({"impossible_releases": [[3, "00" * 32]]}, ("! FALSE", "west", "Keep the receipt")),
    "a wrong sum": ({"remarks": ["member 3's sum disagrees: it, or a dealer"]}, ("! FALSE", "member 3's sum")),
    "not in at the start": ({"start": {"not_in_at_start": ["coast"]}}, ("! AWAY", "coast")),
    "something open": ({"notes": ["inland sent no report at the end"]}, ("! OPEN", "inland sent no report")),
}
OF_COMMITTEE: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "a wrong member": (
        {"members": {"sums": 4, "wrong": ["south"]}},
        ("! FALSE", "south sent a wrong sum", "their signatures prove it"),
    ),
    "one is missing": ({"contributions": {"left_out": [], "missing": ["west"]}}, ("! AWAY", "west")),
    "one is left out": ({"contributions": {"left_out": [{"name": "east", "why": "x"}], "missing": []}}, ("! AWAY", "east")),
}
CASES = [
    (name, unit, committee)
    for name in (*registry(), "committee")
    if name not in WITHOUT
    for unit in ("record", "party")
    for committee in (name == "committee",)
]


def receipt_of(outcome: StudyOutcome, **origin: Any) -> Receipt:
    receipt: Receipt = json.loads(json.dumps(to_plain(outcome.receipt({"names": list(NAMES), **origin}))))
    return receipt


def text_of(receipt: Mapping[str, Any]) -> str:
    """The screen in one line, with a line of its own for each mark."""
    return " ".join(" ".join(first_screen(receipt)).split())


def facts_expected(outcome: StudyOutcome, asked: float) -> dict[str, bool]:
    """Which marks must stand there, by what the execution cost and who is in it."""
    bare, promised = not outcome.execution.protocol.traits.private, outcome.epsilon_a_priori
    return {
        "! NO PRIVACY": bare,
        "! COST": not bare and outcome.epsilon > asked,
        "! ABOVE": asked < promised < math.inf,
        "! AWAY": not outcome.execution.contributors().all(),
        "! SITE": not bare and outcome.party_epsilon == math.inf,
    }


@pytest.mark.parametrize(("name", "unit", "committee"), [pytest.param(*case) for case in CASES])
def test_what_must_not_be_missed_is_on_the_first_screen(name: str, unit: str, committee: bool) -> None:
    try:
        study, plan = planned(name, unit, 1, committee)
    except InputError:
        pytest.skip("there is no such plan")
    outcome = outcome_of(study, plan)
    expected = facts_expected(outcome, study.epsilon)
    happened = dict(HAPPENED)
    if committee:
        happened |= {each: ({"committee": value}, words) for each, (value, words) in OF_COMMITTEE.items()}
    for what, (origin, words) in happened.items():
        receipt = receipt_of(outcome, **origin)
        shown, lines = text_of(receipt), first_screen(receipt)
        assert [word for word in words if word not in shown] == [], what
        for mark, holds in expected.items():
            if mark != "! AWAY" or not committee:
                assert (mark in shown) is (holds or mark in words), (what, mark)
        # One mean: the answer, the line about its interval and what is usual are at most 12 lines.
        assert sum(not line.startswith(("!", " ")) for line in lines) <= 6
        assert all(len(line) <= 80 for line in lines), what
    assert len(first_screen(receipt_of(outcome))) <= 12
    usual = text_of(receipt_of(outcome))
    if outcome.execution.protocol.traits.private:
        promised = outcome.epsilon_a_priori
        privacy = (
            f"epsilon {epsilon_shown(promised)} (delta 1e-6) per {unit}, guaranteed, against {outcome.against}"
            if math.isfinite(promised)
            else f"epsilon {epsilon_shown(outcome.epsilon)} realised (delta 1e-6); nothing was guaranteed beforehand"
        )
        assert privacy in usual or not math.isfinite(min(promised, outcome.epsilon))
        epsilon = promised if math.isfinite(promised) else outcome.epsilon
        # Randomised response reaches it.
        guess = rf"50:50 guess at a {unit}(?:.s data)? (?:is right at most|may be right) ([\d,]+) times in ([\d,]+)\."
        right = re.findall(guess, usual)
        least = 1 / (1 + math.exp(-epsilon))
        for times, every in right:
            most, step = int(times.replace(",", "")), int(every.replace(",", ""))
            assert least * step <= most <= least * step + 1.01
        assert len(right) == math.isfinite(epsilon)
        assert ("Weak: a 50:50" in usual) is (math.isfinite(epsilon) and math.ceil(100 * least + 1e-5) >= 95)
        assert ("50:50" in usual) is math.isfinite(epsilon)
    else:
        assert "Privacy none" in usual
        assert "guaranteed" not in usual
        assert "50:50" not in usual


def _after_a_look(*cut: str) -> Receipt:
    """A receipt of a study whose bounds a look proposed, which may cut these columns."""
    receipt = receipt_of(finished("mean(x)"))
    flag = Flag.shared("cut", ", ".join(cut), "bounds of a first look may cut values that matter")
    about: dict[str, Any] = {"code": flag.code, "message": flag.message, "terms": [], "upper": None}
    receipt["result"]["statistics"][0]["flagged"] += [about]
    return receipt


def test_all_columns_that_bounds_may_cut_are_named_once() -> None:
    (line,) = [text for text in " ".join(first_screen(_after_a_look("age", "pay"))).split("! ") if text.startswith("CUT")]
    assert " ".join(line.split()) == (
        "CUT age, pay: bounds of a first look may cut values that matter. Intervals are of clipped values."
    )


@pytest.mark.parametrize("fact", ALWAYS, ids=lambda fact: fact.key)
def test_each_fact_is_seen_to_be_missing(fact: AlwaysFact[Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some receipt has it, and without the fact its line is not there: nothing else says it."""
    cases: dict[str, Callable[[], list[str]]] = {
        "NO PRIVACY": lambda: first_screen(receipt_of(outcome_of(*planned("gossip", "record", 1, False)))),
        "NO EPSILON": lambda: first_screen(_in_nats(0.1)),
        "NATS": lambda: first_screen(_in_nats(0.5)),
        "COST": lambda: first_screen(receipt_of(finished("mean(x)"))),
        "ABOVE": lambda: first_screen(receipt_of(finished("mean(x)"))),
        "AWAY": lambda: first_screen(receipt_of(finished("mean(x)"), **HAPPENED["not in at the start"][0])),
        "FALSE": lambda: first_screen(receipt_of(finished("mean(x)"), **HAPPENED["an impossible sum"][0])),
        "OPEN": lambda: first_screen(receipt_of(finished("mean(x)"), **HAPPENED["something open"][0])),
        "HIDDEN": lambda: first_screen(receipt_of(finished("group-means(x, by=arm)"))),
        "CUT": lambda: first_screen(_after_a_look("age", "pay")),
        "CLIPPED": lambda: first_screen(receipt_of(finished("mean(x)")), ["9 values lie outside"]),
        "PARTIES": lambda: first_screen(_against_outsiders(9.9)),
        "SITE": lambda: first_screen(receipt_of(outcome_of(*planned("packed-sharing", "record", 1, False)))),
    }
    assert any(line.startswith(f"! {fact.key} ") for line in cases[fact.key]())
    monkeypatch.setattr(ended, "ALWAYS", tuple(other for other in ALWAYS if other is not fact))
    assert not any(line.startswith(f"! {fact.key} ") for line in cases[fact.key]())


def test_what_holds_against_all_others_is_not_only_against_outsiders() -> None:
    assert not any("! PARTIES" in line for line in first_screen(_against_outsiders(2.0)))


def _against_outsiders(others: float) -> Receipt:
    receipt = receipt_of(finished("mean(x)"))
    receipt["result"]["epsilon_a_priori"] = 2.0
    receipt["result"]["certificate"] |= {"against": "outsiders", "everyone_else_epsilon": others}
    return receipt


def _in_nats(most: float) -> Receipt:
    receipt = receipt_of(finished("mean(x)"))
    receipt["result"]["nats"] = {"target": 0.3, "most": most, "revealed_variance": 0.1, "prior_sd": 1.0}
    return receipt


@pytest.mark.parametrize(
    ("receipt", "words"),
    [
        ({"no_result": {"reason": "east and 2 others disagree", "charged": "in full"}, "certify": {}}, ("East and 2", "in full")),
        ({"gate": {"published": False, "reason": "no certificate passes"}, "certify": {}}, ("No certificate passes", "Kept")),
    ],
)
def test_without_an_answer_the_screen_says_why_and_what_is_kept(receipt: Receipt, words: tuple[str, ...]) -> None:
    shown = text_of(receipt)
    assert shown.startswith("No answer")
    assert [word for word in words if word not in shown] == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "inca" else ()) for name in registry() if name not in WITHOUT]
)
def test_a_lie_to_one_has_the_figure_of_the_certificate(name: str) -> None:
    """How far it can have moved the answer is what one party can do by what it sends, rounded up."""
    try:
        study, plan = planned(name, "record", 1, False)
    except InputError:
        pytest.skip("there is no such plan")
    execution = plan.execution(Seed.public("lie"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES), np.full(PARTIES, 40.0))
    mean = np.full(study.workload.dimension, 0.5)
    outcome = conclude(study.workload, plan.target, execution, mean, influence=influence_of(plan, execution))
    shown = text_of(receipt_of(outcome, **HAPPENED["a lie to one"][0]))
    bounded, unbounded = re.findall(r"Such a lie moves mean\(age\) by at most (\S+)\. ", shown), "Nothing bounds how far" in shown
    most = None if outcome.influence is None else outcome.influence.most("mean(age)")
    assert (len(bounded), unbounded) == ((0, False) if most is None else (0, True) if math.isinf(most) else (1, False))
    assert all(most is not None and most * (1 - 1e-9) <= float(figure) <= most * 1.01 for figure in bounded)


@pytest.mark.parametrize("counts", [(0, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0), (0, 7, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("name", ["local-dp", "cordp-dme", "gossip"])
def test_what_is_said_of_intervals_where_few_have_a_record(name: str, counts: tuple[int, ...]) -> None:
    """Of nobody's answers nothing is said of intervals; else the line agrees with which intervals are there."""
    study, plan = planned(name, "record", 1, False)
    execution = plan.execution(
        Seed.public("few"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES), np.array(counts, float)
    )
    outcome = conclude(study.workload, plan.target, execution, np.full(study.workload.dimension, 0.5))
    shown = text_of(receipt_of(outcome))
    (term,) = terms_of(receipt_of(outcome)["result"]["statistics"][0])
    there = [all(map(math.isfinite, ends)) and ends[0] < ends[1] for ends in (term.population, term.noise)]
    if not sum(counts):
        assert "No party has a record" in shown
        assert "nterval covers" not in shown
    else:
        assert "No party has a record" not in shown
        assert ("covers sampling" in shown, "noise alone, not sampling" in shown) == (there[0], there[1] and not there[0])
    assert len(first_screen(receipt_of(outcome))) <= 13


def test_nothing_is_called_checked_that_was_not() -> None:
    for name in registry():
        if name in WITHOUT:
            continue
        try:
            outcome = outcome_of(*planned(name, "record", 1, False))
        except InputError:
            continue
        receipt = receipt_of(outcome)
        certificate = receipt["result"]["certificate"]
        certificate.pop("influence", None)
        if not certificate.get("checked_by", {}).get("lies_excluded"):
            assert not any(line.startswith("Checked") for line in first_screen(receipt)), name


@pytest.mark.parametrize("unit", ["record", "party"])
@pytest.mark.parametrize("name", [name for name, kind in registry().items() if not kind.TRAITS.private])
def test_nothing_is_called_protected_without_privacy(
    name: str, unit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither with all details, nor where the receipt is certified, nor on the pages."""
    outcome = outcome_of(*planned(name, unit, 1, False))
    receipt = receipt_of(outcome)
    ResultScreen(receipt, outcome.to_json(), "quietmean result FILE", details=True).show()
    (tmp_path / "receipt.json").write_text(json.dumps(receipt))
    for more in ([], ["--details"]):
        main(["verify", "receipt", str(tmp_path / "receipt.json"), *more])
    run = run_of("ages", outcome, NAMES)
    write_report(tmp_path / "report.html", run)
    write_privacy_page(tmp_path / "privacy.html", run)
    pages = [lines_of_page((tmp_path / f"{page}.html").read_text()) for page in ("report", "privacy")]
    said = " ".join([capsys.readouterr().out, *pages])
    found = [
        said[max(0, hit.start() - 60) : hit.end() + 40]
        for hit in re.finditer(r"\bis protected|are protected|the study protects", said)
    ]
    assert found == []


def test_of_many_terms_each_has_a_line_and_little_follows() -> None:
    receipt = receipt_of(finished(*EVERY_KIND))
    lines = first_screen(receipt)
    below = lines[lines.index("") :]
    assert sum(not line.startswith("!") and not line.startswith(" " * 10) for line in below) <= 9
    assert len(lines) > 100
    assert len(NAMES) == PARTIES


def test_a_study_of_these_records_has_the_interval_of_the_noise() -> None:
    fields = {"name": "ages", "epsilon": 1, "column": [{"name": "age", "low": 0, "high": 100}]}
    usual, these = (StudyTerms.parse({**fields, **more}) for more in ({}, {"population": "these records"}))
    assert "population" not in usual.describe(), "what was agreed on before keeps its digest"
    assert these.describe()["population"] == "these records"
    outcome, about = (finished("mean(x)", noise=1.0, these_records=each) for each in (False, True))
    assert these.workload.these_records
    assert not usual.workload.these_records
    answers = {each: receipt_of(each)["result"]["statistics"][0] for each in (outcome, about)}
    for each, field in ((outcome, "interval_population"), (about, "interval_noise")):
        row = first_screen(receipt_of(each))[1]
        low, high = (float(end) for end in row.split("  ")[-2].split(" to "))
        assert [low, high] == pytest.approx(answers[each][field], abs=0.006)
    assert "not sampling" in " ".join(first_screen(receipt_of(about)))
    assert "covers sampling" in " ".join(first_screen(receipt_of(outcome)))


def test_an_answer_about_these_records_quotes_one_interval_wherever_it_is_shown(tmp_path: Path) -> None:
    """Of every kind of statistic: on the screen, in rows, in the report and on the privacy page."""
    for about in (False, True):
        outcome = finished(*EVERY_KIND, noise=1.0, these_records=about)
        receipt = receipt_of(outcome)
        terms = [term for entry in receipt["result"]["statistics"] for term in terms_of(entry)]
        rows = [term.row() for term in terms]
        same = [[row[f"{noise}conf.{end}"] for end in ("low", "high")] for noise in ("", "noise.") for row in rows]
        assert (same[: len(rows)] == same[len(rows) :]) == about
        screen = " ".join(" ".join(first_screen(receipt)).split())
        assert (ABOUT_THESE in screen) == about
        assert ("(noise only)" in screen) != about
        page = tmp_path / f"{about}.html"
        report = StudyReport.of_outcome("all", outcome, list("abcdef"), messages=1, bytes=1, seconds=1.0)
        write_study_report(report, page)
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert ("95 % for the population" in text) != about
        assert ("random sample" in text) != about
        assert ("about these records alone, so that is the interval to quote" in text) == about
        released = released_of(receipt["result"]["statistics"])
        assert {number.these_records for number in released} == {about}


def test_what_a_study_is_about_is_the_same_by_command_and_from_python(tmp_path: Path) -> None:
    said: dict[str, Any] = {"name": "ages", "epsilon": 1.0, "delta": 1e-6}
    files = {}
    for population in ("beyond", "these records"):
        files[population] = tmp_path / f"{population}.toml"
        words = [word for name, value in said.items() for word in (f"--{name}", str(value))]
        new = ["study", "new", "mean(age in 0..100)", *words, "--population", population, "--out", str(files[population])]
        main(new)
        study = qm.Study(["mean(age in 0..100)"], **said, population=population)
        assert StudyTerms.load(files[population]).describe() == study.terms.describe()
    assert "population" not in StudyTerms.load(files["beyond"]).describe()


@pytest.mark.parametrize("name", ["packed-sharing", "cordp-dme", "gossip", "committee", "every kind"])
def test_details_have_all_that_was_printed_before(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Costs, other adversaries, whole parties, influence, assumptions, errors and intervals of the noise, tests, and flags."""
    if name == "every kind":
        outcome = finished(*EVERY_KIND, noise=1.0)
    else:
        outcome = outcome_of(*planned(name, "record", 1, name == "committee"))
    document = {**outcome.to_json(), "not_counted": ["coast"], "notes": ["north was late"], "why": "chosen for its error"}
    ResultScreen(receipt_of(outcome), document, "quietmean result FILE", details=True, effort="1296 messages, 226 kB").show()
    printed = capsys.readouterr()
    shown = " ".join((printed.out + printed.err).split())
    terms = [term for entry in document["statistics"] for term in together(terms_of(entry))[0]]
    influence = [] if outcome.influence is None else [outcome.influence.fact.sentence]
    flags = [note for entry in document["statistics"] for note in notes_of(entry["flagged"])]
    wanted = [
        *(fact.sentence for fact in outcome.facts),
        *listing(assumptions_json(outcome.assumptions)),
        *influence,
        *([] if outcome.checked is None else [outcome.checked]),
        *(f"{for_terminal(texts.noise_error)} " for texts in map(shown_term, terms)),
        *(for_terminal(texts.noise) for texts in map(shown_term, terms) if texts.noise != UNKNOWN),
        *(for_terminal(sentence) for entry in document["statistics"] for sentence in TidyTests((entry,)).sentences()),
        *flags,
        *("coast", "note: north was late", "chosen for its error", "1296 messages, 226 kB"),
    ]
    assert [text for text in wanted if " ".join(text.split()) not in shown] == []
