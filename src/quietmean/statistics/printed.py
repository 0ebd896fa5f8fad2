"""Terms of answers as people read them: the same texts on the terminal, in tables and in notebooks."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from quietmean.core.output import TableFile
from quietmean.core.readable import (
    HIDDEN,
    UNKNOWN,
    error_text,
    fixed,
    for_terminal,
    interval_text,
    number_text,
    p_text,
    some_of,
)
from quietmean.core.readable_days import day_text, days_text
from quietmean.core.tables import Kinds, aligned, table_html, table_text
from quietmean.statistics.compared import compared_in
from quietmean.statistics.estimate import FEW, NOT_TOLD, HypothesisTest, sentences_of_tests
from quietmean.statistics.tidy import TERM_COLUMNS, TEST_COLUMNS, Interval, Term, known_number, terms_of

NOT_REACHED = "not reached"
# The heads of columns: of standard errors, and of values without noise where all parties are on one machine.
NOISE_ERROR, TRUTH = "standard error of noise", "true (private)"
# How an estimate begins that is an upper end only.
_UP_TO = "< "
# Flags of terms that have no estimate but an informative interval.
_BOUNDED = (FEW, "not-reached", "no-variance")
# The least standard error whose first two digits are whole.
_WHOLE_DIGITS = 10.0
# The most terms of one kind of flag that a note names.
_MOST_NAMED = 3
# The most notes of a kind that are printed separately.
_MOST_APART = 2
# Up to this many hidden terms have a line each; more share one line, which names this many.
_MOST_HIDDEN, _MOST_NAMED_HIDDEN = 3, 6
# The part of an error that is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Shown:
    """The texts of a term: none is empty but ``p``, where nothing is tested, and ``n``, where it is not known."""

    estimate: str
    error: str
    population: str
    noise_error: str
    noise: str
    p: str
    n: str

    @property
    def interval(self) -> str:
        """The interval to quote: of what the study is about, else of the noise alone, which says so; none beside an upper end."""
        if self.estimate.startswith(_UP_TO):
            return UNKNOWN
        if self.population != UNKNOWN or self.noise == UNKNOWN:
            return self.population
        return f"{self.noise} (noise only)"


def shown(term: Term) -> Shown:
    """A number to two digits of the population's standard error, or of the noise's where nothing is known of a population.

    An interval that is wider than its error says, as bins make it, has the digits of its width. What can only be whole, such as
    numbers of records or quantiles of whole numbers, has no decimals. Days are days of the calendar, and errors of these lengths.
    What noise hides is "< 7" where an upper end is known, else "hidden".
    """
    coarsest = _WHOLE_DIGITS if _whole(term) else 0.0
    digits = max(error_of_digits(term), coarsest)
    return Shown(
        _estimate(term, digits),
        _length(term, term.error),
        _interval(term, term.population, coarsest if term.hidden else digits),
        _length(term, term.noise_error),
        _interval(term, term.noise, coarsest if term.hidden else max(_usable(term.noise_error), coarsest)),
        "" if math.isnan(term.p_value) else p_text(term.p_value),
        "" if math.isnan(term.n) else about_text(fixed(term.n, 0), term.n_error),
    )


def about_text(number: str, error: float) -> str:
    """A number of records, "about" it where noise has an ``error`` in it."""
    return f"about {number}" if error > 0 else number


def _estimate(term: Term, digits: float) -> str:
    if "not-reached" in term.flags and math.isnan(term.estimate):
        return NOT_REACHED
    if NOT_TOLD in term.flags and math.isnan(term.estimate):
        return UNKNOWN
    if term.hidden:
        return _below(term)
    return day_text(term.estimate, term.since) if term.since else number_text(term.estimate, digits)


def _below(term: Term) -> str:
    """What is known of a term that the noise hides."""
    if term.upper is not None and term.counts:
        return f"{_UP_TO}{fixed(term.upper, 0)}"
    high = term.population[1] if math.isfinite(term.population[1]) else term.noise[1]
    # Rounded to what is not below it: the end is one of an interval.
    return f"{_UP_TO}{number_text(high * 1.005, high)}" if FEW in term.flags and 0 < high < math.inf else HIDDEN


def _interval(term: Term, ends: Interval, digits: float) -> str:
    """The text of an interval, with the digits of its error, or of its width where these are fewer or no error is known."""
    if math.isnan(term.estimate) and (not set(term.flags) & set(_BOUNDED) or all(map(math.isinf, ends))):
        return UNKNOWN
    return days_text(ends, term.since) if term.since else interval_text(ends, max(digits, _quarter(ends)) or None)


def _length(term: Term, error: float) -> str:
    if math.isnan(term.estimate) or not _usable(error):
        return "0" if error == 0 else UNKNOWN
    return f"{error_text(error)} days" if term.since else error_text(error)


def error_of_digits(term: Term) -> float:
    """The standard error that says how many digits there are; 0 where none is known."""
    widths = (_quarter(ends) for ends in (term.population, term.noise))
    return next((width for width in (term.error, term.noise_error, *widths) if _usable(width)), 0.0)


def _quarter(ends: Interval) -> float:
    """About a standard error of what lies between; 0 where an end is not known."""
    return _usable((ends[1] - ends[0]) / 4)


def _whole(term: Term) -> bool:
    """Does it count records, or are estimate and ends, as far as known, whole numbers? Noise makes no such thing by chance."""
    known = [value for value in (term.estimate, *term.population, *term.noise) if math.isfinite(value)]
    return term.of_records or (bool(known) and all(value == round(value) for value in known))


def _usable(error: float) -> float:
    return error if 0 < error < math.inf else 0.0


def together(terms: Sequence[Term]) -> tuple[list[Term], str]:
    """The terms that have a line each, and one line for all that the noise hides, where these are many.

    Many that nothing tells have no line: their note says so.
    """
    hidden = [term for term in terms if shown(term).estimate == HIDDEN]
    untold = [term for term in terms if NOT_TOLD in term.flags and shown(term).estimate == UNKNOWN]
    gone = [*(hidden if len(hidden) > _MOST_HIDDEN else []), *(untold if len(untold) > _MOST_HIDDEN else [])]
    others = [term for term in terms if term not in gone]
    if len(hidden) <= _MOST_HIDDEN:
        return others, ""
    return others, f"hidden by the noise: {some_of([term.label for term in hidden], _MOST_NAMED_HIDDEN)}"


def printed_rows(terms: Sequence[Term]) -> list[dict[str, str]]:
    """One row a term for a terminal or a notebook, with the columns that some term has."""
    cells = [shown(term) for term in terms]
    named = len({term.name for term in terms}) > 1 or any(not term.term for term in terms)
    columns = {
        "statistic": [term.name for term in terms] if named else [],
        "term": [term.term for term in terms] if any(term.term for term in terms) else [],
        "estimate": [cell.estimate for cell in cells],
        "95 %": [cell.interval for cell in cells] if any(cell.interval != UNKNOWN for cell in cells) else [],
        NOISE_ERROR: [cell.noise_error for cell in cells],
        "p": [cell.p for cell in cells],
        "n": [cell.n for cell in cells],
        "flags": [", ".join(term.flags) for term in terms],
    }
    kept = {head: texts for head, texts in columns.items() if any(texts)}
    return [{head: texts[row] for head, texts in kept.items()} for row in range(len(terms))]


def names_in(document: Mapping[str, Any]) -> set[str]:
    """How names of an entry of 'statistics' begin, which are written as they are: of its terms, levels and columns."""
    terms = terms_of(document)
    names = [part for term in terms for name in (term.term, term.own) for part in name.split(":")]
    return {_first_word(name) for name in names if name} | set(re.findall(r"\w+", str(document.get("name", ""))))


def capital(text: str, names: Collection[str] = ()) -> str:
    """A sentence with a capital letter, unless it begins with one of the names, as :func:`names_in` has them."""
    return text if _first_word(text) in names else f"{text[:1].upper()}{text[1:]}"


def _first_word(text: str) -> str:
    return re.split(r"[\s:,]", text, maxsplit=1)[0]


@dataclass(frozen=True)
class Note:
    """What flags say in a sentence, and the terms that it is about; none of them means the whole answer."""

    text: str
    terms: tuple[str, ...]


def who_is_counted(document: Mapping[str, Any], counted: str = "records") -> str:
    """How many records an answer is of, and of how many that might be; "" where nothing tells. ``counted``: of what."""
    complete = document.get("completeness")
    if not complete or complete["present"] is None:
        return ""
    present, missing = complete["present"], complete["missing"]
    error, other_error = complete["standard_error_present"] or 0.0, complete["standard_error_missing"] or 0.0
    number, noise = _rounded(present, error), f" (standard error {error_text(error)})" if error else ""
    if document.get("kind") == "count" and missing is not None and missing <= 2 * other_error:
        return f"the count itself is n, the {counted} that match"
    if "outside" not in complete:
        # Of a public number both errors are the same one.
        every = "" if missing is None else f" of {_rounded(present + missing, abs(other_error - error) > _ROUNDING * error)}"
        return f"{number}{every} {counted} have all values that it needs{noise}"
    if missing is None:
        return f"{number} {counted} that meet its condition have all values that it needs{noise}; how many lack one is unknown"
    return (
        f"{number} of {_rounded(present + missing, True)} {counted} that meet its condition have all values that it needs{noise}"
    )


def some_are_left_out(document: Mapping[str, Any]) -> bool:
    """Does an answer leave records out, as far as the noise shows, or may it?"""
    complete = document.get("completeness")
    if not complete:
        return False
    missing = complete["missing"]
    return "outside" in complete or (missing is not None and missing > 2 * (complete["standard_error_missing"] or 0.0))


def may_leave_out(document: Mapping[str, Any]) -> bool:
    """Does an answer leave records out that lack a value, or can nobody tell, as where their number is private?"""
    complete = document.get("completeness")
    return some_are_left_out(document) or (complete is not None and complete["missing"] is None)


def _rounded(number: float, noisy: object) -> str:
    """A number of records, "about" it where it is an estimate."""
    return f"{'about ' if noisy else ''}{fixed(number, 0)}"


def notes_of(flagged: Iterable[Mapping[str, Any]]) -> list[str]:
    """What flags say, in sentences, one for all flags of a code where these are many: the first, and what others are about."""
    return [note.text for note in marked_notes(flagged)]


def notes_of_all(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The sentences of :func:`notes_of` that each of several answers has: what is to be said of all of them, once."""
    return in_all([notes_of(document["flagged"]) for document in documents])


