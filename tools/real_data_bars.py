"""Make measurements/real-data-bars.md: how often intervals hold on data that people have, with the options that nobody chose.

    python tools/real_data_bars.py [--studies N] [--processes N] [--resume FOLDER]

Each data set is a population: records are drawn from it with replacement, encoded, and released under Gaussian noise with
sqrt(1.2) times one curator's standard deviation. The truth is what another library computes from the data set itself (for the
interval of the population), or from the records that were drawn (for that of the noise).
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import statsmodels.api as sm
import synthetic_bars
from exact_intervals import Array
from held_intervals import Held, decoded, noise_of, studies, workload_of
from lifelines.datasets import load_dd, load_kidney_transplant, load_rossi
from page_figures import ending
from page_parts import DOCS, add_options, all_lines, resumed, row, said_once
from pooled_references import Pooled
from sklearn.datasets import load_breast_cancer, load_wine

from quietmean.statistics import Column, Columns

PAGE = DOCS / "measurements/real-data-bars.md"
EPSILON, SEED = 4.0, 19_960
RECORDS, STUDIES = 2000, 200
# A part of 95 % is at least this in that many studies, but for one time in a thousand.
LEAST = 0.95 - 3.1 * math.sqrt(0.05 * 0.95 / STUDIES)

HEAD = f"""# Intervals on data that people have

This page is made by `python tools/real_data_bars.py`. Same command, same page; do not edit it by hand. Each data set stands
for a population from which {RECORDS:,} records are drawn with replacement, {STUDIES} times; $\\varepsilon = {EPSILON:g}$,
$\\delta = 10^{{-6}}$, noise with $\\sqrt{{1.2}}$ times one trusted curator's standard deviation. **All options of the
statistics are the defaults**; columns are declared by round bounds or levels, and whether they are whole numbers.
*Population*: how often the interval holds what another library (lifelines, statsmodels, scipy, scikit-learn) computes from
the whole data set. *Noise*: how often the other interval holds what it computes from the records that were drawn. A line is
of the worst of the statistic's terms; *flagged* and *unknown* are parts of all studies, and the flag is the commonest. Of
{STUDIES} studies a true 95 % gives {100 * LEAST:.0f} % or more, but for one time in a thousand.

Slopes of one covariate and correlations of two columns have robust errors, as what is asked for in words has; slopes of several
covariates are model-based. What is low, and why: a point of a curve that noise hides in most studies is shown in those where
noise favoured it (flag `near-threshold`); and of so many lines one is low by chance: in 1,500 other studies the interval of the
noise of `linear-regression(concavity ~ area)` holds in 94.4 %, and that of the population in 96.7 %.

| data | statistic | term | population | noise | flagged | unknown | |
|---|---|---|---:|---:|---:|---:|---|
"""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A population: its columns and its records, (rows, columns), and the statistics that are asked of it."""

    name: str
    columns: Columns
    records: Array
    questions: tuple[str, ...]


def number(name: str, low: float, high: float, *, whole: bool = False) -> Column:
    return Column(name=name, low=low, high=high, whole=whole, missing="indicator")


def yes(name: str) -> Column:
    return Column(name=name, boolean=True)


def kidney() -> DataSet:
    data = load_kidney_transplant()
    female = 1.0 - data["black_male"] - data["white_male"]
    sex = Column(name="sex", levels=("male", "female"))
    return DataSet(
        "kidney transplants (lifelines, 863)",
        Columns([number("days", 0, 4000, whole=True), yes("death"), number("age", 0, 100), sex]),
        np.column_stack([data["time"], data["death"], data["age"], female]).astype(float),
        (
            "survival(days, death, by=sex)",
            "restricted-mean(days, death, by=sex, horizon=3000)",
            "hazard-ratio(days, death, by=sex)",
            "rates(death, days, by=sex)",
            "quantiles(age)",
            "crosstab(sex, death)",
        ),
    )


