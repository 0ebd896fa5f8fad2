"""The mean of private values, with nobody in the middle to trust.

import quietmean as qm
plan = qm.plan(parties=200, epsilon=1.0, delta=1e-6, colluding=0.1, dropouts=0.05)
result = qm.simulate(plan, values)
certificate = qm.certify(execution, corrupt={0, 4})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quietmean.api import certify, load_execution, node, plan, simulate

__all__ = ["certify", "load_execution", "node", "plan", "simulate"]


def __getattr__(name: str) -> Any:
    # Lazily, so that a node or a command starts without what it does not use.
    if name in __all__:
        from quietmean import api

        return getattr(api, name)
    raise AttributeError(f"module 'quietmean' has no attribute {name!r}")