def in_all(lists: Sequence[Sequence[str]]) -> list[str]:
    """The notes that each of several lists has; none of a single list."""
    first, *others = lists or [[]]
    return [note for note in first if others and all(note in notes for notes in others)]


def marked_notes(flagged: Iterable[Mapping[str, Any]]) -> list[Note]:
    """The notes with the terms that each is about."""
    by_code: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for flag in flagged:
        by_code.setdefault(str(flag["code"]), {}).setdefault(str(flag["message"]), []).append(flag)
    notes = []
    for messages in by_code.values():
        if len(messages) <= _MOST_APART:
            notes += [Note(text, _terms(flags)) for text, flags in messages.items()]
            continue
        every = [flag for flags in messages.values() for flag in flags]
        notes.append(Note(_in_one(list(messages)), _terms(every)))
    return notes


def _in_one(messages: Sequence[str]) -> str:
    """The first of several sentences of one kind, and what the others are about where each begins with that.

    A number of the first is not said of the others.
    """
    first, *others = messages
    subjects = list(dict.fromkeys(text.partition(": ")[0] for text in others if ": " in text))
    statements = {text.partition(": ")[2] for text in messages}
    if len(subjects) < len(others) or len({re.sub(r"\d[\d.,]*", "0", statement) for statement in statements}) > 1:
        return f"{first} (and {len(others)} more of this kind)"
    named = f"{', '.join(subjects[:_MOST_NAMED])}{' ...' if len(subjects) > _MOST_NAMED else ''}"
    so = f"so for {len(others)} more" if len(statements) == 1 else f"{len(others)} more, each with its own number"
    return f"{first} (and {so}: {named})"


