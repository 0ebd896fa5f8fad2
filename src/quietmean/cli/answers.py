"""What a study found, on standard output: every term with its error and interval, tests, and what is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import out, whole_words, without_noise
from quietmean.core.domain import counted_text
from quietmean.core.readable import HIDDEN, UNKNOWN, for_terminal, number_text
from quietmean.core.readable_days import day_text

if TYPE_CHECKING:
    from rich.table import Table

    from quietmean.statistics import Answer
    from quietmean.statistics.tidy import Term


def print_answers(answers: Sequence[Answer], document: Mapping[str, Any]) -> None:
    """A table of all terms, and what is to be said about them; ``document``: the JSON of the result of these ``answers``."""
    from quietmean.statistics import column_means

    means = list(column_means(answers))
    if len(means) == len(answers):
        what = "private mean" if without_noise(document) is None else "mean, not private"
        out.print(_of_means(means, document["statistics"], what))
    else:
        for line in _of_terms(document["statistics"]):
            out.print(line)
    certificate = document["certificate"]
    _print_notes(document["statistics"], counted_text(certificate["unit"], certificate.get("rows")))


def _of_means(names: Sequence[str], documents: Sequence[Mapping[str, Any]], heading: str) -> Table:
    """Means alone, by their columns, under a ``heading``."""
    from rich.table import Table

    from quietmean.statistics.tidy import terms_of

    has_truth = any("true_value" in statistic for statistic in documents)
    table = Table("column", box=None, pad_edge=False)
    heads = [heading, "standard error", "95 % for the population", *(["true mean (local mode only)"] if has_truth else [])]
    for head in heads:
        table.add_column(head, justify="right", overflow="fold")
    for name, document in zip(names, documents, strict=True):
        (term,) = terms_of(document)
        table.add_row(name, *_cells(term, has_truth))
    return whole_words(table)


def _of_terms(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each statistic in a line, and its terms below it; one that is a number has a line with it."""
    from quietmean.statistics.printed import together
    from quietmean.statistics.tidy import terms_of

    has_truth = any("true_value" in statistic for statistic in documents)
    rows = [["", "estimate", "± noise", "95 % interval", *(["without noise"] if has_truth else [])]]
    for document in documents:
        name, (terms, hidden) = str(document["name"]), together(terms_of(document))
        # A text alone is a line without columns.
        alone = [] if terms and not terms[0].term else [[f"{name}  {HIDDEN}" if hidden and not terms else name]]
        rows += [*alone, *([f"  {term.label}" if term.label else name, *_cells(term, has_truth)] for term in terms)]
    columns = [row for row in rows if len(row) > 1]
    widths = [max(len(row[column]) for row in columns) for column in range(len(rows[0]))]
    return [_aligned(row, widths) for row in rows]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    name, *cells = row
    if not cells:
        return name
    numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
    return f"{name.ljust(widths[0])}  {numbers}".rstrip()


def _cells(term: Term, has_truth: bool) -> list[str]:
    """Estimate, standard error of the noise, the interval to quote, and perhaps the truth."""
    from quietmean.statistics.printed import shown

    texts = shown(term)
    interval = "" if texts.interval == UNKNOWN else for_terminal(texts.interval)
    return [for_terminal(texts.estimate), for_terminal(texts.noise_error), interval, *([_truth(term)] if has_truth else [])]


def _truth(term: Term) -> str:
    """The value without noise, with the digits of the estimate."""
    from quietmean.statistics.printed import error_of_digits

    text = day_text(term.truth, term.since) if term.since else number_text(term.truth, error_of_digits(term))
    return for_terminal(text)


def _print_notes(documents: Sequence[Mapping[str, Any]], counted: str) -> None:
    """Prints, in sentences, how many records answers with missing values are about, tests, and flags."""
    from quietmean.statistics.printed import notes_of, notes_of_all, some_are_left_out, together, who_is_counted
    from quietmean.statistics.tidy import terms_of
    from quietmean.statistics.tidy_tables import TidyTests

    of_all = notes_of_all(documents)
    for answer in documents:
        if some_are_left_out(answer) and (sentence := who_is_counted(answer, counted)):
            out.print(f"{answer['name']}: {sentence}")
        if hidden := together(terms_of(answer))[1]:
            out.print(f"{answer['name']}: {hidden}")
        for sentence in TidyTests((answer,)).sentences():
            out.print(f"{answer['name']}: {for_terminal(sentence)}")
        for note in notes_of(answer["flagged"]):
            if note not in of_all:
                out.print(f"{answer['name']}: {note}")
    for note in of_all:
        out.print(f"all answers: {note}")