def rossi() -> DataSet:
    counts = (number("age", 0, 60, whole=True), number("prior", 0, 20, whole=True))
    aid = Column(name="aid", levels=("no aid", "aid"))
    return DataSet(
        "arrests after release (lifelines, 432)",
        Columns([number("week", 0, 52, whole=True), yes("arrest"), aid, *counts]),
        load_rossi()[["week", "arrest", "fin", "age", "prio"]].to_numpy(dtype=float),
        (
            "survival(week, arrest, by=aid)",
            "hazard-ratio(week, arrest, by=aid)",
            "quantiles(prior)",
            "mann-whitney(prior, by=aid)",
            "rates(prior, age, by=aid)",
            "linear-regression(prior ~ age)",
            "group-means(prior, by=arrest)",
        ),
    )


def regimes() -> DataSet:
    data = load_dd()
    democracy = (data["democracy"] == "Democracy").to_numpy(dtype=float)
    kind = np.where(data["observed"] == 0, 0, np.where(data["regime"].str.contains("Dict|Monarchy"), 2, 1))
    continents = ("Africa", "Americas", "Asia", "Europe", "Oceania")
    place = data["un_continent_name"].map({name: at for at, name in enumerate(continents)}).to_numpy(dtype=float)
    levels = (Column(name="ending", levels=("none", "elected", "unelected")), Column(name="continent", levels=continents))
    return DataSet(
        "political regimes (lifelines, 1808)",
        Columns([number("years", 0, 50, whole=True), yes("ended"), yes("democratic"), *levels]),
        np.column_stack([data["duration"], data["observed"], democracy, kind, place]).astype(float),
        (
            "survival(years, ended, by=democratic)",
            "restricted-mean(years, ended, by=democratic)",
            "hazard-ratio(years, ended, by=democratic)",
            "cumulative-incidence(years, ending)",
            "quantiles(years)",
            "group-means(years, by=continent)",
            "site-effects(years, by=continent)",
            "proportion(continent)",
        ),
    )


def elections() -> DataSet:
    data = sm.datasets.anes96.load_pandas().data
    predicted = 0.05 + 0.9 * data["PID"] / 6
    people = Column(name="people", low=0, high=10000, scale="log", missing="indicator")
    persons = (number("income", 1, 24, whole=True), number("age", 18, 100, whole=True), number("predicted", 0, 1))
    return DataSet(
        "a US election (statsmodels, 944)",
        Columns([people, *persons, yes("vote"), number("left_right", 1, 7, whole=True)]),
        np.column_stack([data["popul"], data["income"], data["age"], predicted, data["vote"], data["selfLR"]]).astype(float),
        (
            "mean(people)",
            "variance(people)",
            "quantiles(people)",
            "quantiles(income)",
            "roc(predicted, vote)",
            "calibration(predicted, vote)",
            "mann-whitney(people, by=vote)",
            "linear-regression(income ~ age + left_right)",
            "correlation(income, left_right)",
            "correlation(people, income)",
        ),
    )


def tumours() -> DataSet:
    data = load_breast_cancer(as_frame=True).frame
    sizes = (number("area", 0, 3000), number("texture", 0, 50), number("concavity", 0, 0.5), number("score", 0, 0.25))
    names = ["mean area", "mean texture", "mean concavity", "mean concave points"]
    return DataSet(
        "breast tumours (scikit-learn, 569)",
        Columns([*sizes, yes("malignant")]),
        np.column_stack([data[names], 1 - data["target"]]).astype(float),
        (
            "quantiles(area)",
            "variance(concavity)",
            "covariance(area, texture)",
            "correlation(area, concavity)",
            "pca(area, texture, concavity)",
            "roc(score, malignant)",
            "group-means(area, by=malignant)",
            "mann-whitney(concavity, by=malignant)",
            "linear-regression(concavity ~ area)",
        ),
    )


