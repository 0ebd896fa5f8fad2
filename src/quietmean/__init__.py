"""The mean of private values, with nobody in the middle to trust.

import quietmean as qm
plan = qm.plan(parties=200, epsilon=1.0, delta=1e-6, colluding=0.1, dropouts=0.05)
result = qm.simulate(plan, values)
certificate = qm.certify(execution, corrupt={0, 4})
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quietmean.api import certify, load_execution, node, plan, simulate

    __version__: str

__all__ = ["certify", "load_execution", "node", "plan", "simulate"]


def __getattr__(name: str) -> Any:
    # Lazily, so that a node or a command starts without what it does not use.
    if name in __all__:
        from quietmean import api

        return getattr(api, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("quietmean")
    raise AttributeError(f"module 'quietmean' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(ModuleType):
    """This package, whose public names no import can change.

    Python binds a subpackage in its parent when it is first imported. The subpackage ``node`` is called like the public
    ``node``, which must stay what it is: the subpackage is found by its full name, as in ``from quietmean.node import Identity``.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
