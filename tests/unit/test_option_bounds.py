"""No number below 0 is taken for an option that counts or measures something: refused when it is read, or by the plan."""

from __future__ import annotations

from typing import Any

import pytest

from quietmean.core.errors import InputError
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure, registry

# Names of public randomness, and a place on the line of numbers.
SIGNED = {"graph_seed", "dither_seed", "rotation", "centre"}
# Without which an option has no meaning.
BESIDE: dict[str, dict[str, Any]] = {
    "value_sd": {"bits": 3},
    "delta_0": {"bits": 3},
    "delta_min": {"bits": 3},
    "connectivity": {"graph": "harary"},
}
OPTIONS = [(name, key) for name, kind in registry().items() for key in kind.options() if key not in SIGNED]


@pytest.mark.parametrize(("name", "key"), OPTIONS, ids=str)
def test_nothing_is_below_zero(name: str, key: str) -> None:
    with pytest.raises(InputError):
        calibrate(Target(6, 1.0, 1e-6, 1, 1.0, 1), configure(name, {key: -1, **BESIDE.get(key, {})}))
