"""A budget of exactly a study's epsilon and delta pays for exactly that study, by every protocol; and for two of half of each."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from quietmean.core.errors import InputError
from quietmean.ledger import Ledger
from quietmean.privacy import Charge
from quietmean.protocols import registry
from quietmean.studies import StudyTerms

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
# Nothing promises the target of these for any study, or they take vectors of length 1 only.
OTHERS = ("consensus", "gossip", "secret-sharing", "priv-unit-g")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("delta", [1e-6, 1e-4])
@pytest.mark.parametrize("protocol", [name for name in registry() if name not in OTHERS])
def test_the_budget_of_a_study_pays_for_it(tmp_path: Path, protocol: str, delta: float) -> None:
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        for parts in (1, 2):
            asked = {"epsilon": 1.0 / parts, "delta": delta / parts, "protocol": protocol}
            charge = StudyTerms.parse({"column": [{"name": "age", "low": 0, "high": 110}], **asked}).plan(6).charge
            book.set_budget(f"{parts}", 1.0, delta, when=NOON)
            for study in range(parts):
                book.reserve(f"{parts}", f"{parts} {study}", charge, name="age", when=NOON)
            account = book.account(f"{parts}")
            # The whole is within what was said, by the one formula for all columns together.
            assert account.charged.delta(1.0) <= delta
            assert book.set_budget(f"{parts}", 1.0, delta, when=NOON) == account
        with pytest.raises(InputError, match="account '1' has"):
            book.reserve("1", "more", Charge(1e-3 * account.budget.mu), name="more", when=NOON)
