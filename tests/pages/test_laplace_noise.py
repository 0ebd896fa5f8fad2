"""Laplace noise in an answer of any kind: intervals are as wide as its law says, and each page says which noise it is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from quietmean.cli.answers import write_privacy_page
from quietmean.cli.check_view import ledger_finding
from quietmean.core.codec import to_plain
from quietmean.core.noise_law import NoiseKind, NoiseLaw
from quietmean.desk.views import in_short, preferred, templates
from quietmean.ledger.account import over_gaussian, shared_budget_text
from quietmean.node import Identity
from quietmean.planning.accuracy import stated_variance
from quietmean.privacy.analysis import WORTHLESS
from quietmean.protocols.execution import Execution
from quietmean.report import StudyReport, write_study_report
from quietmean.statistics.kinds.first_look import HIGH, LOW
from quietmean.statistics.tails import Z
from quietmean.studies import StudyOutcome, StudyTerms
from quietmean.studies.outcome import outcome
from quietmean.studies.outcome.first_screen import first_screen
from quietmean.studies.party import Contract
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.first_screen import FirstScreen
from quietmean.studies.party.payment import Payer, StudyCost
from quietmean.studies.party.planned import Wanted
from quietmean.studies.party.policy import PolicyBudget
from support.json_documents import faults
from support.kinds import STUDY
from support.outcomes import EVERY_KIND, finished, run_of
from support.promises import lines_of_page

SAID = "The privacy noise is Laplace noise: 95 % of it lies within 2.12 standard errors."


def laplace(execution: Execution) -> NoiseLaw:
    """Of the stated variance, in small steps."""
    scale = math.sqrt(stated_variance(execution) / 2)
    return NoiseLaw(NoiseKind.LAPLACE, scale, 1.0, scale / 1000)


def of_both(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[StudyOutcome, StudyOutcome]:
    normal = finished(text)
    monkeypatch.setattr(outcome, "stated_law", laplace)
    return normal, finished(text)


@pytest.mark.parametrize("text", EVERY_KIND)
def test_intervals_of_every_kind_are_wider_and_errors_are_not(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a term that both show, neither interval is shorter than with normal noise, and that of the noise is 8 % wider at most,
    where it is in proportion to the error."""
    normal, other = (each.answers[0].estimates for each in of_both(text, monkeypatch))
    shown = [term for term in normal.terms if term in other.terms]
    assert shown
    for term in shown:
        one, two = (each.entries[each.terms.index(term)] for each in (normal, other))
        if not (one.known and two.known) or not one.noise > 0:
            continue
        assert two.noise == pytest.approx(one.noise, rel=1e-9)
        for ends in ("of_noise", "of_population"):
            (low, high), (lower, higher) = getattr(one, ends), getattr(two, ends)
            if not math.isnan(low + lower):
                assert lower == low or lower <= low + 1e-9 * (1 + abs(low))
                assert higher == high or higher >= high - 1e-9 * (1 + abs(high))
        low, high = two.of_noise
        # Neither cut nor on another scale, nor edges of cells, which move by whole cells.
        if term in (LOW, HIGH):
            continue
        if two.resolution is None and one.of_noise[1] - one.of_noise[0] == pytest.approx(2 * Z * one.noise, rel=1e-6):
            inside = two.low < low and high < two.high
            assert not inside or 1.0 < (high - low) / (2 * Z * two.noise) < 2.1194 / Z


