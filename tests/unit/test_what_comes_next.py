"""What comes after a result, by what it was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from quietmean.cli.answers import next_step
from quietmean.statistics.registry import registry


@pytest.mark.parametrize("kind", sorted(registry()))
def test_tables_for_rows_lead_to_these_and_others_to_the_receipt(kind: str) -> None:
    document: dict[str, Any] = {"statistics": [{"kind": kind, "name": f"{kind}(x)", "terms": [], "estimate": {}}]}
    step = next_step(document, "a b/receipt.json")
    wanted = "study synthesize 'a b/receipt.json' --out synthetic.csv"
    assert step == (wanted if kind == "synthetic-table" else "verify receipt 'a b/receipt.json'")
