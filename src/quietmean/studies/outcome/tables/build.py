"""The tables of a result as texts, from its JSON or that of a receipt: a Table 1 as it is, of all else one line for each term."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from quietmean.core.domain import in_words_of
from quietmean.core.errors import InputError
from quietmean.core.readable import UNKNOWN, epsilon_text, error_text, fixed, interval_text, number_text, plain
from quietmean.statistics.columns import MISSING
from quietmean.statistics.estimate import THESE_RECORDS, number_of
from quietmean.statistics.printed import (
    PrintedTable,
    TidyTests,
    capital,
    marked_notes,
    names_in,
    printed_table,
    shown,
    together,
    who_is_counted,
)
from quietmean.statistics.tidy import Term, terms_of
from quietmean.studies.outcome.about_intervals import ABOUT_THESE
from quietmean.studies.outcome.influence import checked_text

# Marks of footnotes, in their order; beyond z they are doubled.
_MARKS = "abcdefghijklmnopqrstuvwxyz"
# Categories of characters that are invisible: controls; and those that change the direction of a text.
_UNSEEN = ("Cc", "Cs", "Co", "Cn")
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """Write a name on one line, without characters that are invisible or change the direction: it comes from a study file."""
    seen = (
        " " if character.isspace() else "\ufffd" if unicodedata.category(character) in _UNSEEN else character
        for character in text
        if character not in _TURNING
    )
    return " ".join("".join(seen).split(" ")).strip()


def mark(number: int) -> str:
    """The mark of a footnote: a, b ... z, aa, bb ..."""
    return _MARKS[number % len(_MARKS)] * (number // len(_MARKS) + 1)


@dataclass(frozen=True)
class Line:
    """A row: the first cell names it. ``marks``: of the footnotes that are about it."""

    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()

    @property
    def marked(self) -> str:
        """All marks, with commas."""
        return ",".join(self.marks)


@dataclass(frozen=True)
class ResultTable:
    """A table of results as journals print it.

    ``title``, ``heads``, as many as each line has cells, and what stands below: ``footnotes`` with marks, and ``notes``.
    """

    title: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    footnotes: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        title: str,
        heads: Iterable[str],
        lines: Iterable[Line],
        footnotes: Iterable[tuple[str, str]] = (),
        notes: Iterable[str] = (),
    ) -> Self:
        """A table with all texts cleaned by :func:`clean`."""
        return cls(
            clean(title),
            tuple(map(clean, heads)),
            tuple(Line(tuple(map(clean, line.cells)), line.marks) for line in lines),
            tuple((note_mark, clean(text)) for note_mark, text in footnotes),
            tuple(map(clean, notes)),
        )


_INTERCEPT, _AUC = "(Intercept)", "auc"
# The head of the column of estimates, for kinds whose terms are all of one sort.
_ESTIMATES = {
    "linear-regression": "coefficient",
    "logistic-regression": "log odds ratio",
    "hazard-ratio": "hazard ratio",
    "restricted-mean": "restricted mean",
    "correlation": "correlation",
    "mean": "mean",
    "group-means": "mean",
    "site-effects": "mean",
    "quantiles": "value",
    "proportion": "proportion",
    "histogram": "count",
}
_TESTED = "p: of the test that the estimate is 0, or that a ratio is 1 (t or z)."
# Numbers of the summary that are printed below the table.
_FACTS = {
    "r_squared": "R\u00b2",
    "adjusted_r_squared": "adjusted R\u00b2",
    "sigma": "residual standard deviation",
    "i_squared": "I\u00b2",
    "tau_squared": "\u03c4\u00b2",
}


def tables_of(result: Mapping[str, Any]) -> list[ResultTable]:
    """The tables of a result, one for each statistic, and for its ratios, with what the study cost below.

    Raises :class:`InputError` for anything but a result.
    """
    try:
        cost, certificate = _privacy(result), result.get("certificate", {})
        counted = in_words_of(certificate.get("unit", ""), "records", certificate.get("rows"))
        return [table for document in result["statistics"] for table in _tables(document, cost, counted)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        # Receipts are files that anybody may have changed.
        raise InputError(
            "the result in this file is not as receipts have it. Ask for the receipt that the study wrote."
        ) from None


def _tables(document: Mapping[str, Any], cost: str, counted: str) -> list[ResultTable]:
    """The table of a statistic; of a cross table also one of its ratios."""
    summary = document.get("summary", {})
    printed, crossed = printed_table(summary), {"rows", "columns"} <= set(summary)
    notes = [*TidyTests((document,)).sentences()] if printed is None else []
    notes += [_TESTED] if printed is None and any(not math.isnan(term.p_value) for term in terms_of(document)) else []
    notes += [*_facts(summary, counted), *_about(document, counted), cost]
    if printed is not None:
        return [_as_printed(document, printed, notes)]
    if not crossed:
        return [_by_term(document, terms_of(document), notes)]
    table, ratios = _crossed(document, summary["rows"], summary["columns"], notes)
    return [table, *([_by_term(document, ratios, [*_about(document, counted), cost])] if ratios else [])]


def _crossed(
    document: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str], notes: Sequence[str]
) -> tuple[ResultTable, list[Term]]:
    """Counts with the percentages of their rows, present values only; and the terms that are no counts."""
    by_term = {term.term: term for term in terms_of(document)}
    counts = [f"{row}:{column}" for row in rows for column in columns]
    footnotes = _Footnotes(document, counts)
    lines = []
    for row in rows:
        cells = {column: by_term[f"{row}:{column}"] for column in columns}
        present = [max(term.estimate, 0.0) for column, term in cells.items() if MISSING not in (row, column)]
        texts = [_of_row(term, sum(present) if MISSING not in (row, column) else 0.0) for column, term in cells.items()]
        lines.append(Line((row, *texts), footnotes.about([term.term for term in cells.values()])))
    noise = max((term.noise_error for term in by_term.values() if term.of_records), default=0.0)
    counts_are = f"; a count is about so many (standard error of noise {error_text(noise)})" if 0 < noise < math.inf else ""
    below = f"n (percentage of the row's present values){counts_are}."
    return ResultTable.of(document["name"], ("", *columns), lines, footnotes.all, [below, *notes]), [
        term for name, term in by_term.items() if name not in counts
    ]


def _of_row(term: Term, row_total: float) -> str:
    """A count, and which part of a row it is; what the noise hides has no percentage."""
    text = shown(term).estimate
    if term.hidden or not row_total > 0:
        return text
    return f"{text} ({fixed(100 * max(term.estimate, 0.0) / row_total, 1)})"


def _as_printed(document: Mapping[str, Any], printed: PrintedTable, notes: Sequence[str]) -> ResultTable:
    footnotes = _Footnotes(document, [term.term for term in terms_of(document)])
    lines = [Line(cells, footnotes.about(terms)) for cells, terms in zip(printed.rows, printed.terms, strict=True)]
    below = document["summary"].get("footnote", "")
    methods = dict.fromkeys(row["method"] for row in TidyTests((document,)).rows() if row["p.value"] is not None)
    tests = [f"p: {', '.join(methods)}."] if methods else []
    return ResultTable.of(document["name"], printed.heads, lines, footnotes.all, [*([below] if below else []), *tests, *notes])


def _by_term(document: Mapping[str, Any], terms: Sequence[Term], notes: Sequence[str]) -> ResultTable:
    footnotes = _Footnotes(document, [term.term for term in terms])
    kept, hidden = together(terms)
    columns = _columns(document, terms)
    lines = [
        Line((term.label or document["name"], *(texts[index] for texts in columns.values())), footnotes.about((term.term,)))
        for index, term in enumerate(terms)
        if term in kept
    ]
    if hidden:
        marks = footnotes.about([term.term for term in terms if term not in kept])
        lines.append(Line((hidden, *(UNKNOWN for _ in columns)), marks))
    return ResultTable.of(document["name"], ("", *columns), lines, footnotes.all, notes)


def _columns(document: Mapping[str, Any], terms: Sequence[Term]) -> dict[str, list[str]]:
    """The texts of all terms by the head of their column; those that none has are left out."""
    texts, level = [shown(term) for term in terms], f"{100 * float(document.get('interval_level', 0.95)):g} %"
    sampled = any(not math.isnan(term.population[0]) for term in terms)
    columns = {_ESTIMATES.get(str(document.get("kind")), "estimate"): [text.estimate for text in texts]}
    if sampled:
        columns[f"{level} interval"] = [text.interval for text in texts]
    else:
        columns[f"{level} for the noise alone"] = [text.noise for text in texts]
    if document.get("kind") == "logistic-regression":
        columns |= _odds_ratios(terms, level)
    if any(text.p for text in texts):
        columns["p"] = [text.p or UNKNOWN for text in texts]
    if any(text.n for text in texts):
        columns["n"] = [text.n or UNKNOWN for text in texts]
    return columns


def _odds_ratios(terms: Sequence[Term], level: str) -> dict[str, list[str]]:
    """Odds ratios from the slopes of a logistic regression, with the intervals of these."""
    ratios, intervals = [], []
    for term in terms:
        ends = term.noise if math.isnan(term.population[0]) else term.population
        if term.term in (_INTERCEPT, _AUC) or not math.isfinite(term.estimate):
            ratios.append(UNKNOWN)
            intervals.append(UNKNOWN)
            continue
        low, ratio, high = (_power(exponent) for exponent in (ends[0], term.estimate, ends[1]))
        # As many digits as the lower half of the interval allows: the upper one may be endless.
        error = (ratio - low) / 2
        ratios.append(number_text(ratio, error if math.isfinite(error) else 0.0))
        intervals.append(interval_text((low, high), error))
    return {"odds ratio": ratios, f"{level} of it": intervals}


def _power(log: float) -> float:
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf


class _Footnotes:
    """What is flagged in an answer, with a mark for each that is about some of its terms, in the order of the lines."""

    def __init__(self, document: Mapping[str, Any], terms: Sequence[str]) -> None:
        """``terms``: all that the table shows; what is about none of them is left out."""
        flagged = document.get("flagged", ())
        all_terms = {term.term for term in terms_of(document)}
        self._notes = marked_notes(
            flag for flag in flagged if set(flag["terms"]) & set(terms) or not set(flag["terms"]) & all_terms
        )
        self._marks: dict[int, str] = {}
        self._names = names_in(document)

    def about(self, terms: Sequence[str]) -> tuple[str, ...]:
        """The marks of those about any of the terms."""
        indices = [index for index, note in enumerate(self._notes) if set(note.terms) & set(terms)]
        return tuple(sorted(self._marks.setdefault(index, mark(len(self._marks))) for index in indices))

    @property
    def all(self) -> list[tuple[str, str]]:
        """The footnotes with a mark, and then the others without one."""
        others = [index for index in range(len(self._notes)) if index not in self._marks]
        return [
            (self._marks.get(index, ""), f"{capital(self._notes[index].text, self._names)}.") for index in (*self._marks, *others)
        ]


def _facts(summary: Mapping[str, Any], counted: str) -> list[str]:
    entries = [(key, name, summary.get(key)) for key, name in _FACTS.items()]
    texts = [
        f"{name} {fixed(float(value), 3) if key.endswith('r_squared') else plain(float(value), 3)}"
        for key, name, value in entries
        if isinstance(value, int | float)
    ]
    within = [part for part in (summary, *summary.values()) if isinstance(part, Mapping) and "until" in part and "events" in part]
    # Until 0 nothing is compared, and a footnote says why.
    within = [part for part in within if number_of(part["until"]) > 0]
    return [*([f"{', '.join(texts)}."] if texts else []), *(_extent(each, counted) for each in within)]


def _extent(about: Mapping[str, Any], counted: str) -> str:
    """A note on a comparison of arms: up to when, from which events, and what was left out."""
    events = ", ".join(f"{arm} about {fixed(number_of(count), 0)}" for arm, count in about["events"].items())
    bins, records = int(about.get("bins_left_out", 0)), number_of(about.get("records_left_out", 0.0))
    more = f"; left out: {bins} later {'bin' if bins == 1 else 'bins'} with about {fixed(records, 0)} {counted}" if bins else ""
    return f"Arms are compared until {plain(number_of(about['until']))}; events: {events}{more}."


def _about(document: Mapping[str, Any], counted: str) -> list[str]:
    """Notes: how many records it is about, how intervals were made, and why there is none for a population."""
    who = who_is_counted(document, counted)
    sentences = [f"n: {who}."] if who else []
    if document.get("population") == THESE_RECORDS:
        sentences.append(ABOUT_THESE)
    elif document.get("reason"):
        sentences.append(f"No interval of the population: {document['reason']}.")
    method = str(document.get("method", ""))
    return [*sentences, f"{method[:1].upper()}{method[1:]}."] if method else sentences


def _privacy(result: Mapping[str, Any]) -> str:
    """What the whole study cost: all its tables together."""
    certificate, delta = result.get("certificate", {}), number_of(result["delta"])
    promised, cost = (epsilon_text(number_of(result[name])) for name in ("epsilon_a_priori", "epsilon"))
    unit, adversary = certificate.get("unit", "unit"), certificate.get("adversary", "")
    who = f", against {adversary}" if adversary else ""
    checked = certificate.get("checked_by")
    unchecked = f" {capital(checked_text(checked))}." if checked is not None and not checked["lies_excluded"] else ""
    these = any(entry.get("population") == THESE_RECORDS for entry in result.get("statistics", ()))
    tested = "" if these else " and p-values"
    return (
        f"Differentially private: guaranteed \u03b5 \u2264 {promised}, realised \u03b5 = {cost}, at \u03b4 = {delta:g} "
        f"for one {unit}{who}; all answers of the study together. "
        f"Noise is part of all intervals{tested}.{unchecked}"
    )
