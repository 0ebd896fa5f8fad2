"""Write a table of real people, held by 20 sites: visits to doctors in the RAND Health Insurance Experiment (20 190 rows).

Source of the data: Deb and Trivedi (2002), from statsmodels. The sites are made up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
from statsmodels.datasets import randhie

SITES = 20


def main(target: Path) -> None:
    data = randhie.load_pandas().data
    health = np.select([data["hlthg"] == 1, data["hlthf"] == 1, data["hlthp"] == 1], ["good", "fair", "poor"], "excellent")
    table = pl.DataFrame(
        {
            "site": [f"site {place % SITES + 1:02d}" for place in range(len(data))],
            "visits": data["mdvis"].to_numpy(),
            # The logarithm of the part that people pay themselves, in per cent, plus one.
            "coinsurance": data["lncoins"].round(4).to_numpy(),
            "deductible": np.where(data["idp"] == 1, "yes", "no"),
            "limited": np.where(data["physlm"] > 0.5, "yes", "no"),
            "diseases": data["disea"].round(2).to_numpy(),
            "health": health,
        }
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    table.write_csv(target)
    print(f"{target}: {len(table)} person-years of {SITES} sites", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
