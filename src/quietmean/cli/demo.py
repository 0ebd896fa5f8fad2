"""``quietmean demo``: a first study, on real data, where there is nothing but the package."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import err, output

_QUESTION = (
    "--party-column clinic --column age --bounds 0 110 --column bmi --bounds 10 60 --column blood_pressure --bounds 40 180 "
    "--column glucose --bounds 40 200 --epsilon 2 --delta 1e-6 --dropouts 0.1"
)


def demo_command(*, out: Annotated[Path, Parameter(name="--out")] = Path("quietmean-demo")) -> None:
    """Compute four private means of 442 real patients of 20 clinics, each a process of its own; two are killed on the way.

    The patients are those of a diabetes study (Efron, Hastie, Johnstone and Tibshirani 2004): age in years, bmi in kg/m2, mean
    arterial blood pressure in mmHg, blood glucose in mg/dl. The clinics are made up, of 8 to 36 patients each. The command that
    it runs is shown: change it, and run it again.

    Parameters
    ----------
    out
        New folder for the data, the receipt and the pages.
    """
    from quietmean.cli.main import main
    from quietmean.cli.run import new_folder

    data = out / "patients.csv"
    with new_folder(out):
        output(data, "the data", "--out").write(patients())
    run = ["run", "--data", str(data), *shlex.split(_QUESTION), "--out", str(out / "run")]
    err.print("$ " + shlex.join(["quietmean", *run]), soft_wrap=True)
    main(run)
    if (out / "run" / "report.html").exists():
        err.print(f"open {out / 'run' / 'report.html'} in a browser", soft_wrap=True)


def patients() -> bytes:
    """A CSV file with one row a patient, and the clinic that holds it."""
    return files("quietmean.cli").joinpath("patients.csv").read_bytes()
