"""Golden plans are read and written as they are, under the same digest; and those by formula come out the same.

See ``tests/golden/make.py`` for when the files may be made anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from golden.interfaces import Plan, canonical_json
from golden.machines import load
from golden.plans import DESIGNED, PLANS, changes, planned

GOLDEN = load("plans")


def test_there_is_a_file_for_every_plan() -> None:
    assert {name: document["arguments"] for name, document in GOLDEN.items()} == {
        name: arguments.split() for name, arguments in PLANS.items()
    }


@pytest.mark.parametrize("document", GOLDEN.values(), ids=GOLDEN)
def test_a_plan_file_keeps_its_bytes_and_its_digest(document: dict[str, Any]) -> None:
    plan = Plan.from_json(document["plan"])
    assert canonical_json(plan.to_json()) == canonical_json(document["plan"])
    assert plan.digest == document["answer"]["candidates"][0]["digest"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", DESIGNED)
def test_a_plan_by_formula_is_what_it_was(name: str) -> None:
    golden = GOLDEN[name]
    assert changes(golden, planned(golden["arguments"])) == []
