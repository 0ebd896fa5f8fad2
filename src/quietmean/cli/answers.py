"""What a study found, on standard output: every term with its error and interval, tests, and what is flagged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import out
from quietmean.core.readable import HIDDEN, day_text, for_terminal, number_text

if TYPE_CHECKING:
    from rich.table import Table

    from quietmean.statistics import Answer
    from quietmean.statistics.tidy import Term


def print_answers(answers: Sequence[Answer], document: Mapping[str, Any]) -> None:
    """A table of all terms, and what is to be said about them; ``document``: the JSON of the result of these ``answers``."""
    out.print(_table(answers, document["statistics"]))
    _print_notes(document["statistics"])


def _table(answers: Sequence[Answer], documents: Sequence[Mapping[str, Any]]) -> Table:
    """Means alone are named by their columns; else a statistic stands once, above its terms."""
    from rich.markup import escape
    from rich.table import Table

    from quietmean.statistics import column_means
    from quietmean.statistics.printed import shown, together
    from quietmean.statistics.tidy import terms_of

    means = list(column_means(answers))
    only_means, known = len(means) == len(answers), any("true_value" in one for one in documents)
    what, answer = ("column", "mean") if only_means else ("statistic", "answer")
    heads = [what, f"private {answer}", "standard error", "95 % for the population"]
    table = Table(box=None, pad_edge=False)
    for head in [*heads, *([f"true {answer} (local mode only)"] if known else [])]:
        table.add_column(head, justify="left" if head == what else "right", overflow="fold")
    for document, mean in itertools.zip_longest(documents, means if only_means else ()):
        terms, hidden = together(terms_of(document))
        name = mean or str(document["name"])
        if hidden or any(term.term for term in terms):
            table.add_row(escape(name), *([] if terms else [HIDDEN]))
        for term in terms:
            texts = shown(term)
            cells = [for_terminal(text) for text in (texts.estimate, texts.noise_error)]
            cells += ["" if math.isnan(term.population[0]) else for_terminal(texts.population)]
            table.add_row(escape(f"  {term.term}" if term.term else name), *cells, *([_truth(term)] if known else []))
    return table


def _truth(term: Term) -> str:
    """Without noise, with the digits of the estimate."""
    from quietmean.statistics.printed import error_of_digits

    text = day_text(term.truth, term.since) if term.since else number_text(term.truth, error_of_digits(term))
    return for_terminal(text)


def _print_notes(documents: Sequence[Mapping[str, Any]]) -> None:
    """Of how many records they are where values are missing, tests, and what is flagged, in sentences."""
    from quietmean.statistics.printed import notes_of, together
    from quietmean.statistics.tidy import TidyTests, terms_of

    for one in documents:
        complete = one.get("completeness")
        if complete and complete["missing"] > 2 * complete["standard_error_missing"]:
            counts = f"{complete['present']:,.0f} records have all values that it needs, {complete['missing']:,.0f} have not"
            out.print(f"{one['name']}: {counts}", markup=False)
        if hidden := together(terms_of(one))[1]:
            out.print(f"{one['name']}: {hidden}", markup=False)
        for sentence in TidyTests((one,)).sentences():
            out.print(f"{one['name']}: {for_terminal(sentence)}", markup=False)
        for note in notes_of(one["flagged"]):
            out.print(f"{one['name']}: {note}", markup=False)
