"""The page: sentences and figures of one study, put into the template."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.report import words
from quietmean.report.answers import answer_sections
from quietmean.report.data import StudyReport
from quietmean.report.epsilons import epsilons_figure, party_epsilons
from quietmean.report.estimates import MOST_ROWS, estimates_figure
from quietmean.report.exchange import exchange_figure
from quietmean.report.rendering import render_template
from quietmean.report.style import inline_svg
from quietmean.report.traffic import MOST_PARTIES, Traffic, rounds_used, statement

# Beyond this the factor e^epsilon has no useful meaning.
_LARGEST_FACTOR = 1e6


def write_study_report(report: StudyReport, path: Path) -> None:
    """Write the report as one HTML file that needs nothing else. The same report gives the same bytes."""
    path.write_text(render(report), encoding="utf-8", newline="\n")


def render(report: StudyReport) -> str:
    """The page as text."""
    return render_template(
        "study.html",
        title=report.title,
        summary=_summary(report),
        answer=_answer(report),
        sections=[] if report.only_means else answer_sections(report.answers, report.true_answers),
        privacy=_privacy(report),
        exchange=_exchange(report),
        facts=_facts(report),
        guarantee=report.privacy.guarantee,
        assumptions=_assumptions(report),
    )


def _summary(report: StudyReport) -> str:
    execution = report.execution
    rounds = rounds_used(execution)
    records = words.counted(report.records, "record", "records")
    exchanged = f"in {words.counted(rounds, 'round', 'rounds')} of exchange" if rounds else "without any exchange"
    return (
        f"{words.counted(execution.parties, 'party', 'parties')} with {records} computed "
        f"{words.counted(len(report.terms), *_nouns(report))} {exchanged} ({execution.protocol.name})."
    )


def _answer(report: StudyReport) -> dict[str, Any]:
    rows = [_answer_row(report, place) for place in range(len(report.terms))]
    figure = inline_svg(estimates_figure(report), "estimates", "Every estimate between its bounds")
    return {
        "heading": _answer_heading(report, rows),
        "rows": rows,
        "what": "column" if report.only_means else "statistic",
        "noun": _nouns(report)[0],
        "truth": report.truth is not None,
        "figure": figure,
        "figure_note": f"The picture shows the first {MOST_ROWS} rows." if len(report.terms) > MOST_ROWS else "",
    }


def _answer_row(report: StudyReport, place: int) -> dict[str, str]:
    estimate, error = float(report.estimate[place]), float(report.standard_error[place])
    decimals = words.decimals_for(error)
    low, high = report.bounds[place]
    row = {
        "name": report.terms[place],
        "estimate": words.fixed(estimate, decimals),
        "error": words.fixed(error, decimals if error > 0 else 0),
        "bounds": f"{words.plain(low)} to {words.plain(high)}",
    }
    if report.truth is not None:
        truth = float(report.truth[place])
        difference = estimate - truth
        row["truth"] = words.fixed(truth, decimals)
        # Of the rounded numbers, so that the row adds up.
        row["difference"] = words.fixed(round(estimate, decimals) - round(truth, decimals), decimals, sign=True)
        row["distance"] = f"{words.fixed(difference / error, 1, sign=True)} s.e." if error > 0 else "no noise"
    return row


def _nouns(report: StudyReport) -> tuple[str, str]:
    return ("mean", "means") if report.only_means else ("estimate", "estimates")


def _answer_heading(report: StudyReport, rows: list[dict[str, str]]) -> str:
    if len(rows) == 1:
        what = f"private mean of {rows[0]['name']}" if report.only_means else f"private {rows[0]['name']}"
        return f"The {what} is {rows[0]['estimate']} ± {rows[0]['error']}"
    nouns = _nouns(report)[1]
    if report.truth is None or not (report.standard_error > 0).all():
        return f"The private {nouns} of {len(rows)} {'columns' if report.only_means else 'terms'}, and how far privacy blurs them"
    worst = float(np.max(np.abs(report.estimate - report.truth) / report.standard_error))
    reach = f"{math.ceil(worst * 10 - 1e-9) / 10:g}"
    return f"All {len(rows)} private {nouns} lie within {reach} standard errors of the truth"


def _privacy(report: StudyReport) -> dict[str, Any]:
    epsilons, target, promised = party_epsilons(report), report.target_epsilon, report.certificate.epsilon_a_priori
    worst, delta = float(epsilons.max()), words.power(report.delta)
    everyone_else = report.privacy.epsilon(float(report.privacy.single_honest().max()))
    unit = _unit(report.unit)
    return {
        "heading": _privacy_heading(report, worst),
        "kept": worst <= target,
        "verdict": _verdict(worst, target),
        "adversary": report.certificate.describe(),
        "delta": delta,
        "cards": [
            *_a_priori_card(report),
            _card("ex post, worst party", worst, f"given who took part, against {report.certificate.describe()}"),
            _card("target", target, "what the parties agreed on before the start"),
            _card("if everyone else colludes", everyone_else, "ex post: only the noise that a party keeps for itself remains"),
            *_party_card(report),
        ],
        "unit": unit,
        "sentences": [
            f"Protected unit: {unit}.",
            "Neighbouring data: that unit is replaced by any other within the bounds.",
            *_meaning(worst if promised is None else promised, delta),
        ],
        "figure": inline_svg(
            epsilons_figure(report), "epsilons", "Epsilon of every party against the worst coalition without it"
        ),
        "figure_heading": _spread(epsilons),
    }


def _meaning(worst: float, delta: str) -> list[str]:
    """Epsilon in words; of the figure that stands first."""
    factor = math.exp(min(worst, 700.0))
    if factor > _LARGEST_FACTOR:
        return []
    return [
        f"Whoever sees all that this adversary sees can improve the odds of any guess about that unit by a factor of at most "
        f"{words.rounded_up(factor)} (e to the power ε), except with a probability of about δ = {delta}."
    ]


def _card(label: str, epsilon: float, note: str) -> dict[str, str]:
    return {"label": label, "value": words.rounded_up(epsilon), "note": note}


def _party_card(report: StudyReport) -> list[dict[str, str]]:
    if report.party_epsilon is None:
        return []
    return [_card("for a whole party", report.party_epsilon, "ex post: if all records of a party may change, not only one")]


def _a_priori_card(report: StudyReport) -> list[dict[str, str]]:
    promised = report.certificate.a_priori
    if promised is None:
        return []
    note = f"promised before the start, whatever happens; kept by {promised.enforced_by}"
    return [_card("a priori", report.privacy.epsilon(promised.mu), note)]


def _unit(unit: str) -> str:
    return {"record": "one record of one party", "party": "all that one party contributes"}.get(unit, unit)


def _privacy_heading(report: StudyReport, worst: float) -> str:
    if math.isinf(worst):
        return "This run does not protect everybody: ε has no bound"
    cost, delta = words.rounded_up(worst), words.power(report.delta)
    promised = report.certificate.epsilon_a_priori
    if promised is None:
        return f"Ex post it cost at most ε = {cost} at δ = {delta}"
    return f"A priori at most ε = {words.rounded_up(promised)}, ex post ε = {cost}, at δ = {delta}"


def _verdict(worst: float, target: float) -> str:
    if worst <= target:
        return "The certified ε of this very run (ex post) is within the target."
    if math.isinf(worst):
        return "At least one combination of private values is given away exactly. No noise hides it."
    return (
        "The certified ε of this very run (ex post) is above the target: the run went worse than planned for, for example more "
        "dropouts."
    )


def _spread(epsilons: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    low, high = float(epsilons.min()), float(epsilons.max())
    if low == high:
        return f"Every party paid ε = {words.rounded_up(high)}"
    return f"Parties paid between ε = {words.rounded_up(low)} and {words.rounded_up(high)}"


def _exchange(report: StudyReport) -> dict[str, Any]:
    execution, coalition = report.execution, report.certificate.worst
    if not (execution.schedule.out_degree > 0).any():
        return {
            "heading": "Nobody sends anything before the end",
            "figure": "",
            "notes": ["Each party makes its noisy value public; the protocol has no rounds to draw."],
        }
    figure = exchange_figure(execution, coalition, report.party_names, title=False)
    heading = statement(execution, coalition)
    return {"heading": heading, "figure": inline_svg(figure, "exchange", heading), "notes": _exchange_notes(report)}


def _exchange_notes(report: StudyReport) -> list[str]:
    parties, coalition = report.execution.parties, report.certificate.worst
    notes = ["Time runs from left to right: an arrow leaves its sender after one round and arrives in the next."]
    if coalition:
        members = words.listed([report.party_names[party] for party in sorted(coalition)])
        how = "all possible coalitions" if report.certificate.exhaustive else "the coalitions tried"
        notes.append(f"In colour: {members}, of {how} the one that learns most.")
    if parties > MOST_PARTIES:
        notes.append(
            f"{MOST_PARTIES} of {parties} parties are drawn, with the messages among them. The numbers count all messages."
        )
    return notes


def _facts(report: StudyReport) -> list[tuple[str, str]]:
    execution = report.execution
    gone = [report.party_names[party] for party in np.nonzero(~execution.trace.finished)[0]]
    facts = [
        ("Protocol", f"{execution.protocol.name}: {execution.protocol.summary}"),
        ("Trust", execution.protocol.trust),
        ("Rounds", f"{rounds_used(execution)}"),
        ("Messages", _messages(report)),
        ("Data sent", words.data_size(report.bytes)),
        ("Time", words.duration(report.seconds)),
        ("Parties counted", f"{report.parties_counted} of {execution.parties}"),
        ("Dropped out for good", words.listed(gone) or "nobody"),
    ]
    if report.killed:
        facts.append(("Stopped by force", words.listed(report.killed)))
    return facts


def _messages(report: StudyReport) -> str:
    if report.execution.schedule.rounds == 0:
        return f"{report.messages:,}"
    private = Traffic.of(report.execution, ()).arrived
    return f"{report.messages:,} in all, {private:,} of them in the private exchange"


def _assumptions(report: StudyReport) -> list[dict[str, str]]:
    return [one.to_json() for one in report.certificate.assumptions]
