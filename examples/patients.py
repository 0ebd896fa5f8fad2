"""Write a table of real patients, held by 20 clinics: scikit-learn's diabetes data (442 rows, natural units).

Source of the data: Efron, Hastie, Johnstone and Tibshirani (2004), Least Angle Regression.
The clinics are made up: sizes from 8 to 36 patients, the same on every run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.datasets import load_diabetes

CLINICS = 20
# age: years; bmi: kg/m2; bp: mean arterial pressure, mmHg; s6: blood glucose, mg/dl.
COLUMNS = {"age": "age", "bmi": "bmi", "bp": "blood_pressure", "s6": "glucose"}


def main(target: Path) -> None:
    data = load_diabetes(scaled=False)
    table = pl.DataFrame({new: data.data[:, data.feature_names.index(old)] for old, new in COLUMNS.items()})
    edges = np.linspace(8, 36, CLINICS).cumsum()
    clinic = np.searchsorted(edges / edges[-1], (np.arange(len(table)) + 0.5) / len(table))
    names = pl.Series("clinic", [f"clinic {number + 1:02d}" for number in clinic])
    target.parent.mkdir(parents=True, exist_ok=True)
    table.insert_column(0, names).write_csv(target)
    print(f"{target}: {len(table)} patients of {clinic.max() + 1} clinics", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
