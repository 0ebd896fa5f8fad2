"""``quietmean`` in a process that says at its end, as JSON, which modules were imported after the charge, pages left out."""

from __future__ import annotations

import atexit
import json
import sys
from typing import Any

from quietmean.cli.answers import Pages
from quietmean.cli.main import main
from quietmean.ledger.ledger import Ledger

MARK = "imported after the charge: "
_charged: list[set[str]] = []
_of_pages: set[str] = set()
_reserve, _write = Ledger.reserve, Pages.write


def _reserved(self: Ledger, *arguments: Any, **more: Any) -> Any:
    done = _reserve(self, *arguments, **more)
    _charged.append(set(sys.modules))
    return done


def _written(self: Pages, *arguments: Any, **more: Any) -> Any:
    before = set(sys.modules)
    done = _write(self, *arguments, **more)
    _of_pages.update(set(sys.modules) - before)
    return done


def _say() -> None:
    late = sorted(set(sys.modules) - _charged[0] - _of_pages) if _charged else ["nothing was charged"]
    print(MARK + json.dumps(late), file=sys.stderr)


if __name__ == "__main__":
    Ledger.reserve, Pages.write = _reserved, _written  # type: ignore[method-assign]
    atexit.register(_say)
    main(sys.argv[1:])
