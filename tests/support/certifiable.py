"""Random executions made such that they can be certified."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.execution import Execution


def certifiable(execution: Execution, dimension: int = 2) -> Execution:
    """With a ``dimension`` where it is missing: what rounding costs depends on it, and without it certificates are refused."""
    protocol: Any = execution.protocol
    if isinstance(protocol, DiscreteNoise) or getattr(protocol, "dimension", dimension) is not None:
        return execution
    return replace(execution, protocol=replace(protocol, dimension=dimension))
