"""Names and modules that are imported when they are first used: for start time, and where an extra may not be installed.

``from quietmean.core.lazy import special`` stands where ``from scipy import special`` would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import matplotlib as mpl
    import narwhals
    import polars
    import pyarrow
    import pyreadstat
    import python_calamine
    from matplotlib import figure as figures
    from matplotlib import lines, patches, ticker
    from matplotlib import path as outlines
    from pyarrow import feather, ipc, parquet
    from scipy import linalg, optimize, sparse, special
    from scipy.sparse import csgraph
    from scipy.sparse import linalg as sparse_linalg
else:

    class LazyModule:
        """A module that is imported with the first of its names; each name is looked up once."""

        def __init__(self, name: str) -> None:
            self._module = name

        def __getattr__(self, name: str) -> Any:
            attribute = getattr(import_module(self._module), name)
            setattr(self, name, attribute)
            return attribute

    narwhals, polars, pyarrow, pyreadstat, python_calamine = map(
        LazyModule, ["narwhals", "polars", "pyarrow", "pyreadstat", "python_calamine"]
    )
    mpl, figures, lines = map(LazyModule, ["matplotlib", "matplotlib.figure", "matplotlib.lines"])
    patches, outlines, ticker = map(LazyModule, ["matplotlib.patches", "matplotlib.path", "matplotlib.ticker"])
    feather, ipc, parquet = map(LazyModule, ["pyarrow.feather", "pyarrow.ipc", "pyarrow.parquet"])
    linalg, optimize, sparse, special = map(LazyModule, ["scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.special"])
    csgraph, sparse_linalg = map(LazyModule, ["scipy.sparse.csgraph", "scipy.sparse.linalg"])


def importer(package: str, names: Mapping[str, str], modules: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """The function ``__getattr__`` of a ``package``: each of the ``names`` is in a module, and each of ``modules`` is one.

    Both are given from the folder quietmean on, as ``protocols.gopa``.
    """
    of_modules = modules or {}

    def imported(name: str) -> Any:
        if name in names:
            return getattr(import_module(f"quietmean.{names[name]}"), name)
        if name in of_modules:
            return import_module(f"quietmean.{of_modules[name]}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return imported


class Provided:
    """A function of a module, given from the folder quietmean on, that the face of the package provides."""

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None

    def provide(self, module: str, name: str) -> None:
        self._place = module, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._place is None:
            raise RuntimeError("this function is provided by the package quietmean itself: import it as a whole")
        module, name = self._place
        return getattr(import_module(f"quietmean.{module}"), name)(*arguments, **keywords)


calibrate = Provided()
simulate = Provided()
fitted_instead = Provided()
fitted_studies = Provided()
model_parameters = Provided()


__all__ = [
    "csgraph",
    "feather",
    "figures",
    "fitted_instead",
    "fitted_studies",
    "ipc",
    "linalg",
    "lines",
    "model_parameters",
    "mpl",
    "narwhals",
    "optimize",
    "outlines",
    "parquet",
    "patches",
    "polars",
    "pyarrow",
    "pyreadstat",
    "python_calamine",
    "sparse",
    "sparse_linalg",
    "special",
    "ticker",
]