def wine() -> DataSet:
    measured = (number("alcohol", 10, 16), number("proline", 0, 2000), number("magnesium", 50, 200, whole=True))
    return DataSet(
        "wines (scikit-learn, 178)",
        Columns([*measured, Column(name="cultivar", levels=("one", "two", "three"))]),
        load_wine(as_frame=True).frame[["alcohol", "proline", "magnesium", "target"]].to_numpy(dtype=float),
        (
            "mean(alcohol)",
            "sum(proline)",
            "quantiles(magnesium)",
            "group-means(proline, by=cultivar)",
            "linear-regression(proline ~ alcohol + magnesium)",
            "variance(magnesium)",
        ),
    )


SETS = (kidney, rossi, regimes, elections, tumours, wine)
# Terms that libraries tell, too, and this page does not ask: what is missing, and what is said in other units.
_NOT_ASKED = ("(Intercept)", "missing", "smd", "cohen-d")


def _is_asked(text: str, term: str) -> bool:
    left, _, right = term.partition(":")
    return term not in _NOT_ASKED and not (right and (text.startswith("crosstab") or left == right))


def measured(data: DataSet, text: str, count: int, seed: int) -> str:
    """One line of the page."""
    workload = workload_of(data.columns, text)
    mean = workload.of_records(data.records).mean(axis=0)
    terms = decoded(workload, mean, noise_of(workload, EPSILON, RECORDS), RECORDS).terms
    truth = Pooled(data.columns, data.records, terms).truth(text)
    held = {term: Held() for term in truth if term in terms and _is_asked(text, term)}
    if not held:
        raise SystemExit(f"{data.name}, {text}: the terms {terms} have none of {list(truth)}")
    flags: Counter[str] = Counter()
    flagged = 0
    draws = (np.random.default_rng((SEED, seed, study)) for study in range(count))
    for records, found in studies(workload, data.records, RECORDS, EPSILON, draws):
        own = Pooled(data.columns, records, terms).truth(text)
        raised = {flag.code for flag in found.flags}
        flags.update(sorted(raised))
        flagged += bool(raised)
        for term, one in held.items():
            one.add(found, term, truth[term], (own.get(term, math.nan), math.nan, math.nan))

    def least(one: Held) -> float:
        return min([hits / of for hits, of in ((one.noise, one.known), (one.population, one.asked)) if of], default=2.0)

    term, worst = min(held.items(), key=lambda entry: least(entry[1]))
    shares = (
        f"{100 * hits / of:.1f} %" if of else "-" for hits, of in ((worst.population, worst.asked), (worst.noise, worst.known))
    )
    unknown = 1 - sum(one.known for one in held.values()) / (count * len(held))
    commonest = "".join(f" ({code})" for code, _ in flags.most_common(1))
    verdict = "kept" if least(worst) >= LEAST else "**low**"
    said = f"{100 * flagged / count:.0f} %{commonest}"
    return row((data.name, f"`{text}`", term or "all", *shares, said, f"{100 * unknown:.0f} %", verdict))


@cache
def _questions() -> tuple[tuple[DataSet, str], ...]:
    return tuple((data, text) for data in (make() for make in SETS) for text in data.questions)


def _line_of(place: int, count: int, folder: Path | None) -> str:
    warnings.simplefilter("ignore")
    data, text = _questions()[place]
    return resumed(folder, f"real-data-{place}-{count}", lambda: f"{measured(data, text, count, place + 1)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=STUDIES)
    add_options(parser)
    chosen = parser.parse_args()
    found = all_lines(_line_of, len(_questions()), chosen.studies, chosen.processes, chosen.resume)
    if chosen.studies == STUDIES:
        lines = "".join(f"{line}\n" for line in said_once("".join(found).splitlines()))
        PAGE.write_text(HEAD + lines + synthetic_bars.part() + ending(f"measurements/{PAGE.name}"), encoding="utf-8")


if __name__ == "__main__":
    main()
