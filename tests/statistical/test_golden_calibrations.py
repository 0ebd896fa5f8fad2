"""The golden files that take longer: calibrated plans, and certificates of receipts with more parties.

See ``tests/golden/make.py`` for when the files may be made anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from golden.certificates import certified
from golden.compare import differences
from golden.machines import load
from golden.plans import CALIBRATED, changes, planned


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CALIBRATED)
def test_a_calibrated_plan_is_what_it_was(name: str) -> None:
    golden = load("plans")[name]
    assert changes(golden, planned(golden["arguments"])) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", load("certificates")["larger"], ids=lambda case: " ".join([case["execution"]["protocol"], *case["arguments"]])
)
def test_a_receipt_is_judged_as_it_was(case: dict[str, Any]) -> None:
    found = certified(case)
    assert found["code"] == case["code"]
    assert differences(case["document"], found["document"]) == []
