"""How many there are stands before a word that says one or many: a sentence about "1 rows" is read as an error of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import quietmean
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.statistics import Column, Columns
from quietmean.statistics.coding import Encoded, what_did_not_fit
from quietmean.studies.data.sources import parties_of_table
from support.sources import parsed, walked

SOURCE = Path(quietmean.__file__).parent
# Where sentences are made for who runs a study.
FOLDERS = ("api", "cli", "desk", "ledger", "learning/estimators", "sessions", "studies/data", "studies/party", "node/series")
NOUNS = "cells columns contributions days entries groups levels lines persons records rounds rows samples tables times values"
COUNTED = re.compile(rf" (?:more )?(?:{'|'.join(NOUNS.split())}) ")
# What is never one there, or is no number.
OTHERS = {"len(fitting)", "len(same)", "len(names)", "self._executions", "self._column", "self.rules.smallest_records"}


def counts_before_nouns(path: Path) -> Iterator[str]:
    for node in walked(parsed(path)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if (
                    isinstance(value, ast.FormattedValue)
                    and isinstance(text, ast.Constant)
                    and COUNTED.match(str(text.value) + " ")
                ):
                    yield ast.unparse(value.value)


def test_no_sentence_has_a_bare_number_before_a_plural() -> None:
    files = [path for folder in FOLDERS for path in sorted((SOURCE / folder).rglob("*.py"))]
    left = [
        f"{path.relative_to(SOURCE)}: {count}" for path in files for count in counts_before_nouns(path) if count not in OTHERS
    ]
    assert len(files) > 100
    assert not left, f"count_of says one or many: {left}"


@pytest.mark.parametrize(
    ("count", "one", "many", "said"),
    [
        (1, "row", "", "1 row"),
        (0, "row", "", "0 rows"),
        (2, "cell holds", "cells hold", "2 cells hold"),
        (1, "cell holds", "cells hold", "1 cell holds"),
    ],
)
def test_how_many_there_are(count: int, one: str, many: str, said: str) -> None:
    assert count_of(count, one, many) == said


def test_a_row_alone_is_not_dealt_out_and_its_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text("age,id\n31,a\n")
    columns = Columns([Column(name="age", low=0, high=100)])
    with pytest.raises(InputError, match=r"^1 row of ward\.csv cannot be split over 3 parties\. Give a file with more rows\.$"):
        parties_of_table(tmp_path / "ward.csv", columns, 3, None)


def test_one_value_one_cell_and_one_record_are_said_so() -> None:
    (said,) = what_did_not_fit([Encoded(np.zeros(1), 1.0, 1, 1, 1)])
    assert said.startswith(
        "1 value lies outside its bounds and counts as the nearest bound and 1 cell counts as missing and 1 record more than "
    )
