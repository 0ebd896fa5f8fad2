"""``quietmean demo``: a first study, on real data, where there is nothing but the package."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quietmean.cli.console import err

if TYPE_CHECKING:
    import polars as pl

_CLINICS = 20
# age: years; bmi: kg/m2; bp: mean arterial pressure, mmHg; s6: blood glucose, mg/dl.
_COLUMNS = {"age": "age", "bmi": "bmi", "bp": "blood_pressure", "s6": "glucose"}
_QUESTION = (
    "--party-column clinic --column age --bounds 0 110 --column bmi --bounds 10 60 --column blood_pressure --bounds 40 180 "
    "--column glucose --bounds 40 200 --epsilon 2 --delta 1e-6 --dropouts 0.1"
)


def command(*, out: Annotated[Path, Parameter(name="--out")] = Path("quietmean-demo")) -> None:
    """Compute four private means of 442 real patients of 20 clinics, each a process of its own; two are killed on the way.

    The patients are those of scikit-learn's diabetes study (Efron, Hastie, Johnstone and Tibshirani 2004), in natural units; the
    clinics are made up. It needs the extra demo. The command that it runs is shown: change it, and run it again.

    Parameters
    ----------
    out
        New folder for the data, the receipt and the pages.
    """
    from quietmean.cli.main import main
    from quietmean.cli.run import new_folder
    from quietmean.core.extras import import_extra

    import_extra("sklearn", "demo", "the demo's data")
    data = out / "patients.csv"
    with new_folder(out):
        patients().write_csv(data)
    run = ["run", "--data", str(data), *shlex.split(_QUESTION), "--out", str(out / "run")]
    err.print("$ " + shlex.join(["quietmean", *run]), markup=False, soft_wrap=True)
    main(run)
    err.print(f"open {out / 'run' / 'report.html'} in a browser", markup=False, soft_wrap=True)


def patients() -> pl.DataFrame:
    """One row a patient, with the clinic that holds it: from 8 to 36 patients each, the same on every run."""
    import numpy as np
    import polars as pl
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    columns = {new: data.data[:, data.feature_names.index(old)] for old, new in _COLUMNS.items()}
    edges = np.linspace(8, 36, _CLINICS).cumsum()
    clinic = np.searchsorted(edges / edges[-1], (np.arange(len(data.data)) + 0.5) / len(data.data))
    return pl.DataFrame({"clinic": [f"clinic {number + 1:02d}" for number in clinic], **columns})
