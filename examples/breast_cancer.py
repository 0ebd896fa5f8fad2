"""Write a table of real patients, held by 20 hospitals: recurrence-free survival of 686 women with breast cancer.

Source of the data: German Breast Cancer Study Group 2 (Schumacher and others, 1994), from lifelines. The hospitals are made up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
from lifelines.datasets import load_gbsg2

HOSPITALS = 20


def main(target: Path) -> None:
    data = load_gbsg2()
    table = pl.DataFrame(
        {
            "hospital": [f"hospital {place % HOSPITALS + 1:02d}" for place in range(len(data))],
            # Days to recurrence or death, or until nothing more is known.
            "days": data["time"].to_numpy(),
            "recurrence": np.where(data["cens"] == 1, "yes", "no"),
            "hormone": np.where(data["horTh"] == "yes", "therapy", "none"),
            "age": data["age"].to_numpy(),
            "tumour": data["tsize"].to_numpy(),
        }
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    table.write_csv(target)
    print(f"{target}: {len(table)} patients of {HOSPITALS} hospitals", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
