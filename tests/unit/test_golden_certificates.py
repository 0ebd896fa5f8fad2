"""Files of before are judged as before: what the command certifies of small executions of every protocol.

See ``tests/golden/make.py`` for when the files may be made anew.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from golden.certificates import certified, execution_of
from golden.compare import differences
from golden.machines import FOLDER, load

CASES = load("certificates")["small"]
# By case, for each party the least that any version said since charges are bounds for every coalition (22 November 2026).
CHARGES: dict[str, dict[str, list[Any]]] = json.loads((FOLDER / "charges_of_before.json").read_text())


def name(case: dict[str, Any]) -> str:
    of = ": ".join(case["machines"]) if "machines" in case else case["execution"]["protocol"]
    return " ".join([of, *case["arguments"]])


@pytest.mark.sampled(13)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_certificate_is_what_it_was(case: dict[str, Any]) -> None:
    found = certified(case)
    assert found["code"] == case["code"]
    assert differences(case["document"], found["document"]) == []


def whole_name(case: dict[str, Any]) -> str:
    execution = execution_of(case)
    of = ": ".join(case["machines"]) if "machines" in case else f"{execution['protocol']} of {execution['parties']}"
    whole = json.dumps([execution, case["arguments"]], sort_keys=True)
    return " ".join([of, *case["arguments"], hashlib.sha256(whole.encode()).hexdigest()[:8]])


def test_no_receipt_costs_more_than_it_did() -> None:
    """Golden files may be made anew after a better bound; what a ledger settles by them may then be less, never more."""
    cases = {whole_name(case): case["document"] for file in load("certificates").values() for case in file}
    assert CHARGES.keys() <= cases.keys(), "a receipt of before is judged no more"
    for case, figures in CHARGES.items():
        for figure, before in figures.items():
            for party, (then, now) in enumerate(zip(before, cases[case][figure], strict=True)):
                assert float(now) <= float(then) * (1 + 1e-6) + 1e-9, f"{case}: {figure} of party {party}"