@pytest.mark.parametrize("text", ["count(x)", "proportion(yes)", "mean(x)", "crosstab(yes, other)"])
def test_each_page_says_which_noise_it_is(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for about, said in zip(of_both(text, monkeypatch), (False, True), strict=True):
        document = about.to_json()["statistics"][0]
        assert ("noise_law" in document) == said
        if said:
            assert document["noise_law"]["kind"] == "laplace"
            assert document["noise_law"]["quantile"] == pytest.approx(math.log(20) / math.sqrt(2), rel=2e-3)
        receipt = json.loads(json.dumps(about.receipt(), default=str))
        assert not [fault for fault in faults("receipt", to_plain(about.receipt())) if "noise_law" in fault]
        assert (SAID in " ".join(" ".join(first_screen(receipt)).split())) == said
        page = tmp_path / f"report-{said}.html"
        write_study_report(StudyReport.of_outcome("all", about, list("abcdef"), messages=1, bytes=1, seconds=1.0), page)
        assert (SAID in lines_of_page(page.read_text(encoding="utf-8"))) == said
        officer = tmp_path / f"privacy-{said}.html"
        write_privacy_page(officer, run_of("study", about, list("abcdef")))
        assert (SAID in lines_of_page(officer.read_text(encoding="utf-8"))) == said


def test_a_number_of_records_has_the_reach_of_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so much noise that two digits tell 1.96 from 2.12."""
    halves, errors = [], []
    for about in of_both("mean(x)", monkeypatch):
        receipt = json.loads(json.dumps(about.receipt(), default=str))
        line = next(row for row in first_screen(receipt) if row.startswith("  mean(x)"))
        halves.append(float(line.rpartition("+-")[2].rstrip(")")))
        errors.append(float(about.to_json()["statistics"][0]["n_standard_error"]))
    assert errors[0] == pytest.approx(errors[1])
    assert halves == pytest.approx([Z * errors[0], 2.118 * errors[1]], rel=0.02)


@pytest.mark.parametrize("noise", ["laplace", None])
def test_each_screen_says_what_laplace_noise_takes_of_a_shared_budget(
    noise: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan, a check before the start, and the result: the same bound on each, where noise is Laplace noise alone."""
    options = {"noise": noise} if noise else {}
    fields = STUDY.with_fields(epsilon=1.0, protocol="packed-sharing", options=options)
    planned = Wanted(records=4000).plan(StudyTerms.from_tables(fields.tables, "the study"), 8)
    cost = StudyCost("study", planned.plan)
    payer = Payer(tmp_path / "ledger.sqlite3", "north", opening=PolicyBudget(epsilon=10.0, delta=1e-6))
    about = finished("count(x)")
    monkeypatch.setattr(StudyOutcome, "a_priori", planned.plan.a_priori)
    receipt = json.loads(json.dumps(to_plain(about.receipt())))
    assert not [fault for fault in faults("receipt", receipt) if "over_gaussian" in fault]
    screens = [list(planned.first_screen()), ledger_finding(payer, cost, "", lambda: None).doubts, first_screen(receipt)]  # type: ignore[arg-type,return-value]
    times = over_gaussian(planned.plan.charge, 1e-6)
    for screen in screens:
        said = " ".join(" ".join(screen).split())
        assert ("If studies share a budget" in said) == (noise is not None)
        assert times is None or str(shared_budget_text(times)) in said


@pytest.mark.parametrize("protocol", ["packed-sharing", "secagg"])
@pytest.mark.parametrize("noise", ["laplace", None])
def test_before_a_yes_it_is_said_that_a_share_of_laplace_noise_is_worth_nothing(protocol: str, noise: str | None) -> None:
    """Beside the bare epsilon if all others work together, wherever that stands: never of Gaussian noise."""
    parties = tuple(Signatory(name, Identity.generate().public_key, ("192.0.2.7", 7001 + n)) for n, name in enumerate("abcdefgh"))
    tables = STUDY.with_fields(epsilon=1.0, records=4000, protocol=protocol, options={"noise": noise} if noise else {}).tables
    study = StudyTerms.from_tables(tables, "the study")
    contract = Contract(study, parties, 0, choice=study.choice(len(parties)))
    worthless = noise is not None
    assert ("BUDGET" in {fact.key for fact in FirstScreen.of(contract).always}) == worthless
    against = next(fact.text for fact in FirstScreen.of(contract).rows if fact.key == "against")
    assert against.endswith(f"({WORTHLESS}) if all others work together") == worthless
    assert math.isfinite(contract.everybody_else)
    short = in_short(contract, "a", None)
    assert short["is_worthless"] == worthless
    source = (Path(__file__).parents[2] / "src/quietmean/desk/templates/study.html").read_text(encoding="utf-8")
    sentences = source[source.index('<ol class="short">') : source.index("</ol>")]
    for language, said in (("en", WORTHLESS), ("de", "kein Schutz, der den Namen verdient"), ("fr", "digne de ce nom")):
        shown = templates(preferred(language)).from_string(sentences).render(short=short, says={"uses": "", "shown": ""})
        assert short["if_all_others"] in shown
        assert (said in shown) == worthless
