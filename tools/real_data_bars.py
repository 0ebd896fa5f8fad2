"""Make docs/real-data-bars.md: how often intervals hold on data that people have, with the options that nobody chose.

    python tools/real_data_bars.py [--studies N] [--processes N] [--resume FOLDER]

Each data set is a population: records are drawn from it with replacement, encoded, and released under Gaussian noise with
sqrt(1.2) times one curator's standard deviation. The truth is what another library computes from the data set itself (for the
interval of the population), or from the records that were drawn (for that of the noise).
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pooled_references as pooled
import statsmodels.api as sm
from lifelines.datasets import load_dd, load_kidney_transplant, load_rossi
from numpy.typing import NDArray
from page_figures import ending
from pooled_references import Table, Truth
from resumed import add_options, all_lines, resumed
from sklearn.datasets import load_breast_cancer, load_wine
from table_rows import said_once

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
Reference = Callable[[Table, tuple[str, ...]], Truth]

PAGE = Path(__file__).parent.parent / "docs" / "real-data-bars.md"
EPSILON, DELTA, FACTOR, SEED = 4.0, 1e-6, math.sqrt(1.2), 19_960
RECORDS, STUDIES = 2000, 200
# A part of 95 % is at least this in so many studies, but for one time in a thousand.
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


@dataclass(frozen=True)
class Question:
    """A statistic of a data set, and what another library says of it."""

    text: str
    reference: Reference


@dataclass(frozen=True)
class DataSet:
    """A population: its columns and its records, (rows, columns)."""

    name: str
    columns: Columns
    records: Array
    questions: tuple[Question, ...]

    def table(self, records: Array) -> Table:
        return dict(zip(self.columns.names, records.T, strict=True))


def number(name: str, low: float, high: float, *, whole: bool = False) -> Column:
    return Column(name=name, low=low, high=high, whole=whole, missing="indicator")


def ask(text: str, reference: Callable[..., Truth], *given: object) -> Question:
    return Question(text, lambda table, terms: reference(table, *given))


def ask_curve(text: str, reference: Callable[..., Truth], *given: object) -> Question:
    return Question(text, lambda table, terms: reference(table, *given, terms))


def kidney() -> DataSet:
    data = load_kidney_transplant()
    female = 1.0 - data["black_male"] - data["white_male"]
    columns = Columns(
        [
            number("days", 0, 4000, whole=True),
            Column(name="death", boolean=True),
            number("age", 0, 100),
            Column(name="sex", levels=("male", "female")),
        ]
    )
    sexes = ("male", "female")
    return DataSet(
        "kidney transplants (lifelines, 863)",
        columns,
        np.column_stack([data["time"], data["death"], data["age"], female]).astype(float),
        (
            ask_curve("survival(days, death, by=sex)", pooled.survival, "days", "death", "sex", sexes),
            ask(
                "restricted-mean(days, death, by=sex, horizon=3000)",
                pooled.restricted_mean,
                "days",
                "death",
                "sex",
                sexes,
                3000.0,
            ),
            ask("hazard-ratio(days, death, by=sex)", pooled.hazard_ratio, "days", "death", "sex", "female/male"),
            ask("rates(death, days, by=sex)", pooled.rates, "death", "days", "sex", sexes),
            ask("quantiles(age)", pooled.quantiles, "age"),
            ask("crosstab(sex, death)", pooled.odds, "sex", "death"),
        ),
    )


def rossi() -> DataSet:
    data = load_rossi()
    columns = Columns(
        [
            number("week", 0, 52, whole=True),
            Column(name="arrest", boolean=True),
            Column(name="aid", levels=("no aid", "aid")),
            number("age", 0, 60, whole=True),
            number("prior", 0, 20, whole=True),
        ]
    )
    levels = ("no aid", "aid")
    return DataSet(
        "arrests after release (lifelines, 432)",
        columns,
        data[["week", "arrest", "fin", "age", "prio"]].to_numpy(dtype=float),
        (
            ask_curve("survival(week, arrest, by=aid)", pooled.survival, "week", "arrest", "aid", levels),
            ask("hazard-ratio(week, arrest, by=aid)", pooled.hazard_ratio, "week", "arrest", "aid", "aid/no aid"),
            ask("quantiles(prior)", pooled.quantiles, "prior"),
            ask("mann-whitney(prior, by=aid)", pooled.mann_whitney, "prior", "aid"),
            ask("rates(prior, age, by=aid)", pooled.rates, "prior", "age", "aid", levels),
            ask("linear-regression(prior ~ age)", pooled.regression, "prior", "age"),
            ask("group-means(prior, by=arrest)", pooled.group_means, "prior", "arrest", ("no", "yes")),
        ),
    )


def regimes() -> DataSet:
    data = load_dd()
    democracy = (data["democracy"] == "Democracy").to_numpy(dtype=float)
    kind = np.where(data["observed"] == 0, 0, np.where(data["regime"].str.contains("Dict|Monarchy"), 2, 1))
    continents = ("Africa", "Americas", "Asia", "Europe", "Oceania")
    place = data["un_continent_name"].map({name: at for at, name in enumerate(continents)}).to_numpy(dtype=float)
    columns = Columns(
        [
            number("years", 0, 50, whole=True),
            Column(name="ended", boolean=True),
            Column(name="democratic", boolean=True),
            Column(name="ending", levels=("none", "elected", "unelected")),
            Column(name="continent", levels=continents),
        ]
    )
    both = ("no", "yes")
    return DataSet(
        "political regimes (lifelines, 1808)",
        columns,
        np.column_stack([data["duration"], data["observed"], democracy, kind, place]).astype(float),
        (
            ask_curve("survival(years, ended, by=democratic)", pooled.survival, "years", "ended", "democratic", both),
            ask(
                "restricted-mean(years, ended, by=democratic)", pooled.restricted_mean, "years", "ended", "democratic", both, 50.0
            ),
            ask("hazard-ratio(years, ended, by=democratic)", pooled.hazard_ratio, "years", "ended", "democratic", "yes/no"),
            ask_curve("cumulative-incidence(years, ending)", pooled.incidence, "years", "ending", ("elected", "unelected")),
            ask("quantiles(years)", pooled.quantiles, "years"),
            ask("group-means(years, by=continent)", pooled.group_means, "years", "continent", continents),
            ask("site-effects(years, by=continent)", pooled.group_means, "years", "continent", continents),
            ask("proportion(continent)", pooled.proportions, "continent", continents),
        ),
    )


def elections() -> DataSet:
    data = sm.datasets.anes96.load_pandas().data
    predicted = 0.05 + 0.9 * data["PID"] / 6
    columns = Columns(
        [
            Column(name="people", low=0, high=10000, scale="log", missing="indicator"),
            number("income", 1, 24, whole=True),
            number("age", 18, 100, whole=True),
            number("predicted", 0, 1),
            Column(name="vote", boolean=True),
            number("left_right", 1, 7, whole=True),
        ]
    )
    return DataSet(
        "a US election (statsmodels, 944)",
        columns,
        np.column_stack([data["popul"], data["income"], data["age"], predicted, data["vote"], data["selfLR"]]).astype(float),
        (
            ask("mean(people)", pooled.mean, "people"),
            ask("variance(people)", pooled.variance, "people"),
            ask("quantiles(people)", pooled.quantiles, "people"),
            ask("quantiles(income)", pooled.quantiles, "income"),
            ask("roc(predicted, vote)", pooled.area, "predicted", "vote"),
            ask("calibration(predicted, vote)", pooled.calibration, "predicted", "vote"),
            ask("mann-whitney(people, by=vote)", pooled.mann_whitney, "people", "vote"),
            ask("linear-regression(income ~ age + left_right)", pooled.regression, "income", "age", "left_right"),
            ask("correlation(income, left_right)", pooled.correlation, "income", "left_right"),
            ask("correlation(people, income)", pooled.correlation, "people", "income"),
        ),
    )


def tumours() -> DataSet:
    data = load_breast_cancer(as_frame=True).frame
    columns = Columns(
        [
            number("area", 0, 3000),
            number("texture", 0, 50),
            number("concavity", 0, 0.5),
            number("score", 0, 0.25),
            Column(name="malignant", boolean=True),
        ]
    )
    names = ["mean area", "mean texture", "mean concavity", "mean concave points"]
    return DataSet(
        "breast tumours (scikit-learn, 569)",
        columns,
        np.column_stack([data[names], 1 - data["target"]]).astype(float),
        (
            ask("quantiles(area)", pooled.quantiles, "area"),
            ask("variance(concavity)", pooled.variance, "concavity"),
            ask("covariance(area, texture)", pooled.covariance, "area", "texture"),
            ask("correlation(area, concavity)", pooled.correlation, "area", "concavity"),
            ask("pca(area, texture, concavity)", pooled.first_component, "area", "texture", "concavity"),
            ask("roc(score, malignant)", pooled.area, "score", "malignant"),
            ask("group-means(area, by=malignant)", pooled.group_means, "area", "malignant", ("no", "yes")),
            ask("mann-whitney(concavity, by=malignant)", pooled.mann_whitney, "concavity", "malignant"),
            ask("linear-regression(concavity ~ area)", pooled.regression, "concavity", "area"),
        ),
    )


def wine() -> DataSet:
    data = load_wine(as_frame=True).frame
    columns = Columns(
        [
            number("alcohol", 10, 16),
            number("proline", 0, 2000),
            number("magnesium", 50, 200, whole=True),
            Column(name="cultivar", levels=("one", "two", "three")),
        ]
    )
    return DataSet(
        "wines (scikit-learn, 178)",
        columns,
        data[["alcohol", "proline", "magnesium", "target"]].to_numpy(dtype=float),
        (
            ask("mean(alcohol)", pooled.mean, "alcohol"),
            ask("sum(proline)", pooled.total, "proline"),
            ask("quantiles(magnesium)", pooled.quantiles, "magnesium"),
            ask("group-means(proline, by=cultivar)", pooled.group_means, "proline", "cultivar", ("one", "two", "three")),
            ask("linear-regression(proline ~ alcohol + magnesium)", pooled.regression, "proline", "alcohol", "magnesium"),
            ask("variance(magnesium)", pooled.variance, "magnesium"),
        ),
    )


SETS = (kidney, rossi, regimes, elections, tumours, wine)


@dataclass
class Count:
    """Of one term over all studies."""

    held_population: int = 0
    held_noise: int = 0
    asked_population: int = 0
    known: int = 0


def measured(data: DataSet, question: Question, studies: int, seed: int) -> str:
    """One line of the page."""
    workload = Workload(data.columns, (parse_statistic(read_text(question.text)),), PrivacyUnit.RECORD)
    noise = FACTOR * workload.sensitivity / mu_of_budget(EPSILON, DELTA) / RECORDS
    encoded = workload.of_records(data.records)
    terms = workload.decode(encoded.mean(axis=0), noise, RECORDS)[0].estimates.terms
    truth = question.reference(data.table(data.records), terms)
    counts = {term: Count() for term in truth if term in terms}
    if not counts:
        raise SystemExit(f"{data.name}, {question.text}: none of {list(truth)} is among the terms {terms}")
    flags: list[str] = []
    flagged = 0
    for study in range(studies):
        rng = np.random.default_rng((SEED, seed, study))
        drawn = rng.integers(0, len(data.records), RECORDS)
        mean = encoded[drawn].mean(axis=0) + noise * rng.standard_normal(workload.dimension)
        estimates = workload.decode(mean, noise, RECORDS)[0].estimates
        own = question.reference(data.table(data.records[drawn]), terms)
        raised = {flag.code for flag in estimates.flags}
        flags += raised
        flagged += bool(raised)
        for term, count in counts.items():
            _count(count, estimates, estimates.terms.index(term), truth[term], own.get(term, math.nan))
    return _line(data.name, question.text, counts, studies, flagged, flags)


def _count(count: Count, estimates: Estimates, place: int, truth: float, own: float) -> None:
    if not math.isfinite(estimates.value[place]):
        return
    count.known += 1
    count.held_noise += _holds(estimates.of_noise[place], own)
    population = estimates.of_population
    if population is not None:
        count.asked_population += 1
        count.held_population += _holds(population[place], truth)


def _holds(ends: Array, value: float) -> bool:
    slack = 1e-9 * max(abs(value), 1.0)
    return bool(ends[0] - slack <= value <= ends[1] + slack)


def _line(name: str, text: str, counts: dict[str, Count], studies: int, flagged: int, flags: list[str]) -> str:
    def part(count: Count) -> float:
        parts = [count.held_noise / count.known] if count.known else []
        return min([*parts, *([count.held_population / count.asked_population] if count.asked_population else [])], default=2.0)

    term, worst = min(counts.items(), key=lambda entry: part(entry[1]))
    population = f"{100 * worst.held_population / worst.asked_population:.1f} %" if worst.asked_population else "-"
    noise = f"{100 * worst.held_noise / worst.known:.1f} %" if worst.known else "-"
    unknown = 1 - sum(count.known for count in counts.values()) / (studies * len(counts))
    commonest = max(set(flags), key=flags.count) if flags else ""
    verdict = "kept" if part(worst) >= LEAST else "**low**"
    said = f"{100 * flagged / studies:.0f} %{f' ({commonest})' if commonest else ''}"
    return f"| {name} | `{text}` | {term or 'all'} | {population} | {noise} | {said} | {100 * unknown:.0f} % | {verdict} |"


@cache
def _questions() -> tuple[tuple[DataSet, Question], ...]:
    return tuple((data, question) for data in (make() for make in SETS) for question in data.questions)


def _line_of(place: int, studies: int, folder: Path | None) -> str:
    warnings.simplefilter("ignore")
    data, question = _questions()[place]
    return resumed(folder, f"real-data-{place}-{studies}", lambda: f"{measured(data, question, studies, place + 1)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=STUDIES)
    add_options(parser)
    chosen = parser.parse_args()
    count = len(_questions())
    found = all_lines(_line_of, count, chosen.studies, chosen.processes, chosen.resume)
    if chosen.studies == STUDIES:
        PAGE.write_text(
            HEAD + "".join(f"{row}\n" for row in said_once("".join(found).splitlines())) + ending(PAGE.name), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
