"""Write reports of every kind of statistic, of data that people have, to be looked at in a browser.

    python tools/report_pages.py FOLDER [--only NAME]

Each study is a real run of the command line: tables of lifelines, statsmodels and scikit-learn, split over parties, with a
column of dates, one that is mostly missing, a level that nobody has, names with odd signs, and once with so little budget that
noise hides nearly all. Dates, sites and causes are made up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from lifelines.datasets import load_gbsg2
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

SEED, PARTIES = 7, 5
# As many regions as a table of levels has in practice.
REGIONS = 30


@dataclass(frozen=True)
class Pages:
    """A run: its table, its columns and statistics as on the command line, and the budget."""

    table: Callable[[], pd.DataFrame]
    columns: Sequence[str]
    statistics: Sequence[str]
    epsilon: float
    more: tuple[str, ...] = ()


def breast_cancer() -> pd.DataFrame:
    """686 women; every fourth died of something else by chance, two of three have no marker."""
    data, rng = load_gbsg2(), np.random.default_rng(SEED)
    ended = data["cens"].to_numpy() == 1
    cause = np.where(ended, np.where(rng.random(len(data)) < 0.25, "other death", "recurrence"), "none")
    operated = np.datetime64("1984-07-01") + rng.integers(0, 1980, len(data)).astype("timedelta64[D]")
    return pd.DataFrame(
        {
            "days": data["time"],
            "recurrence": np.where(ended, "yes", "no"),
            "cause": cause,
            "hormone": np.where(data["horTh"] == "yes", "hormone therapy", "none"),
            "grade": data["tgrade"],
            "age": data["age"],
            "tumour_size_in_millimetres_at_operation": data["tsize"],
            "marker": np.where(rng.random(len(data)) < 0.35, data["progrec"], np.nan),
            "operated": operated.astype(str),
            "site": [f"clinic {place % PARTIES + 1}" for place in range(len(data))],
        }
    )


def visits() -> pd.DataFrame:
    """20 190 person-years of the RAND experiment, in regions that are made up."""
    data, rng = sm.datasets.randhie.load_pandas().data, np.random.default_rng(SEED)
    health = np.select([data["hlthp"] == 1, data["hlthf"] == 1, data["hlthg"] == 1], ["poor", "fair", "good"], "excellent")
    return pd.DataFrame(
        {
            "visits": data["mdvis"],
            "years": 1.0,
            "coinsurance": data["lncoins"],
            "diseases": data["disea"],
            "limited": np.where(data["physlm"] > 0, "yes", "no"),
            "health": health,
            "region": [f"region {place:02d} of the <North> & South" for place in rng.integers(0, REGIONS, len(data))],
        }
    )


def tumours() -> pd.DataFrame:
    """569 tumours with the risk that a logistic regression on three columns says, cross-fitted by halves."""
    data = load_breast_cancer(as_frame=True)
    chosen = data.data[["mean radius", "mean texture", "mean smoothness"]].set_axis(["radius", "texture", "smoothness"], axis=1)
    malignant, scaled = 1 - data.target.to_numpy(), StandardScaler().fit_transform(chosen)
    risk, half = np.zeros(len(chosen)), np.arange(len(chosen)) % 2
    for part in (0, 1):
        model = LogisticRegression().fit(scaled[half != part], malignant[half != part])
        risk[half == part] = model.predict_proba(scaled[half == part])[:, 1]
    return chosen.assign(malignant=np.where(malignant == 1, "yes", "no"), risk=risk.round(5))


_CANCER = [
    "days --bounds 0 2700 --whole", "recurrence --boolean", "cause --levels none|recurrence|other death",
    "hormone --levels none|hormone therapy", "grade --levels I|II|III|IV", "age --bounds 20 90",
    "tumour_size_in_millimetres_at_operation --bounds 0 120", "marker --bounds 0 2500",
    "operated --dates 1984-01-01 1989-12-31", "site --levels " + "|".join(f"clinic {one + 1}" for one in range(PARTIES)),
]  # fmt: skip
_SURVIVAL = [
    "survival(days, recurrence, by=hormone)", "survival(days, recurrence, by=hormone, bins=8, horizon=2000)",
    "hazard-ratio(days, recurrence, by=hormone)", "restricted-mean(days, recurrence, by=hormone, horizon=1800)",
    "cumulative-incidence(days, cause, by=hormone)", "site-effects(age, by=site)",
    "mean(tumour_size_in_millimetres_at_operation, cluster=site)", "rates(recurrence, days, by=hormone, per=365.25)",
]  # fmt: skip
_PATIENTS = [
    "table-1(age, tumour_size_in_millimetres_at_operation, marker, grade, operated, recurrence, by=hormone)",
    "table-1(age, marker, grade)",
    "crosstab(grade, hormone)", "crosstab(recurrence, hormone)", "group-means(marker, by=grade)", "group-means(age, by=hormone)",
    "mean(operated)", "quantiles(operated)", "histogram(operated, bins=12)", "cdf(operated, bins=12)", "mean(marker)",
    "variance(marker)", "proportion(grade)",
    "group-means(operated, by=hormone)", "linear-regression(age ~ grade + marker)",
]  # fmt: skip
_REGIONS = "|".join(f"region {place:02d} of the <North> & South" for place in range(REGIONS))

PAGES = {
    "survival": Pages(breast_cancer, _CANCER, _SURVIVAL, 20.0),
    "patients": Pages(breast_cancer, _CANCER, _PATIENTS, 20.0),
    "hidden": Pages(breast_cancer, _CANCER, [*_SURVIVAL, *_PATIENTS], 0.5, ("--accept-wide",)),
    "visits": Pages(
        visits,
        [
            "visits --bounds 0 80 --whole", "years --bounds 0 1", "coinsurance --bounds 0 5", "diseases --bounds 0 60",
            "limited --boolean", "health --levels excellent|good|fair|poor", f"region --levels {_REGIONS}",
        ],
        [
            "mean(visits)", "sum(visits)", "count(visits)", "variance(visits)", "proportion(region)", "histogram(visits)",
            "histogram(region)", "cdf(visits)", "quantiles(visits)", "group-means(visits, by=region)",
            "rates(visits, years, by=limited)", "correlation(visits, coinsurance, diseases)", "covariance(visits, diseases)",
            "linear-regression(visits ~ coinsurance + diseases + limited + health)", "crosstab(health, limited)",
            "mann-whitney(visits, by=limited)", "logistic-regression(limited ~ diseases + health)",
        ],
        8.0,
    ),
    "tumours": Pages(
        tumours,
        ["radius --bounds 5 30", "texture --bounds 5 45", "smoothness --bounds 0 0.2", "malignant --boolean",
        "risk --bounds 0 1"],
        [
            "roc(risk, malignant)", "calibration(risk, malignant)", "mann-whitney(radius, by=malignant)",
            "pca(radius, texture, smoothness)",
            "logistic-regression(malignant ~ radius + texture)", "correlation(radius, texture, smoothness)",
            "covariance(radius, texture)",
            "quantiles(smoothness)",
        ],
        16.0,
    ),
    "tumours-hidden": Pages(
        tumours,
        ["radius --bounds 5 30", "texture --bounds 5 45", "smoothness --bounds 0 0.2", "malignant --boolean",
        "risk --bounds 0 1"],
        [
            "roc(risk, malignant)", "calibration(risk, malignant)", "mann-whitney(radius, by=malignant)",
            "pca(radius, texture, smoothness)",
            "logistic-regression(malignant ~ radius + texture)", "correlation(radius, texture, smoothness)",
        ],
        0.7,
        ("--accept-wide",),
    ),
}  # fmt: skip


def command(pages: Pages, data: Path, folder: Path) -> list[str]:
    """The run as on the command line."""
    found = [str(Path(sys.executable).with_name("quietmean")), "run", "--data", str(data), "--parties", str(PARTIES)]
    for column in pages.columns:
        name, *options = column.split(" --")
        found += ["--column", name]
        for option in options:
            key, _, values = option.partition(" ")
            found += [f"--{key}", *(values.split("|") if key == "levels" else values.split())]
    for statistic in pages.statistics:
        found += ["--statistic", statistic]
    return [*found, "--epsilon", str(pages.epsilon), "--round-timeout", "20", *pages.more, "--out", str(folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=PAGES, action="append")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.only or PAGES:
        data = given.folder / f"{name}.csv"
        PAGES[name].table().to_csv(data, index=False)
        printed = given.folder / f"{name}.txt"
        with printed.open("w") as target:
            ended = subprocess.run(
                command(PAGES[name], data, given.folder / name), stdout=target, stderr=subprocess.STDOUT, check=False
            )
        print(f"{name}: exit {ended.returncode}, {printed}, {given.folder / name / 'report.html'}")


if __name__ == "__main__":
    main()
