"""The answers of a first screen: a line for each term, with the tests below."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from quietmean.core.readable import SCREEN, UNKNOWN, count_of, either_side, error_text, fixed, for_terminal, indented, wrapped
from quietmean.core.tables import aligned
from quietmean.statistics.columns import MISSING
from quietmean.statistics.compared import compared_in
from quietmean.statistics.findings import bound_text
from quietmean.statistics.kinds.curves import MEDIAN, QUANTILES
from quietmean.statistics.kinds.first_look import CUT, HIGH, LOW, OUTSIDE
from quietmean.statistics.printed import (
    TRUTH,
    PrintedTable,
    TidyTests,
    about_text,
    have_truth,
    printed_table,
    shown,
    together,
    truth_text,
)
from quietmean.statistics.tidy import Term, terms_of

# So many terms of one statistic have a line.
_MOST_LINES = 30
_PROPOSED = "Wider bounds would add noise to a mean, narrower ones would cut more values."
# What the label of a cell says where a value is missing.
_MISSING = re.compile(rf"(^|[ :]){MISSING}(?=$|[ ,])")
# The place of the numbers of records in a line; so many lines repeat one number before it is said once.
_COUNTED, _FEW = 4, 2
# So many terms with an upper end alone have a line each; so many points have all curves, and one at least; the label of a point.
_FEW_ENDS, _POINTS, _LEAST_POINTS, _POINT = 3, 6, 2, re.compile(r"(.* )?-?\d[\d,.]*")


def table_lines(documents: Sequence[Mapping[str, Any]], counted: str) -> Iterator[str]:
    """A line for each term, below its statistic where that has several, and each test below both; ``counted``: of whom."""
    own = [(str(document["name"]), printed_table(document.get("summary", {})), document) for document in documents]
    if listed := [document for _, table, document in own if table is None]:
        yield from _term_lines(listed, counted)
    for name, table, document in own:
        if table is not None:
            yield from _printed_lines(name, table)
            yield from _below(compared_in(document.get("summary", {})))


def _printed_lines(name: str, table: PrintedTable) -> Iterator[str]:
    """The lines of a table that a statistic prints itself, which has its p-values in a column."""
    yield from wrapped(f"  {name}", SCREEN, " " * 6)
    rows = [["", *table.heads[1:]], *([f"    {name}", *cells] for name, *cells in table.rows)]
    for lines in aligned([[for_terminal(cell) for cell in row] for row in rows]):
        yield from lines


def _below(sentences: Iterable[str]) -> Iterator[str]:
    """What is said below a table, such as tests."""
    return (line for sentence in sentences for line in indented("", for_terminal(sentence), 4))


def _term_lines(documents: Sequence[Mapping[str, Any]], counted: str) -> Iterator[str]:
    """The lines of answers that have a line for each term."""
    has_truth = have_truth(documents)
    rows = [["  statistic", "estimate", "95 % interval", "p", counted, *[TRUTH] * has_truth]]
    tests = dict[int, list[str]]()
    for document in documents:
        every = terms_of(document)
        name, (terms, _) = str(document["name"]), together(every)
        if not terms or terms[0].term:
            rows += [[line] for line in wrapped(f"  {name}", SCREEN, " " * 6)]
        lined, few = _with_a_line(terms)
        arms = _records_of_arms(lined)
        for term in lined[:_MOST_LINES]:
            label = f"    {term.label}" if term.label else f"  {name}"
            *cells, number = _cells(term)
            rows.append([label, *cells, "" if arms else number, *([truth_text(term)] if has_truth else [])])
        if few:
            most = max(few, key=lambda term: term.upper or math.inf)
            which = "with a missing value" if all(_MISSING.search(term.label) for term in few) else "more counts"
            rows.append([f"    each of {len(few)} {which}", shown(most).estimate, "", "", _n(most), *[""] * has_truth])
        if more := len(terms) - len(few) - len(lined[:_MOST_LINES]):
            rows.append([f"    and {count_of(more, 'more term')}: --details"])
        if gone := len(every) - len(terms):
            rows.append([f"    {'and ' if terms else ''}{count_of(gone, 'value')} without an estimate"])
        of_arms = [f"{counted}: {', '.join(f'{number} in {arm}' for arm, number in arms.items())}"] if arms else []
        tests[len(rows)] = [*of_arms, *compared_in(document.get("summary", {})), *TidyTests((document,)).sentences()]
    full = [row for row in rows if len(row) > 1]
    # What all lines have is said once.
    same = {row[_COUNTED] for row in full[1:]} if len(full) > _FEW else set()
    if len(same) == 1:
        full = [[*row[:_COUNTED], "", *row[_COUNTED + 1 :]] for row in full]
        rows = [[*row[:_COUNTED], "", *row[_COUNTED + 1 :]] if len(row) > 1 else row for row in rows]
    # Nothing tells of how many records some statistics are.
    kept = [place for place in range(len(rows[0])) if not place or any(row[place] for row in full[1:]) or len(full) == 1]
    for place, lines in enumerate(aligned([[row[place] for place in kept] if len(row) > 1 else row for row in rows]), 1):
        yield from lines
        yield from _below(tests.get(place, ()))
    if len(same) == 1 and (number := same.pop()):
        yield f"  {counted}: {number}"


def _records_of_arms(terms: Sequence[Term]) -> dict[str, str]:
    """Of how many records all terms of each arm are; empty where these are not several arms, each with one number."""
    numbers = defaultdict[str, set[str]](set)
    for term in terms:
        numbers[term.own if term.group in QUANTILES else term.group].add(_n(term))
    if not 1 < len(numbers) < len(terms) or any(len(each) > 1 for each in numbers.values()):
        return {}
    return {arm: each.pop() for arm, each in numbers.items()}


def terms_with_a_line(document: Mapping[str, Any]) -> list[Term]:
    """The terms that have a line on a first screen."""
    return _with_a_line(together(terms_of(document))[0])[0][:_MOST_LINES]


def _with_a_line(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The terms with a line each, of a curve some points only; and those of which only an upper end is known, where many."""
    few = [term for term in terms if term.upper is not None and term.counts]
    few = few if len(few) > _FEW_ENDS else []
    curves = defaultdict[str, list[Term]](list)
    for term in terms:
        if point := _POINT.fullmatch(term.label):
            curves[point[1]].append(term)
    most = max(_POINTS // max(len(curves), 1), _LEAST_POINTS)
    left_out = [term for curve in curves.values() for term in _between(curve, most)]
    if curves:
        left_out += [term for term in terms if term.group in QUANTILES and term.group != MEDIAN]
    return [term for term in terms if term not in few and term not in left_out], few


def _between(curve: Sequence[Term], most: int) -> list[Term]:
    """The points of a curve that have no line, so that ``most`` others are far apart and the last is one."""
    every = math.ceil(len(curve) / most)
    return [term for place, term in enumerate(reversed(curve)) if place % every]


def _looked(document: Mapping[str, Any]) -> tuple[Term, Term, Term]:
    terms = {term.term: term for term in terms_of(document)}
    return terms[LOW], terms[HIGH], terms[OUTSIDE]


def _is_known(document: Mapping[str, Any]) -> bool:
    low, high, _ = _looked(document)
    return not math.isnan(low.estimate + high.estimate)


def below_looks(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """What first looks say of the bounds that they propose, where one does."""
    return [_PROPOSED] * any(map(_is_known, documents))


def lines_of_looks(documents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each first look: what it proposes, and the part of the values outside of that."""
    if not documents:
        return
    has_truth = have_truth(documents)
    rows = [["  statistic", "proposed bounds", "values outside", *[TRUTH] * has_truth]]
    for document in documents:
        low, high, outside = _looked(document)
        known = _is_known(document)
        bounds = f"{bound_text(low)} to {bound_text(high)}" if known else "not known"
        left = f"at most {_percent(outside.noise[1])}{' (cut)' if CUT in high.flags else ''}" if known else ""
        rows.append([f"  {document['name']}", bounds, left, *[_percent(outside.truth) if known else ""] * has_truth])
    for lines in aligned(rows):
        yield from lines


def _percent(part: float) -> str:
    return "" if math.isnan(part) else f"{fixed(100 * part, 1)} %"


def _cells(term: Term) -> list[str]:
    texts = shown(term)
    interval = "" if texts.interval == UNKNOWN else for_terminal(texts.interval)
    return [for_terminal(texts.estimate), interval, texts.p, _n(term)]


def _n(term: Term) -> str:
    """Write of how many records a term is: where noise is in it, with half of the 95 % interval."""
    if math.isnan(term.n):
        return ""
    half = term.noise_quantile * term.n_error
    within = f" ({either_side(_whole(half))})" if 0 < term.n_error < math.inf else ""
    return for_terminal(f"{about_text(fixed(term.n, 0), term.n_error)}{within}")


def _whole(half: float) -> str:
    """Half of the interval of a number of records."""
    return fixed(half, 0) if half >= 1 else error_text(half)
