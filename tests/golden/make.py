"""Writes the golden files anew: ``python -m golden.make [machines] [certificates] [plans]`` from the tests folder;
``python -m golden.make NAME`` writes the messages of one protocol.

One may do that after a change that is *meant* to alter bytes, numbers or formats, which the change's own text then says and the
change log names: parties of the two versions cannot compute together, or receipts of before are judged otherwise. One may also
add a case. Never to make a test green: a difference that nobody meant is a defect, and these files are there to find it. Read
the difference of the files before it is committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from golden.cases import CASES, described
from golden.certificates import certificate_cases, certified, larger_cases
from golden.machines import FOLDER, expectations
from golden.plans import PLANS, planned


def make_machines(protocols: Iterable[str] = ()) -> None:
    """Of these protocols, or of all."""
    for protocol in protocols or sorted({case.protocol for case in CASES}):
        documents = [described(case) for case in CASES if case.protocol == protocol]
        _write(FOLDER / "machines" / f"{protocol}.json", [document | expectations(document) for document in documents])


def make_certificates() -> None:
    for name, cases in (("small", certificate_cases()), ("larger", larger_cases())):
        _write(FOLDER / "certificates" / f"{name}.json", [case | certified(case) for case in cases])


def make_plans() -> None:
    for name, arguments in PLANS.items():
        _write(FOLDER / "plans" / f"{name}.json", {"arguments": arguments.split(), **planned(arguments.split())})


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(_text(document, 0) + "\n")


def _text(value: Any, depth: int) -> str:
    """JSON with one entry a line at the upper levels, so that a difference can be read, and short below."""
    plain = json.dumps(value, allow_nan=False)
    if depth == 4 or len(plain) <= 100 or not isinstance(value, dict | list):
        return plain
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {_text(item, depth + 1)}" for key, item in value.items()]
        return "{" + inner + ("," + inner).join(lines) + outer + "}"
    return "[" + inner + ("," + inner).join(_text(item, depth + 1) for item in value) + outer + "]"


MAKERS = {"machines": make_machines, "certificates": make_certificates, "plans": make_plans}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or MAKERS:
        MAKERS[wanted]() if wanted in MAKERS else make_machines([wanted])
