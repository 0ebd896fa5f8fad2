"""The page: sentences and figures of one study, put into the template."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core import readable
from quietmean.core.domain import Neighbouring, in_words_of
from quietmean.core.output import Output
from quietmean.core.readable import count_of, interval_text
from quietmean.report import words
from quietmean.report.answers import answer_sections
from quietmean.report.canvas import inline_svg
from quietmean.report.data import StudyReport
from quietmean.report.exchange import MOST_PARTIES, MessageTraffic, exchange_figure, message_table, rounds_used, statement
from quietmean.report.officer import OfficerPage
from quietmean.report.pictures import MOST_ROWS, bars, estimates_between_bounds
from quietmean.report.released import ReportFacts, SummaryCard, how_sure, is_smaller, many_estimates, records_in, where_smaller
from quietmean.report.words import page_at, render_page
from quietmean.statistics.printed import may_leave_out, notes_of, notes_of_all
from quietmean.statistics.tails import Tails, about_noise

_NEIGHBOURS = {
    Neighbouring.REPLACEMENT: "Neighbouring data: that unit is replaced by any other within the bounds.",
    Neighbouring.ADD_REMOVE: "Neighbouring data: that record is there or not; how many records each party has is private.",
}


# A finite population has no sampling error.
_WHICH_TO_QUOTE = "Quote that of the noise where these {counted} are all that the question is about, as in a census."
_OF_THESE = "The study is about these {counted} alone, so that is the interval to quote. Nothing is tested."


def write_study_report(report: StudyReport, path: Path, force: bool = False) -> None:
    """Write the report as one HTML file that needs nothing else. The same report gives the same bytes.

    It takes the place of an earlier report of the same study, and with ``force`` of any report. Raises :class:`InputError` for
    another file that is there.
    """
    report_at(path, report.stamps.whose, force).write(render(report).encode())


def report_at(path: Path, whose: str, force: bool = False) -> Output:
    """Where a report goes; ``whose``: see :func:`study_and_party`."""
    return page_at(path, "report", whose, force)


def render(report: StudyReport) -> str:
    """The page as text."""
    owner = _for_the_owner(report)
    return render_page(
        "report",
        report.stamps.whose,
        title=report.title,
        summary=_summary(report),
        first=owner.first(_how_sure(report), "A run on one machine charges no ledger." if report.truth is not None else ""),
        parties=_parties(report),
        notes=[words.sentence(note) for note in report.notes],
        receipt=report.receipt,
        answer=_answer(report),
        sections=[] if report.only_means else answer_sections(report.answers, report.true_answers),
        privacy=_privacy(report, owner),
        exchange=_exchange(report),
        facts=_facts(report),
        guarantee=report.privacy.guarantee,
        assumptions=owner.assumptions,
        counted=in_words_of(report.unit, "records", report.rows),
        influence=report.influence,
        quoted=_quoted(report),
    )


def _quoted(report: StudyReport) -> str:
    """Which interval to quote, and which noise it is where that is not normal."""
    text = (_OF_THESE if report.these_records else _WHICH_TO_QUOTE).format(
        counted=in_words_of(report.unit, "records", report.rows)
    )
    return f"{text} {about_noise(Tails.of(report.law).quantile())}".rstrip()


def _summary(report: StudyReport) -> str:
    """Who computed what, when, and by which software."""
    stamp = ", ".join(filter(None, [report.stamps.finished[:10], report.stamps.software]))
    return f"{_who_did_what(report)}{f' {stamp}.' if stamp else ''}"


def _who_did_what(report: StudyReport) -> str:
    execution = report.execution
    rounds = rounds_used(execution)
    about = "about " if report.counts_are_private else ""
    number = f"an unknown number of {report.counts}" if report.records is None else f"{about}{report.counted(report.records)}"
    exchanged = f"in {count_of(rounds, 'round')} of exchange" if rounds else "without any exchange"
    return (
        f"{count_of(execution.parties, 'party', 'parties')} with {number} computed "
        f"{count_of(len(report.terms), *_nouns(report))} {exchanged} ({execution.protocol.name})."
    )


def _how_sure(report: StudyReport) -> SummaryCard:
    """One estimate: both intervals. Several means: the first ones. Many numbers: in how many the noise is the smaller error."""
    if len(report.terms) == 1:
        both = [(report.population, ""), (report.of_noise, " (these records alone)" if report.these_records else " (noise only)")]
        known = [(ends, of_what) for ends, of_what in both if ends is not None and not np.isnan(ends).any()]
        interval = "".join(f"95 % interval: {interval_text(ends[0].tolist())}{of_what}. " for ends, of_what in known[:1])
        return _sure(report, f"{interval}The standard error is that of the noise.")
    # None where nothing is said about a population.
    sampled: list[float | None] = []
    for answer in report.answers:
        errors = answer.estimates.population
        sampled += [None] * len(answer.estimates.terms) if errors is None else errors.tolist()
    first = [(float(report.standard_error[place]), sampled[place]) for place in report.first_terms if sampled]
    smaller = [is_smaller(noise, error) for noise, error in first if error is not None]
    if not smaller:
        return _sure(report, "The standard errors are those of the noise added for privacy.")
    if report.only_means:
        return _sure(report, f"The standard errors are those of the noise. Noise is {where_smaller(smaller, 'estimates')}.")
    return many_estimates(smaller, "first estimates", "These are the first of each question; all stand in the tables below.")


def _sure(report: StudyReport, note: str) -> SummaryCard:
    return how_sure(report.terms, report.estimate.tolist(), report.standard_error.tolist(), note)


def _parties(report: StudyReport) -> dict[str, Any]:
    """Everybody by name: whose data are in, who stayed, and what it cost each."""
    execution, every = report.execution, report.records_total
    counted, finished, epsilons = execution.contributors(), execution.trace.finished, report.certificate.epsilon
    share = execution.weights / (execution.weights.sum() or 1.0)
    rows = []
    for party, name in enumerate(report.party_names):
        row = [name, "in the result" if counted[party] else "not in it", "yes" if finished[party] else "no"]
        row += [] if every is None else [f"{round(every * float(share[party])):,}"]
        rows.append([*row, f"{100 * float(share[party]):.1f} %", words.rounded_up(float(epsilons[party]))])
    rows, notes = words.alike(rows)
    heads = [
        "party",
        "its data",
        "there until the end",
        *([] if every is None else [report.counts]),
        "weight",
        "ε realised",
    ]
    tall = len(rows) > MOST_ROWS
    return {"heading": _parties_heading(report), "heads": heads, "rows": rows, "tall": tall, "key": 0, "notes": notes}


def _parties_heading(report: StudyReport) -> str:
    counted, parties = int(report.execution.contributors().sum()), report.execution.parties
    counted_parties = f"all {parties}" if counted == parties else f"{counted} of {parties}"
    if report.counts_are_private:
        return f"Whose data are in: {counted_parties} parties; how many {report.counts} each has is private"
    if report.records_total is None:
        return f"Whose data are in: {counted_parties} parties"
    inside = records_in(report.execution, report.records_total)
    return f"Whose data are in: {counted_parties} parties, {inside:,} of {report.counted(report.records_total)}"


def _answer(report: StudyReport) -> dict[str, Any]:
    rows = [_answer_row(report, index) for index in range(len(report.terms))]
    heads = _answer_heads(report)
    # With sections each statistic has a figure of its own.
    drawn = report.only_means or not report.answers
    return {
        "heading": _answer_heading(report, rows),
        "heads": list(heads.values()),
        "rows": [[row[key] for key in heads] for row in rows],
        "what": "column" if report.only_means else "statistic",
        "noun": _nouns(report)[0],
        "truth": report.truth is not None,
        "population": report.population is not None,
        "tested": not report.these_records,
        "intervals": estimates_between_bounds(report) if drawn else [],
        "notes": [words.sentence(note) for note in _flagged(report)],
        "figure_note": f"The picture shows the first {MOST_ROWS} rows." if len(report.terms) > MOST_ROWS else "",
    }


def _flagged(report: StudyReport) -> list[str]:
    """What is flagged in answers that have no section of their own: of all of them once, and else with the name."""
    documents = [answer.to_json() for answer in report.answers]
    of_all = notes_of_all(documents)
    own = [(document["name"], note) for document in documents for note in notes_of(document["flagged"]) if note not in of_all]
    return [*of_all, *(note if len(documents) == 1 else f"{name}: {note}" for name, note in own)]


def _answer_heads(report: StudyReport) -> dict[str, str]:
    """The columns of the table by the keys of :func:`_answer_row`."""
    noun = _nouns(report)[0]
    heads = {
        "name": "column" if report.only_means else "statistic",
        "estimate": f"{_adjective(report)}{noun}",
        "error": "standard error",
        "of_noise": "95 % for the noise",
    }
    if report.population is not None:
        heads["of_population"] = "95 % for the population"
    if report.truth is not None:
        heads |= {"truth": f"true {noun}", "distance": "off by"}
    return heads | {"bounds": "bounds"}


def _answer_row(report: StudyReport, index: int) -> dict[str, str]:
    estimate, error = float(report.estimate[index]), float(report.standard_error[index])
    decimals = readable.decimals_for(error)
    low, high = report.bounds[index]
    row = {
        "name": report.terms[index],
        "estimate": readable.fixed(estimate, decimals),
        "error": readable.fixed(error, decimals if error > 0 else 0),
        "of_noise": interval_text(report.of_noise[index].tolist()),
        "bounds": f"{readable.plain(low)} to {readable.plain(high)}",
    }
    if report.population is not None:
        row["of_population"] = interval_text(report.population[index].tolist())
    if report.truth is not None:
        truth = float(report.truth[index])
        difference = estimate - truth
        row["truth"] = readable.fixed(truth, decimals)
        # Computed from the rounded numbers, so that the row adds up.
        row["distance"] = _distance(difference, error)
    return row


def _distance(difference: float, error: float) -> str:
    if not math.isfinite(difference) or math.isnan(error):
        return readable.UNKNOWN
    return f"{readable.fixed(difference / error, 1, sign=True)} standard errors" if error > 0 else "no noise"


def _adjective(report: StudyReport) -> str:
    return "private " if report.execution.protocol.traits.private else ""


def _nouns(report: StudyReport) -> tuple[str, str]:
    return ("mean", "means") if report.only_means else ("estimate", "estimates")


def _answer_heading(report: StudyReport, rows: list[dict[str, str]]) -> str:
    if len(rows) == 1:
        estimated = f"mean of {rows[0]['name']}" if report.only_means else f"{rows[0]['name']}"
        return f"The {_adjective(report)}{estimated} is {rows[0]['estimate']} (standard error {rows[0]['error']})"
    first, nouns = report.first_terms, _nouns(report)[1]
    nouns = nouns if len(first) == len(rows) else f"first {nouns}"
    estimate, error = report.estimate[first], report.standard_error[first]
    has_error = np.isfinite(estimate) & np.isfinite(error)
    exact = has_error & ~(error > 0)
    parts = [
        f"hides {len(first) - int(has_error.sum())}" if not has_error.all() else "",
        f"leaves {exact.sum()} exact" if exact.any() else "",
    ]
    about_noise = f"; the noise {' and '.join(part for part in parts if part)}" if any(parts) else ""
    truth = np.full(len(first), math.nan) if report.truth is None else report.truth[first]
    blurred = has_error & ~exact & np.isfinite(truth)
    if not blurred.any() and len(first) == 1:
        return f"The {_adjective(report)}estimates of one statistic, and how far privacy blurs them{about_noise}"
    if not blurred.any():
        estimated = "columns" if report.only_means else "statistics"
        return f"The {_adjective(report)}{nouns} of {len(first)} {estimated}, and how far privacy blurs them{about_noise}"
    worst = float(np.max(np.abs(estimate - truth)[blurred] / error[blurred]))
    reach = f"{math.ceil(worst * 10 - 1e-9) / 10:,.6g}" if math.isfinite(worst) else "∞"
    which = "Each" if blurred.all() else f"{blurred.sum()}"
    lie = "lies" if which in ("Each", "1") else "lie"
    errors = "standard error" if reach == "1" else "standard errors"
    if len(first) == 1:
        return f"The {_adjective(report)}{nouns.removesuffix('s')} lies within {reach} {errors} of the truth{about_noise}"
    return f"{which} of {len(first)} {_adjective(report)}{nouns} {lie} within {reach} {errors} of the truth{about_noise}"


def _for_the_owner(report: StudyReport) -> OfficerPage:
    """Return what the privacy page says of the same study."""
    stated = ReportFacts(
        unit=report.unit,
        rows=report.rows,
        sites_per_person=report.sites_per_person,
        names=report.party_names,
        target=None if report.nats else report.target_epsilon,
        nats=report.nats["target"] if report.nats else None,
        party_epsilon=report.party_epsilon,
        account=report.account,
        lacking=any(may_leave_out(answer.to_json()) for answer in report.answers),
        stamps=report.stamps,
    )
    return OfficerPage(report.execution, report.privacy, report.certificate, stated)


def _privacy(report: StudyReport, owner: OfficerPage) -> dict[str, Any]:
    epsilons, cost = report.certificate.epsilon, owner.cost()
    promised, worst = report.certificate.epsilon_a_priori, float(epsilons.max())
    return {
        **cost,
        "sentences": [
            f"Protected unit: {words.UNITS.get(report.unit, report.unit)}.",
            in_words_of(report.unit, _NEIGHBOURS[report.execution.neighbouring]),
            # The odds are for the epsilon that the page shows first.
            *filter(None, [words.odds(worst if promised is None else promised, report.delta, "that unit")]),
            *cost["sentences"],
        ],
        "bars": bars(report.party_names, epsilons, math.inf if report.nats else report.target_epsilon),
        "figure_heading": words.spread(epsilons),
    }


def _exchange(report: StudyReport) -> dict[str, Any]:
    execution, coalition = report.execution, report.certificate.worst
    if not (execution.schedule.out_degree > 0).any():
        public = execution.protocol.traits.releases_are_public
        return {
            "heading": "Nobody sends anything before the end" if public else "No party sends another one anything",
            "figure": "",
            "heads": [],
            "rows": [],
            "notes": [
                "Each party makes its noisy value public; the protocol has no rounds to draw."
                if public
                else (
                    "Each contribution is encrypted to those who open the sum of all. Rounds are not drawn, "
                    "since everybody sends once."
                )
            ],
        }
    heading = statement(execution, coalition)
    heads, rows = message_table(execution, coalition, report.party_names)
    rows, alike = words.alike(rows)
    if execution.protocol.traits.sends_to_all:
        # A picture of all arrows would be black, and says nothing else.
        return {
            "heading": heading,
            "figure": "",
            "notes": ["Every party sends to every other one."],
            "heads": heads,
            "rows": rows,
        }
    drawn = inline_svg(exchange_figure(execution, coalition, report.party_names, title=False), "exchange", heading)
    return {"heading": heading, "figure": drawn, "notes": [*_exchange_notes(report), *alike], "heads": heads, "rows": rows}


def _exchange_notes(report: StudyReport) -> list[str]:
    parties, coalition = report.execution.parties, report.certificate.worst
    notes = ["Time runs from left to right: an arrow leaves its sender after one round and arrives in the next."]
    if coalition:
        members = words.listed([report.party_names[party] for party in sorted(coalition)])
        how = "all possible coalitions" if report.certificate.exhaustive else "the coalitions tried"
        notes.append(f"In colour: {members}, of {how} the one that learns most.")
    if report.execution.eavesdropper.observed:
        notes.append(f"Intercepted messages are not marked: {len(report.execution.eavesdropper.observed)} were read.")
    if parties > MOST_PARTIES:
        notes.append(
            f"{MOST_PARTIES} of {parties} parties are drawn, with the messages between them. The numbers count all messages."
        )
    return notes


def _facts(report: StudyReport) -> list[tuple[str, str]]:
    execution = report.execution
    leavers = [report.party_names[party] for party in np.nonzero(~execution.trace.finished)[0]]
    facts = [
        ("Protocol", f"{execution.protocol.name}: {execution.protocol.traits.summary}"),
        ("Trust", words.named(execution.protocol.traits.trust, report.party_names)),
        ("Rounds", f"{rounds_used(execution)}"),
        *_sent(report),
        ("Time", words.duration(report.seconds)),
        ("Parties counted", f"{report.parties_counted} of {execution.parties}"),
        ("Dropped out for good", words.listed(leavers) or "nobody"),
    ]
    facts += report.stamps.rows
    if report.killed:
        facts.append(("Stopped by force", words.listed(report.killed)))
    return facts


def _sent(report: StudyReport) -> list[tuple[str, str]]:
    """What those who counted it sent, and apart from that what arrived of all parties' exchange: who left counted nothing."""
    whose = f" by {report.sent_by}" if report.sent_by else ""
    rows = [("Messages sent", f"{report.messages:,}{whose}"), ("Data sent", f"{words.data_size(report.bytes)}{whose}")]
    if rounds_used(report.execution):
        arrived = MessageTraffic.of(report.execution, ()).arrived
        rows.append(("Exchange", f"{count_of(arrived, 'message')} of all parties arrived"))
    return rows
