"""The smallest study that everybody can read: the mean of one column of ages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.site_policy import toml

_USUAL: dict[str, Any] = {"name": "ages", "epsilon": 2.0, "delta": 1e-6, "round_timeout": 60.0, "start_timeout": 120.0}


def of_ages(*, options: Mapping[str, Any] | None = None, high: int = 100, **fields: Any) -> str:
    """Return its file, with these fields of the study and options of its protocol; None: without the usual one."""
    study = {name: value for name, value in (_USUAL | fields).items() if value is not None}
    tables: dict[str, Any] = {"study": study} | ({} if options is None else {"study.options": options})
    return toml(tables | {"column": [{"name": "age", "low": 0, "high": high}]})


# By `local-dp`, as short as it can be.
STUDY = of_ages(epsilon=0.5, colluding=0, protocol="local-dp", round_timeout=None, start_timeout=None)
