"""What each statistic says, on the page: a sentence, its figure, the table behind it, its tests, and what is flagged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quietmean.core.readable import HIDDEN, UNKNOWN, fixed, number_text, percent_text
from quietmean.core.readable_days import day_text
from quietmean.core.schema import parameters_of
from quietmean.report.canvas import inline_svg
from quietmean.report.facts import facts_of
from quietmean.report.pictures import KINDS, forest
from quietmean.report.plots import correlations, plot
from quietmean.report.words import listed
from quietmean.statistics import Answer, Estimates
from quietmean.statistics.estimate import sentences_of_tests
from quietmean.statistics.findings import finding
from quietmean.statistics.printed import (
    NOISE_ERROR,
    capital,
    error_of_digits,
    names_in,
    notes_of,
    printed_table,
    shown,
    together,
    who_is_counted,
)
from quietmean.statistics.tidy import Term, about_n, terms_of

# A longer table is folded behind its figure, or scrolled on the screen.
_TALL = 16
# Up to this many rows that the noise hides have a line each; more share one line, which names this many.
_MOST_HIDDEN, _MOST_NAMED = 3, 6
# Differences below this part of an error are rounding.
_DUST = 1e-9
# Bins whose edges are part of the question: what is counted in them is exact.
_EXACT_IN_BINS = ("histogram", "cdf")


def answer_sections(answers: Sequence[Answer], truth: Sequence[Answer] | None) -> list[dict[str, Any]]:
    """One section for each statistic, in their order; ``truth`` without noise, where it is known."""
    exact: Sequence[Answer | None] = truth or [None] * len(answers)
    return [_section(number, answer, truth) for number, (answer, truth) in enumerate(zip(answers, exact, strict=True))]


def _section(number: int, answer: Answer, truth: Answer | None) -> dict[str, Any]:
    document = answer.to_json()
    drawn, picture, correlated = plot(answer), forest(answer) if answer.statistic.name in KINDS else None, correlations(answer)
    table, hidden = _printed(answer.estimates.summary) or _table(answer, document, truth)
    says, names = finding(document, answer.counted), names_in(document)
    # A reason that is shown in place of the answer is not repeated.
    notes = [note for note in notes_of(document["flagged"]) if capital(note, names) != says]
    own = answer.estimates
    if (reason := own.reason) and not own.these_records and reason not in document["messages"]:
        notes.append(f"no interval of the population: {reason}")
    return {
        "name": answer.statistic.text,
        "what": answer.statistic.summary.replace("record", answer.counted.removesuffix("s")),
        "says": f"{says}.",
        "figure": "" if drawn is None else inline_svg(drawn[0], f"answer-{number}", drawn[1]),
        "picture": picture,
        "correlations": correlated,
        **table,
        # The table is folded behind a figure that shows the same.
        "folded": table["tall"] and bool(drawn or picture or correlated),
        "facts": facts_of(answer),
        "tests": _tests(answer),
        "notes": [*hidden, *(_note(capital(note, names)) for note in notes)],
        "method": _method(answer),
    }


def _note(text: str) -> str:
    return f"{text}{'' if text.endswith(('.', ')')) else '.'}"


def _method(answer: Answer) -> str:
    """How many records, how it was found, what the intervals are of, and what it used."""
    estimates = answer.estimates
    how = (
        f"{estimates.method[:1].upper()}{estimates.method[1:]}. It used {percent_text(answer.budget_part)} of the privacy budget."
    )
    parts = [*_complete(answer), str(estimates.summary.get("footnote", "")), how, _about_bins(answer)]
    return " ".join(part for part in parts if part)


def _complete(answer: Answer) -> list[str]:
    """The number of records that an answer is about."""
    sentence = who_is_counted(answer.to_json(), answer.counted)
    return [f"{capital(sentence)}."] if sentence else []


def _about_bins(answer: Answer) -> str:
    """What the interval of the noise is of where values were counted in bins."""
    if answer.estimates.resolution is not None:
        return f"Both intervals include the uncertainty within its bins{_part_of_bins(answer.estimates)}."
    binned = "bins" in parameters_of(type(answer.statistic))
    if not binned or answer.statistic.name in _EXACT_IN_BINS:
        return ""
    return f"The interval of the noise is for what the same binned {answer.counted} give."


def _part_of_bins(estimates: Estimates) -> str:
    """Which part of its interval that is at most, where it is some."""
    ends = estimates.of_noise if estimates.of_population is None else estimates.of_population
    width = ends[:, 1] - ends[:, 0]
    has_width = np.isfinite(width) & (width > 0) & np.isfinite(estimates.value)
    if estimates.resolution is None or not has_width.any():
        return ""
    largest = min(float((estimates.resolution.sum(axis=1)[has_width] / width[has_width]).max()), 1.0)
    return (
        f", up to {100 * largest:.0f} % of an interval: more bins, or edges nearer together, make them shorter"
        if largest >= 0.25
        else ""
    )


def _printed(summary: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """A table that the statistic prints itself, and one line for its rows of which the noise hides all."""
    table = printed_table(summary)
    if table is None:
        return None
    hidden = [row for row in table.rows if HIDDEN in row and set(row[1:]) <= {HIDDEN, UNKNOWN, ""}]
    rows = [list(row) for row in table.rows if row not in hidden or len(hidden) <= _MOST_HIDDEN]
    notes = [f"Hidden by the noise: {listed([row[0] for row in hidden], _MOST_NAMED)}."] if len(rows) < len(table.rows) else []
    return {"heads": list(table.heads), "rows": rows, "tall": False, "key": 0}, notes


def _table(answer: Answer, document: Mapping[str, Any], truth: Answer | None) -> tuple[dict[str, Any], list[str]]:
    """The terms with what is known of them, and one line for those of which nothing is."""
    terms = terms_of(document)
    exact = {} if truth is None else dict(zip((term.term for term in terms), truth.estimates.value.tolist(), strict=True))
    kept, hidden = together(terms)
    columns = _columns(answer, kept, exact)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    notes = [_note(f"{hidden[:1].upper()}{hidden[1:]}")] if hidden else []
    notes += [_note(about_n(answer.counted))] if "n" in columns else []
    return {"heads": list(columns), "rows": rows, "tall": len(rows) > _TALL, "key": 1}, notes


def _columns(answer: Answer, terms: Sequence[Term], exact: Mapping[str, float]) -> dict[str, Sequence[str]]:
    """The columns of the table by their heads; those that say nothing are left out."""
    estimates, texts = answer.estimates, [shown(term) for term in terms]
    columns: dict[str, Sequence[str]] = {
        "term": [term.label or answer.statistic.text for term in terms],
        "estimate": [text.estimate for text in texts],
        NOISE_ERROR: [text.noise_error for text in texts],
        "95 % for the noise": [text.noise for text in texts],
    }
    if estimates.of_population is not None:
        label = "95 % for the population"
        based = "model-based" in estimates.method or any(flag.code == "model-based" for flag in estimates.flags)
        columns[f"{label} (model-based)" if based else label] = [text.population for text in texts]
    if any(text.p for text in texts):
        columns["p"] = [text.p for text in texts]
    if len({text.n for text in texts if text.n}) > 1:
        columns["n"] = [text.n for text in texts]
    if exact:
        columns["without noise"] = [_exact(term, exact[term.term]) for term in terms]
    return columns


def _exact(term: Term, value: float) -> str:
    """The true value, with the digits of the estimate, but at least two of its own: a large error does not round it away."""
    if math.isnan(value) or term.since:
        return day_text(value, term.since) if term.since else UNKNOWN
    if term.of_records:
        return fixed(value, 0)
    digits, own = error_of_digits(term), abs(value) / 10
    # A remainder of rounding is shown as zero.
    return number_text(value, min(digits or own, own)) if own > _DUST * digits else "0"


def _tests(answer: Answer) -> list[str]:
    """Sentences of the tests with a p-value; for two groups the analysis of variance is left out, as it equals the t test."""
    tests = {name: test for name, test in answer.estimates.tests.items() if not math.isnan(test.p_value)}
    shown = [(name, test) for name, test in tests.items() if not (name == "anova" and "t-test" in tests)]
    return sentences_of_tests(shown, [term.n for term in terms_of(answer.to_json()) if term.noise_error > 0])