def _terms(flags: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The terms of all flags; none if one flag is about the whole answer."""
    if any(not flag["terms"] for flag in flags):
        return ()
    return tuple(dict.fromkeys(term for flag in flags for term in flag["terms"] if term))


@dataclass(frozen=True)
class PrintedTable:
    """A table that a statistic prints itself: the first column names rows, the others have ``heads``; ``terms``: of each row."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    terms: tuple[tuple[str, ...], ...]


# Columns that may follow those of the groups.
_BEHIND = {"p": "p", "smd": "SMD"}


def printed_table(summary: Mapping[str, Any]) -> PrintedTable | None:
    """The table in the summary of an answer, if it has one: lines with their cells."""
    lines = summary.get("table")
    if not isinstance(lines, Sequence) or not lines:
        return None
    groups, heads = summary["groups"], summary["heads"]
    behind = [key for key in _BEHIND if any(key in line for line in lines)]
    return PrintedTable(
        ("", *(str(heads[group]) for group in groups), *(_BEHIND[key] for key in behind)),
        tuple(
            (
                str(line["row"]),
                *(str(line["cells"].get(group, "")) for group in groups),
                *(str(line.get(key, "")) for key in behind),
            )
            for line in lines
        ),
        tuple(tuple(line["terms"]) for line in lines),
    )


@dataclass(frozen=True, eq=False, repr=False)
class TidyTests(TableFile):
    """The tests of answers, one row each: ``name`` of the statistic, ``test`` and what it is ``about`` in it, degrees of freedom
    (of an F the second ones as ``df.residual``), and its ``method``."""

    documents: tuple[Mapping[str, Any], ...]

    def rows(self) -> list[dict[str, Any]]:
        return [_test_row(statistic, name, test) for statistic, name, test in self._tests()]

    def _tests(self) -> Iterator[tuple[str, str, HypothesisTest]]:
        """The tests of all answers, in the order of their names, as receipts have them."""
        for document in self.documents:
            for name, raw in sorted(document.get("tests", {}).items()):
                yield str(document.get("name", "")), name, HypothesisTest.of_json(raw)

    def kinds(self) -> Kinds:
        return TEST_COLUMNS

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """Each known one in a line; the first that has more degrees of freedom than there are records says why."""
        terms = [term for document in self.documents for term in terms_of(document) if term.noise_error > 0]
        known_tests = [(name, test) for _, name, test in self._tests() if not math.isnan(test.p_value)]
        return sentences_of_tests(known_tests, [term.n for term in terms])


def _test_row(statistic: str, name: str, test: HypothesisTest) -> dict[str, Any]:
    degrees = [known_number(raw) for raw in (*test.degrees, math.nan, math.nan)[:2]]
    numbers = (known_number(test.statistic), *degrees, known_number(test.p_value))
    return dict(zip(TEST_COLUMNS, (statistic, name, test.about or None, *numbers, test.method or name), strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class TidyTerms(TableFile):
    """The terms of answers, one row each, with the names of broom."""

    documents: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, Any]]) -> Self:
        return cls(tuple(documents))

    def terms(self) -> list[Term]:
        return [term for document in self.documents for term in terms_of(document)]

    def rows(self) -> list[dict[str, Any]]:
        return [term.row() for term in self.terms()]

    def kinds(self) -> Kinds:
        return TERM_COLUMNS

    def __repr__(self) -> str:
        return table_text(printed_rows(self.terms()))

    def _repr_html_(self) -> str:
        return table_html(printed_rows(self.terms()))


