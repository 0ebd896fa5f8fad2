"""Documents that must be equal but for the last digits of their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

RELATIVE = 1e-9
# A loss below this is what rounding leaves of none: the square root of some 1e-16.
NOTHING = 1e-7


def differences(golden: Any, found: Any, place: str = "") -> list[str]:
    """Where two JSON documents differ: keys, texts, whole numbers and truth values at all, others by 1e-9 of their size."""
    return list(_differences(golden, found, place))


def _differences(golden: Any, found: Any, place: str) -> Iterator[str]:
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in sorted(golden.keys() | found.keys()):
            if key not in golden or key not in found:
                yield f"{place}.{key} is {'new' if key in found else 'gone'}"
            else:
                yield from _differences(golden[key], found[key], f"{place}.{key}")
    elif isinstance(golden, list) and isinstance(found, list):
        if len(golden) != len(found):
            yield f"{place} has {len(found)} entries, not {len(golden)}"
        else:
            for index, (one, other) in enumerate(zip(golden, found, strict=True)):
                yield from _differences(one, other, f"{place}[{index}]")
    elif not _same(golden, found):
        yield f"{place} is {found!r}, not {golden!r}"


def _same(golden: Any, found: Any) -> bool:
    if isinstance(golden, float) and isinstance(found, float):
        nothing = max(abs(golden), abs(found)) < NOTHING
        return nothing or math.isclose(golden, found, rel_tol=RELATIVE)
    return type(golden) is type(found) and bool(golden == found)
