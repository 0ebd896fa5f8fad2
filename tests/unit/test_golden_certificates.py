"""Files of before are judged as before: what the command certifies of small executions of every protocol.

See ``tests/golden/make.py`` for when the files may be made anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from golden.certificates import certified
from golden.compare import differences
from golden.machines import load

CASES = load("certificates")["small"]


def name(case: dict[str, Any]) -> str:
    of = ": ".join(case["machines"]) if "machines" in case else case["execution"]["protocol"]
    return " ".join([of, *case["arguments"]])


@pytest.mark.sampled(13)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_certificate_is_what_it_was(case: dict[str, Any]) -> None:
    found = certified(case)
    assert found["code"] == case["code"]
    assert differences(case["document"], found["document"]) == []