def lines_of_terms(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a terminal: each statistic, and its terms below it; one that is a number has a line with it."""
    has_truth = have_truth(documents)
    heads = ["estimate", "95 % interval", "95 % for the noise", NOISE_ERROR]
    rows = [["", *heads, *([TRUTH] if has_truth else [])]]
    for document in documents:
        name, (terms, hidden) = str(document["name"]), together(terms_of(document))
        # A text alone is a line without columns.
        alone = [] if terms and not terms[0].term else [[f"{name}  {HIDDEN}" if hidden and not terms else name]]
        rows += [*alone, *([f"  {term.label}" if term.label else name, *terminal_cells(term, has_truth)] for term in terms)]
    return [line for lines in aligned(rows) for line in lines]


def terminal_cells(term: Term, has_truth: bool) -> list[str]:
    """Estimate, the interval to quote, that of the noise alone, standard error of the noise, and perhaps the truth."""
    texts = shown(term)
    intervals = ["" if text == UNKNOWN else for_terminal(text) for text in (texts.interval, texts.noise)]
    return [for_terminal(texts.estimate), *intervals, for_terminal(texts.noise_error), *([truth_text(term)] if has_truth else [])]


# Of a number of records without noise, on the grid of its protocol: what shows as whole is whole. Of one that is 0.
_ROUNDING, _ROUNDING_OF_ZERO = 0.05, 1e-9


def have_truth(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Whether answers have the values without noise beside them, as those of a run on one machine have."""
    return any("true_value" in document for document in documents)


def truth_text(term: Term) -> str:
    """The value without noise, to the digits of the estimate, or to three where that is hidden."""
    if "not-reached" in term.flags and math.isnan(term.truth):
        return NOT_REACHED
    if term.since:
        return for_terminal(day_text(term.truth, term.since))
    if math.isnan(term.estimate) and not term.of_records:
        return for_terminal(number_text(term.truth, abs(term.truth) / 10))
    if abs(term.truth) < _ROUNDING_OF_ZERO:
        return "0"
    # A number of records is whole, but for rounding, and so may be what else looks whole.
    whole = _whole(term) and math.isfinite(term.truth) and abs(term.truth - round(term.truth)) < _ROUNDING
    return for_terminal(number_text(term.truth, max(error_of_digits(term), _WHOLE_DIGITS if whole else 0.0)))


def sentences_about(documents: Sequence[Mapping[str, Any]], counted: str) -> Iterator[str]:
    """How many records answers with missing values are about, tests, and flags, for a terminal."""
    of_all = notes_of_all(documents)
    for answer in documents:
        if some_are_left_out(answer) and (sentence := who_is_counted(answer, counted)):
            yield f"{answer['name']}: {sentence}"
        if hidden := together(terms_of(answer))[1]:
            yield f"{answer['name']}: {hidden}"
        for sentence in (*compared_in(answer.get("summary", {})), *TidyTests((answer,)).sentences()):
            yield f"{answer['name']}: {for_terminal(sentence)}"
        for note in notes_of(answer["flagged"]):
            if note not in of_all:
                yield f"{answer['name']}: {note}"
    yield from (f"all answers: {note}" for note in of_all)
