"""Tables of answers, as frames, CSV files and texts: one of their terms, and one of their tests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from quietmean.core.tables import Kinds, TableFile, table_html, table_text
from quietmean.statistics.flags_and_tests import HypothesisTest
from quietmean.statistics.printed import printed_rows
from quietmean.statistics.tidy import TERM_COLUMNS, TEST_COLUMNS, Term, known_number, terms_of


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
        """Each known one in a line."""
        return [test.sentence(name) for _, name, test in self._tests() if not math.isnan(test.p_value)]


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
