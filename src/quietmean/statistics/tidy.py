"""Answers as rows and tables, one for each term and one for each test, with the names of R's broom.

What frames, CSV files and tables say is what the JSON says: they are made from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quietmean.core.tables import Kinds
from quietmean.statistics.estimate import FEW, THESE_RECORDS, number_of
from quietmean.statistics.tails import Z

Interval = tuple[float, float]

_ROUNDING = 1e-9
_NOTHING: Interval = (math.nan, math.nan)
_TEXTS = ("name", "term", "flag", "since")
# Statistics that count records, the one whose terms with a colon do, and the one whose groups are of an arm and a cause.
_COUNTS, _CELLS, _CAUSES = ("count", "histogram", "synthetic-table"), "crosstab", "cumulative-incidence"

# The columns of rows by their types. std.error and conf are of what the study is about, a population or these records, with the
# noise in them, and those of the noise alone stand beside.
# since: the day that estimate and intervals count days from, where they are dates.
TERM_COLUMNS: Kinds = {
    name: str if name in _TEXTS else float
    for name in (
        *("name", "term", "estimate", "std.error", "conf.low", "conf.high", "statistic", "p.value", "n", "flag"),
        *("noise.std.error", "noise.conf.low", "noise.conf.high", "since"),
    )
}
TEST_COLUMNS: Kinds = {
    "name": str,
    "test": str,
    "about": str,
    "statistic": float,
    "df": float,
    "df.residual": float,
    "p.value": float,
    "method": str,
}


def about_n(counted: str) -> str:
    """Say what n is, the number beside each term; ``counted``: of what."""
    return f"n: how many {counted} have all values that the estimate needs"


@dataclass(frozen=True)
class Term:
    """One term of an answer: NaN for what is not known.

    ``name`` and ``kind``: of the statistic; ``term``: with its ``group``, where it has one. ``error`` and ``population``: of the
    population, with the noise in them; of the noise alone where the study is about ``these_records``. ``flags``: codes of
    those that are about it; ``upper``: what a count is below that noise hides. ``since``: the day that the numbers count days
    from, "" where they are no days. ``truth``: without noise, where a local run knows it. ``label``: what it is called on
    pages and terminals. ``n_error``: standard error of the noise in ``n``. ``noise_quantile``: how many hold 95 %.
    """

    name: str
    kind: str
    group: str
    term: str
    estimate: float
    error: float
    population: Interval
    noise_error: float
    noise: Interval
    statistic: float
    p_value: float
    n: float
    flags: tuple[str, ...] = ()
    upper: float | None = None
    since: str = ""
    truth: float = math.nan
    label: str = ""
    n_error: float = math.nan
    these_records: bool = False
    noise_quantile: float = Z

    @property
    def own(self) -> str:
        """The term within its group."""
        return self.term[len(self.group) + 1 :] if self.group else self.term

    @property
    def curve(self) -> str:
        """The label of its group."""
        return self.label.removesuffix(f" {self.own}") if self.group else ""

    @property
    def hidden(self) -> bool:
        """Does the noise hide it?"""
        return math.isnan(self.estimate) or self.upper is not None

    @property
    def of_records(self) -> bool:
        """Is it a number of records, whatever noise makes of it a whole one?"""
        return self.kind in _COUNTS or (self.kind == _CELLS and ":" in self.term)

    @property
    def counts(self) -> bool:
        """Is it, of what noise hides, a number of records itself? Else it is a part of one, or a rate."""
        ends = (end for end in (self.population[1], self.noise[1]) if math.isfinite(end))
        return any(max(math.ceil(end - _ROUNDING), 1) == self.upper for end in ends)

    def row(self) -> dict[str, Any]:
        """The term as a row, with the column names of broom."""
        numbers = (self.estimate, self.error, *self.population, self.statistic, self.p_value, self.n)
        noise = (self.noise_error, *self.noise)
        values = (self.name, self.term, *map(known_number, numbers), ", ".join(self.flags) or None, *map(known_number, noise))
        return dict(zip(TERM_COLUMNS, (*values, self.since or None), strict=True))


def terms_of(document: Mapping[str, Any]) -> list[Term]:
    """The terms of one entry of 'statistics' in a result or a receipt, in their order."""
    return [_term(document, group, own) for group, own in _names(document)]


def _term(document: Mapping[str, Any], group: str | None, own: str) -> Term:
    label = f"{group} {own}" if group else own
    about = [flag for flag in document.get("flagged", ()) if not flag["terms"] or label in flag["terms"]]
    uppers = [float(flag["upper"]) for flag in about if flag["code"] == FEW and flag["upper"] is not None]

    def stated(field: str) -> Any:
        return _at(document.get(field), group, own)

    these = document.get("population") == THESE_RECORDS
    return Term(
        str(document.get("name", "")),
        str(document.get("kind", "")),
        group or "",
        label,
        number_of(stated("estimate")),
        number_of(stated("standard_error" if these else "standard_error_population")),
        _interval(stated("interval_noise" if these else "interval_population")),
        number_of(stated("standard_error")),
        _interval(stated("interval_noise")),
        number_of(stated("test_statistic")),
        number_of(stated("p_value")),
        number_of(stated("n")),
        tuple(dict.fromkeys(flag["code"] for flag in about)),
        min(uppers, default=None),
        str(stated("since") or ""),
        number_of(stated("true_value")),
        _readable(document, label),
        number_of(stated("n_standard_error")),
        these,
        float(document.get("noise_law", {}).get("quantile", Z)),
    )


def _readable(document: Mapping[str, Any], name: str) -> str:
    """The name of a term without a colon between levels: a cell of two columns "none, yes", an arm's event "none, relapse 5"."""
    kind, summary = document.get("kind"), document.get("summary", {})
    first = summary.get({_CELLS: "rows", _CAUSES: "at_risk"}.get(str(kind), ""), ())
    level = max((level_name for level_name in first if name.startswith(f"{level_name}:")), key=len, default=None)
    return name if level is None else f"{level}, {name[len(level) + 1 :]}"


def _names(document: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Group and name of each term."""
    terms = document["terms"]
    for group, term in zip(document.get("groups", [None] * len(terms)), terms, strict=True):
        yield group, term[len(group) + 1 :] if group else term


def _at(by_term: Any, group: str | None, own: str) -> Any:
    """The value of one term, where values are given by term, and by group perhaps."""
    if isinstance(by_term, Mapping) and group is not None:
        by_term = by_term.get(group)
    return by_term.get(own) if isinstance(by_term, Mapping) else by_term


def _interval(ends: Any) -> Interval:
    return _NOTHING if ends is None else (number_of(ends[0]), number_of(ends[1]))


def known_number(value: float) -> float | None:
    return None if math.isnan(value) else value
