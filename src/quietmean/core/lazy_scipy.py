"""Parts of scipy that are imported when they are first used: a party that waits, or only checks a contract, needs none of them.

``from quietmean.core.lazy_scipy import special`` stands where ``from scipy import special`` would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy import linalg, optimize, sparse, special
    from scipy.sparse import csgraph
    from scipy.sparse import linalg as sparse_linalg
else:

    class _Part:
        """A module that is imported with the first of its names; each name is looked up once."""

        def __init__(self, name: str) -> None:
            self._module = name

        def __getattr__(self, name: str) -> Any:
            from importlib import import_module

            attribute = getattr(import_module(self._module), name)
            setattr(self, name, attribute)
            return attribute

    csgraph = _Part("scipy.sparse.csgraph")
    linalg = _Part("scipy.linalg")
    optimize = _Part("scipy.optimize")
    sparse = _Part("scipy.sparse")
    sparse_linalg = _Part("scipy.sparse.linalg")
    special = _Part("scipy.special")

__all__ = ["csgraph", "linalg", "optimize", "sparse", "sparse_linalg", "special"]
